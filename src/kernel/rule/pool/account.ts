/** The accounts of a pool: what each user or team holds, has used and may hold. */
import type { PolicyRules } from '../../command.ts'
import { ACCOUNT_SLICES } from '../../state/account-table.ts'
import { accountOf, dropAccountIfIdle } from '../../state/pools.ts'
import { hasWeekQuotas } from '../../state/quota-counts.ts'
import type { PoolAccount, PoolClaim, PoolState, State } from '../../state.ts'
import { rule } from '../policy.ts'
import type { AccountQuota } from './quota.ts'
import { halfLifeOf, penaltyOf, type Share } from './share.ts'
import { MAX_USAGE, usageAt } from './usage.ts'
import { usedIn, type Week, weekAt } from './week.ts'

/** About the most accounts of one pool that are remembered; beyond that, idle ones with the least usage are forgotten. */
const MAX_ACCOUNTS = 4_096
/** Usage below this, in unit-ms, is forgotten. */
const NEGLIGIBLE = 1_000

/** The name at which policies for an account are set. */
export function accountName(pool: PoolState, account: string): string {
  return `${pool.name}/accounts/${account}`
}

export function preempts(state: State, pool: PoolState): boolean {
  return rule(state, pool.name, 'preempt') === 'marked'
}

/** The half-life of usage in force. */
export function shareHalfLife(state: State, pool: PoolState): number {
  return halfLifeOf(rule(state, pool.name, 'shareHalfLife'), preempts(state, pool))
}

/** The usage of an account at the present log time. */
export function usageOf(state: State, pool: PoolState, account: PoolAccount, halfLife = shareHalfLife(state, pool)): number {
  return usageAt(account, state.elapsed, halfLife)
}

export function shareOf(state: State, pool: PoolState, account: PoolAccount, halfLife = shareHalfLife(state, pool)): Share {
  const weight = rule(state, accountName(pool, account.name), 'shareWeight')
  return { usage: usageOf(state, pool, account, halfLife), held: account.held, weight }
}

export function quotaOf(state: State, pool: PoolState, { name, held }: Pick<PoolAccount, 'name' | 'held'>): AccountQuota {
  const at = accountName(pool, name)
  return { held, quota: rule(state, at, 'quotaUnits'), borrow: rule(state, at, 'quotaBorrow') }
}

/** Unit-milliseconds that an account may use in a week; 0: any number. */
export function weekQuota(state: State, pool: PoolState, account: string): number {
  return hasWeekQuotas(state) ? rule(state, accountName(pool, account), 'quotaWeek') : 0
}

/** The use of an account in the last week, at the present log time. */
export function weekOf(state: State, pool: PoolState, account: string): Week {
  const known = pool.accounts.get(account)
  return known === undefined ? [] : weekAt(known, state.elapsed)
}

/** Returns whether an account has used all that it may use in a week. */
export function hasUsedWeek(state: State, pool: PoolState, account: string): boolean {
  const quota = weekQuota(state, pool, account)
  return quota > 0 && usedIn(weekOf(state, pool, account)) >= quota
}

/** The rules for one account of a pool. */
export type AccountRules = Required<Pick<PolicyRules, 'shareWeight' | 'quotaUnits' | 'quotaBorrow' | 'quotaWeek'>>

/** Reads the rules of many accounts: those that all accounts share are looked up once. */
export function accountRules(state: State, pool: PoolState): (account: string) => AccountRules {
  const rulesAt = (name: string): AccountRules => ({
    shareWeight: rule(state, name, 'shareWeight'),
    quotaUnits: rule(state, name, 'quotaUnits'),
    quotaBorrow: rule(state, name, 'quotaBorrow'),
    quotaWeek: rule(state, name, 'quotaWeek'),
  })
  const shared = rulesAt(`${pool.name}/accounts`)
  return account => {
    const name = accountName(pool, account)
    return account.includes('/') || state.policies.has(name) ? rulesAt(name) : shared
  }
}

/** Returns what a grant of so many units adds to the usage of its account. */
export function entryPenalty(state: State, pool: PoolState, units: number): number {
  return penaltyOf(units, rule(state, pool.name, 'sharePenalty'), shareHalfLife(state, pool))
}

export function bringUpToDate(state: State, pool: PoolState, account: PoolAccount): void {
  account.usage = usageOf(state, pool, account)
  // Counted from the moment on at which there is a quota. Without one, nothing has to be remembered for a week.
  account.week = weekQuota(state, pool, account.name) > 0 ? weekAt(account, state.elapsed) : []
  account.at = state.elapsed
}

/** A quota for the week begins, ends or changes: what was used until now counts under the former one. */
export function countWeeks(state: State, pool: PoolState): void {
  for (const account of pool.accounts.values()) {
    bringUpToDate(state, pool, account)
    dropAccountIfIdle(pool, account)
  }
}

/**
 * The entry penalty of a grant is an advance: it counts at once, so that many grants at one moment are divided evenly, and is given back at the end. What stays is
 * the time for which the units were held.
 */
export function chargeGrant(state: State, pool: PoolState, { account: name }: PoolClaim, units: number): void {
  const account = accountOf(pool, name)
  bringUpToDate(state, pool, account)
  account.usage = Math.min(MAX_USAGE, account.usage + entryPenalty(state, pool, units))
}

/** Returns what is left of the advance for units that a lease would give back now. */
export function refundOf(state: State, pool: PoolState, { start }: PoolClaim, units: number): number {
  return usageAt({ usage: entryPenalty(state, pool, units), at: start, held: 0 }, state.elapsed, shareHalfLife(state, pool))
}

/** The lease gives back units. */
export function refundGrant(state: State, pool: PoolState, claim: PoolClaim, units: number): void {
  const account = accountOf(pool, claim.account)
  bringUpToDate(state, pool, account)
  account.usage = Math.max(0, account.usage - refundOf(state, pool, claim, units))
}

function isIdle({ held, waiting, leases }: PoolAccount): boolean {
  return held + waiting.length + leases === 0
}

/**
 * Forgets accounts that are idle and have used next to nothing lately, and others where there are too many. Each tick looks at one slice of the accounts:
 * forgetting is not urgent, and there may be tens of thousands.
 */
export function forgetAccounts(state: State, pool: PoolState): void {
  const halfLife = shareHalfLife(state, pool)
  const slice = pool.accounts.slice(state.tick)
  const idle: { readonly name: string; readonly usage: number; readonly used: number }[] = []
  for (const account of slice) {
    if (!isIdle(account)) continue
    const usage = usageOf(state, pool, account, halfLife)
    account.week = weekAt(account, state.elapsed)
    const used = usedIn(account.week)
    if (usage < NEGLIGIBLE) account.usage = 0
    if (usage < NEGLIGIBLE && used === 0) dropAccountIfIdle(pool, account)
    else idle.push({ name: account.name, usage, used })
  }
  const tooMany = pool.accounts.size > MAX_ACCOUNTS ? slice.size - MAX_ACCOUNTS / ACCOUNT_SLICES : 0
  if (tooMany <= 0) return
  // Those with a quota for the week last. By name, where they are equal: the order of the table differs between replicas.
  idle.sort((a, b) => a.used - b.used || a.usage - b.usage || (a.name < b.name ? -1 : 1))
  for (const { name } of idle.slice(0, tooMany)) pool.accounts.delete(name)
}
