/** The steps of random programs of commands: what each can do, how often, and with which names. */
import fc from 'fast-check'
import { BREAK, CAP, PREEMPT, TERM } from '../../../src/kernel/state.ts'
import type { ProgramRules, Wish } from './program-model.ts'

const HOLDERS = ['a', 'b', 'c', 'd', 'e'] as const
const LOCKS = ['x', 'y', 'q/1', 'q/2'] as const
export const NAMES = [...LOCKS, 'seats', 'q'] as const
const COVERED = ['q', 'q/1', 'x', 'seats'] as const
export const CAPACITY = { seats: 4 } as const
export const MEMBERS = ['m0', 'm1', 'm2'] as const
const KEYS = ['e/1', 'e/2', 'e/3'] as const
export const TTL_MAX = 20_000
export const LOCK_DELAYS = { y: 700, x: 600, 'q/1': 500, 'g/m1': 300 } as const
const QUOTAS = { a: { quotaUnits: 1, quotaBorrow: 3 }, b: { quotaUnits: 1, quotaBorrow: 2, shareWeight: 300 } } as const

const pick = fc.nat(1_000)
const holder = fc.constantFrom(...HOLDERS)
const sometimes = (oneIn: number) => fc.nat(oneIn - 1).map(n => n === 0)
const ttl = fc.constantFrom(1_000, 15_000, 15_000, 15_000, 15_000, 60_000)
const locks = fc.uniqueArray(fc.record({ resource: fc.constantFrom(...LOCKS), units: fc.constant(1), shared: sometimes(2) }), {
  ...{ selector: ({ resource }: Wish) => resource, minLength: 1, maxLength: 2 },
})
const seats = fc.integer({ min: 1, max: 4 }).map(units => [{ resource: 'seats', units, shared: false }])
const wishes = fc.oneof({ weight: 5, arbitrary: locks }, { weight: 2, arbitrary: seats }, { weight: 1, arbitrary: fc.constant([]) })
const common = {
  holder,
  ttl,
  wait: fc.constantFrom(true, true, true, false),
  priority: fc.constantFrom(0, 0, 1, -1),
  grace: fc.constantFrom(0, 0, 500),
  parent: fc.oneof({ weight: 5, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: pick }),
}
const limits = { maxLife: fc.constantFrom(0, 0, 4_000), isNew: sometimes(6) }
const entries = fc.oneof({ weight: 4, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: fc.constantFrom(...KEYS) })
const size = fc.oneof(
  fc.record({ count: fc.constantFrom(1, 1, 2), units: fc.constantFrom(0, 1) }),
  fc.record({ total: fc.integer({ min: 1, max: 3 }) }),
)

const STEPS = {
  acquire: [
    14,
    { ...common, ...limits, wishes, entries, learns: sometimes(3), steal: fc.constantFrom('', '', '', '', '', 'after', 'force') },
  ],
  any: [
    4,
    { ...common, ...limits, names: fc.subarray([...LOCKS], { minLength: 2, maxLength: 3 }), any: fc.constantFrom(1, 1, 2), entries },
  ],
  permits: [
    6,
    {
      ...common,
      ...limits,
      names: fc.subarray([...NAMES], { minLength: 1, maxLength: 2 }),
      units: fc.constantFrom(1, 1, 2),
      permits: fc.constantFrom(1, 2, 2, 3, 3, 5),
      entries,
    },
  ],
  covers: [
    6,
    {
      ...common,
      ...limits,
      names: fc.subarray([...COVERED], { minLength: 1, maxLength: 2 }),
      shared: sometimes(3),
      /** It names the leases of its holder as its own. */
      keeps: sometimes(4),
      steal: fc.constantFrom('', '', '', '', '', '', 'after', 'force'),
      entries,
    },
  ],
  take: [
    12,
    {
      ...common,
      ...limits,
      size,
      model: fc.constantFrom('', '', 'a', 'b'),
      near: sometimes(6),
      preemptible: fc.boolean(),
      expect: fc.nat(4_000),
      brings: sometimes(5),
      learns: sometimes(3),
    },
  ],
  reserve: [
    2,
    {
      holder,
      ttl: fc.constantFrom(1_000, 15_000),
      size,
      maxLife: fc.integer({ min: 500, max: 5_000 }),
      from: fc.integer({ min: 1, max: 4_000 }),
      preemptible: fc.boolean(),
    },
  ],
  renew: [4, { lease: pick, ttl: fc.constantFrom(0, 0, 18_000, 40_000), waiting: sometimes(6) }],
  claim: [3, { lease: pick, open: fc.boolean() }],
  extend: [3, { lease: pick, by: fc.integer({ min: 1, max: 2_000 }) }],
  widen: [3, { lease: pick, names: fc.subarray([...LOCKS], { minLength: 1, maxLength: 2 }) }],
  release: [5, { lease: pick, stopped: fc.boolean(), lost: fc.boolean() }],
  'release one': [3, { lease: pick, at: pick }],
  abort: [2, { lease: pick }],
  due: [8, { lease: pick, slot: fc.constantFrom(TERM, TERM, CAP, BREAK, PREEMPT) }],
  age: [2, { lease: pick, slot: fc.constantFrom(CAP, BREAK, PREEMPT), ms: fc.nat(2_000) }],
  revoke: [1, { lease: pick, force: fc.boolean(), all: sometimes(4) }],
  break: [2, { lease: pick, at: pick, after: fc.constantFrom(0, 300, 700, 2_000) }],
  transfer: [
    6,
    {
      lease: pick,
      to: fc.oneof(fc.constant(null), holder) as fc.Arbitrary<string | null>,
      request: pick,
      stopped: sometimes(2),
      known: sometimes(3),
    },
  ],
  put: [2, { lease: pick, key: fc.constantFrom(...KEYS) }],
  delete: [1, { key: fc.constantFrom(...KEYS), lease: fc.option(pick) as fc.Arbitrary<number | null> }],
  tick: [4, { ms: fc.integer({ min: 1, max: 3_000 }) }],
  restart: [1, {}],
  replace: [2, { holder }],
} as const satisfies Record<string, readonly [number, Record<string, fc.Arbitrary<unknown>>]>

type Fields<K extends keyof typeof STEPS> = {
  readonly [F in keyof (typeof STEPS)[K][1]]: (typeof STEPS)[K][1][F] extends fc.Arbitrary<infer T> ? T : never
}
export type Step = { readonly [K in keyof typeof STEPS]: Fields<K> & { readonly do: K } }[keyof typeof STEPS]
export type StepOf<K extends keyof typeof STEPS> = Extract<Step, { readonly do: K }>

const step = fc.oneof(
  ...Object.entries(STEPS).map(([name, [weight, fields]]) => ({
    weight,
    arbitrary: fc.record({ do: fc.constant(name), ...(fields as Record<string, fc.Arbitrary<unknown>>) }) as unknown as fc.Arbitrary<Step>,
  })),
)

// Quotas for kinds and weeks are played by test/kernel/pool/model.test.ts.
const poolRules = fc
  .record({
    ...{
      queue: fc.constantFrom('fifo', 'fit', 'backfill', 'fair'),
      preempt: fc.constantFrom(true, true, false),
      preemptNotice: fc.constantFrom(0, 500, 2_000, 2_000),
    },
    ...{ minHold: fc.constantFrom(0, 0, 1_000), aging: fc.constantFrom(0, 700), shareHalfLife: fc.constantFrom(4_000, 600_000) },
    ...{ sharePenalty: fc.constantFrom(0, 300, 60_000), accounts: fc.constantFrom({}, QUOTAS, QUOTAS) },
  })
  .map(rules => ({ ...rules, kinds: {} }))

export interface Program {
  readonly pool: ProgramRules['pool']
  /** Requests for locks are for one of them, so that more leases meet on it. */
  readonly isCrowded: boolean
  readonly steps: readonly Step[]
}

/** Without fast-check's way to make them shorter: `play` has its own. */
export function programs(length: number): fc.Arbitrary<Program> {
  return fc.noShrink(
    fc.record({ pool: poolRules, isCrowded: sometimes(3), steps: fc.array(step, { minLength: 1, maxLength: length, size: 'max' }) }),
  ) as fc.Arbitrary<Program>
}

const request: Omit<StepOf<'acquire'>, 'holder'> = {
  do: 'acquire',
  ttl: 15_000,
  wait: false,
  priority: 0,
  grace: 0,
  parent: null,
  maxLife: 0,
  isNew: false,
  entries: null,
  learns: false,
  steal: '',
  wishes: [{ resource: 'y', units: 1, shared: true }],
}

/** Random programs seldom do this. */
export const PROGRAM_EXAMPLES: readonly Program[] = [
  // A holder that shares a lock with a revoked one lapses.
  {
    pool: {
      queue: 'fifo',
      preempt: false,
      preemptNotice: 500,
      minHold: 0,
      aging: 0,
      shareHalfLife: 4_000,
      sharePenalty: 0,
      accounts: {},
      kinds: {},
    },
    isCrowded: false,
    steps: [
      { ...request, holder: 'a' },
      { ...request, holder: 'b' },
      { do: 'revoke', lease: 2, force: false, all: false },
      { do: 'due', lease: 1, slot: TERM },
    ],
  },
]
