/**
 * The fields of every command. Everything else that knows them follows from here: the check of a command's form (codec/form.ts), its bytes
 * in a log (codec/encode.ts), JSON bodies and the OpenAPI document (src/wire/http/schema.ts, with the sentences of src/wire/field-descriptions.ts) and the words of RESP (src/server/resp/).
 * The compiler compares each row with the command's interface in command.ts.
 *
 * A new command is an interface in command.ts, a row here, a rule in rule/, and a route or a RESP command where it has one.
 */
import { NewerFormatError } from './codec/bytes.ts'
import {
  choice,
  count,
  defaulted,
  duration,
  type FieldsOf,
  flag,
  id,
  ids,
  integer,
  list,
  name,
  needed,
  oneOf,
  optional,
  record,
  text,
  textOf,
} from './codec/field.ts'
import type { FieldType } from './codec/field-type.ts'
import type { Layout } from './codec/layout.ts'
import {
  type Attachment,
  type Command,
  type CreateKey,
  type KeyLimits,
  LABEL_BYTES,
  MAX_CONDITION_VALUES,
  MAX_CONDITIONS,
  MAX_ENTRIES,
  MAX_KEY_NAMES,
  MAX_LABELS,
  MAX_RESOURCES,
  MAX_STOPPED,
  type Move,
  POOL_TESTS,
  type PolicyRules,
  type PoolCondition,
  type PoolRequest,
  PRIORITY_LIMIT,
  type PriorityRange,
  type Revoke,
  type Scope,
  VERBS,
  type Want,
} from './command.ts'
import { changes, compare, grantChanges } from './entry-fields.ts'
import { LOSS_CAUSES } from './loss-cause.ts'
import { VALUE_BYTES } from './name.ts'
import { type Flaw, shown } from './reason.ts'
import { MAX_REVOKED } from './revoke-part.ts'
import type { ApiKey } from './state.ts'

export interface CommandRow<C extends Command> {
  /** In the log. It never changes, and none is used twice. */
  readonly number: number
  /** In the order of their bytes, unless there are `bits` or a `layout`. */
  readonly fields: FieldsOf<Omit<C, 'kind'>>
  /** The bit of each optional field in a mask (codec/layout.ts), for commands with many of them. */
  readonly bits?: Readonly<Record<string, number>>
  /** For bytes that do not follow from the fields. */
  readonly layout?: Layout<C>
  /** The fields that the bytes have, where there are variants. */
  readonly form?: readonly string[]
  /** The bytes of some of these commands, with other fields and under numbers of their own. The first that applies counts. */
  readonly variants?: readonly { readonly number: number; readonly form: readonly string[]; applies(command: C): boolean }[]
  /** Returns what is wrong with two fields that may be left out, and that are right by themselves. */
  together?(command: C): Flaw | undefined
}

function apart(field: string, other: string): Flaw {
  return { reason: 'not-together', facts: { field, other } }
}

const wantFields: FieldsOf<Want> = { resource: needed(name), units: optional(count), shared: defaulted(flag) }

const want: FieldType<Want, 'record'> = {
  ...record<Want>(wantFields, ({ resource, units = 1, shared }) =>
    // The log writes 0 units for a shared grant. Replicas would read one shared unit where the proposer refuses two.
    shared === true && units !== 1 ? { reason: 'shared-units', facts: { field: 'units', resource } } : undefined,
  ),
  write(to, { resource, units = 1, shared = false }) {
    to.text(resource)
    to.uint(shared ? 0 : units)
  },
  read(from) {
    const resource = from.text()
    const units = from.uint()
    return units === 0 ? { resource, units: 1, shared: true } : { resource, units, shared: false }
  },
}

const label: FieldType<readonly [string, string], 'other'> = {
  surface: 'other',
  fields: { name: needed(text), value: needed(textOf(LABEL_BYTES)) },
  check: value =>
    Array.isArray(value) && value.length === 2
      ? (text.check(value[0]) ?? text.check(value[1]))
      : { reason: 'not-pair', facts: { field: '', given: shown(value) } },
  write(to, [label, value]) {
    to.text(label)
    to.text(value)
  },
  read: from => [from.text(), from.text()],
}
const labels = { ...list(label, MAX_LABELS), surface: 'pairs' } as const

const generation = optional(count)
export const attachment = record<Attachment>({ key: needed(name), value: needed(textOf(VALUE_BYTES)), generation })

export const poolCondition = record<PoolCondition>({
  label: needed(text),
  test: needed(choice(POOL_TESTS)),
  values: defaulted(list(text, MAX_CONDITION_VALUES)),
})

/** In a command, and in the snapshot of a lease. */
export const poolConditions = list(poolCondition, MAX_CONDITIONS)

export const poolRequest = record<PoolRequest>({
  pool: needed(name),
  count: optional(count),
  units: optional(count),
  total: optional(count),
  match: defaulted(poolConditions),
  near: optional(text),
  account: optional(name),
  expect: optional(duration),
  preemptible: defaulted(flag),
  from: optional(duration),
})

const targetFields = { lease: defaulted(id), holder: defaulted(name), prefix: defaulted(text) }
const plainTarget = record<{ lease?: number; holder?: string; prefix?: string }>({ ...targetFields })

const target: FieldType<Revoke['target'], 'other'> = {
  surface: 'other',
  fields: targetFields,
  check: value => {
    const wrong = plainTarget.check(value)
    if (wrong !== undefined) return wrong
    const named = Object.values(value as object)
    return named.length === 1 && named[0] !== undefined
      ? undefined
      : { reason: 'needs-one-of', facts: { field: '', choices: Object.keys(targetFields) } }
  },
  write(to, target) {
    to.byte('lease' in target ? 0 : 'holder' in target ? 1 : 2)
    if ('lease' in target) to.uint(target.lease)
    else to.text('holder' in target ? target.holder : target.prefix)
  },
  read(from) {
    const which = from.byte()
    if (which > 2) throw new NewerFormatError(`a revocation of kind ${which}`)
    return which === 0 ? { lease: from.uint() } : which === 1 ? { holder: from.text() } : { prefix: from.text() }
  },
}

/** In rules 0 is a value like any other, and does not stand for a rule left out. */
const ruleCount: FieldType<number, 'count'> = { ...count, empty: undefined }
const ruleDuration: FieldType<number, 'duration'> = { ...duration, empty: undefined }
const QUEUES = ['fifo', 'fit', 'backfill', 'fair'] as const
const PREEMPTIONS = ['none', 'marked'] as const

/** Without `queue`, the place of a rule in this list is its number in the log: append only. */
const ruleFields = {
  ttlMin: optional(ruleDuration),
  ttlMax: optional(ruleDuration),
  capacity: optional(ruleCount),
  lockDelay: optional(ruleDuration),
  grace: optional(ruleDuration),
  maxLife: optional(ruleDuration),
  maxHold: optional(ruleDuration),
  quota: optional(ruleCount),
  waiters: optional(ruleCount),
  queue: optional(choice(QUEUES)),
  aging: optional(ruleDuration),
  leases: optional(ruleCount),
  leasesPerKey: optional(ruleCount),
  flapPenalty: optional(ruleCount),
  flapHalfLife: optional(ruleDuration),
  flapSuppress: optional(ruleCount),
  flapReuse: optional(ruleCount),
  preserveShare: optional(ruleCount),
  preserveLeast: optional(ruleCount),
  preserveMost: optional(ruleDuration),
  sweepShare: optional(ruleCount),
  shareHalfLife: optional(ruleDuration),
  sharePenalty: optional(ruleDuration),
  shareWeight: optional(ruleCount),
  quotaUnits: optional(ruleCount),
  quotaBorrow: optional(ruleCount),
  preempt: optional(choice(PREEMPTIONS)),
  minHold: optional(ruleDuration),
  preemptNotice: optional(ruleDuration),
  freeEntries: optional(ruleCount),
  freeBytes: optional(ruleCount),
  quotaWeek: optional(ruleDuration),
} satisfies FieldsOf<PolicyRules>

/** The rules after `queue`, which are listed by number. A choice is written as the place of its name. */
type ListedRule = Exclude<keyof PolicyRules, 'queue'>
const LISTED_RULES = Object.keys(ruleFields).filter(rule => rule !== 'queue') as readonly ListedRule[]

/** The rules of a policy, in a command and in a snapshot. */
export const policyRules = {
  ...record<PolicyRules>(ruleFields),
  fields: ruleFields,
  write(to, rules) {
    to.byte(rules.queue === undefined ? 0 : QUEUES.indexOf(rules.queue) + 1)
    const given = LISTED_RULES.filter(rule => rules[rule] !== undefined)
    to.list(given, rule => {
      to.byte(LISTED_RULES.indexOf(rule))
      to.uint(rule === 'preempt' ? PREEMPTIONS.indexOf(rules.preempt!) : rules[rule]!)
    })
  },
  read(from) {
    const queue = oneOf(['', ...QUEUES] as const, from.byte())
    const pairs = from.list(() => {
      const rule = oneOf(LISTED_RULES, from.byte())
      return [rule, rule === 'preempt' ? oneOf(PREEMPTIONS, from.uint()) : from.uint()] as const
    })
    return { ...(queue !== '' && { queue }), ...Object.fromEntries(pairs) }
  },
} satisfies FieldType<PolicyRules, 'record'>

/** The place that leases moved to. Every reader of the log sees it, and so does every client that is told the new place. */
const place: FieldType<string, 'text'> = {
  ...text,
  check: value => {
    const wrong = text.check(value)
    if (wrong !== undefined) return wrong
    const [, user = ''] = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)@/i.exec(value as string) ?? []
    const secret = user.includes(':') || /[?&](?:password|passwd|pwd|sslpassword)=[^&]/i.test(value as string)
    return secret ? { reason: 'has-password', facts: { field: '' } } : undefined
  },
}

const MOVES = ['go', 'stay', 'begin', 'end', 'prepare'] as const

const moveLayout: Layout<Move> = {
  write(to, { to: place = '', since = 0, stay, prepare, into }) {
    to.text(place)
    to.uint(since)
    to.byte(MOVES.indexOf(stay === true ? 'stay' : prepare === true ? 'prepare' : (into ?? 'go')))
  },
  read(from) {
    const place = from.text()
    const since = from.uint()
    const step = oneOf(MOVES, from.byte())
    const how = step === 'go' ? {} : step === 'stay' || step === 'prepare' ? { [step]: true } : { into: step }
    return { kind: 'move', ...(place !== '' && { to: place }), ...(since !== 0 && { since }), ...how }
  },
}

/** Limits of 0 are limits like any other. */
const priority = integer(-PRIORITY_LIMIT, PRIORITY_LIMIT)

export const priorityRange = record<PriorityRange>({ low: needed(priority), high: needed(priority) })

export const keyLimitFields = {
  leases: optional(ruleCount),
  waiters: optional(ruleCount),
  entries: optional(ruleCount),
  bytes: optional(ruleCount),
  connections: optional(ruleCount),
  requests: optional(ruleCount),
  burst: optional(ruleCount),
} satisfies FieldsOf<KeyLimits>
export const keyLimits = record<KeyLimits>(keyLimitFields)

/** Of a new key. */
export const keyFields = {
  name: needed(name),
  hash: needed(text),
  allow: needed(list(record<Scope>({ verb: needed(choice(VERBS)), prefix: needed(text) }))),
  accounts: defaulted(list(name, MAX_KEY_NAMES)),
  holders: defaulted(list(name, MAX_KEY_NAMES)),
  priority: optional(priorityRange),
  noMembers: defaulted(flag),
  group: optional(name),
  limits: optional(keyLimits),
  expires: optional(count),
} satisfies FieldsOf<Omit<CreateKey, 'kind'>>

/** A key in a snapshot. */
export const savedKey = record<ApiKey>({
  id: needed(id),
  ...keyFields,
  former: optional(record<NonNullable<ApiKey['former']>>({ hash: needed(text), until: needed(count) })),
})
/** An empty list is not the same as none: no lease is meant then, and not all of them. */
const among: FieldType<readonly number[], 'list'> = { ...ids(MAX_REVOKED), empty: undefined }

const lease = needed(id)
const resource = needed(name)
const by = defaulted(name)
const wants = needed(list(want, MAX_RESOURCES), 'RESOURCE')
const incarnation = optional(count)

export const COMMAND_TABLE = {
  acquire: {
    number: 0,
    fields: {
      holder: needed(name),
      ttl: needed(duration),
      wants,
      incarnation,
      wait: defaulted(flag),
      any: optional(count),
      priority: defaulted(priority),
      entries: defaulted(list(attachment, MAX_ENTRIES), 'ENTRY'),
      parent: optional(id),
      labels: defaulted(labels, 'LABEL'),
      holding: defaulted(ids(MAX_RESOURCES)),
      grace: defaulted(duration),
      maxLife: optional(duration),
      steal: optional(choice(['after', 'force']), 'STEAL', 'FORCE'),
      recall: defaulted(flag),
      pool: optional(poolRequest),
      permits: optional(count),
      covers: defaulted(flag),
      compare,
      changes: grantChanges,
    },
    bits: {
      ...{ any: 1, wait: 2, priority: 4, entries: 8, parent: 16, labels: 32, holding: 64 },
      ...{ grace: 128, maxLife: 256, steal: 512, recall: 2_048, incarnation: 4_096, pool: 8_192, permits: 16_384, covers: 32_768 },
      ...{ compare: 65_536, changes: 131_072 },
    },
    together: ({ compare = [], changes = [], wait, pool, entries = [] }) => {
      const field = compare.length > 0 ? 'compare' : changes.length > 0 ? 'changes' : undefined
      if (field === undefined) return undefined
      const other = wait === true ? 'wait' : pool !== undefined ? 'pool' : entries.length > 0 ? 'entries' : undefined
      return other === undefined ? undefined : apart(field, other)
    },
  },
  renew: {
    number: 1,
    fields: {
      waiting: defaulted(flag),
      leases: needed(ids()),
      ttl: optional(duration),
    },
    form: ['waiting', 'leases'],
    variants: [{ number: 24, form: ['leases', 'ttl'], applies: ({ ttl }) => ttl !== undefined }],
    together: ({ waiting, ttl }) => (waiting === true && ttl !== undefined ? apart('ttl', 'waiting') : undefined),
  },
  release: {
    number: 2,
    fields: {
      lease,
      resource: optional(name),
      stopped: defaulted(ids(MAX_STOPPED)),
      ran: optional(duration),
      lost: optional(choice(LOSS_CAUSES)),
      compare,
      changes,
    },
    form: ['lease', 'resource'],
    variants: [
      {
        number: 30,
        form: ['lease', 'stopped', 'ran', 'lost', 'compare', 'changes'],
        applies: ({ lost, compare = [], changes = [] }) => lost !== undefined || compare.length + changes.length > 0,
      },
      { number: 25, form: ['lease', 'stopped', 'ran'], applies: ({ ran }) => ran !== undefined },
      { number: 23, form: ['lease', 'stopped'], applies: ({ stopped }) => stopped !== undefined && stopped.length > 0 },
    ],
    // A lease that gives back one resource goes on, with everything that hangs on it.
    together: ({ resource, ...whole }) => {
      const field = (['stopped', 'ran', 'lost', 'compare', 'changes'] as const).find(name => whole[name] !== undefined)
      return resource !== undefined && field !== undefined ? apart(field, 'resource') : undefined
    },
  },
  due: { number: 3, fields: { timer: needed(count), epoch: needed(count) } },
  aged: {
    number: 4,
    fields: {
      marks: needed(
        list(
          record<{ readonly timer: number; readonly epoch: number; readonly ms: number }>({
            timer: needed(count),
            epoch: needed(count),
            ms: needed(count),
          }),
        ),
      ),
    },
  },
  'aged-together': { number: 5, fields: { run: needed(count), ms: needed(count) } },
  run: {
    number: 6,
    fields: { owned: needed(flag), nonce: optional(count), secret: optional(text) },
  },
  put: { number: 7, fields: { lease, key: needed(name), value: needed(textOf(VALUE_BYTES)), generation } },
  delete: { number: 8, fields: { key: needed(name), lease: optional(id) } },
  revoke: {
    number: 9,
    fields: {
      target: needed(target),
      force: defaulted(flag),
      by,
      among: optional(among),
      ended: defaulted(count),
    },
    form: ['target', 'force', 'by'],
    variants: [{ number: 31, form: ['target', 'force', 'by', 'among', 'ended'], applies: ({ among }) => among !== undefined }],
  },
  transfer: {
    number: 10,
    fields: {
      lease,
      to: needed(name),
      stopped: defaulted(flag),
      incarnation: optional(count),
    },
  },
  break: {
    number: 11,
    fields: { resource, after: defaulted(duration), by },
  },
  recall: { number: 12, fields: { resource, by } },
  policy: { number: 13, fields: { prefix: needed(text), rules: optional(policyRules) } },
  key: { number: 14, fields: keyFields },
  rotate: {
    number: 26,
    fields: {
      id: needed(count),
      hash: keyFields.hash,
      overlap: optional(duration),
      expires: keyFields.expires,
    },
  },
  limit: {
    number: 27,
    fields: { id: optional(count), group: optional(name), limits: optional(keyLimits) },
    together: ({ id, group }) => (id !== undefined && group !== undefined ? apart('group', 'id') : undefined),
  },
  unkey: { number: 15, fields: { id: needed(count) } },
  fence: { number: 16, fields: { resource, token: needed(count) } },
  tick: { number: 17, fields: { n: needed(count), elapsed: needed(count) } },
  upgrade: { number: 18, fields: { rules: needed(count) } },
  generation: {
    number: 19,
    fields: { lease: needed(count), token: needed(count), revision: needed(count), quiet: needed(duration), key: optional(count) },
  },
  move: {
    number: 20,
    fields: {
      to: optional(place),
      stay: defaulted(flag),
      prepare: defaulted(flag),
      since: optional(count),
      into: optional(choice(['begin', 'end'])),
    },
    layout: moveLayout,
    // The log has room for one of them.
    together: ({ stay, prepare, into }) => {
      if (stay === true && into !== undefined) return apart('into', 'stay')
      return prepare !== true
        ? undefined
        : into !== undefined
          ? apart('into', 'prepare')
          : stay === true
            ? apart('stay', 'prepare')
            : undefined
    },
  },
  widen: { number: 21, fields: { lease, wants } },
  claim: { number: 22, fields: { lease, incarnation } },
  extend: { number: 28, fields: { lease, by: needed(duration) } },
  transaction: {
    number: 29,
    fields: {
      compare,
      success: changes,
      failure: changes,
    },
  },
} as const satisfies { readonly [K in Command['kind']]: CommandRow<Extract<Command, { readonly kind: K }>> }

export type CommandTable = typeof COMMAND_TABLE
