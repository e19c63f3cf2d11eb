/** The JSON of what happened lately: rates, losses, waits, events, and rows of tables. All wall times are in ms, for people. */
import Type from 'typebox'
import { LIST_COLUMNS, LIST_STATES, MAX_LIST_PAGE } from '../../lessor/list-part.ts'
import { ACTION_VERBS, type OperatorAction } from './action-verb.ts'
import { duration, leaseId as id, name, text, whole } from './command-schema.ts'
import { Leases } from './schema.ts'
import { answer, at, bag, closed, optional, revision, status, yes } from './schema-parts.ts'

/** The most trees in one answer. */
const MAX_TREES = 50

export const Whoami = answer({
  key: whole('The number of the key; 0: none.'),
  name: Type.String(),
  open: yes('The server has no keys: everything is allowed.'),
  operator: optional(Type.Boolean()),
  allow: Type.Array(bag('verb and prefix')),
})

const series = Type.Array(Type.Union([whole(), Type.Null()]), { description: 'One value for each step; null where nothing is known.' })

export const ActivityQuery = closed({
  last: optional(
    duration('How far back: at most 15 minutes in steps of a second, 24 hours in steps of a minute. Default: as far as is known.'),
  ),
  step: optional(Type.Enum(['1s', '1m'])),
})

export const Activity = answer({
  now: at,
  step: whole(),
  from: at,
  series: answer({
    granted: series,
    released: series,
    lapsed: series,
    lost: series,
    queued: series,
    recalled: series,
    live: series,
    waiting: series,
  }),
})

const loss = answer({
  at,
  resource: name,
  lease: id,
  holder: Type.String(),
  token: whole(),
  cause: Type.String(),
  by: optional(Type.String()),
  held: optional(whole('For how many ms it was held, where the history still knows it.')),
})

export const Overview = answer({
  now: at,
  revision,
  since: at,
  leases: optional(answer({ live: whole(), waiting: whole(), suspect: whole(), frozen: whole() })),
  waits: Type.Array(answer({ prefix: Type.String(), resource: name, lease: id, holder: Type.String(), since: at }), {
    description: 'The oldest current wait under each first segment of names, oldest first.',
  }),
  contended: Type.Array(answer({ resource: name, waiters: whole(), holder: optional(Type.String()) })),
  lost: answer({
    since: at,
    total: whole('In the last 24 hours.'),
    causes: Type.Array(answer({ cause: Type.String(), count: whole() })),
    last: Type.Array(loss),
  }),
  store: answer({ up: Type.Boolean(), reason: optional(Type.String()), quiet: Type.Boolean() }),
  figures: optional(Type.Record(Type.String(), Type.Number())),
})

export const State = answer({
  now: at,
  stopping: Type.Boolean({ description: 'This server ends soon: its clients go on with another one.' }),
  quiet: Type.Boolean({ description: 'The log lost records: nothing is granted until all unknown holders have stopped.' }),
  store: answer({
    up: Type.Boolean(),
    since: Type.Integer({ description: 'When it went up or down, or when this server started, in ms since 1970.' }),
    reason: optional(Type.String({ description: 'For keys that may read everything.' })),
    renewals: Type.Boolean({
      description: 'Renewals are answered while the store is down, because this server owns the store and keeps them in memory.',
    }),
  }),
})

export const LossQuery = closed({
  prefix: optional(text('')),
  limit: optional(Type.Integer({ minimum: 1, maximum: 1_000 })),
})
export const Losses = answer({ losses: Type.Array(loss) })

export const EventQuery = closed({
  prefix: optional(text('')),
  limit: optional(Type.Integer({ minimum: 1, maximum: 2_000 })),
})
export const Events = answer({
  events: Type.Array(bag('As the data of /v1/watch.')),
  revision: whole('Continue with /v1/watch?after= this.'),
})

const party = answer({ lease: id, holder: Type.String() })
export const Episodes = answer({
  resource: name,
  episodes: Type.Array(
    answer({
      waiter: party,
      from: at,
      until: optional(at),
      ended: optional(Type.String({ description: 'granted, or why the place was given up. Missing: it still waits.' })),
      behind: Type.Array(answer({ lease: id, holder: Type.String(), from: at, until: optional(at) }), {
        description: 'Who held the resource meanwhile, as far as the history knows.',
      }),
    }),
  ),
})

export const Strips = answer({
  service: Type.String(),
  instances: Type.Array(
    answer({ instance: Type.String(), changes: Type.Array(answer({ at, status: Type.String() }), { description: 'Oldest first.' }) }),
  ),
})

export const RowQuery = closed({
  of: Type.Enum(['resources', 'leases']),
  prefix: optional(text('Names under this prefix.')),
  text: optional(text('Rows whose name or holder contains this text, in any case.')),
  holder: optional(text('Of exactly this holder.')),
  label: optional(text('Leases with this label: KEY=VALUE, or KEY for any value.', 1_024)),
  state: optional(Type.Enum([...LIST_STATES])),
  sort: optional(Type.Enum(LIST_COLUMNS.flatMap(sort => [sort, `-${sort}` as const]))),
  offset: optional(whole('')),
  limit: optional(Type.Integer({ minimum: 1, maximum: MAX_LIST_PAGE })),
})

export const Rows = answer({
  of: Type.String(),
  total: whole('Rows that match.'),
  offset: whole(),
  rows: Type.Array(bag('A resource or a lease in short.')),
  revision,
  at,
})

export const TreeQuery = closed({
  offset: optional(whole('')),
  limit: optional(Type.Integer({ minimum: 1, maximum: MAX_TREES })),
})

export const Trees = answer({
  total: whole('Trees in all.'),
  offset: whole(),
  trees: Type.Array(answer({ leases: Leases.properties.leases, more: optional(yes('The tree has more leases.')) }), {
    description: 'The newest first. Each has its root first, and a lease before those below it.',
  }),
  revision,
})

export const PreviewRequest = closed({
  action: Type.Enum(Object.keys(ACTION_VERBS) as OperatorAction[]),
  lease: optional(id),
  holder: optional(text('Revoke all leases of this holder.')),
  prefix: optional(text('Revoke all leases with names under this prefix, or set rules for it.')),
  resource: optional(name),
  to: optional(text('The holder that gets a transferred lease.')),
})

export const Preview = answer({
  allowed: Type.Boolean(),
  why: optional(Type.String({ description: 'Why it is not allowed.' })),
  says: Type.String({ description: 'What it would do, in one sentence.' }),
  ends: Type.Array(answer({ lease: id, holder: Type.String(), status, names: Type.Array(Type.String()) })),
  endsTotal: whole(),
  next: Type.Array(answer({ resource: name, lease: id, holder: Type.String() })),
})
