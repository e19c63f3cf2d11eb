/**
 * A disk in memory on which writes fail, stop half-way, stand still and are lost. It has what the system remembers and what is durable: a crash of the process keeps the
 * former, and a power loss keeps any part of what was written and not synced, sector by sector, and any of the names that were given since the folder was
 * last synced.
 */
import type { LogFile, LogFolder, NewLogFile } from '../../../src/store/file/log-folder.ts'

const SECTOR = 512

/** Random decisions: a number in [0, 1). */
export type Chance = () => number

/** These faults befall the next calls. */
export interface Faults {
  /** The chance that a write fails. A part of its sectors may have been written. */
  failing: number
  /** The chance that the process dies in a write, which then never ends. */
  dying: number
  /** No file can grow. */
  full: boolean
  /** Nothing can be changed. */
  readOnly: boolean
  /** The process dies when it is here for the `count`th time. */
  dieAt: { readonly place: string; count: number } | undefined
}

/** These steps are done with the folder, in the order in which a file is made, gets its name, is written to and removed. */
export const DISK_STEPS = ['create', 'fill', 'sync file', 'rename', 'sync folder', 'write', 'remove'] as const
type DiskStep = (typeof DISK_STEPS)[number]

interface Contents {
  /** As the system remembers it. */
  bytes: Buffer
  durable: Buffer
}

export class Died extends Error {}

export class FaultyDisk implements LogFolder {
  readonly faults: Faults = { failing: 0, dying: 0, full: false, readOnly: false, dieAt: undefined }
  readonly #chance: Chance
  #files = new Map<string, Contents>()
  #durableNames = new Map<string, Contents>()
  #isDead = false
  #stall: Promise<void> | undefined

  constructor(chance: Chance) {
    this.#chance = chance
  }

  /** The process has died: a new one begins. */
  restart({ powerLoss }: { readonly powerLoss: boolean }): void {
    this.#isDead = false
    this.#stall = undefined // what waits for it belongs to the dead process
    if (!powerLoss) return
    // Each name is as it was, or as it has become.
    for (const name of new Set([...this.#files.keys(), ...this.#durableNames.keys()])) {
      const kept = this.#chance() < 0.5 ? this.#files.get(name) : this.#durableNames.get(name)
      if (kept === undefined) this.#files.delete(name)
      else this.#files.set(name, kept)
    }
    for (const contents of this.#files.values()) {
      for (let at = 0; at < contents.bytes.length; at += SECTOR)
        if (this.#chance() < 0.5) {
          const old = Buffer.alloc(Math.min(SECTOR, contents.bytes.length - at))
          if (at < contents.durable.length) contents.durable.copy(old, 0, at, Math.min(at + SECTOR, contents.durable.length))
          old.copy(contents.bytes, at)
        }
      contents.durable = Buffer.from(contents.bytes)
    }
    this.#durableNames = new Map(this.#files)
  }

  /** The disk stands still: calls that change it wait until the returned function is called. */
  stall(): () => void {
    let resume = () => {}
    this.#stall = new Promise(resolve => {
      resume = resolve
    })
    return () => {
      this.#stall = undefined
      resume()
    }
  }

  /** Changes a file behind the back of everybody. */
  damage(name: string, change: (bytes: Buffer) => void): void {
    const contents = this.#files.get(name)!
    change(contents.bytes)
    contents.durable = Buffer.from(contents.bytes)
  }

  remember(name: string): Buffer {
    return this.#files.get(name)!.bytes
  }

  async list(): Promise<string[]> {
    this.#live()
    return [...this.#files.keys()]
  }

  async open(name: string): Promise<LogFile | undefined> {
    this.#live()
    const contents = this.#files.get(name)
    return (
      contents && {
        size: async () => contents.bytes.length,
        read: async (into, at) => {
          this.#live()
          return contents.bytes.copy(into, 0, at)
        },
        write: async (bytes, at) =>
          this.#step('write', () => {
            this.#write(contents, bytes, at)
            // Only what was written now: what an earlier write that failed has left may still be lost.
            const length = Math.max(contents.durable.length, at + bytes.length)
            contents.durable = Buffer.concat([contents.durable, Buffer.alloc(length - contents.durable.length)])
            contents.durable.set(bytes, at)
          }),
        close: async () => {},
      }
    )
  }

  async create(temporaryName: string): Promise<NewLogFile> {
    const contents = { bytes: Buffer.alloc(0), durable: Buffer.alloc(0) }
    let name = temporaryName
    await this.#step('create', () => this.#files.set(name, contents))
    return {
      write: async (bytes, at) => this.#step('fill', () => this.#write(contents, bytes, at)),
      keep: async kept => {
        await this.#step('sync file', () => {
          contents.durable = Buffer.from(contents.bytes)
        })
        await this.#step('rename', () => {
          this.#files.delete(name)
          this.#files.set(kept, contents)
          name = kept
        })
        await this.sync()
      },
      drop: async () => {
        if (name === temporaryName) this.#files.delete(name)
      },
    }
  }

  async remove(name: string): Promise<void> {
    await this.#step('remove', () => this.#files.delete(name))
  }

  async sync(): Promise<void> {
    await this.#step('sync folder', () => {
      this.#durableNames = new Map(this.#files)
    })
  }

  #write(contents: Contents, bytes: Uint8Array, at: number): void {
    this.#live()
    const end = at + bytes.length
    if (end > contents.bytes.length) {
      if (this.faults.full) throw Object.assign(new Error('no space'), { code: 'ENOSPC' })
      contents.bytes = Buffer.concat([contents.bytes, Buffer.alloc(end - contents.bytes.length)])
    }
    const fails = this.#chance() < this.faults.failing
    const dies = this.#chance() < this.faults.dying
    for (let from = at; from < end; ) {
      const to = Math.min(end, (Math.floor(from / SECTOR) + 1) * SECTOR)
      // A write that does not end has written any of its sectors.
      if ((!fails && !dies) || this.#chance() < 0.5) contents.bytes.set(bytes.subarray(from - at, to - at), from)
      from = to
    }
    if (dies) this.#die()
    if (fails) throw Object.assign(new Error('the disk failed'), { code: 'EIO' })
  }

  async #step(step: DiskStep, work: () => void): Promise<void> {
    await this.#stall
    this.#live()
    if (this.faults.readOnly) throw Object.assign(new Error('a read-only file system'), { code: 'EROFS' })
    if (step !== 'write' && step !== 'fill' && this.#chance() < this.faults.dying) this.#die() // writes die half-way
    this.#reach(`before ${step}`)
    work()
    this.#reach(`after ${step}`)
  }

  #reach(place: string): void {
    const { dieAt } = this.faults
    if (dieAt?.place === place && --dieAt.count === 0) this.#die()
  }

  #die(): never {
    this.#isDead = true
    throw new Died()
  }

  /** A process that has died does nothing more. */
  #live(): void {
    if (this.#isDead) throw new Died()
  }
}
