/**
 * A log in a file: SQLite in WAL mode, synced at every append, shared by the processes of one machine or owned by one of them.
 *
 * Not promised: anything on a network file system (processes of several machines do not see each other's locks there); that a
 * disk which lies about syncing keeps what was acknowledged. Ages are known to processes of the same boot.
 *
 * Beside PATH lie PATH-wal and PATH-shm (SQLite's), PATH-owner (an empty file to hold locks on) and PATH-head (the last acknowledged
 * position). This half runs in the caller's thread and only passes messages; the file is touched in `file-log.ts`, on a worker.
 */
import assert from 'node:assert/strict'
import { resolve } from 'node:path'
import { Worker } from 'node:worker_threads'
import { systemClock } from '../../clock.ts'
import { type ErrorCode, type Facts, LeaseError } from '../../errors.ts'
import type { Appended, Opened, Position, Profile, Read, Snapshot, Store } from '../../store.ts'
import { ExitMutex, lockAtExit } from './exit-mutex.ts'
import type { FileLog } from './log.ts'
import type { StoredSnapshot } from './snapshots.ts'

type Calls = Pick<
  FileLog,
  'open' | 'append' | 'read' | 'beginSnapshot' | 'putChunk' | 'keepSnapshot' | 'dropSnapshot' | 'newest' | 'chunk' | 'announce' | 'close'
>
type Arguments<C extends keyof Calls> = Parameters<Calls[C]>
type Result<C extends keyof Calls> = Awaited<ReturnType<Calls[C]>>

/** Its number, what is asked, and with what. `wait` is a read that is answered later; `cancel` calls it off. */
export type WorkerRequest =
  | { [C in keyof Calls]: [id: number, call: C, ...Arguments<C>] }[keyof Calls]
  | [id: number, call: 'wait', after: Position]
  | [id: number, call: 'cancel']

export type WorkerAnswer =
  | [id: number, done: true, value: unknown]
  | [id: number, done: false, error: { code: ErrorCode; message: string; facts: Facts; cause: string | undefined }]

interface PendingRequest {
  readonly resolve: (value: never) => void
  readonly reject: (error: unknown) => void
  /** A read that waits does not keep the process alive. */
  readonly keepsAlive: boolean
  /** What a caller must be told if the thread dies meanwhile. */
  readonly ifLost: ErrorCode
}

/** One row of a snapshot. */
const CHUNK = 262_144

export interface FileStoreOptions {
  readonly path: string
  /** To be the only one. The name and the address are what others are told; see also `announce`. */
  readonly own?: { readonly name: string; readonly address?: string }
  /** How long, in ms, another process may keep the file locked before we give up and name it. */
  readonly timeout?: number
}

export class FileStore implements Store {
  readonly profile: Profile
  readonly #options: Required<Omit<FileStoreOptions, 'own'>> & Pick<FileStoreOptions, 'own'>
  readonly #pending = new Map<number, PendingRequest>()
  readonly #ended = new AbortController()
  #worker: Worker | undefined
  #closing: Promise<void> | undefined
  #opened = false
  #requests = 0
  #keepAlive = 0

  constructor({ path, own, timeout = 5_000 }: FileStoreOptions) {
    this.#options = { path: resolve(path), timeout, ...(own ? { own } : {}) }
    this.profile = {
      store: 'file',
      durable: true,
      failover: false,
      push: false,
      shared: own === undefined,
      ages: systemClock.boot() !== '',
      notes: [
        'For the processes of one machine, on a local disk: they see what another has appended within 50 ms.',
        'Ages are known until the machine is booted again.',
      ],
    }
  }

  get ended(): AbortSignal {
    return this.#ended.signal
  }

  async open(): Promise<Opened> {
    if (this.#closing) throw closed()
    assert(!this.#worker, 'a store is opened once')
    this.#worker = this.#start()
    const { head, snapshot } = await this.#ask('open').catch(async error => {
      await this.#stop() // and may be tried again: an owner does not stay for ever
      throw error
    })
    this.#opened = true
    return snapshot ? { head, snapshot: this.#readable(snapshot) } : { head }
  }

  async append(entry: Uint8Array, after: Position): Promise<Appended> {
    this.#assertOpen()
    const copy = entry.slice() // ours to hand over: the caller may have to send the same bytes again
    return this.#send('UNKNOWN', [copy.buffer], 'append', copy, after)
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    this.#assertOpen()
    if (!wait) return this.#ask('read', after)
    wait.throwIfAborted()
    const id = ++this.#requests
    const cancel = () => {
      this.#pending.get(id)?.reject(wait.reason)
      this.#pending.delete(id)
      this.#worker?.postMessage([id, 'cancel'] satisfies WorkerRequest)
    }
    wait.addEventListener('abort', cancel)
    try {
      return await new Promise<Read>((resolve, reject) => {
        this.#pending.set(id, { resolve, reject, keepsAlive: false, ifLost: 'UNAVAILABLE' })
        this.#worker!.postMessage([id, 'wait', after] satisfies WorkerRequest)
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
      for await (const chunk of inPiecesOf(CHUNK, bytes)) {
        this.#assertOpen()
        await this.#send('UNAVAILABLE', [chunk.buffer], 'putChunk', id, count++, chunk)
      }
    } catch (error) {
      if (!this.#closing) await this.#ask('dropSnapshot', id).catch(() => {}) // else it is a leftover, taken away with a later snapshot
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

  /** Where this owner serves, for those who are refused the file and can go there instead. */
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
      if (keepsAlive) continue // it is answered before the file is closed
      this.#pending.delete(id)
      reject(closed())
    }
    const worker = this.#worker
    const exited = new Promise<void>(resolve => worker.once('exit', () => resolve()))
    await this.#ask('close').catch(() => worker.terminate()) // it never got as far as having a file to close
    worker.ref()
    await exited
  }

  #start(): Worker {
    // How this process was started (`--input-type`, a loader) is no business of the thread.
    const gate = new ExitMutex()
    const worker = new Worker(workerFile(), { workerData: { ...this.#options, memory: gate.memory }, execArgv: [] })
    worker.once('exit', lockAtExit(gate))
    worker.unref()
    worker.on('message', ([id, done, value]: WorkerAnswer) => {
      const pending = this.#settled(id)
      if (!pending) return // called off
      if (done) pending.resolve(value as never)
      else pending.reject(new LeaseError(value.code, value.message, value))
    })
    worker.on('error', error => this.#lose(error))
    worker.on('exit', () => this.#lose(undefined))
    return worker
  }

  /** The thread is gone, and with it the answers to what was asked. */
  #lose(cause: unknown): void {
    this.#worker = undefined
    const message = `the thread that writes ${this.#options.path} has ended: ${String(cause ?? 'it was closed')}`
    for (const id of [...this.#pending.keys()]) {
      const { reject, ifLost } = this.#settled(id)!
      reject(new LeaseError(ifLost, message, { cause }))
    }
    if (!this.#opened || this.#closing !== undefined) return
    this.#closing = Promise.resolve()
    this.#ended.abort(new LeaseError('UNAVAILABLE', message, { cause })) // its lock on the file is gone with it
  }

  #ask<C extends keyof Calls>(call: C, ...args: Arguments<C>): Promise<Result<C>> {
    return this.#send('UNAVAILABLE', [], call, ...args)
  }

  #send<C extends keyof Calls>(ifLost: ErrorCode, transfer: ArrayBuffer[], call: C, ...args: Arguments<C>): Promise<Result<C>> {
    return new Promise<Result<C>>((resolve, reject) => {
      if (!this.#worker) return reject(closed())
      const id = ++this.#requests
      this.#pending.set(id, { resolve, reject, keepsAlive: true, ifLost })
      if (this.#keepAlive++ === 0) this.#worker.ref()
      this.#worker.postMessage([id, call, ...args], transfer)
    })
  }

  #settled(id: number): PendingRequest | undefined {
    const pending = this.#pending.get(id)
    this.#pending.delete(id)
    if (pending?.keepsAlive && --this.#keepAlive === 0) this.#worker?.unref()
    return pending
  }

  #readable({ id, position, age, chunks }: StoredSnapshot): Snapshot {
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
    if (this.#closing) throw closed()
    if (!this.#opened) throw new LeaseError('UNAVAILABLE', `${this.#options.path} was not opened`)
  }
}

/** The same bytes in pieces of one size, each in a buffer of its own: a snapshot of many small chunks is not as many transactions. */
async function* inPiecesOf(size: number, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let piece = new Uint8Array(size)
  let filled = 0
  for await (let chunk of chunks) {
    while (chunk.length > 0) {
      const taken = chunk.subarray(0, size - filled)
      piece.set(taken, filled)
      filled += taken.length
      chunk = chunk.subarray(taken.length)
      if (filled < size) continue
      yield piece
      piece = new Uint8Array(size)
      filled = 0
    }
  }
  if (filled > 0) yield piece.slice(0, filled)
}

/** Compiled, it lies beside this file. Node 20 runs no TypeScript on a thread: from source, it is the one that was built last. */
function workerFile(): URL {
  return new URL(import.meta.url.endsWith('.ts') ? '../../../dist/store/file/worker.js' : './worker.js', import.meta.url)
}

function closed(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'the store was closed')
}
