/**
 * Why a command was refused: a closed list of reasons, and the facts that come with each. An answer is kept in the state and compared by replicas, so it
 * carries no sentence: src/wording.ts makes one of the reason and its facts.
 *
 * A new reason is a row here, with the next number, and a row in src/wording.ts. Numbers are in the log: none is used twice, and facts are only appended.
 */

export type RefusalCode = 'HELD' | 'GONE' | 'STALE' | 'DEADLOCK' | 'INVALID' | 'FORBIDDEN' | 'LIMIT' | 'UNAVAILABLE' | 'NOT_FOUND'

export type Fact = string | number | boolean | readonly string[] | readonly number[]
/** Facts of a refusal or an error: plain values that programs can read and JSON can carry. */
export type Facts = Readonly<Record<string, Fact>>

interface FactTypes {
  readonly text: string
  readonly number: number
  readonly flag: boolean
  readonly texts: readonly string[]
  readonly numbers: readonly number[]
}
type FactType = keyof FactTypes
/** The names of facts, in the order of their bytes, with their types. A `?` marks a fact that may be left out. */
type FactList = Readonly<Record<string, FactType | `${FactType}?`>>

interface ReasonRow {
  readonly code: RefusalCode
  readonly number: number
  readonly facts: FactList
}

/** The most items of a fact that is a list. Texts are cut to NAME_BYTES: an answer that is kept must stay small. */
export const MAX_FACT_ITEMS = 256

/** About one field of a command: `field` is its path, such as `acquire.wants[0].resource`. */
const FIELD = { field: 'text' } as const
/** `given`: the value, as far as it can be shown. */
const GIVEN = { field: 'text', given: 'text' } as const
const LIMIT = { limit: 'number' } as const
const LEASE = { lease: 'number' } as const
const KEY = { key: 'text' } as const
const RESOURCE = { resource: 'text' } as const
/** A request asked this of a pool: members with units each, or units in all, with the same label. */
const POOL_REQUEST = { count: 'number', each: 'number?', total: 'number?', near: 'text?' } as const

export const REASONS = {
  // The form of a command, and of names and texts in it.
  malformed: { number: 0, code: 'INVALID', facts: { field: 'text?' } },
  'unknown-command': { number: 1, code: 'INVALID', facts: { given: 'text' } },
  missing: { number: 2, code: 'INVALID', facts: FIELD },
  'unknown-field': { number: 3, code: 'INVALID', facts: { field: 'text', known: 'texts' } },
  'not-object': { number: 4, code: 'INVALID', facts: GIVEN },
  'not-text': { number: 5, code: 'INVALID', facts: GIVEN },
  'not-whole': { number: 6, code: 'INVALID', facts: GIVEN },
  'not-flag': { number: 7, code: 'INVALID', facts: GIVEN },
  'not-list': { number: 8, code: 'INVALID', facts: GIVEN },
  'not-pair': { number: 9, code: 'INVALID', facts: GIVEN },
  'not-one-of': { number: 10, code: 'INVALID', facts: { field: 'text', choices: 'texts', given: 'text' } },
  'not-decimal': { number: 11, code: 'INVALID', facts: GIVEN },
  'too-long': { number: 12, code: 'INVALID', facts: { field: 'text', limit: 'number' } },
  'too-many': { number: 13, code: 'INVALID', facts: { field: 'text', limit: 'number' } },
  'too-large': { number: 14, code: 'INVALID', facts: { field: 'text', bytes: 'number', limit: 'number' } },
  empty: { number: 15, code: 'INVALID', facts: { field: 'text', optional: 'flag?' } },
  zero: { number: 16, code: 'INVALID', facts: FIELD },
  'out-of-range': { number: 17, code: 'INVALID', facts: { field: 'text', low: 'number', high: 'number', given: 'text' } },
  'control-character': { number: 18, code: 'INVALID', facts: FIELD },
  'leading-slash': { number: 19, code: 'INVALID', facts: FIELD },
  'empty-segment': { number: 20, code: 'INVALID', facts: FIELD },
  'dot-segment': { number: 21, code: 'INVALID', facts: FIELD },
  'only-slash': { number: 22, code: 'INVALID', facts: FIELD },
  'not-together': { number: 23, code: 'INVALID', facts: { field: 'text', other: 'text' } },
  needs: { number: 24, code: 'INVALID', facts: { field: 'text', other: 'text' } },
  'needs-one-of': { number: 25, code: 'INVALID', facts: { field: 'text', choices: 'texts' } },
  'named-twice': { number: 26, code: 'INVALID', facts: { field: 'text', name: 'text' } },
  'has-password': { number: 27, code: 'INVALID', facts: FIELD },
  'shared-units': { number: 28, code: 'INVALID', facts: { field: 'text', resource: 'text' } },
  'not-a-hash': { number: 29, code: 'INVALID', facts: FIELD },
  above: { number: 30, code: 'INVALID', facts: { field: 'text', value: 'number', other: 'text', limit: 'number' } },
  'never-given': { number: 31, code: 'INVALID', facts: GIVEN },
  'not-a-lease': { number: 32, code: 'INVALID', facts: { given: 'text' } },
  'unknown-rule': { number: 33, code: 'INVALID', facts: { rule: 'text' } },
  'internal-command': { number: 34, code: 'INVALID', facts: { command: 'text' } },

  // Commands that make no sense in this state.
  'ttl-outside': { number: 40, code: 'INVALID', facts: { ttl: 'number', low: 'number', high: 'number', name: 'text?' } },
  'nothing-to-wait-for': { number: 41, code: 'INVALID', facts: {} },
  'beyond-capacity': { number: 42, code: 'INVALID', facts: { resource: 'text', units: 'number', capacity: 'number' } },
  'parent-missing': { number: 43, code: 'INVALID', facts: LEASE },
  'parent-waits': { number: 44, code: 'INVALID', facts: LEASE },
  'waits-for-itself': { number: 45, code: 'INVALID', facts: RESOURCE },
  'steals-from-parent': { number: 46, code: 'INVALID', facts: LEASE },
  'waits-for-all': { number: 47, code: 'INVALID', facts: LEASE },
  'holds-nothing': { number: 48, code: 'INVALID', facts: LEASE },
  'holds-no-members': { number: 49, code: 'INVALID', facts: LEASE },
  'no-max-life': { number: 50, code: 'INVALID', facts: LEASE },
  'window-too-late': { number: 51, code: 'INVALID', facts: { pool: 'text', limit: 'number' } },
  'op-reused': { number: 52, code: 'INVALID', facts: {} },
  'last-admin': { number: 53, code: 'INVALID', facts: { name: 'text' } },
  'wrong-rules': { number: 54, code: 'INVALID', facts: { rules: 'number', next: 'number', given: 'text' } },
  'unknown-rules': { number: 55, code: 'INVALID', facts: { rules: 'number', given: 'number' } },
  'leased-only': { number: 56, code: 'INVALID', facts: KEY },
  'no-free-entries': { number: 57, code: 'INVALID', facts: KEY },
  /** By the wall clock of the server that wrote the command. */
  'expiry-past': { number: 58, code: 'INVALID', facts: { ago: 'number' } },
  rotating: { number: 59, code: 'INVALID', facts: { name: 'text', left: 'number' } },

  'covers-pool': { number: 72, code: 'INVALID', facts: RESOURCE },
  'covered-member': { number: 73, code: 'INVALID', facts: { key: 'text', resource: 'text' } },

  // The move of leases to another log.
  moved: { number: 60, code: 'UNAVAILABLE', facts: { moved: 'text' } },
  moving: { number: 61, code: 'UNAVAILABLE', facts: { moving: 'flag' } },
  arriving: { number: 62, code: 'UNAVAILABLE', facts: { moving: 'flag' } },
  'moved-for-good': { number: 63, code: 'INVALID', facts: { moved: 'text' } },
  'moving-already': { number: 64, code: 'INVALID', facts: { moving: 'flag' } },
  'move-called-off': { number: 65, code: 'INVALID', facts: {} },
  'not-moving': { number: 66, code: 'INVALID', facts: {} },
  'not-arriving': { number: 67, code: 'INVALID', facts: {} },
  'move-is-arriving': { number: 68, code: 'INVALID', facts: {} },
  'target-arriving': { number: 69, code: 'INVALID', facts: {} },
  'target-moved': { number: 70, code: 'INVALID', facts: {} },
  'target-not-empty': {
    number: 71,
    code: 'INVALID',
    facts: { leases: 'number', policies: 'number', keys: 'number', entries: 'number' },
  },

  // Another lease, waiter or reservation has it.
  held: {
    number: 80,
    code: 'HELD',
    facts: {
      resource: 'text',
      holder: 'text',
      lease: 'number',
      token: 'number',
      since: 'number',
      queue: 'number',
      frozen: 'flag?',
      any: 'number?',
      of: 'number?',
      /** The units that may be in use at once, if others allow fewer than the request. */
      limit: 'number?',
      /** The name that the holder claims, if it is another one: above, covering the resource, or below a covering request. */
      claim: 'text?',
    },
  },
  reserved: { number: 81, code: 'HELD', facts: { resource: 'text', queue: 'number', any: 'number?', of: 'number?' } },
  'entry-held': { number: 82, code: 'HELD', facts: { key: 'text', holder: 'text', lease: 'number', generation: 'number' } },
  'entry-without-lease': { number: 83, code: 'HELD', facts: KEY },
  claimed: { number: 84, code: 'HELD', facts: { lease: 'number', holder: 'text', incarnation: 'number' } },
  'pool-held': {
    number: 85,
    code: 'HELD',
    facts: { pool: 'text', members: 'number', free: 'number', queue: 'number', ...POOL_REQUEST },
  },
  'pool-reserved': { number: 86, code: 'HELD', facts: { pool: 'text', holders: 'texts', leases: 'numbers', begin: 'numbers' } },
  'needed-by-waiter': { number: 87, code: 'HELD', facts: { pool: 'text', holder: 'text', waiter: 'number', lease: 'number' } },
  'needed-by-reservation': {
    number: 88,
    code: 'HELD',
    facts: { pool: 'text', holder: 'text', waiter: 'number', begin: 'number', lease: 'number' },
  },
  /** `kind`: of these members; without it, of all. */
  'pool-quota-used': {
    number: 95,
    code: 'HELD',
    facts: { pool: 'text', account: 'text', kind: 'text?', held: 'number', quota: 'number', units: 'number', policy: 'text' },
  },
  /** `used` and `quota`: unit-milliseconds in a week. `again`: when less than the quota will count, at the earliest. */
  'pool-week-used': {
    number: 96,
    code: 'HELD',
    facts: { pool: 'text', account: 'text', used: 'number', quota: 'number', again: 'number', policy: 'text' },
  },
  quiet: { number: 89, code: 'UNAVAILABLE', facts: { quiet: 'number' } },
  deadlock: { number: 90, code: 'DEADLOCK', facts: { cycle: 'texts' } },
  'pool-deadlock': { number: 91, code: 'DEADLOCK', facts: { pool: 'text', lease: 'number', cycle: 'texts' } },
  'waits-for-transferred': { number: 92, code: 'DEADLOCK', facts: { resource: 'text', lease: 'number' } },

  // It has ended, was replaced, or never was.
  gone: { number: 100, code: 'GONE', facts: LEASE },
  'not-held': { number: 101, code: 'GONE', facts: { lease: 'number', resource: 'text' } },
  'older-generation': { number: 102, code: 'STALE', facts: { key: 'text', generation: 'number', holder: 'text?' } },
  'older-incarnation': { number: 103, code: 'STALE', facts: { key: 'text', incarnation: 'number', holder: 'text' } },
  'older-token': { number: 104, code: 'STALE', facts: { resource: 'text', token: 'number', highest: 'number' } },
  'taken-over': { number: 105, code: 'STALE', facts: { key: 'text', lease: 'number?' } },
  'answer-forgotten': { number: 106, code: 'STALE', facts: { session: 'text', seq: 'number' } },
  'no-policy': { number: 107, code: 'NOT_FOUND', facts: { prefix: 'text' } },
  'no-key': { number: 108, code: 'NOT_FOUND', facts: { id: 'number' } },
  'no-entry': { number: 109, code: 'NOT_FOUND', facts: KEY },
  'no-holder': { number: 110, code: 'NOT_FOUND', facts: RESOURCE },
  'no-match': { number: 111, code: 'NOT_FOUND', facts: {} },
  /** A comparison of a request is not true. */
  'not-as-compared': { number: 113, code: 'STALE', facts: { key: 'text', field: 'text' } },
  'no-group': { number: 112, code: 'NOT_FOUND', facts: { group: 'text' } },

  // A key does not allow it. `verb`: the scope that it needs.
  forbidden: { number: 120, code: 'FORBIDDEN', facts: { action: 'text', name: 'text', verb: 'text' } },
  'forbidden-lease': { number: 121, code: 'FORBIDDEN', facts: { verb: 'text' } },
  'forbidden-admin': { number: 122, code: 'FORBIDDEN', facts: { action: 'text', verb: 'text' } },
  /** The next three depend on the state, not on the key alone. */
  'forbidden-whole': { number: 123, code: 'FORBIDDEN', facts: { action: 'text', lease: 'number' } },
  'forbidden-reach': { number: 124, code: 'FORBIDDEN', facts: { verb: 'text', lease: 'number', name: 'text' } },
  'forbidden-hidden': { number: 125, code: 'FORBIDDEN', facts: { verb: 'text', lease: 'number' } },
  'forbidden-entry': { number: 126, code: 'FORBIDDEN', facts: { name: 'text' } },
  /** By a server, not by the kernel: only an operator chooses the store that leases move to. */
  'forbidden-move': { number: 127, code: 'FORBIDDEN', facts: {} },
  // The requests of a key may not say this.
  'forbidden-holder': { number: 128, code: 'FORBIDDEN', facts: { holder: 'text', holders: 'texts' } },
  'forbidden-account': { number: 129, code: 'FORBIDDEN', facts: { account: 'text', accounts: 'texts' } },
  'forbidden-priority': { number: 130, code: 'FORBIDDEN', facts: { priority: 'number', low: 'number', high: 'number' } },
  'forbidden-member': { number: 131, code: 'FORBIDDEN', facts: { name: 'text', pool: 'text' } },

  // Limits.
  'counters-exhausted': { number: 140, code: 'LIMIT', facts: LIMIT },
  'too-many-leases': { number: 141, code: 'LIMIT', facts: LIMIT },
  'too-many-key-leases': { number: 142, code: 'LIMIT', facts: LIMIT },
  quota: { number: 143, code: 'LIMIT', facts: { holder: 'text', prefix: 'text', leases: 'number', quota: 'number' } },
  'too-many-waiters': { number: 144, code: 'LIMIT', facts: { resource: 'text', limit: 'number' } },
  'too-many-pool-waiters': { number: 145, code: 'LIMIT', facts: { pool: 'text', limit: 'number' } },
  'too-many-reservations': { number: 146, code: 'LIMIT', facts: { pool: 'text', limit: 'number' } },
  'pool-impossible': {
    number: 147,
    code: 'LIMIT',
    facts: { pool: 'text', members: 'number', matching: 'number', units: 'number', ...POOL_REQUEST, apart: 'flag?' },
  },
  'pool-quota': {
    number: 148,
    code: 'LIMIT',
    facts: { pool: 'text', account: 'text', kind: 'text?', quota: 'number', units: 'number', policy: 'text' },
  },
  /** `used`: what will still count when the window begins. `reserved`: by this reservation and others in one week with it. */
  'pool-week': {
    number: 168,
    code: 'LIMIT',
    facts: { pool: 'text', account: 'text', quota: 'number', used: 'number', reserved: 'number', policy: 'text' },
  },
  'too-long-life': { number: 149, code: 'LIMIT', facts: { lease: 'number', limit: 'number', life: 'number' } },
  'too-many-entries': { number: 150, code: 'LIMIT', facts: { lease: 'number', limit: 'number' } },
  'too-many-entry-bytes': { number: 151, code: 'LIMIT', facts: { lease: 'number', limit: 'number', bytes: 'number' } },
  'too-many-free-entries': { number: 152, code: 'LIMIT', facts: { prefix: 'text', limit: 'number' } },
  'too-many-free-bytes': { number: 153, code: 'LIMIT', facts: { prefix: 'text', limit: 'number' } },
  'too-many-breaks': { number: 154, code: 'LIMIT', facts: { resource: 'text', lease: 'number', limit: 'number' } },
  'too-many-policies': { number: 155, code: 'LIMIT', facts: LIMIT },
  'too-many-keys': { number: 156, code: 'LIMIT', facts: LIMIT },
  'too-many-fences': { number: 157, code: 'LIMIT', facts: LIMIT },
  'too-many-key-fences': { number: 158, code: 'LIMIT', facts: LIMIT },
  'too-many-renewals': { number: 159, code: 'LIMIT', facts: LIMIT },
  /** `what`: leases, waiters, entries or bytes. */
  'key-limit': { number: 160, code: 'LIMIT', facts: { what: 'text', limit: 'number', used: 'number' } },
  'group-limit': { number: 161, code: 'LIMIT', facts: { group: 'text', what: 'text', limit: 'number', used: 'number' } },
  'too-many-descendants': { number: 165, code: 'LIMIT', facts: { lease: 'number', limit: 'number' } },
} as const satisfies Readonly<Record<string, ReasonRow>>

export type Reason = keyof typeof REASONS

type Plain<T> = T extends `${infer F}?` ? F : T
type FactsOf<L extends FactList> = {
  readonly [N in keyof L as L[N] extends `${string}?` ? never : N]: FactTypes[Plain<L[N]> & FactType]
} & {
  readonly [N in keyof L as L[N] extends `${string}?` ? N : never]?: FactTypes[Plain<L[N]> & FactType] | undefined
}

/** The facts of each reason. */
export type FactsByReason = { readonly [R in Reason]: FactsOf<(typeof REASONS)[R]['facts']> }

/** Why a value is refused. `facts.field` is the path of the value within what was checked; empty: all of it. */
export type Flaw = { readonly [R in Reason]: { readonly reason: R; readonly facts: FactsByReason[R] } }[Reason]

/** The table with its rows as they are read at run time. */
export const REASON_ROWS: Readonly<Record<string, ReasonRow>> = REASONS

/** The same flaw, of a value at `path`. */
export function within(path: string, flaw: Flaw): Flaw {
  const facts = flaw.facts as Facts
  const { field } = facts
  if (typeof field !== 'string') return flaw
  const joined = field === '' ? path : field.startsWith('[') ? path + field : `${path}.${field}`
  return { reason: flaw.reason, facts: { ...facts, field: joined } } as unknown as Flaw
}

/** A value as a fact: only its beginning, if it is a text. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return `"${value.slice(0, 32)}"`
  return typeof value === 'object' ? (value === null ? 'null' : Array.isArray(value) ? 'list' : 'object') : String(value)
}

export function outside(field: string, low: number, high: number, value: unknown): Flaw {
  return { reason: 'out-of-range', facts: { field, low, high, given: shown(value) } }
}

export function tooMany(field: string, limit: number): Flaw {
  return { reason: 'too-many', facts: { field, limit } }
}

/** A number that this log never gave out. */
export function neverGiven(field: string, value: unknown): Flaw {
  return { reason: 'never-given', facts: { field, given: shown(value) } }
}
