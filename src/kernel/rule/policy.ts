/** Policies: rules for the names under a prefix. Each rule is taken from the longest prefix that sets it. */
import type { PolicyRules, Scope, Verb } from '../command.ts'
import { badPrefix } from '../name.ts'
import { type Flaw, outside, shown, tooMany, within } from '../reason.ts'
import { memberOf } from '../state/pools.ts'
import type { State } from '../state.ts'

export const TTL_MIN = 100
export const TTL_MAX = 86_400_000
/** The units of a resource about which nothing is stated. */
export const CAPACITY = 1
/** No policy may allow more than a year. */
export const TTL_LIMIT = 31_536_000_000
export const WAITERS = 10_000
export const LEASES = 1_000_000
export const LEASES_PER_KEY = 200_000
export const UNITS_LIMIT = 1_000_000_000
/** Unit-time in a week: a million units for the whole week. */
export const WEEK_USE_LIMIT = 604_800_000_000_000
/** The most prefixes with a policy: every snapshot carries them. */
export const MAX_POLICIES = 50_000

const DEFAULTS = {
  ttlMin: TTL_MIN,
  ttlMax: TTL_MAX,
  capacity: CAPACITY,
  lockDelay: 0,
  grace: 0,
  maxLife: 0,
  maxHold: 0,
  quota: 0,
  waiters: WAITERS,
  queue: 'fifo',
  aging: 0,
  leases: LEASES,
  leasesPerKey: LEASES_PER_KEY,
  flapPenalty: 0,
  flapHalfLife: 120_000,
  flapSuppress: 2_000,
  flapReuse: 750,
  preserveShare: 0,
  preserveLeast: 5,
  preserveMost: 300_000,
  sweepShare: 100,
  shareHalfLife: 604_800_000,
  sharePenalty: 60_000,
  shareWeight: 100,
  quotaUnits: 0,
  quotaBorrow: 0,
  preempt: 'none',
  minHold: 0,
  preemptNotice: 30_000,
  freeEntries: 0,
  freeBytes: 64 * 1_024 * 1_024,
  quotaWeek: 0,
} as const satisfies Required<PolicyRules>

/** The defaults under `services/`. docs/registry.md gives the reasons. */
const SERVICE_DEFAULTS: Required<PolicyRules> = { ...DEFAULTS, flapPenalty: 1_000, preserveShare: 85, sweepShare: 15 }

/** The prefix that sets a rule for a name: the longest one, up to the empty prefix. Undefined: the default applies. */
export function ruledBy(state: Pick<State, 'policies'>, name: string, rule: keyof PolicyRules): string | undefined {
  if (state.policies.size === 0) return undefined
  for (let end = name.length; end > 0; end = name.lastIndexOf('/', end - 1)) {
    const prefix = name.slice(0, end)
    if (state.policies.get(prefix)?.[rule] !== undefined) return prefix
  }
  return state.policies.get('')?.[rule] === undefined ? undefined : ''
}

export function rule<K extends keyof PolicyRules>(state: Pick<State, 'policies'>, name: string, key: K): Required<PolicyRules>[K] {
  const prefix = state.policies.size === 0 ? undefined : ruledBy(state, name, key)
  if (prefix === undefined) return (name.startsWith('services/') ? SERVICE_DEFAULTS : DEFAULTS)[key]
  return state.policies.get(prefix)![key] as Required<PolicyRules>[K]
}

/** The units of a resource: what a policy says, else the units of the member that it is, else 1. */
export function capacityOf(state: State, name: string): number {
  return statedCapacity(state, name) ?? CAPACITY
}

/** Undefined: neither a policy nor a member of a pool says how many units the resource has. */
export function statedCapacity(state: State, name: string): number | undefined {
  const prefix = state.policies.size === 0 ? undefined : ruledBy(state, name, 'capacity')
  if (prefix !== undefined) return state.policies.get(prefix)!.capacity!
  return state.pools.size === 0 ? undefined : memberOf(state, name)?.units
}

const MAX_SCOPES = 256
const CHOICES = { queue: ['fifo', 'fit', 'backfill', 'fair'], preempt: ['none', 'marked'] } as const

const BOUNDS: Readonly<Record<Exclude<keyof PolicyRules, keyof typeof CHOICES>, readonly [low: number, high: number]>> = {
  ttlMin: [1, TTL_LIMIT],
  ttlMax: [1, TTL_LIMIT],
  capacity: [0, UNITS_LIMIT],
  lockDelay: [0, TTL_LIMIT],
  grace: [0, TTL_LIMIT],
  maxLife: [0, TTL_LIMIT],
  maxHold: [0, TTL_LIMIT],
  quota: [0, UNITS_LIMIT],
  waiters: [0, UNITS_LIMIT],
  aging: [0, TTL_LIMIT],
  leases: [0, UNITS_LIMIT],
  leasesPerKey: [0, UNITS_LIMIT],
  flapPenalty: [0, 1_000_000],
  flapHalfLife: [1_000, TTL_MAX],
  flapSuppress: [1, 1_000_000],
  flapReuse: [1, 1_000_000],
  preserveShare: [0, 100],
  preserveLeast: [1, UNITS_LIMIT],
  preserveMost: [0, TTL_MAX],
  sweepShare: [1, 100],
  shareHalfLife: [1_000, TTL_LIMIT],
  sharePenalty: [0, TTL_LIMIT],
  shareWeight: [1, 1_000_000],
  quotaUnits: [0, UNITS_LIMIT],
  quotaBorrow: [0, UNITS_LIMIT],
  minHold: [0, TTL_LIMIT],
  preemptNotice: [0, TTL_MAX],
  freeEntries: [0, 1_000_000],
  freeBytes: [0, 2 ** 30],
  quotaWeek: [0, WEEK_USE_LIMIT],
}

/** Returns what is wrong with a policy, or undefined. */
export function badRules(rules: PolicyRules): Flaw | undefined {
  for (const rule of Object.keys(rules))
    if (!Object.hasOwn(CHOICES, rule) && !Object.hasOwn(BOUNDS, rule)) return { reason: 'unknown-rule', facts: { rule } }
  for (const [name, choices] of Object.entries(CHOICES)) {
    const value = rules[name as keyof typeof CHOICES]
    if (value !== undefined && !(choices as readonly string[]).includes(value))
      return { reason: 'not-one-of', facts: { field: `rules.${name}`, choices, given: shown(value) } }
  }
  // Checked in a fixed order, not in that of the request: all replicas must name the same mistake, and a log does not keep the order of the request.
  for (const [name, [low, high]] of Object.entries(BOUNDS)) {
    const value = rules[name as keyof typeof BOUNDS]
    if (value !== undefined && (!Number.isSafeInteger(value) || value < low || value > high))
      return outside(`rules.${name}`, low, high, value)
  }
  const { flapReuse = DEFAULTS.flapReuse, flapSuppress = DEFAULTS.flapSuppress, ttlMin, ttlMax } = rules
  if (flapReuse > flapSuppress)
    return { reason: 'above', facts: { field: 'rules.flapReuse', value: flapReuse, other: 'rules.flapSuppress', limit: flapSuppress } }
  if (ttlMin !== undefined && ttlMax !== undefined && ttlMin > ttlMax)
    return { reason: 'above', facts: { field: 'rules.ttlMin', value: ttlMin, other: 'rules.ttlMax', limit: ttlMax } }
  return undefined
}

export function badScopes(allow: readonly Scope[], verbs: readonly Verb[]): Flaw | undefined {
  if (!Array.isArray(allow)) return { reason: 'not-list', facts: { field: 'allow', given: shown(allow) } }
  if (allow.length > MAX_SCOPES) return tooMany('allow', MAX_SCOPES)
  for (const [i, scope] of allow.entries()) {
    if (!verbs.includes(scope.verb))
      return { reason: 'not-one-of', facts: { field: `allow[${i}].verb`, choices: verbs, given: shown(scope.verb) } }
    const bad = badPrefix(scope.prefix)
    if (bad !== undefined) return within(`allow[${i}].prefix`, bad)
  }
  return undefined
}

/** Returns what is wrong with a ttl under the policies for a name, or undefined. */
export function ttlOutside(state: State, ttl: number, name: string): Flaw | undefined {
  const low = rule(state, name, 'ttlMin')
  const high = rule(state, name, 'ttlMax')
  if (ttl >= low && ttl <= high) return undefined
  return { reason: 'ttl-outside', facts: { ttl, low, high, ...(name !== '' && { name }) } }
}

/** The grace period and the longest life of a lease, after adding a name with the policies for it. */
export function bounded(state: State, name: string, { grace, maxLife }: Bounds): Bounds {
  const cap = rule(state, name, 'maxLife')
  return {
    grace: Math.max(grace, rule(state, name, 'grace')),
    maxLife: cap === 0 ? maxLife : maxLife === 0 ? cap : Math.min(maxLife, cap),
  }
}

export interface Bounds {
  readonly grace: number
  readonly maxLife: number
}
