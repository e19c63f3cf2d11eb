/**
 * Fences: guards beside a resource that refuse a token older than one they have seen (S2).
 *
 * A guard that asks the lease service and then writes is check-then-act, and no fence: the writer may stall between the two. These guards
 * compare and remember where the write happens, in the same transaction, script or queue. Fencing is for exclusive resources: holders of
 * shared grants have tokens too, and the newest must not lock out the others.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { LeaseError } from '../../errors.ts'
import { checkToken, type Guard, stale } from './guard.ts'

export { FileGuard, type FileGuardOptions } from './file-guard.ts'
export type { FencedWrite, Guard } from './guard.ts'
export {
  POSTGRES_FENCE,
  POSTGRES_TABLE,
  type PostgresClient,
  PostgresGuard,
  type PostgresGuardOptions,
  type PostgresPool,
  type PostgresPoolClient,
} from './postgres-guard.ts'
export { SQLITE_FENCE, SQLITE_TABLE, type SqliteDatabase, SqliteGuard, type SqliteGuardOptions } from './sqlite-guard.ts'

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
 * app.use('/jobs', fenced(guard, request => `jobs${request.url ?? '/'}`))
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
