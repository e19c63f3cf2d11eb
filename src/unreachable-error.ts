/** The error about a store or a server that cannot be reached, with the same facts whatever the engine. */
import { type ErrorCode, LeaseError } from './errors.ts'

/** These phrases are written behind an error, so that a caller knows whether a retry is safe. */
export const NOTHING_DONE = 'nothing was done'
export const MAYBE_DONE = 'it may or may not have been done'

export interface Unreachable {
  /** The kind of store or server. */
  readonly engine: 'postgres' | 'redis' | 'etcd' | 'leasehold'
  /** Its address, or its addresses separated by commas, without a password. */
  readonly where: string
  /** The driver or the system reported this. */
  readonly cause?: unknown
  /** Default: `UNAVAILABLE`, for a request that was certainly not executed. */
  readonly code?: ErrorCode
  /** This is known besides: for how long it was tried. */
  readonly detail?: string
}

export function unreachableError({ engine, where, cause, code = 'UNAVAILABLE', detail }: Unreachable): LeaseError {
  const errno = errnoOf(cause)
  const known = [detail, textOf(cause, errno)].filter(text => text !== undefined && text !== '').join(': ')
  const outcome = code === 'UNKNOWN' ? MAYBE_DONE : NOTHING_DONE
  return new LeaseError(
    code,
    `${where} cannot be reached${known === '' ? '' : ` (${known})`}: ${outcome}. Check that it runs and that the address is right`,
    {
      ...(cause !== undefined && { cause }),
      reason: 'unreachable',
      facts: { engine, where, ...(errno !== undefined && { errno }) },
    },
  )
}

/** The same failure with another code: more, or less, is known about what was done. */
export function unreachableWithCode(error: LeaseError, code: ErrorCode): LeaseError {
  const { engine, where } = error.facts as unknown as Unreachable
  return unreachableError({ engine, where, cause: error.cause, code })
}

/** Codes of the operating system for a connection that could not be made: certainly no request was sent. */
const NEVER_CONNECTED = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN', 'ENOENT', 'EACCES'])

/** Returns whether the system reported that no connection was made. */
export function neverConnected(cause: unknown): boolean {
  const errno = errnoOf(cause)
  return errno !== undefined && NEVER_CONNECTED.has(errno)
}

/** The code of the operating system, also behind the errors of `fetch` and of a name with several addresses. */
export function errnoOf(cause: unknown): string | undefined {
  for (let at = cause as Behind | undefined, depth = 0; typeof at === 'object' && at !== null && depth < 4; depth++) {
    if (typeof at.code === 'string' && /^E[A-Z0-9_]+$/.test(at.code) && !at.code.startsWith('ERR_')) return at.code
    at = (at.errors?.[0] ?? at.cause) as Behind | undefined
  }
  return undefined
}

interface Behind {
  readonly code?: unknown
  readonly cause?: unknown
  readonly errors?: readonly unknown[]
}

function textOf(cause: unknown, errno: string | undefined): string | undefined {
  const text = cause instanceof Error ? cause.message.trim() : cause === undefined ? '' : String(cause)
  if (text === '') return errno // the message is empty if a name has several addresses and all refuse
  return errno === undefined || text.includes(errno) ? text : `${text}, ${errno}`
}
