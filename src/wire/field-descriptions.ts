/**
 * The descriptions of the fields of commands, for the OpenAPI document. The kernel has the fields (src/kernel/command-table.ts) and no sentences.
 * The compiler refuses a field that is missing here. An empty text: the name says it all.
 */
import type { Fields, FieldType } from '../kernel/codec/field-type.ts'
import {
  attachment,
  type CommandTable,
  keyFields,
  keyLimitFields,
  policyRules,
  poolCondition,
  poolRequest,
  priorityRange,
} from '../kernel/command-table.ts'
import { comparison, entryChange, grantChange } from '../kernel/entry-fields.ts'
import { ACQUIRE_FIELDS } from './acquire-fields.ts'

export type Descriptions<K extends string = string> = Readonly<Record<K, string>>

const GENERATION = 'A newer generation takes the key over; an older one is refused. 0 when left out, everywhere.'
const EXPIRES = 'Unix time in ms by the wall clock of the servers.'
const BY = 'The name that holders are told; the name of the key when left out.'

/** The commands whose fields are bodies or parameters of requests. */
type DescribedCommand =
  | 'release'
  | 'put'
  | 'delete'
  | 'revoke'
  | 'transfer'
  | 'break'
  | 'recall'
  | 'rotate'
  | 'fence'
  | 'extend'
  | 'transaction'

export const COMMAND_DESCRIPTIONS: { readonly [K in DescribedCommand]: Descriptions<string & keyof CommandTable[K]['fields']> } = {
  release: {
    lease: '',
    resource: 'Release only the grant of this resource.',
    stopped: '',
    ran: 'For how many ms it was held, for statistics.',
    lost: 'The holder has lost the lease, and this is why: it counts and is listed as lapsed.',
    compare: '',
    changes: '',
  },
  put: { lease: '', key: '', value: '', generation: GENERATION },
  delete: { key: '', lease: '' },
  revoke: {
    target: '',
    force: 'Others may have it at once, although the holder may still use it: the one exception to exclusion.',
    by: BY,
    among: '',
    ended: '',
  },
  transfer: {
    lease: '',
    to: 'The name of the recipient, which renews before it uses the lease.',
    stopped: 'The holder has stopped using the lease.',
    incarnation: "The number of the recipient's process.",
  },
  break: { resource: '', after: 'The longest time that holders may keep it; 0 when left out.', by: BY },
  recall: { resource: '', by: BY },
  rotate: {
    id: '',
    hash: '',
    overlap: 'How long the former secret stays valid; left out, every former secret ends now.',
    expires: EXPIRES,
  },
  fence: { resource: '', token: '' },
  extend: { lease: '', by: 'How much longer it may live.' },
  transaction: {
    compare: 'All of them must be true.',
    success: 'Carried out, all or none, if every comparison is true.',
    failure: 'Carried out otherwise.',
  },
}

function described<F extends object>(fields: F, texts: Descriptions<string & keyof F>): readonly [object, Descriptions] {
  return [fields, texts]
}

function describedRecord<T extends object>(
  type: FieldType<T, 'record'>,
  texts: Descriptions<string & keyof T>,
): readonly [object, Descriptions] {
  return [type.fields!, texts]
}

const DESCRIBED: ReadonlyMap<object, Descriptions> = new Map([
  described(ACQUIRE_FIELDS, {
    holder: 'The holder: a name that people can read.',
    ttl: 'How long it lasts unless renewed.',
    ttlMin: 'A shorter one is of no use.',
    ttlMax: 'A longer one is not wanted.',
    wants: '',
    units: 'Units of each resource; 1 when left out.',
    unitsOf: 'Units of one of the resources.',
    shared: '',
    incarnation: "The number of the holder's process, as its first lease was answered.",
    wait: 'How long to wait in the queue while others hold it; left out: not at all.',
    queue: 'Answer at once, and say later when it is granted.',
    reuse: 'If the holder, with the same incarnation, has a lease on exactly these resources, renew it and answer with it instead of HELD.',
    any: 'How many of the resources suffice. Left out: all.',
    priority: 'Higher goes first; 0 when left out.',
    entries: '',
    parent: 'The lease ends with this one, in the same revision.',
    labels: 'For people, and for clients that choose by them.',
    holding: 'Leases that the client keeps while it waits.',
    grace: 'How long it is merely suspect after its ttl: still listed and renewable, and granted to no other.',
    maxLife: 'Ends this long after it was granted, renewed or not.',
    steal: '',
    recall: 'Tell the present holders that another client waits.',
    pool: 'Members of a pool instead of named resources.',
    permits: 'How many units of each resource may be in use at once; a grant keeps to the smallest number of all leases on it.',
    covers: 'Claim all names below each resource, too.',
    compare: '',
    changes: '',
  }),
  describedRecord(attachment, { key: '', value: '', generation: GENERATION }),
  describedRecord(poolCondition, { label: '', test: '', values: '' }),
  describedRecord(poolRequest, {
    pool: 'Its members are the entries pool/NAME/MEMBER.',
    count: 'Members; 1 when left out.',
    units: 'Units of each member; all of them when left out.',
    total: 'Instead of count and units: this many units in all, on as few members as possible.',
    match: 'Conditions on labels; all must hold.',
    near: 'All members have the same value of this label.',
    account: 'The user or team, for shares and quotas; the holder when left out.',
    expect: 'How long it will probably be held. It never ends the lease.',
    preemptible: 'It may be preempted for others, after a notice.',
    from: 'A reservation: the window begins in this time, and lasts maxLife.',
  }),
  describedRecord(comparison, {
    key: '',
    field: 'An entry that is not there has 0 for each number, and no value.',
    is: '',
    number: 'What the field is compared with, unless it is the value.',
    value: 'What the value is compared with: it is equal or unequal.',
  }),
  describedRecord(entryChange, {
    key: '',
    value: '',
    lease: 'The entry ends with this lease. Left out: it stays until it is deleted.',
    delete: 'Delete the entry instead.',
  }),
  describedRecord(grantChange, { key: '', value: '', lease: '', delete: '', own: '' }),
  described(policyRules.fields, {
    ttlMin: '',
    ttlMax: '',
    capacity: '',
    lockDelay: 'After a lapse, and only then, the units stay withheld this long.',
    grace: '',
    maxLife: '',
    maxHold: 'How long a holder may keep a resource that another client waits for.',
    quota: 'Leases that one holder may have.',
    waiters: '',
    queue: '',
    aging: 'A waiter gains one point of priority for each such time.',
    leases: 'Leases in all; of the empty prefix only.',
    leasesPerKey: 'Leases made with one key; of the empty prefix only.',
    flapPenalty: 'What a lapse adds to the penalty of a registration; 0: nothing.',
    flapHalfLife: 'A penalty halves in this time.',
    flapSuppress: 'Above this penalty a registration is suppressed.',
    flapReuse: 'At this penalty the suppression ends.',
    preserveShare: 'Percent of a service that is expected to renew in time; with fewer, lapses are slowed. 0: never.',
    preserveLeast: 'A service of fewer registrations is neither preserved nor swept by shares.',
    preserveMost: 'How long one registration is kept at most for that reason.',
    sweepShare: 'Percent of a service that may lapse in one sweep.',
    shareHalfLife: 'Of a pool: the usage of an account halves in this time.',
    sharePenalty: 'Of a pool: what each grant adds to the usage of its account, in ms of one unit.',
    shareWeight: 'Of POOL/accounts/ACCOUNT: with twice the weight, twice the share.',
    quotaUnits:
      'Of POOL/accounts/ACCOUNT: units that the account may hold; 0: any number. Of POOL/kinds/KIND/accounts/ACCOUNT: of that kind.',
    quotaBorrow: 'Of POOL/accounts/ACCOUNT: units beyond that, while no waiter within its quota needs them.',
    quotaWeek: 'Of POOL/accounts/ACCOUNT: unit-time that the account may use in a week; 0: any.',
    preempt: 'Of a pool: marked: preemptible, borrowing and overtaking leases make room for others.',
    minHold: 'Of a pool: a lease is not preempted sooner.',
    preemptNotice: 'Of a pool: how long before its end the holder of a preempted lease is told.',
    freeEntries: 'Entries without a lease; 0 when left out, which refuses every transaction.',
    freeBytes: 'Bytes of their keys and values; 64 MiB when left out.',
  }),
  described(keyLimitFields, {
    leases: 'Leases, waiting or not.',
    waiters: 'Leases that wait.',
    entries: 'Entries, attached to leases or not.',
    bytes: 'The bytes of their keys and values.',
    connections: 'Open connections, on each server.',
    requests: 'Requests in a second, on each server, without renewals and releases.',
    burst: 'Requests that may come at once; as many as in a second when left out.',
  }),
  described(keyFields, {
    name: '',
    hash: '',
    allow: '',
    accounts: 'Accounts of pools that it may use; the first where a request names none. A * at the end: any that begin so.',
    holders: 'Holder names that it may use, beside its own. A * at the end: any that begin so.',
    priority: 'Priorities that it may use.',
    noMembers: 'It may not name members of a pool, only ask the pool.',
    group: 'Keys of one group share the limits of the group.',
    limits: '',
    expires: EXPIRES,
  }),
  describedRecord(priorityRange, { low: '', high: '' }),
])

/** The descriptions of these fields, which are those of a record or of a table of fields. */
export function descriptionsOf(fields: Fields): Descriptions {
  const found = DESCRIBED.get(fields)
  if (found === undefined) throw new Error(`the fields ${Object.keys(fields).join(', ')} have no descriptions`)
  return found
}
