/**
 * The server that the dashboard came from, through our own HTTP client: requests, the event stream, the key of this tab and what it may do.
 *
 * The key is kept in the session storage of the tab and sent in a header. A key that the server does not know, or no longer, is removed at once, with
 * everything that the dashboard showed.
 */
import { batch, computed, signal } from '@preact/signals'
import { type Event, HttpLessor, LeaseError } from '../wire/http/client.ts'
import type { Account, EventsAnswer, OverviewAnswer, VerbName } from './answers.ts'
import { noteServerTime } from './clock.ts'
import { isUnder } from './format.ts'
import { forgetEvents, receive } from './live.ts'

const KEY = 'leasehold-key'
/** Events that the dashboard asks for when it opens. */
const FIRST_EVENTS = 1_000
const RETRY = 1_000
/** A server sends a comment every 15 s. Without anything from it for this long the dashboard is stale, even if no connection was closed. */
const SILENCE = 20_000

/** Who the dashboard acts for. Undefined until the server has answered. */
export const account = signal<Account | undefined>(undefined)
/** Why a key must be entered; undefined: none is needed now. */
export const keyWanted = signal<string | undefined>(undefined)
/** When the dashboard last knew that it was up to date, by `performance.now()`; undefined while it is. */
export const staleSince = signal<number | undefined>(undefined)
/** Tells whether events arrive: `denied` if the key may not watch. */
export const stream = signal<'connecting' | 'live' | 'denied'>('connecting')
/** The last failure of the server itself, in its words. */
export const failure = signal<string | undefined>(undefined)
/** Changes whenever everything on the dashboard must be read again. */
export const epoch = signal(0)

export const hasKey = computed(() => account.value !== undefined && !account.value.open)

let lessor: HttpLessor | undefined
let ending = new AbortController()
let heardAt = performance.now()

setInterval(() => {
  if (stream.value === 'live' && performance.now() - heardAt > SILENCE) lost(heardAt)
}, 1_000)

function heard(): void {
  heardAt = performance.now()
  if (staleSince.value === undefined) return
  batch(() => {
    staleSince.value = undefined
    failure.value = undefined
    epoch.value++
  })
}

function lost(since = performance.now()): void {
  staleSince.value ??= since
}

/** A `fetch` that notes when the event stream brings something and when it ends: the client itself only reports events. */
const observedFetch: typeof fetch = async (input, init) => {
  const response = await fetch(input, init)
  if (!String(input).includes('/v1/watch?') || !response.ok || response.body === null) return response
  const reader = response.body.getReader()
  const begun = ending.signal
  const over = () => {
    if (!begun.aborted) lost()
  }
  heard()
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read()
        if (done) {
          over()
          controller.close()
          return
        }
        heard()
        controller.enqueue(value)
      } catch (error) {
        over()
        controller.error(error)
      }
    },
    cancel: reason => reader.cancel(reason),
  })
  return new Response(body, { status: response.status, headers: response.headers })
}

/** Connects with the key of this tab, if it has one, and follows the events until another key is used. */
export async function start(): Promise<void> {
  ending.abort()
  ending = new AbortController()
  const { signal: end } = ending
  const key = sessionStorage.getItem(KEY)
  batch(() => {
    keyWanted.value = undefined
    stream.value = 'connecting'
  })
  while (!end.aborted) {
    try {
      lessor = await HttpLessor.open(location.origin, { fetch: observedFetch, ...(key !== null && { key }) })
      const who = (await lessor.request('GET', '/v1/whoami', undefined, end)) as Account
      // The server's wall clock comes with it: ages are true also where the clock of this machine is wrong.
      const { now } = (await lessor.request('GET', '/v1/overview', undefined, end)) as OverviewAnswer
      noteServerTime(now)
      account.value = who
      await follow(lessor, end)
    } catch (error) {
      if (end.aborted || rejected(error)) return
      batch(() => {
        lost()
        failure.value = messageOf(error)
      })
      await pause(RETRY)
    }
  }
}

async function follow(from: HttpLessor, end: AbortSignal): Promise<void> {
  let after: number | undefined
  try {
    const known = (await from.request('GET', `/v1/events?limit=${FIRST_EVENTS}`, undefined, end)) as EventsAnswer
    after = known.revision
    receive(known.events as unknown as readonly Event[])
  } catch (error) {
    if (!LeaseError.is(error, 'FORBIDDEN')) throw error
  }
  batch(() => {
    stream.value = 'live'
    epoch.value++
  })
  try {
    for await (const events of from.watch('', { signal: end, ...(after !== undefined && { after }) })) {
      if (events[0]?.type === 'resync') epoch.value++
      receive(events)
    }
  } catch (error) {
    if (!LeaseError.is(error, 'FORBIDDEN')) throw error
    stream.value = 'denied'
    // The rest of the dashboard works without events: each view reads again every few seconds.
    await new Promise(resolve => end.addEventListener('abort', resolve))
  }
}

/** Sends a request. Its failure is also noted for the dashboard as a whole: the key is not valid, or the server does not answer. */
async function request(method: 'GET' | 'POST' | 'PUT' | 'DELETE', path: string, body?: object, end?: AbortSignal): Promise<unknown> {
  const through = lessor
  if (through === undefined) throw new LeaseError('UNAVAILABLE', 'the dashboard is not connected to the server yet')
  try {
    const answer = await through.request(method, path, body, end)
    heardAt = performance.now()
    if (stream.value === 'denied') heard()
    if (typeof answer === 'object' && answer !== null && 'now' in answer && typeof answer.now === 'number') noteServerTime(answer.now)
    return answer
  } catch (error) {
    if (end?.aborted || rejected(error)) throw error
    if (LeaseError.is(error, 'UNAVAILABLE') || LeaseError.is(error, 'DIVERGED'))
      batch(() => {
        lost()
        failure.value = messageOf(error)
      })
    throw error
  }
}

export function get<T>(path: string, end?: AbortSignal): Promise<T> {
  return request('GET', path, undefined, end) as Promise<T>
}

export function send<T>(method: 'POST' | 'PUT' | 'DELETE', path: string, body?: object): Promise<T> {
  return request(method, path, body) as Promise<T>
}

/** Returns whether the server refused the key. Then the dashboard forgets the key, and shows nothing of what it allowed. */
function rejected(error: unknown): boolean {
  if (!LeaseError.is(error, 'UNAUTHENTICATED')) return false
  const had = sessionStorage.getItem(KEY) !== null
  signOut(had ? 'The server does not know this key, or it was revoked.' : '')
  return true
}

function signOut(why: string): void {
  sessionStorage.removeItem(KEY)
  ending.abort()
  void lessor?.close()
  lessor = undefined
  forgetEvents()
  batch(() => {
    account.value = undefined
    staleSince.value = undefined
    failure.value = undefined
    keyWanted.value = why
  })
}

export function useKey(key: string): void {
  sessionStorage.setItem(KEY, key)
  void start()
}

/** Forgets the key of this tab and asks for another. */
export function changeKey(): void {
  signOut('')
}

/** Returns whether the key may do this to a name. The server decides: the dashboard only leaves out what would be refused. */
export function may(verb: VerbName, name: string): boolean {
  const who = account.value
  if (who === undefined) return false
  if (who.open || who.operator === true) return true
  return who.allow.some(scope => (scope.verb === verb || scope.verb === 'admin') && isUnder(scope.prefix, name))
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}
