/**
 * Announcements beside a file: one file each, in the folder `PATH-announced`, which only the user of the data file may enter. They end by the wall clock:
 * after a step of it, an announcement may end early or late, which costs a connection attempt.
 */
import { closeSync, constants, readdirSync, renameSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../../clock.ts'
import { makeFolder, mustBePrivateFolder, openPrivately, readPrivately } from '../../private-file.ts'
import { type Announcements, checkName } from '../announcements.ts'

export class FileAnnouncements implements Announcements {
  readonly #folder: string
  readonly #clock: Clock

  constructor(path: string, clock: Clock) {
    this.#folder = `${path}-announced`
    this.#clock = clock
  }

  async put(name: string, text: string, ttl: number): Promise<void> {
    mustBePrivateFolder(this.#folder)
    makeFolder(this.#folder)
    mustBePrivateFolder(this.#folder)
    const temporary = this.#newFile('new')
    const file = openPrivately(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL)
    try {
      writeSync(file, `${Math.ceil(this.#clock.wall() + ttl)}\n${text}`)
    } finally {
      closeSync(file)
    }
    renameSync(temporary, this.#file(name))
  }

  async list(prefix: string): Promise<ReadonlyMap<string, string>> {
    mustBePrivateFolder(this.#folder)
    const found = new Map<string, string>()
    for (const file of this.#files()) {
      const name = file.replace('.', '/')
      if (!name.startsWith(prefix)) continue
      const text = this.#read(join(this.#folder, file))
      if (text !== undefined) found.set(name, text)
      else rmSync(join(this.#folder, file), { force: true }) // its process was killed
    }
    return found
  }

  async take(name: string): Promise<string | undefined> {
    mustBePrivateFolder(this.#folder)
    const taken = this.#newFile('taken')
    try {
      renameSync(this.#file(name), taken) // one caller succeeds
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw error
    }
    try {
      return this.#read(taken)
    } finally {
      rmSync(taken, { force: true })
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {}

  #file(name: string): string {
    return join(this.#folder, checkName(name).replace('/', '.'))
  }

  #newFile(what: string): string {
    return join(this.#folder, `-${what}-${this.#clock.bits().toString(36)}`)
  }

  #files(): readonly string[] {
    try {
      return readdirSync(this.#folder).filter(file => !file.startsWith('-'))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
      throw error
    }
  }

  /** Undefined if it has ended, or was removed meanwhile. */
  #read(path: string): string | undefined {
    try {
      const [, end, text] = /^(\d+)\n(.*)$/s.exec(readPrivately(path)) ?? []
      return Number(end) > this.#clock.wall() ? text : undefined
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw error
    }
  }
}
