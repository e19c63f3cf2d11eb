/** An error of etcd is read here: whether the request may have taken effect, whether to retry, and what to tell operators. */
import { type ErrorCode, type ErrorReason, LeaseError } from '../../errors.ts'

export class EtcdError extends Error {
  /** The request certainly had no effect. */
  readonly certain: boolean
  /** A retry does not help: the error to throw. */
  readonly final: LeaseError | undefined
  /** The token has expired, or etcd no longer knows it: retry with a new one. */
  readonly stale: boolean
  /** Authentication is not enabled, and a user was given. */
  readonly open: boolean

  constructor(
    message: string,
    {
      certain = true,
      final,
      stale = false,
      open = false,
      cause,
    }: {
      readonly certain?: boolean
      readonly final?: LeaseError
      readonly stale?: boolean
      readonly open?: boolean
      readonly cause?: unknown
    },
  ) {
    super(message, { cause })
    this.certain = certain
    this.final = final
    this.stale = stale
    this.open = open
  }
}

/** Access that is refused is `UNAVAILABLE` too: it may be given back, e.g. when a password was changed, and a replica that stopped for good would lose its leases. */
const rules: readonly {
  readonly found: RegExp
  readonly stale?: true
  readonly open?: true
  readonly code?: ErrorCode
  readonly reason?: ErrorReason
  readonly next?: string
}[] = [
  { found: /invalid auth token|revision of auth store is old|auth: revision in header is old/, stale: true },
  { found: /authentication is not enabled/, open: true },
  {
    found: /authentication failed/,
    code: 'UNAVAILABLE',
    reason: 'password',
    next: 'check user and password in the URL',
  },
  {
    found: /user name is empty|user name not found/,
    code: 'UNAVAILABLE',
    reason: 'user',
    next: 'it requires a user: write etcd://USER:PASSWORD@HOST',
  },
  {
    found: /permission denied/,
    code: 'UNAVAILABLE',
    reason: 'permission',
    next: 'grant the user readwrite on the prefix of the log: etcdctl role grant-permission ROLE readwrite NAME: --prefix',
  },
  {
    found: /database space exceeded/,
    code: 'UNAVAILABLE',
    reason: 'full',
    next: 'its quota is used up and it accepts no writes: compact, defragment, then etcdctl alarm disarm; set --auto-compaction-retention or a larger --quota-backend-bytes',
  },
  {
    found: /request is too large/,
    code: 'LIMIT',
    reason: 'large',
    next: 'its --max-request-bytes is below 1.5 MiB: raise it',
  },
]

/** etcd reports these before it proposes anything, so the request had no effect. */
const NOT_DONE = /too many requests|no leader|not capable/
const CERTAIN_CODES = [3, 5, 7, 9, 12, 16] // invalid, not found, permission, precondition, unimplemented, unauthenticated

export function etcdError(status: number, text: string, endpoint: string): EtcdError {
  const { code, message } = parsed(text)
  if (code === undefined && status === 404) {
    const final = failure('UNSUPPORTED', endpoint, 'gateway', 'has no JSON gateway', 'start it without --enable-grpc-gateway=false')
    return new EtcdError(final.message, { final })
  }
  const rule = rules.find(({ found }) => found.test(message))
  if (rule?.stale) return new EtcdError(message, { stale: true })
  if (rule?.open) return new EtcdError(message, { open: true })
  if (rule?.code) return new EtcdError(message, { final: failure(rule.code, endpoint, rule.reason!, `says '${message}'`, rule.next!) })
  return new EtcdError(`${endpoint} answered ${status} ${message}`, {
    certain: NOT_DONE.test(message) || CERTAIN_CODES.includes(code ?? -1),
  })
}

function failure(code: ErrorCode, endpoint: string, reason: ErrorReason, says: string, next: string): LeaseError {
  return new LeaseError(code, `etcd at ${endpoint} ${says}: ${next}`, { reason, facts: { where: endpoint } })
}

function parsed(text: string): { readonly code: number | undefined; readonly message: string } {
  try {
    const { code, message, error } = JSON.parse(text) as { code?: number; message?: string; error?: string | { message?: string } }
    const reported = message ?? (typeof error === 'string' ? error : error?.message)
    return { code, message: reported ?? text.slice(0, 200) }
  } catch {
    return { code: undefined, message: text.slice(0, 200).trim() }
  }
}
