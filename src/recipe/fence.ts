/**
 * Fences: guards beside a resource that refuse a token older than one they have seen (S2).
 *
 * A guard that asks the lease service and then writes is check-then-act, and no fence: the writer may stall between the two. These guards
 * compare and remember where the write happens, in the same transaction, script or queue. Fencing is for exclusive resources: holders of
 * shared grants have tokens too, and the newest must not lock out the others.
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

/**
 * Remembers the highest token of each resource. Refuses an older one with `STALE`; the same one again is accepted.
 *
 * @example
 * const guard = new FileGuard('/var/lib/reports/tokens')
 * await guard.admit('reports', lease.token) // throws STALE for a former holder
 */
export interface Guard {
  admit(resource: string, token: number): Promise<void>
}

function stale(resource: string, token: number, highest: number | undefined): LeaseError {
  const seen = highest === undefined ? 'a newer one was seen' : `${highest} was seen`
  return new LeaseError('STALE', `token ${token} for ${resource} is out of date: ${seen}. Its lease has ended: acquire a new one`, {
    facts: { resource, token, ...(highest !== undefined && { highest }) },
  })
}

function checkToken(resource: string, token: number): void {
  if (!Number.isSafeInteger(token) || token < 1) throw new LeaseError('INVALID', `${String(token)} is not a token, for ${resource}`)
}

/** For a resource that ends with this process. */
export class MemoryGuard implements Guard {
  readonly #highest: Map<string, number>

  constructor(highest: Iterable<readonly [resource: string, token: number]> = []) {
    this.#highest = new Map(highest)
  }

  async admit(resource: string, token: number): Promise<void> {
    checkToken(resource, token)
    const highest = this.#highest.get(resource)
    if (highest !== undefined && token < highest) throw stale(resource, token, highest)
    this.#highest.set(resource, token)
  }

  entries(): IterableIterator<[string, number]> {
    return this.#highest.entries()
  }
}

/** The package comes first: Node's own SQLite prints a warning to stderr that it is experimental. */
const ENGINES = ['@photostructure/sqlite', 'node:sqlite']

export interface FileGuardOptions {
  /**
   * How long another process may be inside the guard before `admit` rejects with `UNAVAILABLE`, in ms.
   * @default 5000
   */
  readonly timeout?: number
  readonly clock?: Clock
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
  /** What is known to be on the disk. A process may have been killed before it synced what we read. */
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

// Postgres: the fence is in the same transaction as the write.

/** The table of the fence. Run this once. */
export const POSTGRES_TABLE = 'create table if not exists leasehold_fence (resource text primary key, token bigint not null)'

/** Run this first in each transaction that writes, with the resource and the token. If it returns no row, the token is stale: roll back. */
export const POSTGRES_FENCE = `insert into leasehold_fence as fence (resource, token) values ($1, $2)
on conflict (resource) do update set token = excluded.token where fence.token <= excluded.token
returning token`

/** The part of a `pg` client that is used. Inside a transaction it must be one connection, not a pool. */
export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: readonly unknown[] }>
}

/**
 * Fences within the caller's transaction. It locks the row: a writer with another token waits until this transaction is committed.
 *
 * @example
 * await new PostgresGuard(client).write('reports', lease.token, client => client.query('update …'))
 */
export class PostgresGuard implements Guard {
  readonly #client: PostgresClient

  constructor(client: PostgresClient) {
    this.#client = client
  }

  async admit(resource: string, token: number): Promise<void> {
    checkToken(resource, token)
    const { rows } = await this.#client.query(POSTGRES_FENCE, [resource, token])
    if (rows.length === 0) throw stale(resource, token, undefined)
  }

  /** Runs the fence and the work in one transaction: both happen or neither. */
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

// Redis: the fence is in the same script as the write.

/** KEYS: the fence, then the key to write. ARGV: the token, then the value. Returns 1, or 0 when stale. Tokens are below 2^53: exact in Lua. */
export const REDIS_SET = `local highest = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < highest then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1`

/** Runs a script on your client. For node-redis: `(script, keys, args) => client.eval(script, { keys, arguments: args })`. */
export type RunScript = (script: string, keys: string[], args: string[]) => Promise<unknown>

/**
 * Sets a key in Redis unless the token is stale. In a cluster, the key and its fence must be on one node: give both the same {tag}.
 *
 * @example
 * await setFenced(run, 'report', 'text', { token: lease.token })
 */
export async function setFenced(
  run: RunScript,
  key: string,
  value: string,
  { fence = `${key}:fence`, token }: { fence?: string; token: number },
): Promise<void> {
  checkToken(key, token)
  if (Number(await run(REDIS_SET, [fence, key], [String(token), value])) !== 1) throw stale(key, token, undefined)
}

// HTTP: a service checks the header of each request that writes.

/** The header that carries the token. */
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

/**
 * Middleware for `node:http`, Express and Connect: answers 409 to a stale token, 428 to a request without one, and otherwise calls `next`.
 *
 * @example
 * app.use('/jobs', fenced(guard, request => request.path))
 */
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

/** The part of a Hono context that is used. */
export interface FencedContext {
  readonly req: { header(name: string): string | undefined }
  json(body: object, status: 400 | 409 | 428): Response
}

/**
 * The same for Hono.
 *
 * @example
 * app.use('/jobs/*', fencedHono(guard, context => context.req.path))
 */
export function fencedHono<C extends FencedContext>(guard: Guard, resourceOf: (context: C) => string) {
  return async (context: C, next: () => Promise<void>): Promise<Response | undefined> => {
    const refused = await refusal(guard, resourceOf(context), context.req.header(HEADER))
    if (refused !== undefined) return context.json(refused.body, refused.status)
    await next()
    return undefined
  }
}
