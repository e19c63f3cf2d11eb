/**
 * The protocol of our own client on a RESP connection: numbered messages that arrive in batches (`LEASE.BATCH`). Answers are sent as soon as they are known, in
 * one push per turn of the event loop (`lease.batch`).
 */
import { whenAborted } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { Reader, Writer } from '../../kernel/codec/bytes.ts'
import type { Command } from '../../kernel/command.ts'
import type { Query, View } from '../../lessor.ts'
import { type ClientMessage, readClientMessage, type ServerMessage, writeServerMessage } from '../../wire/messages.ts'
import { queryFrom } from '../../wire/query.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import type { Caller } from '../access-control.ts'
import { NO_REQUEST_OPTIONS } from '../guarded-lessor.ts'
import { fitsOnePiece, jsonPieces } from '../json-pieces.ts'
import type { ListenerContext } from '../listener.ts'
import { NO_KEY, type RequestCounter, type RequestCounters } from '../request-counters.ts'
import { asLeaseError } from './replies.ts'
import type { SessionTurns } from './session-turns.ts'

/** Maximum messages in progress. Beyond it, the connection is not read. */
export const MAX_BATCHED = 32_768
/** Maximum reads in progress. */
const MAX_READS = 64
/** Messages, and bytes of them, that are handled in one turn of the caller. A batch may contain half a million messages. */
const MESSAGES_PER_TURN = 256
const BYTES_PER_TURN = 64 << 10
/** A writer that has grown beyond this many bytes is replaced by a new one. */
const MAX_KEPT_WRITER = 1 << 20
const LISTS: ReadonlySet<Query['kind']> = new Set([
  'leases',
  'resources',
  'entries',
  'services',
  'pool',
  'pools',
  'history',
  'durations',
  'policies',
  'keys',
])

/** The text before the length of the answers, by the version of RESP: a push of two items. */
const PUSH = { 2: '*2\r\n$11\r\nlease.batch\r\n$', 3: '>2\r\n$11\r\nlease.batch\r\n$' } as const

type MessageOf<K extends ClientMessage['kind']> = Extract<ClientMessage, { readonly kind: K }>

/** The part of a connection that a batch session uses. */
export interface BatchConnection {
  readonly caller: Caller
  readonly host: {
    readonly context: ListenerContext
    readonly counters: RequestCounters
    scheduleFlush(session: BatchConnection): void
  }
  /** Fires when the connection closes. */
  readonly signal: AbortSignal
  readonly sendsWitness: boolean
  /** Undefined if there is room for more output. Otherwise resolves when there is. */
  room(): Promise<void> | undefined
  readonly turns: Pick<SessionTurns, 'next'>
}

export class BatchSession {
  readonly #session: BatchConnection
  #answers = new Writer()
  /** Messages without an answer. Only this class changes it. */
  pending = 0
  readonly #counters = new Map<Command['kind'], RequestCounter>()
  /** Reads that have not started. */
  readonly #reads: MessageOf<'read'>[] = []
  #activeReads = 0
  #listing = false
  readonly #streams = new Map<number, AbortController>()
  #ended = false
  /** The witness that was sent last. */
  #witness: string | undefined
  /** The store promised this when that was last sent. */
  #promised: string | undefined
  /** Called once there is room for more requests. */
  #onRoom: (() => void) | undefined

  constructor(session: BatchConnection) {
    this.#session = session
  }

  get unwrittenBytes(): number {
    return this.#answers.length
  }

  /** Handles a batch. Returns the number of its messages: at once, or later if there are many. Throws, or rejects, if they are not readable. */
  take(bytes: Uint8Array): number | Promise<number> {
    const from = new Reader(bytes)
    const count = this.#handleSome(from)
    // Copied: the bytes are valid only until this function returns.
    return from.left === 0 ? count : this.#handleRest(new Reader(Uint8Array.from(bytes.subarray(bytes.length - from.left))), count)
  }

  /** Handles as many messages as one turn has time for. */
  #handleSome(from: Reader): number {
    const end = Math.max(0, from.left - BYTES_PER_TURN)
    let count = 0
    for (; from.left > end && count < MESSAGES_PER_TURN; count++) {
      const message = readClientMessage(from)
      if (message.kind === 'propose') this.#propose(message)
      else this.#handle(message)
    }
    return count
  }

  async #handleRest(from: Reader, handled: number): Promise<number> {
    const { clock } = this.#session.host.context
    let count = handled
    while (from.left > 0) {
      await new Promise<void>(resolve => clock.soon(resolve))
      await this.#session.turns.next()
      if (this.pending >= MAX_BATCHED) await new Promise<void>(resolve => (this.#onRoom = resolve))
      count += this.#handleSome(from)
    }
    return count
  }

  #handle(message: Exclude<ClientMessage, { readonly kind: 'propose' }>): void {
    switch (message.kind) {
      case 'read':
        this.pending++
        this.#reads.push(message)
        return this.startReads()
      case 'watch':
        return this.#stream(message.id, signal => this.#watch(message, signal))
      case 'backup':
        return this.#stream(message.id, signal => this.#backup(message, signal))
      case 'stop':
        return this.#streams.get(message.id)?.abort()
      case 'beat':
        return this.#send(message)
    }
  }

  #propose({ id, proposal: { command, op, key } }: MessageOf<'propose'>): void {
    const { caller, host } = this.#session
    this.pending++
    const request = op === undefined && !key ? NO_REQUEST_OPTIONS : { ...(op && { op }), ...(key && { key }) }
    const counter = this.#counters.get(command.kind) ?? this.#counterOf(command.kind)
    const keyCounter = caller.key === 0 ? NO_KEY : host.counters.ofKey(caller.key)
    host.context.guarded.submit(caller, command, request, {
      settle: outcome => {
        if (outcome.kind === 'refused') {
          counter.increment(outcome.code)
          keyCounter.increment(outcome.code)
        } else {
          counter.ok++
          keyCounter.ok++
        }
        this.#answer({ kind: 'outcome', id, outcome })
      },
      fail: thrown => {
        const error = asLeaseError(thrown)
        counter.increment(error.code)
        keyCounter.increment(error.code)
        this.#answer({ kind: 'failed', id, error })
      },
    })
  }

  #counterOf(kind: Command['kind']): RequestCounter {
    const counter = this.#session.host.counters.counter('resp', `LEASE.BATCH ${kind}`)
    this.#counters.set(kind, counter)
    return counter
  }

  /** Starts as many reads as may run at once. Lists are read one after another, each when the client has read the one before. */
  startReads(): void {
    while (this.#reads.length > 0 && this.#activeReads < MAX_READS && !this.#listing && this.#session.room() === undefined)
      void this.#read(this.#reads.shift()!)
  }

  async #read({ id, query: encoded, consistent, atLeast }: MessageOf<'read'>): Promise<void> {
    const { caller, host, signal } = this.#session
    this.#activeReads++
    let list = false
    try {
      const query = queryFrom(encoded)
      list = LISTS.has(query.kind)
      this.#listing ||= list
      const view = await host.context.guarded.read(caller, query, { consistent, atLeast, signal })
      this.#send({ kind: 'view', id, view, json: await toJson(view, () => host.context.guarded.nextTurn(caller)) })
    } catch (error) {
      this.#send({ kind: 'failed', id, error: asLeaseError(error) })
    }
    if (list) this.#listing = false
    this.#activeReads--
    if (--this.pending <= MAX_BATCHED / 2) this.#onRoom?.()
    this.startReads()
  }

  // Streams

  #stream(id: number, run: (signal: AbortSignal) => Promise<void>): void {
    if (this.#streams.has(id))
      return this.#send({ kind: 'failed', id, error: new LeaseError('INVALID', `stream ${id} is open already: use another id`) })
    const stop = new AbortController()
    const { signal } = this.#session
    this.#streams.set(id, stop)
    const unlink = whenAborted(signal, () => stop.abort(signal.reason))
    run(stop.signal)
      .then(
        () => this.#send({ kind: 'over', id }),
        error => this.#send({ kind: 'failed', id, error: asLeaseError(error) }),
      )
      .finally(() => {
        unlink()
        this.#streams.delete(id)
      })
  }

  async #watch({ id, prefix, after, types }: MessageOf<'watch'>, signal: AbortSignal): Promise<void> {
    const { caller, host } = this.#session
    const { guarded } = host.context
    const from = after ?? (await guarded.read(caller, { kind: 'summary' }, { signal })).revision
    this.#send({ kind: 'watching', id, revision: from })
    for await (const events of guarded.watch(caller, prefix, { after: from, signal, ...(types && { types: [...new Set(types)] }) })) {
      this.#send({ kind: 'events', id, events })
      // Fetch no more events than the client reads. A client that is too slow gets a resync.
      for (let room = this.#session.room(); room !== undefined && !signal.aborted; room = this.#session.room()) await room
    }
  }

  async #backup({ id, follow }: MessageOf<'backup'>, signal: AbortSignal): Promise<void> {
    const { caller, host } = this.#session
    for await (const bytes of host.context.guarded.backup(caller, { follow, signal })) {
      this.#send({ kind: 'chunk', id, bytes })
      for (let room = this.#session.room(); room !== undefined && !signal.aborted; room = this.#session.room()) await room
    }
  }

  // Answers

  /** Sends the answer to a proposal. */
  #answer(answer: ServerMessage): void {
    if (--this.pending <= MAX_BATCHED / 2) this.#onRoom?.()
    if (this.#ended) return
    // Before the answer: its holder may require what the store no longer promises.
    const { profile } = this.#session.host.context.guarded.lessor
    const promised = `${profile.durable} ${profile.failover}`
    if (promised !== this.#promised) {
      this.#promised = promised
      writeServerMessage(this.#answers, { kind: 'profile', id: 0, profile })
    }
    writeServerMessage(this.#answers, answer)
    this.#session.host.scheduleFlush(this.#session)
  }

  #send(answer: ServerMessage): void {
    if (this.#ended) return
    writeServerMessage(this.#answers, answer)
    this.#session.host.scheduleFlush(this.#session)
  }

  /** Ends the session. Proposals in progress continue, but their answers are dropped. */
  end(): void {
    this.#ended = true
    this.pending -= this.#reads.length
    this.#reads.length = 0
    this.#onRoom?.()
    for (const stream of this.#streams.values()) stream.abort()
  }

  write(to: RespWriter): void {
    if (this.#answers.length === 0) return
    // The witness of the log goes with the answers, if it has changed. The client presents it later, to find out whether the log still contains the answers.
    const witness = this.#session.sendsWitness ? this.#session.host.context.guarded.lessor.witness : undefined
    if (witness !== undefined && witness !== this.#witness) {
      this.#witness = witness
      writeServerMessage(this.#answers, { kind: 'witness', id: 0, witness })
    }
    to.bulk(this.#answers.view(), PUSH[to.protocol])
    if (this.#answers.length > MAX_KEPT_WRITER) this.#answers = new Writer()
    else this.#answers.length = 0
    if (this.#reads.length > 0) this.startReads()
  }
}

async function toJson({ value, ...rest }: View, turn: () => Promise<void> | undefined): Promise<string> {
  if (!Array.isArray(value) || fitsOnePiece(value)) return JSON.stringify({ value, ...rest })
  let text = ''
  for await (const piece of jsonPieces('value', value as readonly object[], rest, { shown: item => item, turn })) text += piece
  return text
}
