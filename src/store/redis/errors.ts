/** Errors of the Redis store. The message tells operators what to do; the reason is for programs. */
import { type ErrorCode, type ErrorReason, LeaseError } from '../../errors.ts'
import { unreachableError } from '../../unreachable-error.ts'

/** The rights that a user needs besides the keys of the log, in the syntax of ACL SETUSER. */
export const RIGHTS =
  '+eval +evalsha +xadd +xrange +xrevrange +xread +xtrim +xinfo|stream +exists +hget +hmget +hset +hlen +pexpire +persist +unlink +lpush +blpop +time +ping +select'

/** Errors by which the server refuses a command: it had no effect. */
const REFUSALS: Readonly<Record<string, readonly [reason: ErrorReason, words: string]>> = {
  LOADING: ['loading', 'is still loading its data: retry later'],
  READONLY: ['readonly', 'is a replica and takes no writes: is there a new primary, and does the address lead to it?'],
  MASTERDOWN: ['readonly', 'is a replica that has lost its primary: connect to the primary'],
  NOREPLICAS: ['replicas', 'has fewer replicas than min-replicas-to-write asks for, and takes no writes until they are back'],
  MISCONF: ['disk', 'cannot persist and takes no writes: check its log and its disk'],
  OOM: ['memory', 'has reached maxmemory and takes no writes: raise maxmemory, or delete other data'],
  CLUSTERDOWN: ['cluster', 'is part of a cluster that is down: see CLUSTER INFO'],
  MOVED: ['cluster', 'is part of a cluster and the log is on another node: hand in a cluster client instead of a URL'],
  ASK: ['cluster', 'is part of a cluster that is moving the log to another node: hand in a cluster client instead of a URL'],
  TRYAGAIN: ['cluster', 'is part of a cluster that is moving the log to another node: retry later'],
  CROSSSLOT: ['cluster', 'is part of a cluster and sees our keys in different places: please report this bug'],
  BUSY: ['busy', 'is running a script that does not end: see SCRIPT KILL'],
  UNKILLABLE: ['busy', 'is running a script that does not end and cannot be killed'],
  UNBLOCKED: ['changed', 'ended a blocking read because its role changed'],
  NOAUTH: ['permission', 'requires a password: redis://user:password@host'],
  WRONGPASS: ['permission', 'does not accept this user or password'],
  NOPERM: ['permission', `does not allow this user what a log needs: ACL SETUSER USER ~{NAME}:* ${RIGHTS}`],
  NOSCRIPT: ['failed', 'does not have the script any more'],
  WRONGTYPE: ['foreign', 'has other data under the name of the log'],
  ERR: ['failed', 'does not understand the command: is it Redis 6.2 or later?'],
}

/** The place in a script, with which 6.2 begins its message. */
const IN_A_SCRIPT = /^(?:ERR Error running script \(call to \S+\): )?(?:@user_script: ?\d+: )+-?/
/** Missing rights inside a script have no code: the messages of 6.2 and 7.0, then that of later versions. */
const NOT_ALLOWED_THERE = /user executing the script can't (run|access)|ACL failure in script/

/** The word a server's refusal begins with; undefined for whatever else may go wrong on the way to it. */
export function refusal(error: unknown): string | undefined {
  const message = (error as Error | undefined)?.message ?? ''
  if (NOT_ALLOWED_THERE.test(message)) return 'NOPERM'
  const word = /^([A-Z]+)\b/.exec(message.replace(IN_A_SCRIPT, ''))?.[1] ?? (IN_A_SCRIPT.test(message) ? 'ERR' : undefined)
  return word !== undefined && word in REFUSALS ? word : undefined
}

/** The key exists and is not a stream. An error inside a script contains the code somewhere. */
export function isWrongType(error: unknown): boolean {
  return /\bWRONGTYPE\b/.test(String(((error as Error).cause as Error | undefined)?.message))
}

/** `ifLost`: the code of the error if the request may have been sent. */
export function redisError(error: unknown, where: string, ifLost: ErrorCode): LeaseError {
  if (error instanceof LeaseError) return error
  const text = error instanceof Error && error.message !== '' ? error.message : String((error as { code?: unknown })?.code ?? error)
  const word = refusal(error)
  if (word === undefined)
    return new LeaseError(ifLost, `the connection to ${where} was lost (${text})`, { cause: error, reason: 'connection', facts: { where } })
  const [reason, words] = REFUSALS[word]!
  // Proxies answer ERR for any failure behind them, also after they forwarded the command.
  return new LeaseError(word === 'ERR' ? ifLost : 'UNAVAILABLE', `${where} ${words} (${text})`, { cause: error, reason, facts: { where } })
}

export function unreachable(error: unknown, where: string): LeaseError {
  if (error instanceof LeaseError) return error
  if (refusal(error) !== undefined) return redisError(error, where, 'UNAVAILABLE')
  return unreachableError({ engine: 'redis', where, cause: error })
}

/** Why a log has diverged, and what to do. */
export function divergence(log: string, what: string, index: number, found: number): string {
  const startOver = 'Delete every key of the log to start with an empty one; tokens still increase'
  switch (what) {
    case 'gone':
      return `${log} is gone: Redis was flushed, restarted without its data, or evicted it (maxmemory-policy must be noeviction). Restart its processes: they start with an empty log, and tokens still increase`
    case 'emptied':
      return `every record of ${log} was deleted (XTRIM, XDEL). ${startOver}`
    case 'ends':
      return `${log} ends at ${found}, before ${index}: Redis has lost its end, by a crash before it had synced, or by a failover to a replica that was behind. See appendfsync and docs/stores/redis.md; restart its processes`
    case 'another':
      return `another record is at ${index} of ${log}: Redis lost its end, and the log has grown again since. See appendfsync and docs/stores/redis.md; restart its processes`
    case 'missing':
      return `record ${found} of ${log} is missing: it was deleted (XDEL, XTRIM). ${startOver}, or restore a backup`
    case 'beginning':
      return `${log} begins at ${found} and no snapshot covers the records before: they were deleted or evicted. ${startOver}, or restore a backup`
    case 'unchained':
      return `what follows ${index} in ${log} does not belong to it: another program wrote there. ${startOver}, or restore a backup`
    case 'former':
      return `${log} was written by an earlier version of Leasehold, which this version cannot read: use that version, choose another name with ?name=, or delete every key of the log`
    default:
      return `${log} is not a log of Leasehold: another program uses the name. Choose another name with ?name=, or delete that key`
  }
}
