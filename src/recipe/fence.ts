/**
 * Fences: guards that live with a resource and refuse whoever comes with an older token than one they have seen (S2).
 *
 * A guard that asks the lease service and then writes is check-then-act, and no fence: the writer may stall between the two. These compare
 * and remember where the write happens, in the same transaction, script or queue. Fencing is for exclusive resources: holders of shared
 * grants have tokens too, and a younger one must not lock out its elders.
 */
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { dirname } from 'node:path'
import { LeaseError } from '../errors.ts'

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

/** For a resource that outlives this process: what was seen is in a file, synced before anyone is admitted. One process at a time. */
export class FileGuard implements Guard {
  readonly #path: string
  readonly #memory: MemoryGuard
  #broken: unknown

  constructor(path: string) {
    this.#path = path
    this.#memory = new MemoryGuard(readTokens(path))
  }

  async admit(resource: string, token: number): Promise<void> {
    // What was remembered and not written could be forgotten by a restart: then an older token would pass.
    if (this.#broken !== undefined) throw this.#broken
    const before = JSON.stringify([...this.#memory.entries()])
    await this.#memory.admit(resource, token)
    const after = JSON.stringify([...this.#memory.entries()])
    if (after === before) return
    try {
      writeDurably(this.#path, after)
    } catch (error) {
      this.#broken = new LeaseError('UNAVAILABLE', `${this.#path} cannot be written: nobody is admitted any more`, { cause: error })
      throw this.#broken
    }
  }
}

function readTokens(path: string): [string, number][] {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
  return JSON.parse(text)
}

/** The old file or the new one, never half of it. */
function writeDurably(path: string, text: string): void {
  const draft = `${path}.new`
  const file = openSync(draft, 'w', 0o600)
  try {
    writeSync(file, text)
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
  renameSync(draft, path)
  const folder = openSync(dirname(path), 'r')
  try {
    fsyncSync(folder)
  } finally {
    closeSync(folder)
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
