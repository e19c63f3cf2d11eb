/** Requests of a pool: their form, their defaults, and why the pool refuses one. */
import { type Acquire, MAX_CONDITION_VALUES, MAX_CONDITIONS, MAX_RESOURCES, type PoolCondition } from '../../command.ts'
import { copyOf } from '../../copy.ts'
import { badName, badText } from '../../name.ts'
import type { Refused } from '../../outcome.ts'
import { findLease } from '../../state/leases.ts'
import type { PoolClaim, PoolState, State } from '../../state.ts'
import { rule, TTL_LIMIT } from '../policy.ts'
import { refuse } from '../refuse.ts'
import { accountName } from './account.ts'
import { couldServe, isPossible } from './choice.ts'
import { decimal, matches } from './condition.ts'
import { askedUnits } from './order.ts'
import { mostUnits } from './quota.ts'

const MAX_TOTAL = 1_000_000_000

function whole(value: number | undefined, high: number): boolean {
  return value === undefined || (Number.isSafeInteger(value) && value >= 1 && value <= high)
}

/** What is wrong with the request itself, whatever the state. */
export function badPoolRequest({ pool: request, wants, any, steal, recall, maxLife }: Acquire): string | undefined {
  const { pool, count, units, total, match = [], near, account, expect, from } = request!
  const bad = badName(pool)
  if (bad !== undefined) return `the name of the pool ${bad}`
  if (wants.length > 0) return 'a request of a pool names no resources: the pool chooses them'
  if (any !== undefined || steal !== undefined || recall === true) return 'any, steal and recall are for named resources, not for pools'
  if (!whole(count, MAX_RESOURCES)) return `count must be from 1 to ${MAX_RESOURCES}, not ${count}`
  if (!whole(units, MAX_TOTAL)) return `units must be a whole number from 1 to ${MAX_TOTAL}, not ${units}`
  if (!whole(total, MAX_TOTAL)) return `total must be a whole number from 1 to ${MAX_TOTAL}, not ${total}`
  if (total !== undefined && (count !== undefined || units !== undefined)) return 'total stands alone, without count and units'
  if (!whole(expect, TTL_LIMIT)) return `expect must be a duration above 0, not ${expect}`
  if (!whole(from, TTL_LIMIT)) return `from must be a duration above 0, not ${from}`
  if (from !== undefined && maxLife === undefined) return 'a reservation needs maxLife: the length of its window'
  const badAccount = account === undefined ? undefined : badName(account)
  if (badAccount !== undefined) return `the account ${badAccount}`
  if (near !== undefined && (near === '' || badText(near, 128) !== undefined)) return 'near must be the name of a label'
  if (!Array.isArray(match) || match.length > MAX_CONDITIONS) return `match is a list of at most ${MAX_CONDITIONS} conditions`
  for (const condition of match) {
    const wrong = badCondition(condition)
    if (wrong !== undefined) return wrong
  }
  return undefined
}

function badCondition({ label, test, values = [] }: PoolCondition): string | undefined {
  if (label === '' || badText(label, 128) !== undefined) return 'a condition needs the name of a label, of at most 128 bytes'
  if (!Array.isArray(values) || values.length > MAX_CONDITION_VALUES) return `a condition has at most ${MAX_CONDITION_VALUES} values`
  if (values.some(value => badText(value, 1_024) !== undefined)) return `a value for ${label} is longer than 1024 bytes of UTF-8`
  switch (test) {
    case 'in':
    case 'not-in':
      return values.length > 0 ? undefined : `${label} ${test} needs values`
    case 'absent':
    case 'present':
      return values.length === 0 ? undefined : `${label} ${test} takes no values`
    default:
      return values.length === 1 && !Number.isNaN(decimal(values[0]!))
        ? undefined
        : `${label} is compared with one plain decimal number, such as 40 or 80.5`
  }
}

/** The request with its defaults. */
export function claimOf(state: State, { pool: request, holder }: Acquire): PoolClaim {
  const { pool, count, units = 0, total = 0, match = [], near = '', account = holder, expect = 0, preemptible = false, from } = request!
  // Without spreads, and in the same order as a claim that is read from a snapshot: views read the claims of all holders, and objects of one layout are fast.
  return {
    pool,
    count: total > 0 ? 0 : (count ?? 1),
    units,
    total,
    match: match.map(({ label, test, values = [] }) => ({ label, test, values: copyOf(values) })),
    near,
    account,
    expect,
    from: from === undefined ? 0 : state.elapsed + from,
    start: 0,
    preemptible,
    yields: false,
    borrows: false,
    notice: 0,
    shape: undefined,
  }
}

/** The request as the command had it, for messages. */
export function requestOf({ count, units, total, near }: PoolClaim): string {
  const what =
    total > 0 ? `${total} units` : `${count} ${count === 1 ? 'member' : 'members'}${units > 0 ? ` with ${units} units each` : ''}`
  return near === '' ? what : `${what} with the same ${near}`
}

/** Refuses a request that all present members together could not serve. */
export function impossible(state: State, pool: PoolState, claim: PoolClaim): Refused | undefined {
  if (isPossible(pool, claim)) return undefined
  const { name, members } = pool
  const fitting = [...members.values()].filter(({ labels }) => matches(labels, claim.match))
  const units = fitting.reduce((sum, { capacity }) => sum + capacity, 0)
  const of =
    claim.match.length > 0 ? `${fitting.length} of its ${members.size} members match, with` : `it has ${members.size} members, with`
  const near = claim.near !== '' && couldServe(pool, { ...claim, near: '' }) ? `, and too few of them have the same ${claim.near}` : ''
  return refuse(state, 'LIMIT', `the pool ${name} can never give ${requestOf(claim)}: ${of} ${units} units in all${near}`, {
    pool: name,
    members: members.size,
    matching: fitting.length,
    units,
  })
}

/** Refuses a request of more units than its account could ever hold, also with all that it may borrow. */
export function beyondQuota(state: State, pool: PoolState, claim: PoolClaim): Refused | undefined {
  const account = accountName(pool, claim.account)
  const most = mostUnits({ held: 0, quota: rule(state, account, 'quotaUnits'), borrow: rule(state, account, 'quotaBorrow') })
  if (most === undefined) return undefined
  const asked = askedUnits(pool, claim)
  if (asked <= most) return undefined
  return refuse(
    state,
    'LIMIT',
    `${claim.account} may hold ${most} units of ${pool.name} in all, and asks for ${asked}: ask for less, or let an operator raise quotaUnits of ${account}`,
    { pool: pool.name, account: claim.account, quota: most },
  )
}

/** Refuses a request that cannot be served now and does not wait. */
export function notNow(state: State, pool: PoolState, claim: PoolClaim): Refused {
  const free = pool.free.filter(({ labels }) => matches(labels, claim.match))
  const waiting = pool.queue.length
  const others = waiting === 0 ? '' : `, and ${waiting} ${waiting === 1 ? 'waits' : 'wait'} for it`
  return refuse(state, 'HELD', `the pool ${pool.name} cannot give ${requestOf(claim)} now: ${free.length} that match are free${others}`, {
    pool: pool.name,
    members: pool.members.size,
    free: free.length,
    queue: waiting,
  })
}

/**
 * Refuses a waiter that keeps members of the pool while it waits for more: two such waiters could wait for each other for ever, and so could one
 * and the waiter before it. All that is needed together is asked for together.
 */
export function cannotWaitInPool(state: State, pool: PoolState, holding: readonly number[]): Refused | undefined {
  const most = rule(state, pool.name, 'waiters')
  if (pool.queue.length >= most)
    return refuse(state, 'LIMIT', `${most} already wait for the pool ${pool.name}, as many as are allowed`, {
      pool: pool.name,
      limit: most,
    })
  const kept = holding.find(id => findLease(state, id)?.rare?.pool?.pool === pool.name)
  if (kept === undefined) return undefined
  return refuse(
    state,
    'DEADLOCK',
    `lease ${kept} keeps members of the pool ${pool.name}, and waiting for more of them could last for ever: release it first, or take all in one request`,
    { pool: pool.name, lease: kept, cycle: [pool.name] },
  )
}
