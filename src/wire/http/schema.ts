/**
 * What goes over HTTP as JSON. One source for three uses: the server checks what it is sent against these, OpenAPI is made of them, and a
 * reader learns the fields here. Closed: a field that is not known is refused by its name.
 */
import Type, { type Static, type TObject, type TProperties, type TSchema } from 'typebox'
import { MAX_ENTRIES, MAX_LABELS, MAX_RESOURCES, VERBS } from '../../kernel/command.ts'
import { EVENT_TYPES } from '../../kernel/event.ts'
import { NAME_BYTES, VALUE_BYTES } from '../../kernel/name.ts'
import { INSTANCE_STATUSES, STATUSES } from '../../registry/entry.ts'
import { duration, fieldsOf, leaseId as id, name, rulesOf, text, whole } from './command-schema.ts'

function closed<P extends TProperties>(properties: P, description?: string): TObject<P> {
  return Type.Object(properties, { additionalProperties: false, ...(description !== undefined && { description }) })
}

const optional = Type.Optional

const yes = (description: string) => Type.Boolean({ description })

const revision = whole('The state that this was decided at.')
const at = whole('Wall time in ms, for people: nothing decides by it.')
const op = optional(
  Type.String({
    minLength: 1,
    maxLength: 128,
    description: 'Makes it safe to ask again: the same op has one effect and one answer, within the window that the guarantees state.',
  }),
)
/** Commands in one request. */
export const MAX_PROPOSALS = 1_000

// Questions

export const Acquire = closed({
  ...fieldsOf('acquire', 'holder', 'any', 'priority', 'parent', 'incarnation', 'holding', 'grace', 'maxLife', 'steal', 'recall'),
  resources: Type.Array(name, { maxItems: MAX_RESOURCES, description: 'All of them or none, unless any is given. May be empty.' }),
  ttl: optional(duration("How long it lasts unless renewed; '30s' when left out.")),
  wait: optional(duration('How long to wait in the queue while others hold it; left out: not at all.')),
  units: optional(whole('Units of each resource; 1 when left out.')),
  mode: optional(Type.Enum(['exclusive', 'shared'])),
  entries: optional(Type.Array(closed({ key: name, value: text('', VALUE_BYTES) }), { maxItems: MAX_ENTRIES })),
  labels: optional(
    Type.Record(Type.String(), Type.String({ maxLength: 1024 }), { maxProperties: MAX_LABELS, description: 'For people and choosers.' }),
  ),
  op,
})

export const RenewOne = closed({ op })
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
export const Fence = closed({ ...fieldsOf('fence'), op })
export const Rules = closed({ ...rulesOf(), op })
const Scope = closed({ verb: Type.Enum([...VERBS]), prefix: text('By whole segments; empty: everything.') })
export const NewKey = closed({
  name,
  allow: Type.Array(Scope, { maxItems: 256 }),
  hash: optional(
    Type.String({
      pattern: '^[0-9a-f]{64}$',
      description: 'SHA-256 of a secret that the asker made itself. Left out: the server makes one and tells it once.',
    }),
  ),
  op,
})

const words = (description: string) => Type.Array(text(''), { maxItems: 64, description })
const state = {
  status: optional(Type.Enum([...STATUSES])),
  load: optional(Type.Number({ minimum: 0, maximum: 1e9, description: 'Any measure of how busy it is, smaller being freer.' })),
}
const generation = optional(whole('A newer one takes the name over; an older one is refused. 0 when left out, everywhere.'))
/** What it says of itself is checked again, in full, where every registration is (recipe/registry/entry.ts). */
export const Register = closed({
  address: optional(text('http://10.0.0.7:8080, tcp://host:5000 or host:5000.')),
  addresses: optional(Type.Array(text(''), { maxItems: 16 })),
  capabilities: optional(words('What it can do.')),
  tags: optional(words('')),
  metadata: optional(Type.Unknown({ description: 'Anything, kept as it is: an A2A agent card, say. At most 8 KiB.' })),
  weight: optional(whole('A share of what is picked by weight; 1 when left out.')),
  zone: optional(text('From the outside in: eu/fra/rack-7.')),
  generation,
  check: optional(
    Type.Unsafe<string | object>({
      type: ['string', 'object'],
      description: 'A probe made by a server where its operator allows it. Until its first result the instance is unknown, and not picked.',
    }),
  ),
  ttl: optional(duration("How long it is listed unless a heartbeat comes; '30s' when left out.")),
  grace: optional(duration('How long it is then still listed, as suspect; half a ttl when left out.')),
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
  command: Type.Unknown({ description: 'A command of the kernel, as src/kernel/command.ts has it.' }),
  op: optional(Operation),
  key: optional(whole('In the name of this key: for the operator alone.')),
})
export const Propose = closed({
  // Each is checked by itself: one that is wrong hurts nobody who asks at the same time.
  proposals: Type.Array(Type.Unknown({ description: '{command, op?, key?}' }), {
    maxItems: MAX_PROPOSALS,
    description: 'Decided in this order.',
  }),
})
const query = <K extends string>(kind: K) => ({ kind: Type.Literal(kind) })
const prefixes = (description: string) => Type.Array(text(''), { maxItems: 10_000, description })
const listing = {
  limit: optional(whole('At most so many.')),
  within: optional(prefixes('Only what is under one of these.')),
}
const own = closed({ key: whole(), claims: prefixes('Under which it may claim what no key has.') })
export const Query = Type.Union([
  closed(query('summary')),
  closed({ ...query('lease'), lease: id }),
  closed({ ...query('leases'), holder: optional(text('')), prefix: optional(text('')), own: optional(own), ...listing }),
  closed({ ...query('resource'), resource: name }),
  closed({ ...query('resources'), prefix: text(''), ...listing }),
  closed({ ...query('entries'), prefix: text(''), ...listing }),
  closed({ ...query('services'), service: optional(text('')) }),
  closed({ ...query('history'), resource: name }),
  closed(query('policies')),
  closed(query('keys')),
])
export const Read = closed({ query: Query, consistent: optional(Type.Boolean()), atLeast: optional(whole()) })

// What stands behind the question mark

export const consistent = optional(yes("At the log's end, not merely at what has been applied here."))
export const prefix = optional(text('By whole segments; left out: everything.'))
export const limit = optional(
  Type.Integer({
    minimum: 1,
    maximum: 100_000,
    description: 'At most so many; 10,000 when left out. Which, when there are more, is not promised.',
  }),
)
export const Reading = closed({ consistent })
export const Listing = closed({ prefix, consistent, limit })
export const LeaseListing = closed({ holder: optional(text('')), prefix, consistent, limit })
export const Watching = closed({
  prefix,
  after: optional(whole('Everything after this revision, without a gap; left out: from now on. A Last-Event-ID goes before it.')),
  types: optional(text('Only these, separated by commas.')),
})
const list = (description: string) => optional(text(description))
const filter = {
  service: list('Of this service.'),
  capability: list('All of these, separated by commas.'),
  any: list('At least one of these capabilities, separated by commas.'),
  tag: list('All of these, separated by commas.'),
  zone: list('Where the asker is: nearest come first.'),
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
export const Changing = closed({ op })
export const Releasing = closed({ ...fieldsOf('release', 'resource'), op })
export const Deleting = closed({ ...fieldsOf('delete', 'lease'), op })

// Answers. Open, since fields may be added; what is here stays.

const answer = <P extends TProperties>(properties: P) => Type.Object(properties)
/** Whose fields are told elsewhere. */
const bag = (description: string) => Type.Object({}, { additionalProperties: true, description })
const status = Type.Enum(['waiting', 'live', 'suspect', 'frozen'])
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
  remaining: Type.Number({ description: 'About how many ms are left unless renewed, for people.' }),
})
const WaiterView = answer({
  lease: id,
  holder: name,
  incarnation: whole(),
  position: whole('0: next.'),
  units: whole(),
  shared: Type.Boolean(),
  priority: Type.Integer(),
  since: at,
})
const resource = {
  resource: name,
  capacity: whole(),
  grants: Type.Array(GrantView),
  queue: Type.Array(WaiterView),
  fence: whole('The highest token shown to fence; 0: none.'),
  frozen: optional(yes('Some of it is withheld: whoever had it may still believe so.')),
}
const lease = {
  lease: id,
  holder: name,
  incarnation: whole(),
  ttl: whole(),
  status,
  since: at,
  remaining: Type.Number(),
  grants: Type.Array(GrantView),
  wants: Type.Array(answer({ resource: name, units: whole(), shared: Type.Boolean(), position: whole() })),
  entries: Type.Array(answer({ key: name, value: Type.String() })),
  labels: Type.Record(Type.String(), Type.String()),
  parent: whole(),
  children: Type.Array(id),
  recalled: Type.Boolean(),
}
const entry = {
  key: name,
  value: Type.String(),
  lease: id,
  holder: name,
  incarnation: whole(),
  status,
  revision: whole('Of its last change.'),
  generation: whole('A registration: which of those that had the name it belongs to; 0 when it was not said.'),
  suppressed: yes('A registration that has come and gone too often.'),
  remaining: Type.Number({ description: 'About how many ms its lease has left unless renewed, for people.' }),
}
const more = optional(yes('There are more than were asked for.'))

export const Granted = answer({
  lease: id,
  holder: name,
  incarnation: whole(),
  ttl: whole('What it has now: at most 30 s until it was renewed once.'),
  expiresAt: Type.String({ format: 'date-time', description: 'For people: nothing decides by it.' }),
  token: optional(whole('The fencing token of the first resource.')),
  tokens: Type.Record(Type.String(), whole()),
  waited: yes('Renew once before you trust it.'),
  revision,
})
export const Renewed = answer({ renewed: Type.Array(answer({ lease: id, ttl: whole() })), gone: Type.Array(id), revision })
export const Done = answer({ revision })
export const Transferred = answer({ lease: id, revision })
export const Fenced = answer({ accepted: Type.Literal(true), highest: whole(), revision })
export const Resource = answer({ ...resource, revision })
export const Resources = answer({ resources: Type.Array(answer(resource)), revision, more })
export const Lease = answer({ ...lease, revision })
export const Leases = answer({ leases: Type.Array(answer(lease)), revision, more })
export const History = answer({
  resource: name,
  history: Type.Array(
    answer({ lease: id, holder: name, token: whole(), since: at, until: at, cause: Type.String(), by: optional(name), revision }),
  ),
  revision,
})
export const Entry = answer(entry)
export const Entries = answer({ entries: Type.Array(Entry), revision, more })
const { op: _, ...rules } = Rules.properties
const policy = { prefix: Type.String(), rules: answer(rules) }
export const PolicyView = answer({ ...policy, revision })
export const Policies = answer({ policies: Type.Array(answer(policy)), revision })
const KeyView = { id: whole(), name, allow: Type.Array(Scope) }
export const Key = answer({
  ...KeyView,
  key: optional(Type.String({ description: 'The secret. Shown this once, kept nowhere.' })),
  revision,
})
export const Keys = answer({ keys: Type.Array(answer(KeyView)), revision })
export const Proposed = answer({
  answers: Type.Array(
    answer({
      outcome: optional(bag('As src/kernel/outcome.ts has it; a refusal is one.')),
      error: optional(bag('Where no outcome could be had.')),
    }),
  ),
})
const Check = answer({
  url: Type.String(),
  interval: optional(whole()),
  timeout: optional(whole()),
  fall: optional(whole('So many in a row until it counts as failing.')),
  rise: optional(whole('So many in a row until it counts as well again.')),
  endAfter: optional(whole('Critical for so long, its lease is ended.')),
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
  reason: Type.String({ description: 'Why a check says so, when it does; or that none has been made yet.' }),
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
      preserving: yes('Too many are silent at once: their lapses are slowed.'),
      since: whole('Since when they are, by the wall, for people; 0 when they are not.'),
      removed: whole('Lapsed in the present sweep.'),
    }),
  ),
  revision,
})
const limited = optional(yes('It is renewed, but how it is came above the rate and was not written: say it again with the next heartbeat.'))
const checkers = optional(
  whole('Where a check was asked for: servers that make health checks now. While there is none, it stays unknown, and is not picked.'),
)
export const Registered = answer({ lease: id, ttl: whole(), expiresAt: Type.String({ format: 'date-time' }), revision, limited, checkers })
export const Beaten = answer({
  renewed: Type.Array(answer({ service: name, instance: name, lease: id, ttl: whole(), limited })),
  gone: Type.Array(answer({ service: name, instance: name }), { description: 'Listed no more: register again.' }),
  stale: Type.Array(answer({ service: name, instance: name, generation: whole() }), { description: 'Replaced by this newer generation.' }),
  revision,
})
export const HttpSd = Type.Array(answer({ targets: Type.Array(Type.String()), labels: Type.Record(Type.String(), Type.String()) }))
/** Envoy's; open, as its makers add to it. */
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
  profile: bag('What the store promises.'),
  keys: yes('There are keys: everyone needs one.'),
  revision,
})
export const Health = answer({ ok: Type.Boolean() })
export const EventData = answer({
  revision,
  type: Type.Enum([...EVENT_TYPES]),
  lease: whole('0 where none is concerned.'),
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
    { additionalProperties: true, description: 'With the facts of the case: who holds it, what the limit is.' },
  ),
})

export type { Static, TObject, TSchema }
