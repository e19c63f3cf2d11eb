/**
 * What our own client asks over a connection: numbered questions that come in batches (`LEASE.BATCH`), and answers that leave, as soon as they
 * are known, in one push for each turn (`lease.batch`).
 */
import { LeaseError } from '../../errors.ts'
import { Reader, Writer } from '../../kernel/codec/bytes.ts'
import type { Command } from '../../kernel/command.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { Completion, Query, View } from '../../lessor.ts'
import { type ClientMessage, readClientMessage, type ServerMessage, writeServerMessage } from '../../wire/messages.ts'
import { queryFrom } from '../../wire/query.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { NOTHING_MORE } from '../guarded-lessor.ts'
import { isShort, jsonPieces } from '../json-pieces.ts'
import type { RequestCount } from '../request-counts.ts'
import type { RespSession } from './session.ts'

/** Questions under way before the connection is read from no more. */
const MAX_OWED = 32_768
const MAX_READING = 64
/** Questions, and bytes of them, that are heard in one turn of the loop. A batch may have half a million of them. */
const STRIDE = 1_024
const STRIDE_BYTES = 64 << 10
/** A writer that has grown beyond this was needed once, and is not kept. */
const LARGE = 1 << 20
const LISTS: ReadonlySet<Query['kind']> = new Set(['leases', 'resources', 'entries', 'services', 'history', 'policies', 'keys'])

type Of<K extends ClientMessage['kind']> = Extract<ClientMessage, { readonly kind: K }>

export class BatchSession {
  readonly #session: RespSession
  #answers = new Writer()
  #owed = 0
  readonly #tallies = new Map<Command['kind'], RequestCount>()
  readonly #reads: Of<'read'>[] = []
  #reading = 0
  #listing = false
  readonly #streams = new Map<number, AbortController>()
  #ended = false
  #witness: string | undefined
  #whenRoom = () => {}

  constructor(session: RespSession) {
    this.#session = session
  }

  get hasRoom(): boolean {
    return this.#owed < MAX_OWED
  }

  get owes(): boolean {
    return this.#owed > 0
  }

  get unwritten(): number {
    return this.#answers.length
  }

  /** How many questions there were: at once, or later where there are many. Throws, or rejects with, what makes them unreadable. */
  take(bytes: Uint8Array): number | Promise<number> {
    const from = new Reader(bytes)
    const count = this.#hearSome(from)
    // The bytes are good only until this returns.
    return from.ended ? count : this.#hearRest(new Reader(Uint8Array.from(bytes.subarray(bytes.length - from.left))), count)
  }

  /** As many as one turn of the loop has time for. */
  #hearSome(from: Reader): number {
    const end = Math.max(0, from.left - STRIDE_BYTES)
    let count = 0
    for (; !from.ended && from.left > end && count < STRIDE; count++) this.#hear(readClientMessage(from))
    return count
  }

  async #hearRest(from: Reader, heard: number): Promise<number> {
    const { clock } = this.#session.door.context
    let count = heard
    while (!from.ended) {
      await new Promise<void>(resolve => clock.soon(resolve))
      if (!this.hasRoom) await new Promise<void>(resolve => (this.#whenRoom = resolve))
      count += this.#hearSome(from)
    }
    return count
  }

  #answered(): void {
    this.#owed--
    if (this.#owed > MAX_OWED / 2) return
    this.#whenRoom()
  }

  #hear(question: ClientMessage): void {
    switch (question.kind) {
      case 'propose':
        return this.#propose(question)
      case 'read':
        this.#owed++
        this.#reads.push(question)
        return this.goOn()
      case 'watch':
        return this.#stream(question.id, signal => this.#watch(question, signal))
      case 'backup':
        return this.#stream(question.id, signal => this.#backup(question.id, signal))
      case 'stop':
        return this.#streams.get(question.id)?.abort()
      case 'beat':
        return this.#say(question)
    }
  }

  #propose({ id, proposal: { command, op, key } }: Of<'propose'>): void {
    const { caller, door } = this.#session
    this.#owed++
    const asked = op === undefined && !key ? NOTHING_MORE : { ...(op && { op }), ...(key && { key }) }
    door.context.desk.submit(caller, command, asked, new Owed(this, id, this.#tallyOf(command.kind)))
  }

  /** What was proposed has been answered. */
  answer(answer: Extract<ServerMessage, { readonly kind: 'outcome' | 'failed' }>): void {
    this.#answered()
    this.#say(answer)
  }

  #tallyOf(kind: Command['kind']): RequestCount {
    let tally = this.#tallies.get(kind)
    if (tally === undefined) {
      tally = this.#session.door.tallies.tally('resp', `LEASE.BATCH ${kind}`)
      this.#tallies.set(kind, tally)
    }
    return tally
  }

  /** Reads as many as may be read at once: lists one after another, each when the one before has been taken. */
  goOn(): void {
    while (this.#reads.length > 0 && this.#reading < MAX_READING && !this.#listing && this.#session.room() === undefined)
      void this.#read(this.#reads.shift()!)
  }

  async #read({ id, query: asked, consistent, atLeast }: Of<'read'>): Promise<void> {
    const { caller, door, signal } = this.#session
    this.#reading++
    let list = false
    try {
      const query = queryFrom(asked)
      list = LISTS.has(query.kind)
      this.#listing ||= list
      const view = await door.context.desk.read(caller, query, { consistent, atLeast, signal })
      this.#say({ kind: 'view', id, view, json: await written(view) })
    } catch (error) {
      this.#say({ kind: 'failed', id, error: asLeaseError(error) })
    }
    if (list) this.#listing = false
    this.#reading--
    this.#answered()
    this.goOn()
  }

  // Streams

  #stream(id: number, run: (signal: AbortSignal) => Promise<void>): void {
    if (this.#streams.has(id)) return this.#say({ kind: 'failed', id, error: new LeaseError('INVALID', `there is a stream ${id} already`) })
    const stop = new AbortController()
    const { signal } = this.#session
    const leave = () => stop.abort(signal.reason)
    this.#streams.set(id, stop)
    signal.addEventListener('abort', leave, { once: true })
    if (signal.aborted) leave()
    run(stop.signal)
      .then(
        () => this.#say({ kind: 'over', id }),
        error => this.#say({ kind: 'failed', id, error: asLeaseError(error) }),
      )
      .finally(() => {
        signal.removeEventListener('abort', leave)
        this.#streams.delete(id)
      })
  }

  async #watch({ id, prefix, after, types }: Of<'watch'>, signal: AbortSignal): Promise<void> {
    const { caller, door } = this.#session
    const { desk } = door.context
    const from = after ?? (await desk.read(caller, { kind: 'summary' }, { signal })).revision
    this.#say({ kind: 'watching', id, revision: from })
    for await (const events of desk.watch(caller, prefix, { after: from, signal, ...(types && { types: [...new Set(types)] }) })) {
      this.#say({ kind: 'events', id, events })
      // What does not fit is not fetched: whoever reads too slowly is told by a resync what it missed.
      for (let room = this.#session.room(); room !== undefined && !signal.aborted; room = this.#session.room()) await room
    }
  }

  async #backup(id: number, signal: AbortSignal): Promise<void> {
    const { caller, door } = this.#session
    for await (const bytes of door.context.desk.backup(caller, signal)) {
      this.#say({ kind: 'chunk', id, bytes })
      for (let room = this.#session.room(); room !== undefined && !signal.aborted; room = this.#session.room()) await room
    }
  }

  // Answers

  #say(answer: ServerMessage): void {
    if (this.#ended) return
    writeServerMessage(this.#answers, answer)
    this.#session.dirty()
  }

  /** With what is answered goes how far the log has come, where that has changed: shown again, it tells whether the log still contains the answers. */
  #tellWitness(): void {
    if (!this.#session.witnesses) return
    const { witness } = this.#session.door.context.desk
    if (witness === undefined || witness === this.#witness) return
    this.#witness = witness
    writeServerMessage(this.#answers, { kind: 'witness', id: 0, witness })
  }

  /** What is under way goes on, and nobody is told of it. */
  end(): void {
    this.#ended = true
    this.#owed -= this.#reads.length
    this.#reads.length = 0
    this.#whenRoom()
    for (const stream of this.#streams.values()) stream.abort()
  }

  write(to: RespWriter): void {
    if (this.#answers.length === 0) return
    this.#tellWitness()
    to.push(2)
    to.raw('$11\r\nlease.batch\r\n')
    to.bulk(this.#answers.view())
    if (this.#answers.length > LARGE) this.#answers = new Writer()
    else this.#answers.length = 0
    if (this.#reads.length > 0) this.goOn()
  }
}

async function written({ value, ...rest }: View): Promise<string> {
  if (!Array.isArray(value) || isShort(value)) return JSON.stringify({ value, ...rest })
  let text = ''
  for await (const piece of jsonPieces('value', value, rest)) text += piece
  return text
}

/** The place of one answer. */
class Owed implements Completion {
  readonly #conversation: BatchSession
  readonly #id: number
  readonly #tally: RequestCount

  constructor(conversation: BatchSession, id: number, tally: RequestCount) {
    this.#conversation = conversation
    this.#id = id
    this.#tally = tally
  }

  settle(outcome: Outcome): void {
    this.#tally.count(outcome.kind === 'refused' ? outcome.code : undefined)
    this.#conversation.answer({ kind: 'outcome', id: this.#id, outcome })
  }

  fail(thrown: unknown): void {
    const error = asLeaseError(thrown)
    this.#tally.count(error.code)
    this.#conversation.answer({ kind: 'failed', id: this.#id, error })
  }
}

export function asLeaseError(error: unknown): LeaseError {
  if (error instanceof LeaseError) return error
  // Our own mistake: nothing may be concluded from it, and what it says is not for others.
  return new LeaseError('UNKNOWN', 'the server failed while it did this: it may or may not have been done', { cause: error })
}
