/** A guard in a file, for the processes of one machine. */
import { closeSync, constants, fsyncSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Clock, pause, systemClock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { createPrivately, mustBePrivate, openPrivately, readPrivately } from '../../private-file.ts'
import { type Engine, loadEngine } from '../../store/file/engine.ts'
import { isBusy } from '../../store/file/errors.ts'
import { FileLock } from '../../store/file/file-lock.ts'
import { checkToken, type Guard, stale } from './guard.ts'

/** The package comes first: Node's own SQLite prints a warning to stderr that it is experimental. */
const ENGINES = ['@photostructure/sqlite', 'node:sqlite']

export interface FileGuardOptions {
  /**
   * Another process may be inside the guard this long before `admit` rejects with `UNAVAILABLE`, in ms.
   * @default 5000
   */
  readonly timeout?: number | undefined
  readonly clock?: Clock | undefined
}

/**
 * For a resource that outlives this process: the tokens are in a file, which is synced before a token is admitted. Any number of processes of
 * one machine may share the file: each reads it anew under a lock on `PATH-lock`, which ends with its process. Needs SQLite, as `file:` does.
 * Never remove `PATH-lock` while a process uses the guard.
 */
export class FileGuard implements Guard {
  readonly #path: string
  readonly #timeout: number
  readonly #clock: Clock
  #engine: Promise<Engine> | undefined
  /** One call at a time: within this process, waiting for the lock does not touch the disk. */
  #last: Promise<void> = Promise.resolve()
  /** This text is known to be on the disk. A process may have been killed before it synced what we read. */
  #synced: string | undefined
  #broken: unknown

  constructor(path: string, { timeout = 5_000, clock = systemClock }: FileGuardOptions = {}) {
    this.#path = path
    this.#timeout = timeout
    this.#clock = clock
  }

  admit(resource: string, token: number): Promise<void> {
    const admitted = this.#last.then(() => this.#locked(() => this.#admit(resource, token)))
    this.#last = admitted.catch(() => {})
    return admitted
  }

  #admit(resource: string, token: number): void {
    // A token that was remembered but not written would be forgotten by a restart, and an older one would pass.
    if (this.#broken !== undefined) throw this.#broken
    checkToken(resource, token)
    const text = read(this.#path)
    const tokens = new Map(text === undefined ? [] : tokensIn(this.#path, text))
    const highest = tokens.get(resource)
    if (highest !== undefined && token < highest) throw stale(resource, token, highest)
    const after = JSON.stringify([...tokens.set(resource, token)])
    if (after === text && after === this.#synced) return
    try {
      if (after === text) syncInPlace(this.#path)
      else writeDurably(this.#path, after)
      this.#synced = after
    } catch (error) {
      this.#broken = new LeaseError(
        'UNAVAILABLE',
        `${this.#path} cannot be written: no token is admitted until the guard is opened again`,
        { cause: error },
      )
      throw this.#broken
    }
  }

  async #locked(work: () => void): Promise<void> {
    this.#engine ??= loadEngine(ENGINES)
    const engine = await this.#engine
    const began = this.#clock.now()
    for (let tries = 0; ; tries++) {
      const lock = this.#fileLock(engine)
      try {
        lock.take()
        return work()
      } catch (error) {
        if (!isBusy(error)) throw error
      } finally {
        lock.release()
      }
      const waited = this.#clock.now() - began
      if (waited >= this.#timeout)
        throw new LeaseError('UNAVAILABLE', `waited ${Math.round(waited)} ms for another process to leave the guard of ${this.#path}`, {
          reason: 'busy',
          facts: { path: this.#path },
        })
      await pause(this.#clock, tries < 20 ? 1 : 10, undefined, { ref: true })
    }
  }

  #fileLock(engine: Engine): FileLock {
    const path = `${this.#path}-lock`
    try {
      if (mustBePrivate(path) === undefined) createPrivately(path, this.#clock)
      return new FileLock(engine, path, true)
    } catch (error) {
      if (error instanceof LeaseError) throw error
      throw new LeaseError('UNAVAILABLE', `${path} cannot be opened: no token is admitted`, { cause: error, facts: { path } })
    }
  }
}

function read(path: string): string | undefined {
  try {
    return readPrivately(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    if (error instanceof LeaseError) throw error
    throw new LeaseError('UNAVAILABLE', `${path} cannot be read: no token is admitted`, { cause: error, facts: { path } })
  }
}

function tokensIn(path: string, text: string): [string, number][] {
  try {
    const tokens: unknown = JSON.parse(text)
    if (Array.isArray(tokens) && tokens.every(isTokenOfResource)) return tokens as [string, number][]
  } catch {
    // reported below
  }
  throw new LeaseError('UNAVAILABLE', `${path} is damaged, and was left as it is: no token is admitted. Restore it from a backup`, {
    reason: 'damaged',
    facts: { path },
  })
}

function isTokenOfResource(pair: unknown): boolean {
  return Array.isArray(pair) && pair.length === 2 && typeof pair[0] === 'string' && Number.isSafeInteger(pair[1]) && pair[1] > 0
}

/** Leaves the old file or the new one, never half of it. This runs under the lock, so an existing draft is from a process that was killed. */
function writeDurably(path: string, text: string): void {
  const draft = `${path}.new`
  rmSync(draft, { force: true })
  const file = openPrivately(draft, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL)
  try {
    writeFileSync(file, text)
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
  renameSync(draft, path)
  sync(dirname(path))
}

function syncInPlace(path: string): void {
  sync(path)
  sync(dirname(path))
}

function sync(path: string): void {
  const file = openSync(path, 'r')
  try {
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}
