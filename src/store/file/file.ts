/**
 * A log in files: segments that are appended to and synced at every append, shared by the processes of one machine or owned by one of them.
 *
 * Not guaranteed: anything on a network file system (processes of several machines do not see each other's locks there); that a disk which
 * reports a sync too early keeps acknowledged records. Ages are known to processes of the same boot.
 *
 * Files beside PATH: PATH-log (a folder with the segments and snapshots), PATH-owner (an empty file to hold locks on) and PATH-head (the last acknowledged
 * position). A shared log also has PATH-wake (a folder, see waker.ts). PATH itself is a SQLite file with the processes that use the log, and the lock of one append.
 */
import assert from 'node:assert/strict'
import { resolve } from 'node:path'
import { systemClock as clock } from '../../clock.ts'
import type { Appended, Opened, Position, Profile, Read, Snapshot, Store, Waker, WitnessKeeper } from '../../store.ts'
import { storeClosed, storeNotOpened } from '../closed.ts'
import { loadEngine } from './engine.ts'
import { KeptWitness } from './kept-witness.ts'
import { FileLog } from './log.ts'
import { LogChanges } from './log-changes.ts'
import { FileWaker } from './waker.ts'

interface WaitingRead {
  readonly after: Position
  readonly resolve: (read: Read) => void
  readonly reject: (error: unknown) => void
}

export interface FileStoreOptions {
  readonly path: string
  /** Asks to be the only store on the file. Errors of refused processes contain the name and the address; see also `announce`. Default: shared. */
  readonly own?: { readonly name: string; readonly address?: string }
  /** Another process may keep the file locked this long, in ms, before a call fails and names that process. @default 5000 */
  readonly timeout?: number
}

/** A store on a log in files. */
export class FileStore implements Store {
  readonly profile: Profile
  /** Of an owner. */
  readonly witness: WitnessKeeper | undefined
  /** Of a store that others share. */
  readonly waker: Waker | undefined
  readonly #waker: FileWaker | undefined
  readonly #witness = new KeptWitness()
  readonly #options: Required<Omit<FileStoreOptions, 'own'>> & Pick<FileStoreOptions, 'own'>
  readonly #waiting = new Set<WaitingRead>()
  /** Undefined before it is open, and when it is being closed. */
  #log: FileLog | undefined
  #changes: LogChanges | undefined
  #opening: Promise<Opened> | undefined
  #closing: Promise<void> | undefined
  /** The number of calls under way, which are answered before the files are closed. */
  #calls = 0
  #onAnswered: (() => void) | undefined

  constructor({ path, own, timeout = 5_000 }: FileStoreOptions) {
    this.#options = { path: resolve(path), timeout, ...(own ? { own } : {}) }
    if (own) this.witness = this.#witness
    else this.waker = this.#waker = new FileWaker({ path: this.#options.path, clock })
    this.profile = {
      store: 'file',
      durable: true,
      failover: false,
      push: false,
      shared: own === undefined,
      ages: clock.boot() !== '',
      notes: [
        'For the processes of one machine, on a local disk: a process sees what another one appended within 50 ms, or within 1 s if the file system loses an event.',
        'Ages are known until the machine reboots.',
      ],
    }
  }

  open(): Promise<Opened> {
    if (this.#closing) return Promise.reject(storeClosed())
    assert(!this.#opening, 'a store can be opened once')
    this.#opening = this.#open().catch(error => {
      this.#opening = undefined // so that the caller can try again: an owner may have gone by then
      throw error
    })
    return this.#opening
  }

  async #open(): Promise<Opened> {
    const log = new FileLog({ ...this.#options, engine: await loadEngine() })
    const opened = await log.open()
    const { path, own } = this.#options
    this.#log = log
    let last = log.look()
    this.#changes = new LogChanges({
      clock,
      path: `${path}-head`,
      moved: () => {
        const before = last
        last = log.look()
        return last !== before
      },
      changed: () => this.#answerWaiting(),
      failed: error => this.#endWaiting(error),
      isNeeded: () => this.#waiting.size > 0,
    })
    if (own) this.#witness.open(path)
    return opened
  }

  async append(record: Uint8Array, after: Position): Promise<Appended> {
    const log = this.#log ?? this.#notOpen()
    this.#calls++
    try {
      const appended = await log.append(record, after)
      if (this.#waiting.size > 0) this.#answerWaiting()
      return appended
    } finally {
      if (--this.#calls === 0) this.#onAnswered?.()
    }
  }

  read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    return wait === undefined ? this.#call(log => log.read(after)) : this.#wait(after, wait)
  }

  async #wait(after: Position, wait: AbortSignal): Promise<Read> {
    if (this.#log === undefined) this.#notOpen()
    wait.throwIfAborted()
    return new Promise<Read>((resolve, reject) => {
      const end = () => {
        this.#waiting.delete(waiting)
        wait.removeEventListener('abort', cancel)
      }
      const waiting: WaitingRead = {
        after,
        resolve: read => {
          end()
          resolve(read)
        },
        reject: error => {
          end()
          reject(error)
        },
      }
      const cancel = () => waiting.reject(wait.reason)
      wait.addEventListener('abort', cancel)
      this.#waiting.add(waiting)
      this.#changes!.begin()
      this.#answer(waiting)
    })
  }

  #answerWaiting(): void {
    for (const waiting of this.#waiting) this.#answer(waiting)
  }

  #answer(waiting: WaitingRead): void {
    const log = this.#log
    if (log === undefined) return
    log.read(waiting.after).then(
      read => {
        if (this.#waiting.has(waiting) && (read.kind !== 'records' || read.records.length > 0)) waiting.resolve(read)
      },
      error => this.#waiting.has(waiting) && waiting.reject(error),
    )
  }

  #endWaiting(error: unknown): void {
    for (const waiting of [...this.#waiting]) waiting.reject(error)
  }

  snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    return this.#call(log => log.snapshot(at, bytes))
  }

  newest(): Promise<Snapshot | undefined> {
    return this.#call(log => log.newest())
  }

  /** Publishes where this owner serves the log, for processes that are refused the file and can connect there instead. */
  announce(address: string): Promise<void> {
    return this.#call(log => log.announce(address))
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#closing ??= this.#close(this.#log)
    return this.#closing
  }

  async #close(opened: FileLog | undefined): Promise<void> {
    this.#log = undefined
    await this.#opening?.catch(() => {})
    const log = opened ?? this.#log // it may have been opened meanwhile
    this.#log = undefined
    this.#changes?.close()
    this.#waker?.close()
    this.#endWaiting(storeClosed())
    if (this.#calls > 0) await new Promise<void>(resolve => (this.#onAnswered = resolve))
    await log?.close()
    this.#witness.close()
  }

  async #call<T>(call: (log: FileLog) => Promise<T>): Promise<T> {
    const log = this.#log ?? this.#notOpen()
    this.#calls++
    try {
      return await call(log)
    } finally {
      if (--this.#calls === 0) this.#onAnswered?.()
    }
  }

  #notOpen(): never {
    throw this.#closing === undefined ? storeNotOpened() : storeClosed()
  }
}
