/**
 * A server far away as a Lessor, over HTTP. It uses web standards alone, so it runs in browsers, in Node and wherever there is `fetch`.
 *
 * Not promised: the speed of RESP. Promised, as by every lessor: `UNAVAILABLE` means that the request was certainly not executed. After a
 * connection broke the client cannot know that, so it reports `UNKNOWN`; then only a request with the same operation id is safe to repeat.
 */
import { BACKOFF, jittered, pauseAfter } from '../../backoff.ts'
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Command } from '../../kernel/command.ts'
import type { Event } from '../../kernel/event.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { BackupOptions, Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../../lessor.ts'
import { webClock } from '../../web-clock.ts'
import { refusalFrom } from '../received-error.ts'
import { errorOf, HttpConnection, type HttpReply, unlessEnded } from './connection.ts'
import { EventStream } from './event-stream.ts'

export type { Clock } from '../../clock.ts'
export type { ErrorCode, Facts } from '../../errors.ts'
export { LeaseError } from '../../errors.ts'
export type { Command } from '../../kernel/command.ts'
export type { Event, EventType } from '../../kernel/event.ts'
export type { Outcome } from '../../kernel/outcome.ts'
export { propose } from '../../lessor/propose.ts'
export type { Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../../lessor.ts'

export interface HttpLessorOptions {
  /**
   * The secret of an API key. Sent in a header, never in a URL.
   * @default none: the server must allow anonymous clients
   */
  readonly key?: string
  /** @default the clock of this machine */
  readonly clock?: Clock
  /** @default globalThis.fetch */
  readonly fetch?: typeof fetch
}

/** Give a stream up after this long without a byte. A live server sends comments more often. */
const MAX_SILENCE = 45_000
/** Give a watch up that has not begun by then, and begin it again. */
const WATCH_TIMEOUT = 10_000
/** Send the next batch after this long, answered or not: the connection of the last one may be dead. */
const SLOW = 1_000
const MAX_IN_FLIGHT = 8

/** Proposals in one request, and about how many characters of JSON. */
const MAX_BATCH = 500
const MAX_BATCH_LENGTH = 256 << 10

interface UnsentProposal {
  readonly json: string
  readonly settle: (answer: Outcome | Error) => void
}

interface ProposalAnswer {
  readonly outcome?: Outcome
  readonly error?: HttpReply
}

/**
 * A server as a {@link Lessor}, over HTTP.
 *
 * @example
 * const lessor = await HttpLessor.open('https://leases.example:7420', { key })
 * const { value } = await lessor.read({ kind: 'resource', resource: 'jobs/nightly' })
 * await lessor.close()
 */
export class HttpLessor implements Lessor {
  readonly profile: Lessor['profile']
  readonly #connection: HttpConnection
  readonly #clock: Clock
  readonly #unsent = new Set<UnsentProposal>()
  #sending = false
  readonly #inFlight = new Set<Promise<void>>()
  /** Watches that the server may not know of yet. Later requests wait for them, so that a watch sees what its caller does next. */
  readonly #beginning = new Set<Promise<unknown>>()

  private constructor(connection: HttpConnection, profile: Lessor['profile'], clock: Clock) {
    this.#connection = connection
    this.profile = profile
    this.#clock = clock
  }

  /** Connects to `http://host:port` or `https://…`. Throws `UNAVAILABLE` when no server answers there. */
  static async open(url: string, { key, clock = webClock, fetch = globalThis.fetch }: HttpLessorOptions = {}): Promise<HttpLessor> {
    const connection = new HttpConnection(url, key, clock, fetch)
    const { profile } = (await connection.json('GET', '/v1/about')) as { profile: Lessor['profile'] }
    return new HttpLessor(connection, profile, clock)
  }

  /** Fires when this lessor is closed. */
  get signal(): AbortSignal {
    return this.#connection.closing.signal
  }

  /** Asks the server to decide a command. A refusal is an outcome, not an error. `propose(lessor, command)` is the same with a promise. */
  submit(command: Command, { op, key = 0, signal }: ProposeOptions, completion: Completion): void {
    if (signal?.aborted) return completion.fail(signal.reason)
    if (this.signal.aborted) return completion.fail(this.signal.reason)
    const json = JSON.stringify({ command: command ?? null, ...(op && { op }), ...(key !== 0 && { key }) })
    const proposal: UnsentProposal = {
      json,
      settle: answer => {
        signal?.removeEventListener('abort', abort)
        if (answer instanceof Error) completion.fail(answer)
        else completion.settle(answer)
      },
    }
    const abort = () => {
      signal!.removeEventListener('abort', abort)
      this.#unsent.delete(proposal)
      completion.fail(signal!.reason)
    }
    signal?.addEventListener('abort', abort)
    this.#unsent.add(proposal)
    if (!this.#sending) void this.#sendAll()
  }

  /** One request at a time carries all proposals that came meanwhile. That keeps their order, and many cost little more than one. */
  async #sendAll(): Promise<void> {
    this.#sending = true
    // Wait for the other proposals of this turn.
    await Promise.resolve()
    while (this.#unsent.size > 0) {
      await this.#watchesBegun()
      const batch = this.#takeBatch()
      if (batch.length === 0) continue
      const sent = this.#sendBatch(batch).finally(() => this.#inFlight.delete(sent))
      this.#inFlight.add(sent)
      await this.#orSlow(sent)
      while (this.#inFlight.size >= MAX_IN_FLIGHT) await Promise.race(this.#inFlight)
    }
    this.#sending = false
  }

  async #sendBatch(batch: readonly UnsentProposal[]): Promise<void> {
    try {
      const body = `{"proposals":[${batch.map(({ json }) => json).join(',')}]}`
      const { answers } = (await this.#connection.json('POST', '/v1/propose', { body, changes: true })) as {
        answers: readonly ProposalAnswer[]
      }
      for (const [i, { settle }] of batch.entries()) settle(outcomeOf(answers[i]!))
    } catch (error) {
      for (const { settle } of batch) settle(error as Error)
    }
  }

  #orSlow(sent: Promise<void>): Promise<void> {
    return new Promise(resolve => {
      const cancel = this.#clock.after(SLOW, resolve)
      void sent.then(() => {
        cancel()
        resolve()
      })
    })
  }

  #takeBatch(): readonly UnsentProposal[] {
    const batch: UnsentProposal[] = []
    let length = 0
    for (const proposal of this.#unsent) {
      if (batch.length > 0 && (batch.length === MAX_BATCH || length + proposal.json.length > MAX_BATCH_LENGTH)) break
      this.#unsent.delete(proposal)
      batch.push(proposal)
      length += proposal.json.length
    }
    return batch
  }

  /** Reads the server's state. With `consistent` it is read at the log's end. */
  async read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options: ReadOptions = {}): Promise<View<K>> {
    const { consistent, atLeast, signal } = options
    signal?.throwIfAborted()
    await this.#watchesBegun()
    const body = JSON.stringify({ query, ...(consistent !== undefined && { consistent }), ...(atLeast !== undefined && { atLeast }) })
    const { revision, value, more } = (await this.#connection.json('POST', '/v1/read', { body, signal })) as View<K>
    return { revision, value, ...(more === true && { more }) }
  }

  /** Yields the events of one revision after another, across broken connections. A gap is reported as an event `resync`. */
  async *watch(prefix: string, { after, types, signal }: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    let from = after
    let failures = 0
    let { rewinds } = this.#connection
    while (!signal.aborted) {
      this.#connection.mustBeOpen()
      if (rewinds !== this.#connection.rewinds && from !== undefined) {
        // The log went back: what was delivered did not happen. The reader must start over from the present state.
        const resync = await this.#resync(signal)
        if (resync === undefined) {
          await this.#pause(BACKOFF.stream.first, signal)
          continue
        }
        rewinds = resync.rewinds
        from = resync.event.revision
        yield [resync.event]
      }
      const query = new URLSearchParams({
        prefix,
        ...(from !== undefined && { after: String(from) }),
        ...(types !== undefined && { types: types.join(',') }),
      })
      const call = this.#connection.call(signal)
      const cancelTimeout = this.#clock.after(WATCH_TIMEOUT, () => call.end())
      try {
        const opening = this.#connection.send('GET', `/v1/watch?${query}`, { accept: 'text/event-stream' }, undefined, call.signal)
        // Without a revision the watch begins with the event that comes next. Later requests must wait until the server has begun it.
        const answer = await unlessEnded(call.signal, from === undefined ? this.#begin(opening) : opening)
        cancelTimeout()
        from ??= Number(answer.headers.get('leasehold-revision'))
        const stream = new EventStream(answer.body!, this.#clock, MAX_SILENCE)
        // Cancel the stream, too: after the headers have come, Node's fetch holds its abort listener weakly, and a garbage collection drops it.
        call.signal.addEventListener('abort', () => stream.cancel(), { once: true })
        if (call.signal.aborted) stream.cancel()
        try {
          for await (const events of stream) {
            failures = 0
            from = events[0]!.revision
            yield events
            if (signal.aborted) return
          }
        } finally {
          stream.cancel()
        }
      } catch (error) {
        if (signal.aborted) return
        this.#connection.mustBeOpen()
        if (error instanceof LeaseError && !isTransient(error)) throw error
      } finally {
        cancelTimeout()
        call.end()
      }
      // A stream that ended or broke continues where it was, after a growing pause.
      await this.#pause(jittered(this.#clock, pauseAfter(BACKOFF.stream, failures++)), signal)
    }
  }

  /** Undefined while the server does not answer. */
  async #resync(signal: AbortSignal): Promise<{ readonly event: Event; readonly rewinds: number } | undefined> {
    const { rewinds } = this.#connection
    try {
      const { revision } = await this.read({ kind: 'summary' }, { signal })
      return { event: { revision, type: 'resync', lease: 0, at: this.#clock.wall() }, rewinds }
    } catch (error) {
      if (signal.aborted || (error instanceof LeaseError && isTransient(error))) return undefined
      throw error
    }
  }

  /**
   * Sends a request to a route of the server that is no part of a Lessor, such as `/v1/overview`, and returns the answer's JSON; undefined if it has none.
   * Throws the server's error as a `LeaseError`.
   */
  async request(method: 'GET' | 'POST' | 'PUT' | 'DELETE', path: string, body?: object, signal?: AbortSignal): Promise<unknown> {
    signal?.throwIfAborted()
    await this.#watchesBegun()
    const text = body === undefined ? {} : { body: JSON.stringify(body) }
    return this.#connection.json(method, path, { ...text, signal, changes: method !== 'GET' })
  }

  /** Calls `listener` when the server's log turns out to have lost what this client saw. Returns a function that ends this. */
  onRewound(listener: (why: LeaseError) => void): () => void {
    const { onRewound } = this.#connection
    onRewound.add(listener)
    return () => onRewound.delete(listener)
  }

  /** Yields the bytes of a backup. */
  async *backup({ follow = false, signal }: BackupOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    signal?.throwIfAborted()
    this.#connection.mustBeOpen()
    const call = this.#connection.call(signal)
    let reader: ReadableStreamDefaultReader<Uint8Array> | undefined
    try {
      const answer = await unlessEnded(
        call.signal,
        this.#connection.send('GET', follow ? '/v1/backup?follow=true' : '/v1/backup', {}, undefined, call.signal),
      )
      reader = answer.body!.getReader()
      for (;;) {
        const next = await unlessEnded(call.signal, reader.read())
        if (next.done) return
        yield next.value
      }
    } catch (error) {
      throw this.#connection.errorFor(error, signal, false)
    } finally {
      reader?.cancel().catch(() => {})
      call.end()
    }
  }

  /** Ends all requests and watches. */
  async close(): Promise<void> {
    this.#connection.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #begin(opening: Promise<Response>): Promise<Response> {
    const begun = opening.catch(() => {})
    this.#beginning.add(begun)
    void begun.then(() => this.#beginning.delete(begun))
    return opening
  }

  #watchesBegun(): Promise<unknown> | undefined {
    return this.#beginning.size === 0 ? undefined : Promise.all(this.#beginning)
  }

  #pause(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise(resolve => {
      const { signal: closing } = this.#connection.closing
      const settle = () => {
        cancel()
        signal.removeEventListener('abort', settle)
        closing.removeEventListener('abort', settle)
        resolve()
      }
      const cancel = this.#clock.after(ms, settle)
      signal.addEventListener('abort', settle)
      closing.addEventListener('abort', settle)
      if (signal.aborted || closing.aborted) settle()
    })
  }
}

function outcomeOf({ outcome, error }: ProposalAnswer): Outcome | Error {
  if (outcome?.kind === 'refused') return refusalFrom(outcome)
  if (outcome !== undefined) return outcome
  const failed = errorOf(error!) ?? new LeaseError('UNKNOWN', 'the server answered with an error that cannot be read')
  // A malformed proposal is refused in the same way as one that makes no sense: by an outcome.
  return failed.code === 'INVALID' ? refusalFrom({ ...error!, revision: 0 }) : failed
}

/** The same request may succeed in a moment, or on another server. */
function isTransient({ code, facts }: LeaseError): boolean {
  return code === 'UNAVAILABLE' || code === 'UNKNOWN' || code === 'LIMIT' || facts.rewound === true
}
