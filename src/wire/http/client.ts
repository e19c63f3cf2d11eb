/**
 * A lessor that is a server far away, over HTTP: web standards alone, so it runs in a browser, in Node and wherever there is `fetch`.
 *
 * Not promised: that it is as quick as the other wire. Promised, as of every lessor: `UNAVAILABLE` only for what was certainly not done. Of a
 * connection that broke nobody can know that, so the answer is `UNKNOWN`, and only the same operation makes it safe to ask again.
 */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Command } from '../../kernel/command.ts'
import type { Event } from '../../kernel/event.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../../lessor.ts'
import { webClock } from '../../web-clock.ts'
import { errorOf, HttpConnection, type HttpReply, unlessEnded } from './connection.ts'
import { EventStream } from './event-stream.ts'

export interface HttpLessorOptions {
  /** The secret of a key. Sent in a header, never in a URL. */
  readonly key?: string
  readonly clock?: Clock
  readonly fetch?: typeof fetch
}

const RETRY_FIRST = 50
const RETRY_LAST = 5_000
/** A stream that says nothing for so long, not even that it is still there, is taken for dead. */
const SILENCE = 45_000

/** A watch begins at once, or elsewhere. */
const BEGINNING = 10_000
/** What is not answered within so long holds nothing up that came after it: it may be the connection that is dead. */
const SLOW = 1_000
const MAX_UNDER_WAY = 8

/** Proposals in one request, and about how many characters of them. */
const MAX = 500
const LONGEST = 256 << 10

interface Proposal {
  readonly text: string
  readonly settle: (answer: Outcome | Error) => void
}

interface Answered {
  readonly outcome?: Outcome
  readonly error?: HttpReply
}

export class HttpLessor implements Lessor {
  readonly profile: Lessor['profile']
  readonly #connection: HttpConnection
  readonly #clock: Clock
  readonly #unsent = new Set<Proposal>()
  #sending = false
  readonly #underWay = new Set<Promise<void>>()
  /** Watches that have not begun yet: what is asked after them is sent when the server has heard of them. */
  readonly #beginning = new Set<Promise<unknown>>()

  private constructor(connection: HttpConnection, profile: Lessor['profile'], clock: Clock) {
    this.#connection = connection
    this.profile = profile
    this.#clock = clock
  }

  /** `url` is `http://host:port` or `https://…`. Throws `UNAVAILABLE` when nobody answers there. */
  static async open(url: string, { key, clock = webClock, fetch = globalThis.fetch }: HttpLessorOptions = {}): Promise<HttpLessor> {
    const connection = new HttpConnection(url, key, clock, fetch)
    const { profile } = (await connection.json('GET', '/v1/about')) as { profile: Lessor['profile'] }
    return new HttpLessor(connection, profile, clock)
  }

  get signal(): AbortSignal {
    return this.#connection.closing.signal
  }

  propose(command: Command, { op, key = 0, signal }: ProposeOptions = {}): Promise<Outcome> {
    if (signal?.aborted) return Promise.reject(signal.reason)
    if (this.signal.aborted) return Promise.reject(this.signal.reason)
    const text = JSON.stringify({ command: command ?? null, ...(op && { op }), ...(key !== 0 && { key }) })
    return new Promise((resolve, reject) => {
      const proposal: Proposal = {
        text,
        settle: answer => {
          signal?.removeEventListener('abort', leave)
          if (answer instanceof Error) reject(answer)
          else resolve(answer)
        },
      }
      const leave = () => {
        signal!.removeEventListener('abort', leave)
        this.#unsent.delete(proposal)
        reject(signal!.reason)
      }
      signal?.addEventListener('abort', leave)
      this.#unsent.add(proposal)
      if (!this.#sending) void this.#sendAll()
    })
  }

  /** One request at a time carries everything that piled up meanwhile: that keeps the order, and many cost little more than one. */
  async #sendAll(): Promise<void> {
    this.#sending = true
    // Everything asked for within this turn.
    await Promise.resolve()
    while (this.#unsent.size > 0) {
      await this.#heard()
      const batch = this.#take()
      if (batch.length === 0) continue
      const sent = this.#sendBatch(batch).finally(() => this.#underWay.delete(sent))
      this.#underWay.add(sent)
      await this.#orSlow(sent)
      while (this.#underWay.size >= MAX_UNDER_WAY) await Promise.race(this.#underWay)
    }
    this.#sending = false
  }

  async #sendBatch(batch: readonly Proposal[]): Promise<void> {
    try {
      const body = `{"proposals":[${batch.map(({ text }) => text).join(',')}]}`
      const { answers } = (await this.#connection.json('POST', '/v1/propose', { body, changes: true })) as { answers: readonly Answered[] }
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

  #take(): readonly Proposal[] {
    const batch: Proposal[] = []
    let length = 0
    for (const proposal of this.#unsent) {
      if (batch.length > 0 && (batch.length === MAX || length + proposal.text.length > LONGEST)) break
      this.#unsent.delete(proposal)
      batch.push(proposal)
      length += proposal.text.length
    }
    return batch
  }

  async read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options: ReadOptions = {}): Promise<View<K>> {
    const { consistent, atLeast, signal } = options
    signal?.throwIfAborted()
    await this.#heard()
    const asked = { query, ...(consistent !== undefined && { consistent }), ...(atLeast !== undefined && { atLeast }) }
    const body = JSON.stringify(asked)
    const { revision, value, more } = (await this.#connection.json('POST', '/v1/read', { body, signal })) as View<K>
    return { revision, value, ...(more === true && { more }) }
  }

  async *watch(prefix: string, { after, types, signal }: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    let from = after
    let pause = RETRY_FIRST
    let { rewinds } = this.#connection
    while (!signal.aborted) {
      this.#connection.mustBeOpen()
      if (rewinds !== this.#connection.rewinds && from !== undefined) {
        // What was told is not what happened: begin anew with what the log says now.
        const resync = await this.#resync(signal)
        if (resync === undefined) {
          await this.#pause(RETRY_FIRST, signal)
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
      const late = this.#clock.after(BEGINNING, () => call.end())
      try {
        const opening = this.#connection.send('GET', `/v1/watch?${query}`, { accept: 'text/event-stream' }, undefined, call.signal)
        // Without a revision it begins with what comes next: next after the server has heard of it.
        const answer = await unlessEnded(call.signal, from === undefined ? this.#begin(opening) : opening)
        late()
        from ??= Number(answer.headers.get('leasehold-revision'))
        const stream = new EventStream(answer.body!, this.#clock, SILENCE)
        // By hand as well: once the head has come, Node's fetch keeps a weak hold on who may abort it, and after a collection nobody can.
        call.signal.addEventListener('abort', () => stream.cancel(), { once: true })
        if (call.signal.aborted) stream.cancel()
        try {
          for await (const events of stream) {
            pause = RETRY_FIRST
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
        if (error instanceof LeaseError && !isPassing(error)) throw error
      } finally {
        late()
        call.end()
      }
      // A stream that ended or broke is begun anew where it was, soon and then less soon.
      await this.#pause(pause * (0.5 + this.#clock.random() / 2), signal)
      pause = Math.min(pause * 2, RETRY_LAST)
    }
  }

  /** Undefined while the server does not say. */
  async #resync(signal: AbortSignal): Promise<{ readonly event: Event; readonly rewinds: number } | undefined> {
    const { rewinds } = this.#connection
    try {
      const { revision } = await this.read({ kind: 'summary' }, { signal })
      return { event: { revision, type: 'resync', lease: 0, at: this.#clock.wall() }, rewinds }
    } catch (error) {
      if (signal.aborted || (error instanceof LeaseError && isPassing(error))) return undefined
      throw error
    }
  }

  onRewound(tell: (why: LeaseError) => void): () => void {
    const { onRewound } = this.#connection
    onRewound.add(tell)
    return () => onRewound.delete(tell)
  }

  async *backup({ signal }: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Uint8Array, void, void> {
    signal?.throwIfAborted()
    this.#connection.mustBeOpen()
    const call = this.#connection.call(signal)
    let reader: ReadableStreamDefaultReader<Uint8Array> | undefined
    try {
      const answer = await unlessEnded(call.signal, this.#connection.send('GET', '/v1/backup', {}, undefined, call.signal))
      reader = answer.body!.getReader()
      for (;;) {
        const next = await unlessEnded(call.signal, reader.read())
        if (next.done) return
        yield next.value
      }
    } catch (error) {
      throw this.#connection.worded(error, signal, false)
    } finally {
      reader?.cancel().catch(() => {})
      call.end()
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close()
  }

  #begin(opening: Promise<Response>): Promise<Response> {
    const begun = opening.catch(() => {})
    this.#beginning.add(begun)
    void begun.then(() => this.#beginning.delete(begun))
    return opening
  }

  #heard(): Promise<unknown> | undefined {
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

function outcomeOf({ outcome, error }: Answered): Outcome | Error {
  if (outcome !== undefined) return outcome
  const failed = errorOf(error!)!
  // What has not even the form of a proposal is refused like one that has no meaning.
  if (failed.code === 'INVALID') return { kind: 'refused', revision: 0, code: 'INVALID', message: failed.message, facts: failed.facts }
  return failed
}

/** It may be otherwise in a moment, or elsewhere. */
function isPassing({ code, facts }: LeaseError): boolean {
  return code === 'UNAVAILABLE' || code === 'UNKNOWN' || code === 'LIMIT' || facts.rewound === true
}
