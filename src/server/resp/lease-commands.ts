/** The table of what can be done with leases over RESP. */
import { milliseconds } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { operationNamed } from '../../kernel/codec/digest.ts'
import type { Command, PolicyRules, Revoke } from '../../kernel/command.ts'
import { ProtocolError } from '../../wire/resp/command-parser.ts'
import { hashSecret, newSecret } from '../key-secret.ts'
import { acquire } from './acquire.ts'
import { duration, invalid, opText, type RespCommand, text, whole, words } from './command.ts'
import { prefixAt, read } from './read-commands.ts'
import { writeDone, writeFenced, writeId, writeRenewed, writeValue } from './replies.ts'
import { scopesIn } from './scopes.ts'
import type { RespSession } from './session.ts'
import { unwatch, watch } from './watch.ts'

const UNREADABLE = 'a batch that cannot be read'
/** Scopes of one key, as over HTTP; and rules of one policy, of which there are fewer. */
const MAX_SCOPES = 256
const MAX_RULES = 64

export const LEASE_COMMANDS: readonly RespCommand[] = [
  {
    name: 'LEASE.ACQUIRE',
    arity: -3,
    summary:
      'resource [resource …] TTL ms [HOLDER h] [WAIT ms | QUEUE] [UNITS n] [SHARED] [PRIORITY n] [PARENT id] [ANY k] [LABEL name value] [ENTRY key value] [GRACE ms] [MAXLIFE ms] [INCARNATION n] [RECALL] [STEAL | FORCE] [OP id]',
    verb: 'acquire',
    changes: true,
    names: [1, 1, 1],
    example: ['jobs/other', 'TTL', '5000'],
    run: acquire,
  },
  {
    name: 'LEASE.RENEW',
    arity: -2,
    summary: 'id [id …]: remaining ms of each, -1 when it is gone',
    verb: 'renew',
    changes: true,
    example: ['$lease'],
    run: renew,
  },
  {
    name: 'LEASE.RELEASE',
    arity: -2,
    summary: 'id [RESOURCE name] [OP id]',
    verb: 'release',
    changes: true,
    example: ['$lease'],
    run: session => {
      const command: { kind: 'release'; lease: number; resource?: string } = { kind: 'release', lease: whole(session, 1, 'a lease') }
      change(session, 2, command, writeDone, {
        RESOURCE: at => {
          command.resource = text(session, at, 'RESOURCE')
          return 1
        },
      })
    },
  },
  {
    name: 'LEASE.REVOKE',
    arity: -2,
    summary: 'id | LEASE id | HOLDER name | PREFIX prefix [FORCE] [BY who] [OP id]',
    verb: 'revoke',
    changes: true,
    example: ['PREFIX', 'jobs'],
    run: revoke,
  },
  {
    name: 'LEASE.BREAK',
    arity: -2,
    summary: 'resource [AFTER ms] [BY who] [OP id]',
    verb: 'break',
    changes: true,
    names: [1, 1, 1],
    example: ['jobs/nightly'],
    run: session => {
      const command: { kind: 'break'; resource: string; after?: number; by?: string } = {
        kind: 'break',
        resource: text(session, 1, 'a resource'),
      }
      change(session, 2, command, writeDone, {
        AFTER: at => {
          command.after = duration(session, at, 'AFTER')
          return 1
        },
        BY: at => {
          command.by = text(session, at, 'BY')
          return 1
        },
      })
    },
  },
  {
    name: 'LEASE.RECALL',
    arity: -2,
    summary: 'resource [BY who]: tells its holders that someone would like it',
    verb: 'acquire',
    changes: true,
    names: [1, 1, 1],
    example: ['jobs/nightly'],
    run: session => {
      const command: { kind: 'recall'; resource: string; by?: string } = { kind: 'recall', resource: text(session, 1, 'a resource') }
      change(session, 2, command, writeDone, {
        BY: at => {
          command.by = text(session, at, 'BY')
          return 1
        },
      })
    },
  },
  {
    name: 'LEASE.TRANSFER',
    arity: -4,
    summary: 'id TO holder [STOPPED] [INCARNATION n] [OP id]: the id of the new lease',
    verb: 'release',
    changes: true,
    example: ['$lease', 'TO', 'heir'],
    run: session => {
      const command: { kind: 'transfer'; lease: number; to: string; stopped?: boolean; incarnation?: number } = {
        kind: 'transfer',
        lease: whole(session, 1, 'a lease'),
        to: '',
      }
      change(session, 2, command, writeId, {
        TO: at => {
          command.to = text(session, at, 'TO')
          return 1
        },
        STOPPED: () => {
          command.stopped = true
          return 0
        },
        INCARNATION: at => {
          command.incarnation = whole(session, at, 'INCARNATION')
          return 1
        },
      })
    },
  },
  {
    name: 'LEASE.PUT',
    arity: -4,
    summary: 'id key value [OP id]',
    verb: 'register',
    changes: true,
    names: [2, 2, 1],
    example: ['$lease', 'jobs/entry', 'value'],
    run: session =>
      change(
        session,
        4,
        { kind: 'put', lease: whole(session, 1, 'a lease'), key: text(session, 2, 'a key'), value: text(session, 3, 'a value') },
        writeDone,
      ),
  },
  {
    name: 'LEASE.DEL',
    arity: -2,
    summary: 'key [LEASE id] [OP id]',
    verb: 'register',
    changes: true,
    names: [1, 1, 1],
    example: ['jobs/entry'],
    run: session => {
      const command: { kind: 'delete'; key: string; lease?: number } = { kind: 'delete', key: text(session, 1, 'a key') }
      change(session, 2, command, writeDone, {
        LEASE: at => {
          command.lease = whole(session, at, 'LEASE')
          return 1
        },
      })
    },
  },
  {
    name: 'LEASE.FENCE',
    arity: 3,
    summary: 'resource token: the highest token shown so far, or STALE',
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
    summary: 'prefix [AFTER revision] [TYPES type …]: what happens there comes by push',
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
    summary: 'CREATE name ALLOW verb[,verb…][:prefix] … | LIST | REVOKE id',
    verb: 'admin',
    changes: true,
    example: ['LIST'],
    run: key,
  },
  {
    name: 'LEASE.BATCH',
    arity: 2,
    summary: 'bytes: numbered questions of our own client, answered by push',
    // Each question is judged for itself.
    example: [''],
    run: session => {
      const { batch, args } = session
      try {
        const count = batch.take(args.bytes(1))
        if (typeof count === 'number') return session.reply(to => to.integer(count))
        const heard = count.catch(() => {
          session.closeAfterReplies()
          return undefined
        })
        session.replyBlocking(heard, (to, all) => (all === undefined ? to.error('ERR', `Protocol error: ${UNREADABLE}`) : to.integer(all)))
      } catch {
        // Nothing that follows could be trusted to mean what its sender meant.
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
  const leases: number[] = []
  for (let i = 1; i < args.count; i++) leases.push(whole(session, i, 'a lease'))
  session.propose({ kind: 'renew', leases }, writeRenewed)
}

type Words = Readonly<Record<string, (at: number) => number>>

/** A change with the words that may follow it; `OP` may follow every one. */
function change(
  session: RespSession,
  from: number,
  command: Command,
  encode: Parameters<RespSession['propose']>[1],
  more: Words = {},
): void {
  if (session.args.count === from) return session.propose(command, encode)
  let named: string | undefined
  words(session, from, {
    ...more,
    OP: at => {
      named = opText(session, at)
      return 1
    },
  })
  session.propose(command, encode, named === undefined ? undefined : { op: operationNamed(named, command) })
}

function revoke(session: RespSession): void {
  const { args } = session
  const named = args.number(1) === undefined
  const what = text(session, named ? 2 : 1, 'what to revoke')
  const target = named ? targetNamed(args.word(1), what) : { lease: whole(session, 1, 'a lease') }
  const command: { -readonly [K in keyof Revoke]: Revoke[K] } = { kind: 'revoke', target }
  change(session, named ? 3 : 2, command, writeDone, {
    FORCE: () => {
      command.force = true
      return 0
    },
    BY: at => {
      command.by = text(session, at, 'BY')
      return 1
    },
  })
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
    // Which rules there are, and what each may be, the kernel says.
    rules.set(text(session, i, 'a rule'), session.args.number(i + 1) ?? (/^\d/.test(value) ? milliseconds(value, 'a rule') : value))
  }
  session.propose({ kind: 'policy', prefix, rules: Object.fromEntries(rules) as PolicyRules }, writeDone)
}

function key(session: RespSession): void {
  const { args } = session
  const { guarded, clock } = session.host.context
  const word = args.word(1)
  if (word === 'LIST' && args.count === 2)
    return session.replyLater(guarded.read(session.caller, { kind: 'keys' }), (to, { value }) =>
      writeValue(
        to,
        value.map(({ id, name, allow }) => ({
          id,
          name,
          allow: allow.map(({ verb, prefix }) => (prefix === '' ? verb : `${verb}:${prefix}`)),
        })),
      ),
    )
  if (word === 'REVOKE' && args.count === 3) return session.propose({ kind: 'unkey', id: whole(session, 2, 'a key') }, writeDone)
  if (word !== 'CREATE' || args.count < 5 || !args.is(3, 'ALLOW'))
    throw invalid('LEASE.KEY CREATE name ALLOW verb[,verb…][:prefix] … | LIST | REVOKE id')
  if (args.count - 4 > MAX_SCOPES) throw invalid(`a key has at most ${MAX_SCOPES} scopes`)
  const allow = Array.from({ length: args.count - 4 }, (_, i) => scopesIn(text(session, i + 4, 'a scope'))).flat()
  const secret = newSecret(clock)
  session.propose({ kind: 'key', name: text(session, 2, 'a name'), hash: hashSecret(secret), allow }, (to, outcome) => {
    if (outcome.kind === 'done') writeValue(to, { id: outcome.id ?? 0, secret })
    else writeDone(to, outcome)
  })
}
