/**
 * Tells single processes that something became of their leases: one small file for each name that a process listens to, in the folder `PATH-wake`, which only the user of
 * the data file may enter. Another process wakes it by writing random bits there. The process notices by a file event, or by a look at the file once a second: not every
 * file system has events, and events get lost. Nothing looks at the log itself meanwhile.
 *
 * A process that closes its store removes its files. Those of killed processes are removed after a day by the next process that listens. A living process whose
 * file was removed makes it again.
 */
import { closeSync, constants, fstatSync, readdirSync, readSync, rmSync, statSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../../clock.ts'
import { makeFolder, mustBePrivateFolder, openPrivately } from '../../private-file.ts'
import type { Waker } from '../../store.ts'
import { type WatchFile, watchFile } from './log-changes.ts'

/** Each file is looked at this often, in ms, although events may be relied on. */
const CHECK = 1_000
/** A file that no process has written for so long, in ms, may be removed. */
const ABANDONED = 86_400_000
const LENGTH = 8
/** So many files are written in one turn of the event loop. */
const AT_ONCE = 32
/** Names become names of files. */
const NAME = /^[0-9a-z]{1,64}$/i

export interface FileWakerOptions {
  /** The data file. */
  readonly path: string
  readonly clock: Clock
  readonly watchFile?: WatchFile
}

/** A name that this process listens to. */
interface HeardName {
  readonly path: string
  readonly woken: () => void
  file?: number | undefined
  watcher?: { close(): void } | undefined
  /** The bits that were in the file at the last look. */
  heard: bigint
  /** An event has come, and the file is looked at in this turn. */
  isLooking: boolean
}

export class FileWaker implements Waker {
  readonly listens = true
  readonly #folder: string
  readonly #clock: Clock
  readonly #watchFile: WatchFile
  readonly #ears = new Map<string, HeardName>()
  #cancel: (() => void) | undefined
  #closed = false

  constructor({ path, clock, watchFile: watch = watchFile }: FileWakerOptions) {
    this.#folder = `${path}-wake`
    this.#clock = clock
    this.#watchFile = watch
  }

  listen(name: string, woken: () => void): void {
    if (this.#closed || this.#ears.has(name) || !NAME.test(name)) return
    if (this.#ears.size === 0) this.#removeAbandoned()
    const ear: HeardName = { path: join(this.#folder, name), woken, heard: 0n, isLooking: false }
    this.#ears.set(name, ear)
    this.#look(ear)
    this.#cancel ??= this.#clock.after(CHECK, () => this.#check())
  }

  wake(names: readonly string[]): void {
    void this.#tell(names.filter(name => NAME.test(name)))
  }

  close(): void {
    this.#closed = true
    this.#cancel?.()
    for (const ear of this.#ears.values()) {
      if (ear.file !== undefined) rmSync(ear.path, { force: true })
      this.#leave(ear)
    }
    this.#ears.clear()
  }

  async #tell(names: readonly string[]): Promise<void> {
    const bits = Buffer.alloc(LENGTH)
    for (const [i, name] of names.entries()) {
      if (i > 0 && i % AT_ONCE === 0) await new Promise<void>(resolve => this.#clock.soon(resolve))
      try {
        const file = openPrivately(join(this.#folder, name), constants.O_WRONLY)
        try {
          bits.writeBigUInt64LE(this.#clock.bits())
          writeSync(file, bits, 0, LENGTH, 0)
        } finally {
          closeSync(file)
        }
      } catch {
        // No process listens to this name, or the file cannot be written: the process learns of it with its next renewal.
      }
    }
  }

  #check(): void {
    for (const ear of this.#ears.values()) this.#look(ear)
    this.#cancel = this.#clock.after(CHECK, () => this.#check())
  }

  /** Makes the file if it is missing; what was told until then is not known, so that counts as told. */
  #look(ear: HeardName): void {
    try {
      if (ear.file !== undefined && fstatSync(ear.file).nlink === 0) this.#leave(ear)
      const before = ear.file === undefined ? undefined : ear.heard
      if (before === undefined) this.#open(ear)
      ear.heard = bitsIn(ear.file!)
      if (ear.heard !== before) this.#clock.soon(() => this.#closed || ear.woken())
    } catch {
      this.#leave(ear) // tried again with the next look
    }
  }

  #open(ear: HeardName): void {
    mustBePrivateFolder(this.#folder)
    makeFolder(this.#folder)
    ear.file = openPrivately(ear.path, constants.O_RDONLY | constants.O_CREAT)
    try {
      ear.watcher = this.#watchFile(
        ear.path,
        () => this.#event(ear),
        () => this.#unwatch(ear),
      )
    } catch {
      // This system has no events, or too many processes want them.
    }
  }

  #event(ear: HeardName): void {
    if (ear.isLooking) return
    ear.isLooking = true
    this.#clock.soon(() => {
      ear.isLooking = false
      if (!this.#closed) this.#look(ear)
    })
  }

  #unwatch(ear: HeardName): void {
    ear.watcher?.close()
    ear.watcher = undefined
  }

  #leave(ear: HeardName): void {
    this.#unwatch(ear)
    if (ear.file !== undefined) closeSync(ear.file)
    ear.file = undefined
  }

  #removeAbandoned(): void {
    try {
      for (const name of readdirSync(this.#folder)) {
        const path = join(this.#folder, name)
        if (this.#clock.wall() - statSync(path).mtimeMs > ABANDONED) rmSync(path, { force: true })
      }
    } catch {
      // There is no such folder yet, or another process removes the same files.
    }
  }
}

function bitsIn(file: number): bigint {
  const bits = Buffer.alloc(LENGTH)
  return readSync(file, bits, 0, LENGTH, 0) < LENGTH ? 0n : bits.readBigUInt64LE()
}
