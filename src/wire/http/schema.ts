/**
 * The JSON of requests and answers over HTTP. The server checks requests against these schemas, and the OpenAPI document is made of them.
 * Requests are closed: the server refuses a field that it does not know. The fields of commands come from the command table.
 */
import Type, { type Static, type TObject, type TSchema } from 'typebox'
import { MAX_RESOURCES } from '../../kernel/command.ts'
import { policyRules } from '../../kernel/command-table.ts'
import { EVENT_TYPES } from '../../kernel/event.ts'
import { NAME_BYTES } from '../../kernel/name.ts'
import { MAX_POOL_PAGE } from '../../lessor.ts'
import { INSTANCE_STATUSES, STATUSES } from '../../registry/entry.ts'
import { ACQUIRE_FIELDS } from '../acquire-fields.ts'
import { duration, fieldsOf, leaseId as id, name, schemaOf, text, whole } from './command-schema.ts'
import { answer, at, bag, closed, op, optional, revision, status, yes } from './schema-parts.ts'

/** Commands in one request. */
export const MAX_PROPOSALS = 1_000

// Requests

const { ttlMin: min, ttlMax: max } = schemaOf(ACQUIRE_FIELDS, 'ttlMin', 'ttlMax')
export const Acquire = closed({
  resources: optional(
    Type.Array(name, { maxItems: MAX_RESOURCES, description: 'All of them or none, unless any is given. Empty, or left out, with pool.' }),
  ),
  ttl: optional(
    Type.Union([
      duration("How long it lasts unless renewed; '30s' when left out."),
      closed({ preferred: duration('As long as this, or as near to it as policies allow.'), min, max }),
    ]),
  ),
  mode: optional(Type.Enum(['exclusive', 'shared'])),
  ifAvailable: optional(Type.Boolean({ description: 'Do not wait: answer HELD (409) if it is held. So it is without wait, too.' })),
  ...schemaOf(ACQUIRE_FIELDS, 'holder', 'units', 'any', 'wait', 'reuse', 'priority', 'parent', 'incarnation', 'holding', 'grace'),
  ...schemaOf(ACQUIRE_FIELDS, 'maxLife', 'steal', 'recall', 'pool', 'permits', 'covers', 'entries', 'labels'),
  op,
})

export const RenewOne = closed({ op })
export const Extend = closed({ ...fieldsOf('extend', 'by'), op })
export const Renew = closed({ leases: Type.Array(id, { description: 'At most 10,000, unless the server says otherwise.' }), op })
export const Break = closed({ ...fieldsOf('break'), op })
export const Recall = closed({ ...fieldsOf('recall'), op })
/** One of lease, holder and prefix. */
export const Revoke = closed({
  lease: optional(id),
  holder: optional(name),
  prefix: optional(text('')),
  ...fieldsOf('revoke', 'force', 'by'),
  op,
})
export const Transfer = closed({ ...fieldsOf('transfer'), op })
export const Put = closed({ ...fieldsOf('put', 'lease', 'value'), op })
export const Transaction = closed({ ...fieldsOf('transaction'), op })
export const Fence = closed({ ...fieldsOf('fence'), op })
export const Rules = closed({ ...schemaOf(policyRules.fields), op })

const words = (description: string) => Type.Array(text(''), { maxItems: 64, description })
const state = {
  status: optional(Type.Enum([...STATUSES])),
  load: optional(Type.Number({ minimum: 0, maximum: 1e9, description: 'How busy the instance is, in any unit; smaller is less busy.' })),
}
const generation = optional(whole('A newer generation takes the name over; an older one is refused. 0 when left out, everywhere.'))
/** src/registry/entry.ts checks every registration again, in full. */
export const Register = closed({
  address: optional(text('http://10.0.0.7:8080, tcp://host:5000 or host:5000.')),
  addresses: optional(Type.Array(text(''), { maxItems: 16 })),
  capabilities: optional(words('What the instance can do.')),
  tags: optional(words('')),
  metadata: optional(Type.Unknown({ description: 'Any JSON, kept unchanged, such as an A2A agent card. At most 8 KiB.' })),
  weight: optional(whole('The share of picks that the instance gets; 1 when left out.')),
  zone: optional(text('From the largest part to the smallest: eu/fra/rack-7.')),
  generation,
  check: optional(
    Type.Unsafe<string | object>({
      type: ['string', 'object'],
      description:
        'A health check made by servers whose operator allows it. Until its first result the instance is unknown, and not picked.',
    }),
  ),
  ttl: optional(duration("How long it is listed without a heartbeat; '30s' when left out.")),
  grace: optional(duration('How long it is listed as suspect after that; half a ttl when left out.')),
  ...state,
  op,
})
export const Heartbeat = closed({ ...state, generation, op })
export const Heartbeats = closed({
  instances: Type.Array(closed({ service: name, instance: name, ...state, generation }), {
    description: 'At most 10,000 in one request, unless the server says otherwise.',
  }),
  op,
})

const Operation = closed({
  session: text(''),
  seq: whole(),
  acked: whole(),
  again: optional(Type.Boolean()),
})
export const Proposal = closed({
  command: Type.Unknown({ description: 'A command of the kernel, as in src/kernel/command.ts.' }),
  op: optional(Operation),
  key: optional(whole('Propose in the name of this key. Only the operator may.')),
})
export const Propose = closed({
  // Each is checked by itself, so that a wrong one does not fail the others.
  proposals: Type.Array(Type.Unknown({ description: '{command, op?, key?}' }), {
    maxItems: MAX_PROPOSALS,
    description: 'Applied in this order.',
  }),
})
const query = <K extends string>(kind: K) => ({ kind: Type.Literal(kind) })
const prefixes = (description: string) => Type.Array(text(''), { maxItems: 10_000, description })
const listing = {
  limit: optional(whole('The largest number of items.')),
  within: optional(prefixes('Only names under one of these.')),
}
const poolPage = {
  limit: optional(Type.Integer({ minimum: 0, maximum: MAX_POOL_PAGE, description: 'The most waiters to return.' })),
  skip: optional(whole('Return waiters from this position on.')),
}
const own = closed({ key: whole(), claims: prefixes('Prefixes under which the key may claim leases that have no key.') })
export const Query = Type.Union([
  closed(query('summary')),
  closed({ ...query('lease'), lease: id }),
  closed({ ...query('leases'), holder: optional(text('')), prefix: optional(text('')), own: optional(own), ...listing }),
  closed({ ...query('resource'), resource: name }),
  closed({ ...query('resources'), prefix: text(''), ...listing }),
  closed({ ...query('entries'), prefix: text(''), ...listing }),
  closed({ ...query('services'), service: optional(text('')) }),
  closed({ ...query('pool'), pool: name, ...poolPage, lease: optional(id) }),
  closed(query('pools')),
  closed({
    ...query('history'),
    resource: name,
    limit: optional(whole('The newest so many.')),
    below: optional(whole('Those of the names below it that ended after this revision.')),
  }),
  closed({ ...query('durations'), class: text('') }),
  closed(query('policies')),
  closed(query('keys')),
])
export const Read = closed({ query: Query, consistent: optional(Type.Boolean()), atLeast: optional(whole()) })

// Query parameters

export const consistent = optional(yes("Read at the log's end, and not merely what this server has applied."))
export const prefix = optional(text('By whole segments; left out: everything.'))
export const limit = optional(
  Type.Integer({
    minimum: 1,
    maximum: 100_000,
    description: 'The largest number of items; 10,000 when left out. If there are more, any of them may be missing.',
  }),
)
/** Of reads that can wait for a change. */
const change = {
  wait: optional(
    text(
      'How long to wait for a change, at most 5m: the answer comes with the first one, or unchanged when this is over. Left out: answer now.',
    ),
  ),
  after: optional(whole('With wait: the revision of the last answer, so that no change in between is missed. Left out: from now on.')),
}
export const Reading = closed({ consistent })
export const HistoryReading = closed({
  consistent,
  limit: optional(Type.Integer({ minimum: 1, maximum: 1_000, description: 'The newest so many; 100 when left out.' })),
})
export const PoolReading = closed({ ...poolPage, consistent })
export const WaitedReading = closed({ consistent, ...change })
export const WaitedListing = closed({ prefix, consistent, limit, ...change })
export const Listing = closed({ prefix, consistent, limit })
export const LeaseListing = closed({ holder: optional(text('')), prefix, consistent, limit })
export const Watching = closed({
  prefix,
  after: optional(whole('Every event after this revision, without a gap; left out: from now on. A Last-Event-ID takes precedence.')),
  types: optional(text('Only these types, separated by commas.')),
})
const list = (description: string) => optional(text(description))
const filter = {
  service: list('Of this service.'),
  capability: list('All of these, separated by commas.'),
  any: list('At least one of these capabilities, separated by commas.'),
  tag: list('All of these, separated by commas.'),
  zone: list('Where the client is: the nearest instances come first.'),
  status: list('Any of these, separated by commas.'),
}
export const ServiceListing = closed({
  capability: filter.capability,
  any: filter.any,
  tag: filter.tag,
  zone: filter.zone,
  status: filter.status,
  consistent,
  limit,
})
export const Discovering = closed({ ...filter, limit })
export const Leaving = closed({ generation, op })
export const BackupReading = closed({
  follow: optional(yes('Streams the state, then every record from then on, for a move to another store.')),
})
export const Changing = closed({ op })
export const Releasing = closed({ ...fieldsOf('release', 'resource', 'lost'), op })
export const Deleting = closed({ ...fieldsOf('delete', 'lease'), op })

// Answers. They are open: fields may be added, and none of these is removed.

const expiresAt = Type.String({ format: 'date-time', description: 'When it ends unless renewed. For people: no decision depends on it.' })
const PERMITS = optional(whole('The units that may be in use at once, as this lease states. Missing: it states none.'))
const COVERS = optional(yes('It stands for all names below this one, too.'))
const GrantView = answer({
  resource: name,
  lease: id,
  holder: name,
  incarnation: whole(),
  token: whole('The fencing token.'),
  units: whole(),
  shared: Type.Boolean(),
  status,
  since: at,
  remaining: Type.Number({ description: 'About how many ms are left without a renewal, for people.' }),
  expiresAt,
  permits: PERMITS,
  covers: COVERS,
})
const waiter = {
  lease: id,
  holder: name,
  incarnation: whole(),
  position: whole('0: next.'),
  units: whole(),
  shared: Type.Boolean(),
  priority: Type.Integer(),
  since: at,
  permits: PERMITS,
  covers: COVERS,
}
const WaiterView = answer(waiter)
const resource = {
  resource: name,
  capacity: whole(),
  limit: optional(whole('The units that may be in use at once, by the smallest permits of its holders. Missing: they state none.')),
  grants: Type.Array(GrantView),
  coveredBy: optional(Type.Array(GrantView, { description: 'Grants of names above that cover this one.' })),
  waitersAbove: optional(
    Type.Array(answer({ resource: name, ...waiter }), {
      description: 'Covering requests that wait for names above: later ones for this name wait behind them.',
    }),
  ),
  heldBelow: optional(
    Type.Array(GrantView, { description: 'While a covering request waits for this name: grants of names below, 20 at most.' }),
  ),
  queue: Type.Array(WaiterView),
  fence: whole('The highest token that fence has seen; 0: none.'),
  frozen: optional(yes('Some units are withheld: a former holder may still use them.')),
}
const lease = {
  lease: id,
  holder: name,
  incarnation: whole(),
  ttl: whole(),
  status,
  since: at,
  remaining: Type.Number(),
  expiresAt,
  grants: Type.Array(GrantView),
  wants: Type.Array(answer({ resource: name, units: whole(), shared: Type.Boolean(), position: whole() })),
  entries: Type.Array(answer({ key: name, value: Type.String() })),
  labels: Type.Record(Type.String(), Type.String()),
  parent: whole(),
  children: Type.Array(id),
  recalled: Type.Boolean(),
  covers: optional(yes('It claims all names below its own, too.')),
  maxLife: optional(whole('For how many ms it may be held in all, renewals or not. Missing: without a limit.')),
  own: optional(yes('It belongs to the key of this request.')),
}
const entry = {
  key: name,
  value: Type.String(),
  lease: id,
  holder: name,
  incarnation: whole(),
  status,
  revision: whole('Of its last change.'),
  created: whole('The revision that made it.'),
  version: whole('How often it was written since.'),
  generation: whole('The generation of a registration; 0 when none was given.'),
  suppressed: yes('The registration has come and gone too often.'),
  flap: optional(
    answer({
      penalty: whole('For lapses; it halves with time.'),
      suppress: whole('Above this the registration is suppressed.'),
      reuse: whole('At this it is free again.'),
    }),
  ),
  remaining: Type.Number({ description: 'About how many ms its lease has left without a renewal, for people.' }),
}
const more = optional(yes('There are more items than the limit.'))

export const Granted = answer({
  lease: id,
  holder: name,
  incarnation: whole(),
  ttl: whole('The present ttl: at most 30 s until the first renewal.'),
  expiresAt,
  token: optional(whole('The fencing token of the first resource.')),
  tokens: Type.Record(Type.String(), whole()),
  waited: yes('Renew once before you trust it.'),
  reused: optional(yes('The holder had this lease already (reuse).')),
  revision,
})
export const Renewed = answer({ renewed: Type.Array(answer({ lease: id, ttl: whole() })), gone: Type.Array(id), revision })
export const RenewedOne = answer({ ttl: whole(), expiresAt, ...Renewed.properties })
export const Done = answer({ revision })

export const Revoked = answer({ revision, ended: whole('How many leases have ended; without the descendants if one lease was named.') })
export const Transferred = answer({ lease: id, revision })
export const Transacted = answer({ succeeded: yes('Every comparison was true, and success was carried out; otherwise failure.'), revision })
export const Fenced = answer({ accepted: Type.Literal(true), highest: whole(), revision })
export const Resource = answer({ ...resource, revision })
export const Resources = answer({ resources: Type.Array(answer(resource)), revision, more })
export const Lease = answer({ ...lease, revision })
export const Leases = answer({ leases: Type.Array(answer(lease)), revision, more })
export const History = answer({
  resource: name,
  history: Type.Array(
    answer({
      ...{ lease: id, holder: name, token: whole(), since: at, until: at, cause: Type.String(), by: optional(name) },
      revision: whole('The revision that ended it. 0: the log has forgotten the grant, and only its run was kept.'),
      exit: optional(whole('Of a command that leasehold run has run: its exit code, 128 + the signal that ended it.')),
      ran: optional(whole('For how many ms that command ran.')),
      command: optional(Type.String({ description: 'The name of that command.' })),
    }),
  ),
  revision,
})
export const Entry = answer(entry)
export const Entries = answer({ entries: Type.Array(Entry), revision, more })
const { op: _, ...rules } = Rules.properties
const policy = { prefix: Type.String(), rules: answer(rules) }
export const PolicyView = answer({ ...policy, revision })
export const Policies = answer({ policies: Type.Array(answer(policy)), revision })
export const Proposed = answer({
  answers: Type.Array(
    answer({
      outcome: optional(bag('As in src/kernel/outcome.ts; a refusal is an outcome.')),
      error: optional(bag('Where there is no outcome.')),
    }),
  ),
})
const Check = answer({
  url: Type.String(),
  interval: optional(whole()),
  timeout: optional(whole()),
  fall: optional(whole('Failures in a row until the instance is failing.')),
  rise: optional(whole('Successes in a row until the instance is passing again.')),
  endAfter: optional(whole('The lease is ended after the instance was critical for this many ms.')),
})
const Instance = answer({
  service: name,
  instance: name,
  address: Type.String({ description: 'The first of its addresses, or empty.' }),
  addresses: Type.Array(Type.String()),
  capabilities: Type.Array(Type.String()),
  tags: Type.Array(Type.String()),
  metadata: Type.Unknown(),
  weight: whole(),
  zone: Type.String(),
  generation: whole(),
  check: optional(Check),
  status: Type.Enum([...INSTANCE_STATUSES]),
  reason: Type.String({ description: 'The reason that a check gives, or that no check has been made yet.' }),
  load: Type.Number(),
  lease: id,
  holder: name,
  revision,
})
export const ServiceView = answer({ service: optional(Type.String()), instances: Type.Array(Instance), revision, more })
export const ServiceOrInstance = Type.Union([ServiceView, Instance])
export const Services = answer({
  services: Type.Array(
    answer({
      service: name,
      instances: whole(),
      suspect: whole(),
      suppressed: whole(),
      preserving: yes('Too many instances are silent at once: their lapses are slowed.'),
      since: whole('Wall time since when lapses are slowed, for people; 0 when they are not.'),
      removed: whole('Instances that lapsed in the present sweep.'),
    }),
  ),
  revision,
})
const limited = optional(
  yes('The lease is renewed, but status and load were over the rate limit and not written: send them with the next heartbeat.'),
)
const checkers = optional(
  whole(
    'Where a check was asked for: the number of servers that make health checks. Without one, the instance stays unknown and is not picked.',
  ),
)
export const Registered = answer({ lease: id, ttl: whole(), expiresAt: Type.String({ format: 'date-time' }), revision, limited, checkers })
export const Beaten = answer({
  renewed: Type.Array(answer({ service: name, instance: name, lease: id, ttl: whole(), limited })),
  gone: Type.Array(answer({ service: name, instance: name }), { description: 'No longer listed: register again.' }),
  stale: Type.Array(answer({ service: name, instance: name, generation: whole() }), { description: 'Replaced by this newer generation.' }),
  revision,
})
export const HttpSd = Type.Array(answer({ targets: Type.Array(Type.String()), labels: Type.Record(Type.String(), Type.String()) }))
/** Envoy's request. It is open, since newer versions of Envoy add fields. */
export const DiscoveryRequest = Type.Object(
  {
    resource_names: optional(Type.Array(Type.String({ maxLength: NAME_BYTES }), { maxItems: 1_000 })),
    type_url: optional(Type.String({ maxLength: 256 })),
    version_info: optional(Type.String({ maxLength: 256 })),
  },
  { additionalProperties: true },
)
export const DiscoveryResponse = answer({
  version_info: Type.String(),
  type_url: Type.String(),
  resources: Type.Array(bag('One ClusterLoadAssignment for each service.')),
  nonce: Type.String(),
})
export const ReadAnswer = answer({ revision, value: optional(Type.Unknown()), more })
export const About = answer({
  name: Type.Literal('leasehold'),
  version: Type.String(),
  profile: bag('What the store guarantees.'),
  keys: yes('Keys exist: every client needs one.'),
  revision,
})
export const Health = answer({ ok: Type.Boolean() })
export const EventData = answer({
  revision,
  type: Type.Enum([...EVENT_TYPES]),
  lease: whole('0 for an event without a lease.'),
  holder: optional(name),
  resource: optional(name),
  token: optional(whole()),
  key: optional(name),
  value: optional(Type.String()),
  cause: optional(Type.String()),
  by: optional(Type.String()),
  at,
})
export const ErrorBody = answer({
  error: Type.Object(
    { code: Type.String(), message: Type.String() },
    { additionalProperties: true, description: 'With facts such as the holder or the limit.' },
  ),
})

export type { Static, TObject, TSchema }
