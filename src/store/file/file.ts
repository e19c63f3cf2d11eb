/**
 * A log in a file: SQLite in WAL mode, synced at every append, shared by the processes of one machine or owned by one of them.
 *
 * Not guaranteed: anything on a network file system (processes of several machines do not see each other's locks there); that a disk which
 * reports a sync too early keeps acknowledged records. Ages are known to processes of the same boot.
 *
 * Files beside PATH: PATH-wal and PATH-shm (SQLite's), PATH-owner (an empty file to hold locks on) and PATH-head (the last acknowledged
 * position). This file runs in the caller's thread and only exchanges messages. `log.ts` accesses the file, on a worker thread.
 */
import assert from 'node:assert/strict'
import { resolve } from 'node:path'
import type { Worker } from 'node:worker_threads'
import { systemClock } from '../../clock.ts'
import { type ErrorCode, type ErrorReason, type Facts, LeaseError } from '../../errors.ts'
import type { Appended, Opened, Position, Profile, Read, Snapshot, Store, WitnessKeeper } from '../../store.ts'
import { storeClosed, storeNotOpened } from '../closed.ts'
import { rechunk } from '../rechunk.ts'
import { AppendChannel } from './append-channel.ts'
import { KeptWitness } from './kept-witness.ts'
import type { FileLog, FileLogOptions } from './log.ts'
import type { FileSnapshot } from './snapshots.ts'
import { endThread, takeThread } from './worker-thread.ts'

type Calls = Pick<
  FileLog,
  'open' | 'append' | 'read' | 'beginSnapshot' | 'putChunk' | 'keepSnapshot' | 'dropSnapshot' | 'newest' | 'chunk' | 'announce' | 'close'
>
type Arguments<C extends keyof Calls> = Parameters<Calls[C]>
type Result<C extends keyof Calls> = Awaited<ReturnType<Calls[C]>>

/** The first message to the worker. */
export interface WorkerStart extends Omit<FileLogOptions, 'engine'> {
  readonly channel: SharedArrayBuffer | undefined
}

/**
 * A call of the worker: its number, its name and its arguments. `wait` is a read that waits for a record; `cancel` ends the wait. `look` asks
 * for a look at the append channel.
 */
export type WorkerRequest =
  | { [C in keyof Calls]: [id: number, call: C, ...Arguments<C>] }[keyof Calls]
  | [id: number, call: 'wait', after: Position]
  | [id: number, call: 'cancel' | 'look']

export type WorkerAnswer =
  | [id: number, done: true, value: unknown]
  | [
      id: number,
      done: false,
      error: { code: ErrorCode; message: string; reason: ErrorReason | undefined; facts: Facts; cause: string | undefined },
    ]

interface PendingCall {
  readonly resolve: (value: never) => void
  readonly reject: (error: unknown) => void
  /** False for a read that waits: it does not keep the process alive. */
  readonly keepsAlive: boolean
  /** The code of the error if the thread dies meanwhile. */
  readonly ifLost: ErrorCode
}

const NOTHING: readonly never[] = []
/** Bytes in one row of a snapshot. */
const CHUNK = 262_144

export interface FileStoreOptions {
  readonly path: string
  /** Asks to be the only store on the file. Errors of refused processes contain the name and the address; see also `announce`. Default: shared. */
  readonly own?: { readonly name: string; readonly address?: string }
  /** How long, in ms, another process may keep the file locked before a call fails and names that process. @default 5000 */
  readonly timeout?: number
}

/** A store on a log in a SQLite file. */
export class FileStore implements Store {
  readonly profile: Profile
  /** Of an owner. */
  readonly witness: WitnessKeeper | undefined
  readonly #witness = new KeptWitness()
  readonly #options: Required<Omit<FileStoreOptions, 'own'>> & Pick<FileStoreOptions, 'own'>
  readonly #pending = new Map<number, PendingCall>()
  readonly #ended = new AbortController()
  /** Of an owner. Other processes' appends must be polled for, and a worker that waits for ours cannot do that. */
  readonly #channel: AppendChannel | undefined
  #worker: Worker | undefined
  #closing: Promise<void> | undefined
  #opened = false
  #requests = 0
  #keepAlive = 0

  constructor({ path, own, timeout = 5_000 }: FileStoreOptions) {
    this.#options = { path: resolve(path), timeout, ...(own ? { own } : {}) }
    if (own) this.#channel = new AppendChannel()
    if (own) this.witness = this.#witness
    this.profile = {
      store: 'file',
      durable: true,
      failover: false,
      push: false,
      shared: own === undefined,
      ages: systemClock.boot() !== '',
      notes: [
        'For the processes of one machine, on a local disk: a process sees what another one appended within 50 ms.',
        'Ages are known until the machine reboots.',
      ],
    }
  }

  get ended(): AbortSignal {
    return this.#ended.signal
  }

  async open(): Promise<Opened> {
    if (this.#closing) throw storeClosed()
    assert(!this.#worker, 'a store can be opened once')
    this.#worker = this.#start()
    const { head, snapshot } = await this.#ask('open').catch(async error => {
      await this.#stop() // so that the caller can try again: an owner may have gone by then
      throw error
    })
    this.#opened = true
    if (this.#options.own) this.#witness.open(this.#options.path)
    return snapshot ? { head, snapshot: this.#readable(snapshot) } : { head }
  }

  async append(record: Uint8Array, after: Position): Promise<Appended> {
    if (!this.#opened || this.#closing !== undefined) this.#assertOpen()
    const id = this.#requests + 1
    const answer = this.#channel?.append(id, record, after)
    if (answer === undefined) {
      const copy = record.slice() // to transfer: the caller may have to send the same bytes again
      return this.#send('UNKNOWN', [copy.buffer], 'append', copy, after)
    }
    if (answer !== 'by message') return { kind: 'appended', position: answer, missed: NOTHING }
    this.#requests = id
    return new Promise((resolve, reject) => {
      this.#expect(id, { resolve, reject, keepsAlive: true, ifLost: 'UNKNOWN' })
      this.#post([id, 'look']) // it may have gone back to its event loop at that moment
    })
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    this.#assertOpen()
    if (!wait) return this.#ask('read', after)
    wait.throwIfAborted()
    const id = ++this.#requests
    const cancel = () => {
      this.#pending.get(id)?.reject(wait.reason)
      this.#pending.delete(id)
      this.#post([id, 'cancel'])
    }
    wait.addEventListener('abort', cancel)
    try {
      return await new Promise<Read>((resolve, reject) => {
        this.#pending.set(id, { resolve, reject, keepsAlive: false, ifLost: 'UNAVAILABLE' })
        this.#post([id, 'wait', after])
      })
    } finally {
      wait.removeEventListener('abort', cancel)
    }
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    this.#assertOpen()
    const id = await this.#ask('beginSnapshot', at)
    if (id === undefined) return 'older'
    let count = 0
    try {
      for await (const chunk of rechunk(CHUNK, bytes)) {
        this.#assertOpen()
        await this.#send('UNAVAILABLE', [chunk.buffer], 'putChunk', id, count++, chunk)
      }
    } catch (error) {
      if (!this.#closing) await this.#ask('dropSnapshot', id).catch(() => {}) // else it is left over, and deleted with a later snapshot
      throw error
    }
    this.#assertOpen()
    return this.#send('UNKNOWN', [], 'keepSnapshot', id, at, count)
  }

  async newest(): Promise<Snapshot | undefined> {
    this.#assertOpen()
    const snapshot = await this.#ask('newest')
    return snapshot && this.#readable(snapshot)
  }

  /** Publishes where this owner serves the log, for processes that are refused the file and can connect there instead. */
  async announce(address: string): Promise<void> {
    this.#assertOpen()
    await this.#ask('announce', address)
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#closing ??= this.#stop()
    return this.#closing
  }

  async #stop(): Promise<void> {
    if (!this.#worker) return
    for (const [id, { keepsAlive, reject }] of this.#pending) {
      if (keepsAlive) continue // answered before the file is closed
      this.#pending.delete(id)
      reject(storeClosed())
    }
    const worker = this.#worker
    const exited = new Promise<void>(resolve => worker.once('exit', () => resolve()))
    await this.#ask('close').catch(() => endThread(worker)) // it had no file to close yet
    worker.ref()
    await exited
    this.#witness.close()
  }

  #start(): Worker {
    const worker = takeThread()
    worker.postMessage({ ...this.#options, channel: this.#channel?.memory } satisfies WorkerStart)
    worker.on('message', ([id, done, value]: WorkerAnswer) => {
      const pending = this.#settled(id)
      if (!pending) return // cancelled
      if (done) pending.resolve(value as never)
      else pending.reject(new LeaseError(value.code, value.message, value))
    })
    worker.on('error', error => this.#lose(error))
    worker.on('exit', () => this.#lose(undefined))
    return worker
  }

  /** The thread has ended, and pending requests will not be answered. */
  #lose(cause: unknown): void {
    this.#worker = undefined
    const message = `the thread that writes ${this.#options.path} has ended: ${String(cause ?? 'it was closed')}`
    for (const id of [...this.#pending.keys()]) {
      const { reject, ifLost } = this.#settled(id)!
      reject(new LeaseError(ifLost, message, { cause }))
    }
    if (!this.#opened || this.#closing !== undefined) return
    this.#closing = Promise.resolve()
    this.#ended.abort(new LeaseError('UNAVAILABLE', message, { cause })) // its lock on the file ended with it
  }

  #ask<C extends keyof Calls>(call: C, ...args: Arguments<C>): Promise<Result<C>> {
    return this.#send('UNAVAILABLE', [], call, ...args)
  }

  #send<C extends keyof Calls>(ifLost: ErrorCode, transfer: ArrayBuffer[], call: C, ...args: Arguments<C>): Promise<Result<C>> {
    return new Promise<Result<C>>((resolve, reject) => {
      if (!this.#worker) return reject(storeClosed())
      const id = ++this.#requests
      this.#expect(id, { resolve, reject, keepsAlive: true, ifLost })
      this.#post([id, call, ...args], transfer)
    })
  }

  #expect(id: number, pending: PendingCall): void {
    this.#pending.set(id, pending)
    if (this.#keepAlive++ === 0) this.#worker?.ref()
  }

  #post(request: readonly [id: number, call: WorkerRequest[1], ...unknown[]], transfer: ArrayBuffer[] = []): void {
    this.#worker?.postMessage(request, transfer)
    this.#channel?.messageSent()
  }

  #settled(id: number): PendingCall | undefined {
    const pending = this.#pending.get(id)
    this.#pending.delete(id)
    if (pending?.keepsAlive && --this.#keepAlive === 0) this.#worker?.unref()
    return pending
  }

  #readable({ id, position, age, chunks }: FileSnapshot): Snapshot {
    const chunk = async (number: number) => {
      this.#assertOpen()
      return this.#ask('chunk', id, number)
    }
    async function* bytes(): AsyncGenerator<Uint8Array> {
      for (let number = 0; number < chunks; number++) yield await chunk(number)
    }
    return { position, age, bytes: { [Symbol.asyncIterator]: bytes } }
  }

  #assertOpen(): void {
    if (this.#closing) throw storeClosed()
    if (!this.#opened) throw storeNotOpened()
  }
}
