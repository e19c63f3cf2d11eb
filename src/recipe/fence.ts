/**
 * Fences: guards that live with a resource and refuse whoever comes with an older token than one they have seen (S2).
 *
 * A guard that asks the lease service and then writes is check-then-act, and no fence: the writer may stall between the two. These compare
 * and remember where the write happens, in the same transaction, script or queue. Fencing is for exclusive resources: holders of shared
 * grants have tokens too, and a younger one must not lock out its elders.
 */
import { closeSync, constants, fsyncSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { dirname } from 'node:path'
import { type Clock, pause, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { createPrivately, mustBePrivate, openPrivately, readPrivately } from '../private-file.ts'
import { type Engine, loadEngine } from '../store/file/engine.ts'
import { isBusy } from '../store/file/errors.ts'
import { FileLock } from '../store/file/file-lock.ts'

/** Remembers the highest token of each resource. Refuses an older one with `STALE`; the same one again is welcome. */
export interface Guard {
  admit(resource: string, token: number): Promise<void>
}

function stale(resource: string, token: number, highest: number | undefined): LeaseError {
  const seen = highest === undefined ? 'a newer one was seen' : `${highest} was seen`
  return new LeaseError('STALE', `token ${token} for ${resource} is out of date: ${seen}. The lease it came with has ended; acquire anew`, {
    facts: { resource, token, ...(highest !== undefined && { highest }) },
  })
}

function mustBeToken(resource: string, token: number): void {
  if (!Number.isSafeInteger(token) || token < 1) throw new LeaseError('INVALID', `${String(token)} is no token for ${resource}`)
}

/** For a resource that is gone with this process. */
export class MemoryGuard implements Guard {
  readonly #highest: Map<string, number>

  constructor(highest: Iterable<readonly [resource: string, token: number]> = []) {
    this.#highest = new Map(highest)
  }

  async admit(resource: string, token: number): Promise<void> {
    mustBeToken(resource, token)
    const highest = this.#highest.get(resource)
    if (highest !== undefined && token < highest) throw stale(resource, token, highest)
    this.#highest.set(resource, token)
  }

  entries(): IterableIterator<[string, number]> {
    return this.#highest.entries()
  }
}

/** Node's own SQLite warns on the standard error of the program that it is experimental; the one from npm comes first here. */
const ENGINES = ['@photostructure/sqlite', 'node:sqlite']

export interface FileGuardOptions {
  /** How long, in ms, another process may be inside the guard before we give up; 5 s. */
  readonly timeout?: number
  readonly clock?: Clock
}

/**
 * For a resource that outlives this process: what was seen is in a file, synced before a token is admitted. Any number of processes of one
 * machine may share the file: each reads it anew under a lock, on `PATH-lock`, that ends with the process which holds it. Needs SQLite, as
 * `file:` does. Never remove `PATH-lock` while a process uses the guard.
 */
export class FileGuard implements Guard {
  readonly #path: string
  readonly #timeout: number
  readonly #clock: Clock
  #engine: Promise<Engine> | undefined
  /** One at a time: what waits for the lock within this process does not ask the disk. */
  #last: Promise<void> = Promise.resolve()
  /** What is known to be on the disk. A process may have been killed before it had synced what we read. */
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
    // What was remembered and not written could be forgotten by a restart: then an older token would pass.
    if (this.#broken !== undefined) throw this.#broken
    mustBeToken(resource, token)
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
      this.#broken = new LeaseError('UNAVAILABLE', `${this.#path} cannot be written: no token is admitted any more`, { cause: error })
      throw this.#broken
    }
  }

  async #locked(work: () => void): Promise<void> {
    this.#engine ??= loadEngine(ENGINES)
    const engine = await this.#engine
    const began = this.#clock.now()
    for (let tries = 0; ; tries++) {
      const grip = this.#grip(engine)
      try {
        grip.take()
        return work()
      } catch (error) {
        if (!isBusy(error)) throw error
      } finally {
        grip.release()
      }
      const waited = this.#clock.now() - began
      if (waited >= this.#timeout)
        throw new LeaseError('UNAVAILABLE', `waited ${Math.round(waited)} ms for another process to leave the guard of ${this.#path}`, {
          facts: { path: this.#path, reason: 'busy' },
        })
      await pause(this.#clock, tries < 20 ? 1 : 10, undefined, { ref: true })
    }
  }

  #grip(engine: Engine): FileLock {
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
    if (Array.isArray(tokens) && tokens.every(isSeen)) return tokens as [string, number][]
  } catch {
    // said below
  }
  throw new LeaseError('UNAVAILABLE', `${path} is damaged, and was left as it is: no token is admitted. Restore it from a backup`, {
    facts: { path, reason: 'damaged' },
  })
}

function isSeen(pair: unknown): boolean {
  return Array.isArray(pair) && pair.length === 2 && typeof pair[0] === 'string' && Number.isSafeInteger(pair[1]) && pair[1] > 0
}

/** The old file or the new one, never half of it. Under the lock, so a draft that is there was left by a process that was killed. */
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

// Postgres: the fence stands in the same transaction as the write.

/** To run once. */
export const POSTGRES_TABLE = 'create table if not exists leasehold_fence (resource text primary key, token bigint not null)'

/** To run first in each transaction that writes, with the resource and the token: no row returned means stale, so roll back. */
export const POSTGRES_FENCE = `insert into leasehold_fence as fence (resource, token) values ($1, $2)
on conflict (resource) do update set token = excluded.token where fence.token <= excluded.token
returning token`

/** A client of `pg`, by its shape. Inside a transaction it must be one connection, not a pool. */
export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: readonly unknown[] }>
}

/** Within the caller's transaction. Locks the row: whoever comes with another token waits until this one is committed. */
export class PostgresGuard implements Guard {
  readonly #client: PostgresClient

  constructor(client: PostgresClient) {
    this.#client = client
  }

  async admit(resource: string, token: number): Promise<void> {
    mustBeToken(resource, token)
    const { rows } = await this.#client.query(POSTGRES_FENCE, [resource, token])
    if (rows.length === 0) throw stale(resource, token, undefined)
  }

  /** A transaction around the fence and the work: both happen or neither. */
  async write<T>(resource: string, token: number, work: (client: PostgresClient) => Promise<T>): Promise<T> {
    await this.#client.query('begin')
    try {
      await this.admit(resource, token)
      const result = await work(this.#client)
      await this.#client.query('commit')
      return result
    } catch (error) {
      await this.#client.query('rollback')
      throw error
    }
  }
}

// Redis: the fence stands in the same script as the write.

/** KEYS: the fence, then the key to write. ARGV: the token, then the value. Answers 1, or 0 when stale. Tokens are below 2^53: exact in Lua. */
export const REDIS_SET = `local highest = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < highest then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1`

/** `run` is how your client runs a script: `(script, keys, args) => client.eval(script, { keys, arguments: args })` for node-redis. */
export type RunScript = (script: string, keys: string[], args: string[]) => Promise<unknown>

/** The two keys must live on one node of a cluster: give both the same {tag}. */
export async function setFenced(
  run: RunScript,
  key: string,
  value: string,
  { fence = `${key}:fence`, token }: { fence?: string; token: number },
): Promise<void> {
  mustBeToken(key, token)
  if (Number(await run(REDIS_SET, [fence, key], [String(token), value])) !== 1) throw stale(key, token, undefined)
}

// HTTP: a service that is written to over the network checks the header of each request.

export const HEADER = 'Fencing-Token'

interface Refusal {
  readonly status: 400 | 409 | 428
  readonly body: { readonly error: { readonly code: string; readonly message: string } }
}

async function refusal(guard: Guard, resource: string, header: string | undefined): Promise<Refusal | undefined> {
  if (header === undefined || header === '')
    return {
      status: 428,
      body: { error: { code: 'INVALID', message: `${resource} is fenced: send the token of your lease as ${HEADER}` } },
    }
  try {
    await guard.admit(resource, /^\d{1,16}$/.test(header) ? Number(header) : Number.NaN)
    return undefined
  } catch (error) {
    if (!(error instanceof LeaseError) || (error.code !== 'STALE' && error.code !== 'INVALID')) throw error
    return { status: error.code === 'STALE' ? 409 : 400, body: { error: { ...error.facts, code: error.code, message: error.message } } }
  }
}

/** For `node:http`, Express and Connect: answers 409 to stale tokens, 428 to requests without one, and calls `next` for the others. */
export function fenced<R extends IncomingMessage>(guard: Guard, resourceOf: (request: R) => string) {
  return async (request: R, response: ServerResponse, next: (error?: unknown) => void): Promise<void> => {
    try {
      const header = request.headers[HEADER.toLowerCase()]
      const refused = await refusal(guard, resourceOf(request), typeof header === 'string' ? header : undefined)
      if (refused === undefined) return next()
      response.writeHead(refused.status, { 'content-type': 'application/json' }).end(JSON.stringify(refused.body))
    } catch (error) {
      next(error)
    }
  }
}

/** A context of Hono, by its shape. */
export interface FencedContext {
  readonly req: { header(name: string): string | undefined }
  json(body: object, status: 400 | 409 | 428): Response
}

/** The same for Hono: `app.use('/jobs/*', fencedHono(guard, c => c.req.path))`. */
export function fencedHono<C extends FencedContext>(guard: Guard, resourceOf: (context: C) => string) {
  return async (context: C, next: () => Promise<void>): Promise<Response | undefined> => {
    const refused = await refusal(guard, resourceOf(context), context.req.header(HEADER))
    if (refused !== undefined) return context.json(refused.body, refused.status)
    await next()
    return undefined
  }
}
