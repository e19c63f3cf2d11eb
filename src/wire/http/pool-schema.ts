/** The JSON of pools: members, queues, accounts, and explanations of waits. */
import Type from 'typebox'
import { leaseId as id, name, whole } from './command-schema.ts'
import { answer, at, bag, closed, optional, revision, status, yes } from './schema-parts.ts'

const grant = answer({
  lease: id,
  holder: name,
  incarnation: whole(),
  account: Type.String({ description: 'The user or team. Empty: it took the member by its name.' }),
  units: whole(),
  shared: Type.Boolean(),
  token: whole('The fencing token.'),
  status,
  since: at,
  start: whole("When it was granted, in the log's own time."),
  held: whole("For how many ms of the log's own time it has been held."),
  expect: whole('For how many ms it will probably be held; 0: unknown.'),
  maxLife: whole('After how many ms it ends at the latest; 0: it has no such end.'),
  priority: Type.Integer(),
  preemptible: Type.Boolean(),
  yields: yes('It overtook others, and ends when they could use what it holds.'),
  borrows: yes('It is beyond the quota of its account.'),
  recalled: yes('Its holder was asked to give it back.'),
  class: Type.String({ description: 'The class of work that its duration counts for; empty: none.' }),
})

const waiter = answer({
  lease: id,
  holder: name,
  incarnation: whole(),
  account: Type.String(),
  request: bag('As in the request, with its defaults. Of a reservation, from is the time left until its window.'),
  position: whole('0: next.'),
  priority: Type.Integer(),
  rank: Type.Number({ description: 'Lower goes first.' }),
  since: at,
  maxLife: whole(),
  possible: yes('Whether the present members could ever serve it.'),
  class: Type.String({ description: 'The class of work that its duration will count for; empty: none.' }),
})

const member = answer({
  member: Type.String(),
  resource: name,
  labels: Type.Record(Type.String(), Type.String()),
  units: whole(),
  used: whole(),
  status: Type.Enum(['live', 'suspect', 'draining']),
  offer: whole('The lease that offers it; 0 when draining.'),
  offeredBy: Type.String(),
  grants: Type.Array(grant),
  waiting: whole('Clients that wait for this member by its name.'),
  report: optional(bag('What its host reports: utilisation, processes, use without a lease, idleness. Only with read on devices/POOL.')),
})

export const PoolAnswer = answer({
  pool: name,
  elapsed: whole("The log's own time, in ms."),
  members: Type.Array(member),
  waiting: whole('How many wait in all.'),
  queue: Type.Array(waiter, { description: 'In the order of service: the page that was asked for.' }),
  reservations: Type.Array(waiter),
  accounts: Type.Array(
    answer({
      account: Type.String(),
      usage: Type.Number({ description: 'Unit-milliseconds, decayed.' }),
      weight: whole(),
      held: whole(),
      leases: whole(),
      waiting: whole(),
      quota: whole('0: any number.'),
      borrow: whole(),
      week: optional(
        answer({
          used: whole('Unit-ms in the last week.'),
          quota: whole(),
          again: whole('In how many ms less than the quota will count, if nothing more is used.'),
        }),
      ),
      kinds: optional(Type.Array(answer({ kind: Type.String(), held: whole(), quota: whole() }))),
    }),
  ),
  rules: bag('The rules in force for the name of the pool.'),
  revision,
})

export const Pools = answer({
  pools: Type.Array(answer({ pool: name, members: whole(), units: whole(), used: whole(), waiting: whole(), reservations: whole() })),
  revision,
})

const start = answer({
  low: Type.Union([Type.Number(), Type.Null()], { description: 'Null: never, as far as is known.' }),
  median: Type.Union([Type.Number(), Type.Null()]),
  high: Type.Union([Type.Number(), Type.Null()]),
})

/** Which waiters are explained, and how far. */
export const Explaining = closed({
  lease: optional(id),
  limit: optional(Type.Integer({ minimum: 1, maximum: 100, description: 'The first waiters; 20 when left out.' })),
  whatIf: optional(yes('Also try other requests that might start sooner.')),
})

export const PoolExplained = answer({
  pool: name,
  waiters: Type.Array(
    answer({
      lease: id,
      holder: name,
      account: Type.String(),
      position: whole('0: next.'),
      reasons: Type.Array(answer({ cause: Type.String(), text: Type.String() })),
      blockers: Type.Array(bag('A lease that holds members which the waiter could use, those that probably end first.')),
      start: optional(start),
      alternatives: Type.Array(answer({ change: Type.String(), start })),
      text: Type.Array(Type.String(), { description: 'The same in sentences.' }),
    }),
  ),
  revision,
})
