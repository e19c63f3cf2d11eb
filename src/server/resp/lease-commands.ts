/** The RESP commands that concern leases. */
import { parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { PolicyRules, Revoke } from '../../kernel/command.ts'
import { MESSAGES_VERSION, otherMessages } from '../../wire/messages.ts'
import { ProtocolError } from '../../wire/resp/command-parser.ts'
import { ACQUIRE_USAGE, acquire, GRANT_USAGE, grant } from './acquire.ts'
import { BatchSession } from './batch-session.ts'
import { invalid, type RespCommand, text, whole } from './command.ts'
import { kernelCommand, kernelOptions } from './kernel-command.ts'
import { KEY_USAGE, key } from './key-command.ts'
import { prefixAt, read } from './read-commands.ts'
import { writeDone, writeFenced, writeId, writeRenewed, writeTerms } from './replies.ts'
import type { RespSession } from './session.ts'
import { unwatch, watch } from './watch.ts'

const UNREADABLE = 'a batch that cannot be read'
/** Rules of one policy. */
const MAX_RULES = 64

const revocation = kernelOptions('revoke', ['force', 'by'], writeDone)

export const LEASE_COMMANDS: readonly RespCommand[] = [
  {
    name: 'LEASE.ACQUIRE',
    arity: -3,
    summary: ACQUIRE_USAGE,
    verb: 'acquire',
    changes: true,
    names: [1, 1, 1],
    example: ['jobs/other', 'TTL', '5000'],
    run: acquire,
  },
  {
    name: 'LEASE.GRANT',
    arity: -3,
    summary: `${GRANT_USAGE}: a lease on nothing`,
    // A lease on nothing needs no right. What it carries does.
    verb: 'register',
    changes: true,
    example: ['TTL', '5000', 'ENTRY', 'jobs/other', 'value'],
    run: grant,
  },
  kernelCommand({
    name: 'LEASE.WIDEN',
    kind: 'widen',
    args: ['lease'],
    options: ['wants'],
    reply: writeDone,
    answers: 'a waiter for any of several resources names more of them',
    verb: 'acquire',
    example: ['$lease', 'RESOURCE', 'jobs/other'],
  }),
  {
    name: 'LEASE.RENEW',
    arity: -2,
    summary: 'id [id …]: remaining ms of each, or -1 when it is gone',
    verb: 'renew',
    changes: true,
    example: ['$lease'],
    run: renew,
  },
  kernelCommand({
    name: 'LEASE.RELEASE',
    kind: 'release',
    args: ['lease'],
    options: ['resource', 'lost'],
    reply: writeDone,
    verb: 'release',
    example: ['$lease'],
  }),
  {
    name: 'LEASE.REVOKE',
    arity: -2,
    summary: `id | LEASE id | HOLDER name | PREFIX prefix ${revocation.usage}`,
    verb: 'revoke',
    changes: true,
    example: ['PREFIX', 'jobs'],
    run: revoke,
  },
  kernelCommand({
    name: 'LEASE.BREAK',
    kind: 'break',
    args: ['resource'],
    options: ['after', 'by'],
    reply: writeDone,
    verb: 'break',
    names: [1, 1, 1],
    example: ['jobs/nightly'],
  }),
  kernelCommand({
    name: 'LEASE.RECALL',
    kind: 'recall',
    args: ['resource'],
    options: ['by'],
    reply: writeDone,
    verb: 'acquire',
    names: [1, 1, 1],
    example: ['jobs/nightly'],
  }),
  kernelCommand({
    name: 'LEASE.TRANSFER',
    kind: 'transfer',
    args: ['lease'],
    options: ['to', 'stopped', 'incarnation'],
    reply: writeId,
    answers: 'the id of the new lease',
    verb: 'release',
    example: ['$lease', 'TO', 'bob'],
  }),
  kernelCommand({
    name: 'LEASE.CLAIM',
    kind: 'claim',
    args: ['lease'],
    options: ['incarnation'],
    reply: writeDone,
    answers: 'takes a lease that was transferred to a name; renew it before you rely on it',
    verb: 'renew',
    example: ['$given'],
  }),
  kernelCommand({
    name: 'LEASE.PUT',
    kind: 'put',
    args: ['lease', 'key', 'value'],
    options: ['generation'],
    reply: writeDone,
    verb: 'register',
    names: [2, 2, 1],
    example: ['$lease', 'jobs/entry', 'value'],
  }),
  kernelCommand({
    name: 'LEASE.DEL',
    kind: 'delete',
    args: ['key'],
    options: ['lease'],
    reply: writeDone,
    verb: 'register',
    names: [1, 1, 1],
    example: ['jobs/entry'],
  }),
  {
    name: 'LEASE.FENCE',
    arity: 3,
    summary: 'resource token: the highest token seen so far, or STALE',
    verb: 'acquire',
    changes: true,
    names: [1, 1, 1],
    example: ['jobs/nightly', '$token'],
    run: session =>
      session.propose({ kind: 'fence', resource: text(session, 1, 'a resource'), token: whole(session, 2, 'a token') }, writeFenced),
  },
  {
    name: 'LEASE.WATCH',
    arity: -2,
    summary: 'prefix [AFTER revision] [TYPES type …]: events under the prefix come by push',
    verb: 'watch',
    example: ['jobs'],
    run: watch,
  },
  { name: 'LEASE.UNWATCH', arity: -1, summary: '[prefix …]', example: [], run: unwatch },
  {
    name: 'LEASE.POLICY',
    arity: -2,
    summary: 'LIST | SET prefix rule value [rule value …] | DEL prefix',
    verb: 'policy',
    changes: true,
    example: ['SET', 'jobs', 'capacity', '2'],
    run: policy,
  },
  {
    name: 'LEASE.KEY',
    arity: -2,
    summary: KEY_USAGE,
    verb: 'admin',
    changes: true,
    example: ['LIST'],
    run: key,
  },
  {
    name: 'LEASE.BATCH',
    arity: 2,
    summary: 'bytes: numbered messages of our own client, answered by push',
    // Each message needs its own verb.
    example: [''],
    run: session => {
      // A client of version 1 names none.
      if (session.messages !== MESSAGES_VERSION)
        throw otherMessages('this server', { client: session.messages ?? 1, server: MESSAGES_VERSION })
      try {
        session.batch ??= new BatchSession(session)
        const count = session.batch.take(session.args.bytes(1))
        // With the first answer: a write of its own would wake the client for nothing.
        if (typeof count === 'number') return session.reply(to => to.integer(count), { alone: false })
        const heard = count.catch(() => {
          session.closeAfterReplies()
          return undefined
        })
        session.replyBlocking(heard, (to, all) => (all === undefined ? to.error('ERR', `Protocol error: ${UNREADABLE}`) : to.integer(all)))
      } catch {
        // After one unreadable batch, later bytes may not mean what the client meant.
        throw new ProtocolError(UNREADABLE)
      }
    },
  },
]

function renew(session: RespSession): void {
  const { args } = session
  const { renewals } = session.host.context.limits
  if (args.count - 1 > renewals)
    throw new LeaseError('LIMIT', `at most ${renewals} renewals in one command`, { facts: { limit: renewals } })
  // The most frequent command of all.
  if (args.count === 2) {
    const ttl = session.host.context.guarded.renewAtOnce(session.caller, whole(session, 1, 'a lease'))
    if (ttl !== undefined) return session.reply(to => writeTerms(to, [ttl]))
  }
  const leases: number[] = []
  for (let i = 1; i < args.count; i++) leases.push(whole(session, i, 'a lease'))
  session.propose({ kind: 'renew', leases }, writeRenewed)
}

function revoke(session: RespSession): void {
  const { args } = session
  const named = args.number(1) === undefined
  const what = text(session, named ? 2 : 1, 'what to revoke')
  const target = named ? targetNamed(args.word(1), what) : { lease: whole(session, 1, 'a lease') }
  revocation.propose(session, named ? 3 : 2, { kind: 'revoke', target })
}

function targetNamed(word: string, what: string): Revoke['target'] {
  if (word === 'HOLDER') return { holder: what }
  if (word === 'PREFIX') return { prefix: what }
  const lease = /^\d{1,16}$/.test(what) ? Number(what) : Number.NaN
  if (word !== 'LEASE' || !Number.isSafeInteger(lease)) throw invalid('revoke a lease by its id, or HOLDER name, or PREFIX prefix')
  return { lease }
}

function policy(session: RespSession): void {
  const { args } = session
  const word = args.word(1)
  if (word === 'LIST' && args.count === 2) return read(session, { kind: 'policies' })
  const prefix = prefixAt(session, 2)
  if (word === 'DEL' && args.count === 3) return session.propose({ kind: 'policy', prefix }, writeDone)
  if (word !== 'SET' || args.count < 5 || args.count % 2 !== 1)
    throw invalid('LEASE.POLICY LIST | SET prefix rule value [rule value …] | DEL prefix')
  if (args.count > 3 + 2 * MAX_RULES) throw invalid(`a policy has at most ${MAX_RULES} rules`)
  const rules = new Map<string, string | number>()
  for (let i = 3; i < args.count; i += 2) {
    const value = text(session, i + 1, 'a value')
    // The kernel knows the rules and their values.
    rules.set(text(session, i, 'a rule'), session.args.number(i + 1) ?? (/^\d/.test(value) ? parseDuration(value, 'a rule') : value))
  }
  session.propose({ kind: 'policy', prefix, rules: Object.fromEntries(rules) as PolicyRules }, writeDone)
}
