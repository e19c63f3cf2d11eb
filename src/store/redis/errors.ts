/** What can be wrong with a Redis, said so that a person knows what to do. `facts.reason` is for programs. */
import { type ErrorCode, LeaseError } from '../../errors.ts'

/** What a user needs besides the keys of the log, as ACL SETUSER takes it. */
export const RIGHTS =
  '+eval +evalsha +xadd +xrange +xrevrange +xread +xtrim +xinfo|stream +exists +hget +hmget +hset +hlen +pexpire +persist +unlink +ping +select'

/** Refusals by the server: it has not done what was asked. */
const REFUSALS: Readonly<Record<string, readonly [reason: string, words: string]>> = {
  LOADING: ['loading', 'is still loading its data: it will answer when it has'],
  READONLY: ['readonly', 'is a replica and takes no writes: is there a new primary, and does the address lead to it?'],
  MASTERDOWN: ['readonly', 'is a replica that has lost its primary: connect to the primary'],
  NOREPLICAS: ['replicas', 'has fewer replicas than min-replicas-to-write asks for, and takes no writes until they are back'],
  MISCONF: ['disk', 'cannot persist what it is told and takes no writes: see its log and its disk'],
  OOM: ['memory', 'has reached maxmemory and takes no writes: give it more, or trim what else is in there'],
  CLUSTERDOWN: ['cluster', 'is part of a cluster that is down: see CLUSTER INFO'],
  MOVED: ['cluster', 'is part of a cluster and the log is on another node: hand in a cluster client instead of a URL'],
  ASK: ['cluster', 'is part of a cluster that is moving the log to another node: hand in a cluster client instead of a URL'],
  TRYAGAIN: ['cluster', 'is part of a cluster that is moving the log to another node: it will answer when it has'],
  CROSSSLOT: ['cluster', 'is part of a cluster and sees our keys in different places: tell us, this is a mistake of ours'],
  BUSY: ['busy', 'is running a script that does not end: see SCRIPT KILL'],
  UNKILLABLE: ['busy', 'is running a script that does not end and cannot be killed'],
  UNBLOCKED: ['changed', 'has let go of a waiting read, since its role changed'],
  NOAUTH: ['permission', 'wants a password: redis://user:password@host'],
  WRONGPASS: ['permission', 'does not accept this user or password'],
  NOPERM: ['permission', `does not allow this user what a log needs: ACL SETUSER USER ~{NAME}:* ${RIGHTS}`],
  NOSCRIPT: ['failed', 'has forgotten a script'],
  WRONGTYPE: ['foreign', 'has something else under the name of the log'],
  ERR: ['failed', 'does not understand what it was asked: is it Redis 6.2 or later?'],
}

/** Where in a script it happened, which 6.2 says first. */
const IN_A_SCRIPT = /^(?:ERR Error running script \(call to \S+\): )?(?:@user_script: ?\d+: )+-?/
/** What a user may not do inside a script is told in words: those of 6.2 and 7.0, then those of whatever came after. */
const NOT_ALLOWED_THERE = /user executing the script can't (run|access)|ACL failure in script/

/** The word a server's refusal begins with; undefined for whatever else may go wrong on the way to it. */
export function refusal(error: unknown): string | undefined {
  const message = (error as Error | undefined)?.message ?? ''
  if (NOT_ALLOWED_THERE.test(message)) return 'NOPERM'
  const word = /^([A-Z]+)\b/.exec(message.replace(IN_A_SCRIPT, ''))?.[1] ?? (IN_A_SCRIPT.test(message) ? 'ERR' : undefined)
  return word !== undefined && word in REFUSALS ? word : undefined
}

/** The key is there and is no stream. An error inside a script has the word somewhere in it. */
export function isWrongType(error: unknown): boolean {
  return /\bWRONGTYPE\b/.test(String(((error as Error).cause as Error | undefined)?.message))
}

/** `ifLost`: what to say when the request may have been on its way. */
export function redisError(error: unknown, where: string, ifLost: ErrorCode): LeaseError {
  if (error instanceof LeaseError) return error
  const said = error instanceof Error && error.message !== '' ? error.message : String((error as { code?: unknown })?.code ?? error)
  const word = refusal(error)
  if (word === undefined)
    return new LeaseError(ifLost, `the connection to ${where} was lost (${said})`, { cause: error, facts: { where, reason: 'connection' } })
  const [reason, words] = REFUSALS[word]!
  // Proxies say ERR for whatever went wrong behind them, after it was passed on, too.
  return new LeaseError(word === 'ERR' ? ifLost : 'UNAVAILABLE', `${where} ${words} (${said})`, { cause: error, facts: { where, reason } })
}

export function unreachable(error: unknown, where: string): LeaseError {
  if (error instanceof LeaseError) return error
  if (refusal(error) !== undefined) return redisError(error, where, 'UNAVAILABLE')
  const { message = '', code = '' } = (error ?? {}) as { message?: string; code?: string }
  return new LeaseError(
    'UNAVAILABLE',
    `${where} cannot be reached (${message === '' ? code : message}): does it run, and is this its address?`,
    {
      cause: error,
      facts: { where, reason: 'unreachable' },
    },
  )
}

/** Why a log cannot be followed any more, and what to do. */
export function divergence(log: string, what: string, index: number, found: number): string {
  const anew = 'Delete every key of it to begin anew, with tokens that still grow'
  switch (what) {
    case 'gone':
      return `${log} is gone: Redis was flushed, restarted without its data, or evicted it (maxmemory-policy must be noeviction). Begin anew: whoever opens it next gets an empty log, with tokens that still grow`
    case 'emptied':
      return `every entry of ${log} was deleted (XTRIM, XDEL). ${anew}`
    case 'ends':
      return `${log} ends at ${found}, before ${index}: Redis has lost its end, by a crash before it had synced, or by a failover to a replica that was behind. See appendfsync and docs/stores.md; begin anew`
    case 'another':
      return `another entry stands at ${index} of ${log}: Redis lost its end and it has grown again since. See appendfsync and docs/stores.md; begin anew`
    case 'missing':
      return `entry ${found} of ${log} is missing: someone deleted it (XDEL, XTRIM). ${anew}, or restore a backup`
    case 'beginning':
      return `${log} begins at ${found} and no snapshot has what came before: deleted by someone, or evicted. ${anew}, or restore a backup`
    case 'unchained':
      return `what follows ${index} in ${log} does not belong to it: someone wrote there. ${anew}, or restore a backup`
    default:
      return `${log} is not a log of Leasehold: another program uses the name. Choose another one with ?name=, or delete that key`
  }
}
