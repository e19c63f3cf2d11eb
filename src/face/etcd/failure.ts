/** Errors as the JSON gateway of etcd words them: an HTTP status, a code of gRPC, and etcd's own text, by which clients tell errors apart. */
import { LeaseError } from '../../errors.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { sentenceOf } from '../../wording.ts'
import type { HttpFaceFailure, HttpFaceResponse } from '../face.ts'

const CODES = {
  UNKNOWN: [2, 500],
  INVALID_ARGUMENT: [3, 400],
  NOT_FOUND: [5, 404],
  PERMISSION_DENIED: [7, 403],
  RESOURCE_EXHAUSTED: [8, 429],
  FAILED_PRECONDITION: [9, 412],
  OUT_OF_RANGE: [11, 400],
  UNIMPLEMENTED: [12, 501],
  UNAVAILABLE: [14, 503],
  UNAUTHENTICATED: [16, 401],
} as const satisfies Record<string, readonly [code: number, status: number]>
type EtcdCode = keyof typeof CODES

export class EtcdFailure extends Error {
  override readonly name = 'EtcdFailure'
  readonly code: EtcdCode
  /** etcd's own text does not say this. */
  readonly details: string | undefined

  constructor(code: EtcdCode, message: string, details?: string) {
    super(message)
    this.code = code
    this.details = details
  }

  /** As an item of a stream: `error` is an object there. */
  get item(): object {
    const [grpc, status] = CODES[this.code]
    return { error: { grpc_code: grpc, http_code: status, message: this.message, ...(this.details && { details: this.details }) } }
  }

  get response(): HttpFaceResponse {
    const [code, status] = CODES[this.code]
    const { message, details } = this
    return { status, body: JSON.stringify({ error: message, message, code, ...(details && { details }) }) }
  }
}

export function leaseNotFound(): EtcdFailure {
  return new EtcdFailure('NOT_FOUND', 'etcdserver: requested lease not found')
}

export function keyMissing(): EtcdFailure {
  return new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: key is not provided')
}

export function compacted(): EtcdFailure {
  return new EtcdFailure('OUT_OF_RANGE', 'etcdserver: mvcc: required revision has been compacted', 'Leasehold keeps no past revisions')
}

export function futureRevision(): EtcdFailure {
  return new EtcdFailure('OUT_OF_RANGE', 'etcdserver: mvcc: required revision is a future revision')
}

export function tooManyOperations(details?: string): EtcdFailure {
  return new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: too many operations in txn request', details)
}

/** The failure of a command that was not carried out. */
export function failureOf(outcome: Outcome): EtcdFailure {
  if (outcome.kind !== 'refused')
    return new EtcdFailure('UNAVAILABLE', 'etcdserver: request timed out', 'nothing was done: retry the request')
  return wordedFailure(outcome.code, sentenceOf(outcome))
}

/** A refusal of the server or the kernel, by Leasehold's own code. */
export function wordedFailure(code: string, message: string): EtcdFailure {
  switch (code) {
    case 'GONE':
      return leaseNotFound()
    case 'FORBIDDEN':
      return new EtcdFailure('PERMISSION_DENIED', 'etcdserver: permission denied', message)
    case 'LIMIT':
      return new EtcdFailure('RESOURCE_EXHAUSTED', 'etcdserver: mvcc: database space exceeded', message)
    case 'TOO_LARGE':
      return new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: request is too large', message)
    case 'HELD':
    case 'STALE':
    case 'DEADLOCK':
      return new EtcdFailure('FAILED_PRECONDITION', message)
    case 'INVALID':
      return new EtcdFailure('INVALID_ARGUMENT', message)
    case 'UNSUPPORTED':
      return new EtcdFailure('UNIMPLEMENTED', message)
    case 'UNAVAILABLE':
    case 'DIVERGED':
      return new EtcdFailure('UNAVAILABLE', 'etcdserver: request timed out', message)
    default:
      return new EtcdFailure('UNKNOWN', message)
  }
}

/** Any error, as one of etcd. The message of a bug stays in the server. */
export function failureOfError(error: unknown): EtcdFailure {
  if (error instanceof EtcdFailure) return error
  if (error instanceof LeaseError) return wordedFailure(error.code, error.message)
  return new EtcdFailure('UNKNOWN', 'etcdserver: internal error')
}

/** A refusal of the server itself: of the request that brought these credentials. */
export function refusedRequest({ code, message, open }: HttpFaceFailure, authenticates: boolean, hasToken: boolean): EtcdFailure {
  if (code !== 'UNAUTHENTICATED') return wordedFailure(code, message)
  if (open && authenticates)
    return new EtcdFailure('FAILED_PRECONDITION', 'etcdserver: authentication is not enabled', 'this server has no keys')
  if (authenticates) return new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: authentication failed, invalid user ID or password', message)
  if (!hasToken) return new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: user name is empty', message)
  return new EtcdFailure('UNAUTHENTICATED', 'etcdserver: invalid auth token', message)
}
