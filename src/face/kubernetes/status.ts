/** Failures as Kubernetes words them: a `Status` object with a reason that clients decide by. */
import { LeaseError } from '../../errors.ts'
import type { Refused } from '../../kernel/outcome.ts'
import { sentenceOf } from '../../wording.ts'

export const GROUP = 'coordination.k8s.io'
export const RESOURCE = 'leases'

export interface StatusCause {
  readonly reason: string
  readonly message: string
  readonly field: string
}

export interface StatusDetails {
  readonly name?: string
  readonly group?: string
  readonly kind?: string
  readonly uid?: string
  readonly causes?: readonly StatusCause[]
  readonly retryAfterSeconds?: number
}

export interface KubeStatus {
  readonly kind: 'Status'
  readonly apiVersion: 'v1'
  readonly metadata: Readonly<Record<string, never>>
  readonly status: 'Failure' | 'Success'
  readonly message?: string
  readonly reason?: string
  readonly details?: StatusDetails
  readonly code?: number
}

/** A request that is answered with a `Status`. */
export class StatusFailure extends Error {
  override readonly name = 'StatusFailure'
  readonly code: number
  readonly reason: string
  readonly details: StatusDetails | undefined

  constructor(code: number, reason: string, message: string, details?: StatusDetails) {
    super(message)
    this.code = code
    this.reason = reason
    this.details = details
  }

  get status(): KubeStatus {
    const { message, reason, details, code } = this
    return { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Failure', message, reason, ...(details && { details }), code }
  }
}

function about(name: string): StatusDetails {
  return { name, group: GROUP, kind: RESOURCE }
}

export function notFound(name: string): StatusFailure {
  return new StatusFailure(404, 'NotFound', `${RESOURCE}.${GROUP} "${name}" not found`, about(name))
}

export function noSuchPath(): StatusFailure {
  return new StatusFailure(404, 'NotFound', 'the server could not find the requested resource', {})
}

export function methodNotAllowed(): StatusFailure {
  return new StatusFailure(405, 'MethodNotAllowed', 'the server does not allow this method on the requested resource', {})
}

export function alreadyExists(name: string): StatusFailure {
  return new StatusFailure(409, 'AlreadyExists', `${RESOURCE}.${GROUP} "${name}" already exists`, about(name))
}

export function conflict(name: string, why: string): StatusFailure {
  return new StatusFailure(409, 'Conflict', `Operation cannot be fulfilled on ${RESOURCE}.${GROUP} "${name}": ${why}`, about(name))
}

/** The words that client libraries show and people know. */
const MODIFIED = 'the object has been modified; please apply your changes to the latest version and try again'

/** Another client was faster. With the object as it is now, the request may succeed. */
export class ModifiedFailure extends StatusFailure {}

export function modified(name: string): StatusFailure {
  return new ModifiedFailure(409, 'Conflict', `Operation cannot be fulfilled on ${RESOURCE}.${GROUP} "${name}": ${MODIFIED}`, about(name))
}

export function badRequest(message: string): StatusFailure {
  return new StatusFailure(400, 'BadRequest', message)
}

export function unsupportedType(message: string): StatusFailure {
  return new StatusFailure(415, 'UnsupportedMediaType', message)
}

export function invalid(name: string, causes: readonly StatusCause[]): StatusFailure {
  const texts = causes.map(({ field, message }) => `${field}: ${message}`)
  const what = texts.length === 1 ? texts[0]! : `[${texts.join(', ')}]`
  return new StatusFailure(422, 'Invalid', `Lease.${GROUP} "${name}" is invalid: ${what}`, { name, group: GROUP, kind: 'Lease', causes })
}

export function expired(message: string): StatusFailure {
  return new StatusFailure(410, 'Expired', message)
}

const REASONS: Readonly<Record<string, readonly [code: number, reason: string]>> = {
  UNAUTHENTICATED: [401, 'Unauthorized'],
  FORBIDDEN: [403, 'Forbidden'],
  NOT_FOUND: [404, 'NotFound'],
  HELD: [409, 'Conflict'],
  STALE: [409, 'Conflict'],
  GONE: [409, 'Conflict'],
  TOO_LARGE: [413, 'RequestEntityTooLarge'],
  INVALID: [400, 'BadRequest'],
  LIMIT: [429, 'TooManyRequests'],
  UNSUPPORTED: [501, 'MethodNotAllowed'],
  UNAVAILABLE: [503, 'ServiceUnavailable'],
  DIVERGED: [503, 'ServiceUnavailable'],
  UNKNOWN: [504, 'Timeout'],
}

/** A failure with one of Leasehold's codes. */
export function failureOf(code: string, message: string): StatusFailure {
  const [status, reason] = REASONS[code] ?? [500, 'InternalError']
  return new StatusFailure(status, reason, message, status === 429 || status === 503 ? { retryAfterSeconds: 1 } : undefined)
}

/** Why the kernel did not change the object `name`. */
export function refusalOf(name: string, refused: Refused): StatusFailure {
  const { code } = refused
  const message = sentenceOf(refused)
  if (code === 'INVALID') return invalid(name, [{ reason: 'FieldValueInvalid', message, field: 'spec' }])
  // As the API server words a quota that is used up: a client must not repeat the request until it fits.
  if (code === 'LIMIT') return new StatusFailure(403, 'Forbidden', `${RESOURCE}.${GROUP} "${name}" is forbidden: ${message}`, about(name))
  if (code === 'FORBIDDEN')
    return new StatusFailure(403, 'Forbidden', `${RESOURCE}.${GROUP} "${name}" is forbidden: ${message}`, about(name))
  if (code === 'HELD' || code === 'STALE' || code === 'GONE') return conflict(name, message)
  return failureOf(code, message)
}

/** A failure that can be told to the client as a `Status`; undefined: a failure of the program itself, or of the connection. */
export function toldFailure(error: unknown): StatusFailure | undefined {
  if (error instanceof StatusFailure) return error
  return error instanceof LeaseError ? failureOf(error.code, error.message) : undefined
}
