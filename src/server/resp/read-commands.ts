/** RESP commands that read leases, resources, entries and history. */
import { LeaseError } from '../../errors.ts'
import type { Query } from '../../lessor.ts'
import { RespWriter } from '../../wire/resp/writer.ts'
import { whyBadName, whyBadPrefix } from '../../wording.ts'
import { withExpiry } from '../expiry.ts'
import { MAX_LISTED } from '../guarded-lessor.ts'
import { invalid, type RespCommand, readOptions, text, whole } from './command.ts'
import { writeValue } from './replies.ts'
import type { RespSession } from './session.ts'

/** Maximum items in a list if the command has no LIMIT. */
const DEFAULT_LIST_LIMIT = 10_000

export const READ_COMMANDS: readonly RespCommand[] = [
  {
    name: 'LEASE.INFO',
    arity: -2,
    summary: 'id [CONSISTENT]: with CONSISTENT, after everything that any server of this log has answered before',
    verb: 'read',
    example: ['$lease'],
    run: session => {
      let consistent = false
      readOptions(session, 2, {
        CONSISTENT: () => {
          consistent = true
          return 0
        },
      })
      read(session, { kind: 'lease', lease: whole(session, 1, 'a lease') }, consistent || session.hasPendingReplies)
    },
  },
  {
    name: 'LEASE.SHOW',
    arity: 2,
    summary: 'resource',
    verb: 'read',
    names: [1, 1, 1],
    example: ['jobs/nightly'],
    run: session => read(session, { kind: 'resource', resource: nameAt(session, 1), waiters: MAX_WAITERS_SHOWN }),
  },
  {
    name: 'LEASE.LIST',
    arity: -1,
    summary: '[prefix] [LIMIT n]: resources that are held or waited for',
    verb: 'read',
    example: ['jobs'],
    run: session => list(session, { kind: 'resources', prefix: leadingPrefix(session) }),
  },
  {
    name: 'LEASE.LEASES',
    arity: -1,
    summary: '[PREFIX prefix] [HOLDER name] [LIMIT n]',
    verb: 'read',
    example: ['PREFIX', 'jobs'],
    run: session => {
      const query: { kind: 'leases'; prefix?: string; holder?: string } = { kind: 'leases' }
      list(session, query, 1, {
        PREFIX: at => {
          query.prefix = prefixAt(session, at)
          return 1
        },
        HOLDER: at => {
          query.holder = text(session, at, 'HOLDER')
          return 1
        },
      })
    },
  },
  {
    name: 'LEASE.ENTRIES',
    arity: -1,
    summary: '[prefix] [LIMIT n]',
    verb: 'read',
    example: ['jobs'],
    run: session => list(session, { kind: 'entries', prefix: leadingPrefix(session) }),
  },
  {
    name: 'LEASE.SERVICES',
    arity: -1,
    summary: '[service]: how many instances each service has, and whether their lapses are slowed',
    verb: 'read',
    example: [],
    run: session => {
      if (session.args.count > 2) throw invalid('LEASE.SERVICES takes one service, or none for all')
      read(session, { kind: 'services', ...(session.args.count === 2 && { service: text(session, 1, 'a service') }) })
    },
  },
  {
    name: 'LEASE.HISTORY',
    arity: 2,
    summary: 'resource: its last holders, and how each lease ended',
    verb: 'read',
    names: [1, 1, 1],
    example: ['jobs/nightly'],
    run: session => read(session, { kind: 'history', resource: nameAt(session, 1) }),
  },
]

export function prefixAt(session: RespSession, i: number): string {
  const prefix = text(session, i, 'a prefix')
  const wrong = whyBadPrefix(prefix)
  if (wrong !== undefined) throw invalid(`the prefix ${wrong}`)
  return prefix
}

function nameAt(session: RespSession, i: number): string {
  const name = text(session, i, 'a resource')
  const wrong = whyBadName(name)
  if (wrong !== undefined) throw invalid(`the resource ${wrong}`)
  return name
}

/** Options come in pairs. So an odd first argument is a prefix, even if it is named like an option. */
function leadingPrefix(session: RespSession): string {
  return session.args.count % 2 === 0 ? prefixAt(session, 1) : ''
}

/** Blocks the commands after it: a reply may be large, and only one is built at a time. */
export function read<K extends Query['kind']>(
  session: RespSession,
  query: Extract<Query, { readonly kind: K }>,
  // The reply must show the effect of this connection's earlier commands, which may not be applied yet.
  consistent = session.hasPendingReplies,
): void {
  const { guarded } = session.host.context
  session.replyBlocking(guarded.read<K>(session.caller, query, { consistent }), (to, { value, revision }) => {
    if (value === undefined) to.null()
    else writeValue(to, Array.isArray(value) ? value : { ...shown(session, value), revision })
  })
}

interface Timed {
  readonly remaining: number
}

/** Adds when a lease, or each grant of a resource, expires. */
function shown({ host }: RespSession, value: object): object {
  const { clock } = host.context
  const { remaining, grants } = value as Partial<Timed> & { readonly grants?: readonly Timed[] }
  return {
    ...(remaining === undefined ? value : withExpiry(clock, value as Timed)),
    ...(grants !== undefined && { grants: grants.map(grant => withExpiry(clock, grant)) }),
  }
}

function list<K extends 'leases' | 'resources' | 'entries'>(
  session: RespSession,
  query: Extract<Query, { readonly kind: K }>,
  from = 2 - (session.args.count % 2),
  more: Readonly<Record<string, (at: number) => number>> = {},
): void {
  const { guarded } = session.host.context
  let limit: number | undefined
  readOptions(session, from, {
    ...more,
    LIMIT: at => {
      limit = whole(session, at, 'LIMIT')
      if (limit < 1 || limit > MAX_LISTED) throw invalid(`LIMIT must be from 1 to ${MAX_LISTED}`)
      return 1
    },
  })
  const limited = { ...query, limit: limit ?? DEFAULT_LIST_LIMIT }
  const view = guarded.read<K>(session.caller, limited, { consistent: session.hasPendingReplies }).then(view => {
    // An array cannot say that it is incomplete. A client that set no limit must not take a part for the whole list.
    if (limit === undefined && view.more)
      throw new LeaseError(
        'LIMIT',
        `the list has more than ${DEFAULT_LIST_LIMIT} ${(query as Query).kind}: use LIMIT n to get the first ones, or a narrower prefix`,
        {
          facts: { limit: DEFAULT_LIST_LIMIT },
        },
      )
    return view
  })
  const encoded = view.then(({ value }) => encodedList(session, value))
  session.replyBlocking(encoded, (to, { protocol, bytes, items }) => {
    if (to.protocol === protocol) return to.append(bytes)
    // A command before it has changed the protocol meanwhile.
    writeValue(
      to,
      items.map(item => shown(session, withFirstWaiters(item))),
    )
  })
}

/** Items of a list that are encoded in one slice. */
const ENCODED = 100

/** Waiters of one resource in a reply: they are encoded in one piece. */
const MAX_WAITERS_SHOWN = 250

function withFirstWaiters(item: object): object {
  const { queue } = item as { readonly queue?: readonly object[] }
  return queue === undefined || queue.length <= MAX_WAITERS_SHOWN ? item : { ...item, queue: queue.slice(0, MAX_WAITERS_SHOWN) }
}

interface EncodedList {
  readonly protocol: 2 | 3
  readonly bytes: Uint8Array
  readonly items: readonly object[]
}

/** A long list is encoded in slices, before its reply is due. */
async function encodedList(session: RespSession, items: readonly object[]): Promise<EncodedList> {
  const writer = new RespWriter()
  const { protocol } = session
  writer.protocol = protocol
  writer.array(items.length)
  for (const [i, item] of items.entries()) {
    if (i > 0 && i % ENCODED === 0) await session.turns.later()
    writeValue(writer, shown(session, withFirstWaiters(item)))
  }
  return { protocol, bytes: writer.taken(), items }
}
