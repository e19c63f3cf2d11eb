/** The table of what can be looked at over RESP. */
import { LeaseError } from '../../errors.ts'
import { badName, badPrefix } from '../../kernel/name.ts'
import type { Query } from '../../lessor.ts'
import { MAX_LISTED } from '../guarded-lessor.ts'
import { invalid, type RespCommand, readOptions, text, whole } from './command.ts'
import { writeValue } from './replies.ts'
import type { RespSession } from './session.ts'

/** So many are listed for whoever does not say how many it wants. */
const LISTED = 10_000

export const READ_COMMANDS: readonly RespCommand[] = [
  {
    name: 'LEASE.INFO',
    arity: 2,
    summary: 'id',
    verb: 'read',
    example: ['$lease'],
    run: session => read(session, { kind: 'lease', lease: whole(session, 1, 'a lease') }),
  },
  {
    name: 'LEASE.SHOW',
    arity: 2,
    summary: 'resource',
    verb: 'read',
    names: [1, 1, 1],
    example: ['jobs/nightly'],
    run: session => read(session, { kind: 'resource', resource: nameAt(session, 1) }),
  },
  {
    name: 'LEASE.LIST',
    arity: -1,
    summary: '[prefix] [LIMIT n]: the resources that are held or waited for',
    verb: 'read',
    example: ['jobs'],
    run: session => list(session, { kind: 'resources', prefix: leading(session) }),
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
    run: session => list(session, { kind: 'entries', prefix: leading(session) }),
  },
  {
    name: 'LEASE.HISTORY',
    arity: 2,
    summary: 'resource: who had it last, and how each ended',
    verb: 'read',
    names: [1, 1, 1],
    example: ['jobs/nightly'],
    run: session => read(session, { kind: 'history', resource: nameAt(session, 1) }),
  },
]

export function prefixAt(session: RespSession, i: number): string {
  const prefix = text(session, i, 'a prefix')
  const wrong = badPrefix(prefix)
  if (wrong !== undefined) throw invalid(`the prefix ${wrong}`)
  return prefix
}

function nameAt(session: RespSession, i: number): string {
  const name = text(session, i, 'a resource')
  const wrong = badName(name)
  if (wrong !== undefined) throw invalid(`the resource ${wrong}`)
  return name
}

/** What follows comes in pairs: an odd word before them is a prefix, whatever it is called. */
function leading(session: RespSession): string {
  return session.args.count % 2 === 0 ? prefixAt(session, 1) : ''
}

/** What follows waits for it: an answer may be large, and only one of them is made at a time. */
export function read<K extends Query['kind']>(session: RespSession, query: Extract<Query, { readonly kind: K }>): void {
  const { desk } = session.door.context
  // What this connection asked for before must be seen in the answer, though it may not have been decided yet.
  session.occupy(desk.read<K>(session.caller, query, { consistent: session.owes }), (to, { value, revision }) => {
    if (value === undefined) to.null()
    else writeValue(to, Array.isArray(value) ? value : { ...value, revision })
  })
}

function list<K extends 'leases' | 'resources' | 'entries'>(
  session: RespSession,
  query: Extract<Query, { readonly kind: K }>,
  from = 2 - (session.args.count % 2),
  more: Readonly<Record<string, (at: number) => number>> = {},
): void {
  const { desk } = session.door.context
  let limit: number | undefined
  readOptions(session, from, {
    ...more,
    LIMIT: at => {
      limit = whole(session, at, 'LIMIT')
      if (limit < 1 || limit > MAX_LISTED) throw invalid(`LIMIT must be from 1 to ${MAX_LISTED}`)
      return 1
    },
  })
  const asked = { ...query, limit: limit ?? LISTED }
  const found = desk.read<K>(session.caller, asked, { consistent: session.owes }).then(view => {
    // An array has no place to say that it is not all: who did not ask for a part must not take it for the whole.
    if (limit === undefined && view.more)
      throw new LeaseError('LIMIT', `there are more than ${LISTED}: say LIMIT n to have so many of them, or name a narrower prefix`, {
        facts: { limit: LISTED },
      })
    return view
  })
  session.occupy(found, (to, { value }) => writeValue(to, value))
}
