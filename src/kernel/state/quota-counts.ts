/**
 * The number of leases that each holder name has under each prefix with a quota, waiting or not. Derived: it changes with the grants and wants of leases, so
 * that a check costs the same for a holder of one lease and for a holder of a million.
 */
import type { AccountQuotas, LeaseState, QuotaCounts, State } from '../state.ts'

/** The prefixes with a quota that a lease counts for: each once, however many of its resources lie there. */
function prefixesOf(counts: QuotaCounts, { grants, extras }: LeaseState): Iterable<string> {
  const found = new Set<string>()
  const find = (name: string): void => {
    for (let end = name.length; end > 0; end = name.lastIndexOf('/', end - 1)) {
      const prefix = name.slice(0, end)
      if (counts.has(prefix)) found.add(prefix)
    }
    if (counts.has('')) found.add('')
  }
  for (const { resource } of grants) find(resource.name)
  for (const { resource } of extras?.wants ?? []) find(resource)
  if (extras?.pool !== undefined) find(extras.pool.pool)
  return found
}

function change(counts: QuotaCounts, lease: LeaseState, by: 1 | -1): void {
  const { name } = lease.holder
  for (const prefix of prefixesOf(counts, lease)) {
    const holders = counts.get(prefix)!
    const has = (holders.get(name) ?? 0) + by
    if (has === 0) holders.delete(name)
    else holders.set(name, has)
  }
}

/** Call after a lease got grants or wants that it did not have. */
export function countForQuotas({ quotaCounts }: State, lease: LeaseState): void {
  if (quotaCounts !== undefined && quotaCounts.size > 0) change(quotaCounts, lease, 1)
}

/** Call before the grants or the wants of a lease change or end. */
export function uncountForQuotas({ quotaCounts }: State, lease: LeaseState): void {
  if (quotaCounts !== undefined && quotaCounts.size > 0) change(quotaCounts, lease, -1)
}

/** Returns how many leases of a holder name count for a prefix that has a quota. The first call after the set of such prefixes changed walks over all leases. */
export function leasesUnder(state: State, prefix: string, holder: string): number {
  if (state.quotaCounts === undefined) {
    const counts: QuotaCounts = new Map()
    for (const [name, { quota = 0 }] of state.policies) if (quota > 0) counts.set(name, new Map())
    for (const lease of state.leases.values()) change(counts, lease, 1)
    state.quotaCounts = counts
  }
  return state.quotaCounts.get(prefix)?.get(holder) ?? 0
}

/** Returns whether any policy sets a quota for accounts of pools: of units, or of unit-time in a week. */
export function hasAccountQuotas(state: State): boolean {
  return accountQuotas(state).any
}

/** Returns whether any policy sets a quota of unit-time in a week. */
export function hasWeekQuotas(state: State): boolean {
  return accountQuotas(state).week
}

/** The kinds of members of a pool that policies set quotas for, by name; undefined: none. */
export function kindsWithQuota(state: State, pool: string): readonly string[] | undefined {
  return accountQuotas(state).kinds.get(pool)
}

/** Looked for once after each change of a policy. */
function accountQuotas(state: State): AccountQuotas {
  if (state.accountQuotas !== undefined) return state.accountQuotas
  let [units, week] = [false, false]
  const kinds = new Map<string, Set<string>>()
  for (const [prefix, { quotaUnits = 0, quotaWeek = 0 }] of state.policies) {
    units ||= quotaUnits > 0
    week ||= quotaWeek > 0
    const [, pool, kind] = (quotaUnits > 0 && KIND.exec(prefix)) || []
    if (pool === undefined) continue
    kinds.set(pool, (kinds.get(pool) ?? new Set()).add(kind!))
  }
  const sorted = new Map([...kinds].map(([pool, found]) => [pool, [...found].sort()]))
  state.accountQuotas = { any: units || week, week, kinds: sorted }
  return state.accountQuotas
}

/** `POOL/kinds/KIND`, also with the name of an account. */
const KIND = /^(.+?)\/kinds\/(.+?)(?:\/accounts(?:\/.*)?)?$/s

/** The policy of a prefix is about to change. The counts stay if its quota only gets another size. */
export function beforePolicy(state: State, prefix: string, quota = 0): void {
  state.accountQuotas = undefined
  const had = state.policies.get(prefix)?.quota ?? 0
  if (had > 0 !== quota > 0) state.quotaCounts = undefined
}
