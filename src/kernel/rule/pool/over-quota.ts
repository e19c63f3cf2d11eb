/** Refusals because of the quotas of an account: of units, of units of a kind, and of unit-time in a week. */
import type { Refused } from '../../outcome.ts'
import { hasAccountQuotas } from '../../state/quota-counts.ts'
import type { PoolClaim, PoolState, State } from '../../state.ts'
import { rule } from '../policy.ts'
import { refuse } from '../refuse.ts'
import { accountName, hasUsedWeek, quotaOf, weekOf, weekQuota } from './account.ts'
import { askedKinds, kindBeyond, kindName, kindQuota } from './kind.ts'
import { askedUnits } from './order.ts'
import { mostUnits, standingWith } from './quota.ts'
import { waitingWindows, windowsDuring } from './reservation.ts'
import { lessThan, usedIn, WEEK, type Week, weekAt } from './week.ts'

const MINUTE = 60_000

/**
 * Refuses a request of more than its account could ever hold, also with all that it may borrow. A reservation counts together with those that the account has
 * for the same time.
 */
export function beyondQuota(state: State, pool: PoolState, claim: PoolClaim, maxLife: number): Refused | undefined {
  if (!hasAccountQuotas(state)) return undefined
  return beyondUnits(state, pool, claim, maxLife) ?? beyondKinds(state, pool, claim, maxLife) ?? beyondWeek(state, pool, claim, maxLife)
}

function beyondUnits(state: State, pool: PoolState, claim: PoolClaim, maxLife: number): Refused | undefined {
  const account = accountName(pool, claim.account)
  const most = mostUnits({ held: 0, quota: rule(state, account, 'quotaUnits'), borrow: rule(state, account, 'quotaBorrow') })
  if (most === undefined) return undefined
  const asked = askedUnits(pool, claim) + mostReserved(pool, claim, maxLife, other => askedUnits(pool, other))
  if (asked <= most) return undefined
  return refuse(state, 'pool-quota', { pool: pool.name, account: claim.account, quota: most, units: asked, policy: account })
}

function beyondKinds(state: State, pool: PoolState, claim: PoolClaim, maxLife: number): Refused | undefined {
  const { account } = claim
  for (const { kind, units } of askedKinds(state, pool, claim)) {
    const quota = kindQuota(state, pool, kind, account)
    if (quota === 0) continue
    const ofKind = (other: PoolClaim): number => askedKinds(state, pool, other).find(asked => asked.kind === kind)?.units ?? 0
    const asked = units + mostReserved(pool, claim, maxLife, ofKind)
    if (asked > quota)
      return refuse(state, 'pool-quota', { pool: pool.name, account, kind, quota, units: asked, policy: kindName(pool, kind, account) })
  }
  return undefined
}

/** The most that the account has reserved at any moment of a new window. */
function mostReserved(pool: PoolState, claim: PoolClaim, maxLife: number, unitsOf: (other: PoolClaim) => number): number {
  if (claim.from === 0) return 0
  const sums = windowsDuring(pool, claim, maxLife).map(present =>
    present.reduce((sum, { lease }) => {
      const other = lease.extras!.pool!
      return other.account === claim.account ? sum + unitsOf(other) : sum
    }, 0),
  )
  return Math.max(...sums)
}

/** Reservations alone: it is known how long they will use their units. */
function beyondWeek(state: State, pool: PoolState, claim: PoolClaim, maxLife: number): Refused | undefined {
  const { account } = claim
  const quota = claim.from === 0 ? 0 : weekQuota(state, pool, account)
  if (quota === 0) return undefined
  const { used, reserved } = mostInWeek(pool, claim, maxLife, weekOf(state, pool, account))
  if (used + reserved <= quota) return undefined
  return refuse(state, 'pool-week', { pool: pool.name, account, quota, used, reserved, policy: accountName(pool, account) })
}

/**
 * Returns the largest use of an account in any week that contains the beginning of a new window. Each window counts in full where it begins; earlier use (`week`) counts
 * while it is less than a week ago.
 */
function mostInWeek(pool: PoolState, claim: PoolClaim, maxLife: number, week: Week): { readonly used: number; readonly reserved: number } {
  const uses = [{ begin: claim.from, use: useOf(pool, claim, maxLife) }]
  for (const { lease, begin } of waitingWindows(pool)) {
    const { pool: other, maxLife: life } = lease.extras!
    if (other!.account === claim.account) uses.push({ begin, use: useOf(pool, other!, life) })
  }
  let most = { used: 0, reserved: 0 }
  for (const { begin: end } of uses) {
    if (end < claim.from || end >= claim.from + WEEK) continue
    const reserved = uses.reduce((sum, { begin, use }) => (begin > end - WEEK && begin <= end ? sum + use : sum), 0)
    const used = usedIn(weekAt({ week, at: end, held: 0 }, end))
    if (used + reserved > most.used + most.reserved) most = { used, reserved }
  }
  return most
}

function useOf(pool: PoolState, claim: PoolClaim, maxLife: number): number {
  return askedUnits(pool, claim) * Math.min(maxLife, WEEK)
}

/** Refuses a request while a quota of its account is used up. */
export function usedUp(state: State, pool: PoolState, claim: PoolClaim): Refused | undefined {
  if (!hasAccountQuotas(state)) return undefined
  const { account } = claim
  const about = { pool: pool.name, account }
  const policy = accountName(pool, account)
  if (hasUsedWeek(state, pool, account)) {
    const [week, quota] = [weekOf(state, pool, account), weekQuota(state, pool, account)]
    const again = MINUTE * Math.ceil((lessThan(quota, week) - state.elapsed) / MINUTE)
    return refuse(state, 'pool-week-used', { ...about, used: usedIn(week), quota, again, policy })
  }
  const known = pool.accounts.get(account) ?? { name: account, held: 0, kinds: undefined }
  const units = askedUnits(pool, claim)
  const own = quotaOf(state, pool, known)
  if (standingWith(own, units) === 'over')
    return refuse(state, 'pool-quota-used', { ...about, held: own.held, quota: own.quota + own.borrow, units, policy })
  const beyond = kindBeyond(state, pool, account, [claim], known.kinds)
  if (beyond === undefined) return undefined
  const held = known.kinds?.get(beyond.kind) ?? 0
  return refuse(state, 'pool-quota-used', { ...about, ...beyond, held, policy: kindName(pool, beyond.kind, account) })
}
