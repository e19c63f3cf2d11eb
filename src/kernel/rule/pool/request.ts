/** Requests of a pool: their form, their defaults, and why the pool refuses one. */
import { type Acquire, MAX_CONDITION_VALUES, MAX_CONDITIONS, MAX_RESOURCES, type PoolCondition } from '../../command.ts'
import { copyOf } from '../../copy.ts'
import { badName, badText } from '../../name.ts'
import type { Refused } from '../../outcome.ts'
import { type Flaw, outside, shown, tooMany, within } from '../../reason.ts'
import { findLease } from '../../state/leases.ts'
import type { PoolClaim, PoolState, State } from '../../state.ts'
import { rule, TTL_LIMIT } from '../policy.ts'
import { refuse } from '../refuse.ts'
import { couldServe, isPossible } from './choice.ts'
import { decimal, matches } from './condition.ts'
import { usedUp } from './over-quota.ts'

const MAX_TOTAL = 1_000_000_000
const LABEL_BYTES = 128
const LABEL_VALUE_BYTES = 1_024

function whole(value: number | undefined, high: number): boolean {
  return value === undefined || (Number.isSafeInteger(value) && value >= 1 && value <= high)
}

/** Returns what is wrong with the request itself, whatever the state. */
export function badPoolRequest({ pool: request, wants, any, steal, recall, maxLife }: Acquire): Flaw | undefined {
  const { pool, count, units, total, match = [], near, account, expect, from } = request!
  const bad = badName(pool)
  if (bad !== undefined) return within('pool.pool', bad)
  const other = wants.length > 0 ? 'wants' : any !== undefined ? 'any' : steal !== undefined ? 'steal' : recall === true ? 'recall' : ''
  if (other !== '') return { reason: 'not-together', facts: { field: 'pool', other } }
  if (!whole(count, MAX_RESOURCES)) return outside('pool.count', 1, MAX_RESOURCES, count)
  if (!whole(units, MAX_TOTAL)) return outside('pool.units', 1, MAX_TOTAL, units)
  if (!whole(total, MAX_TOTAL)) return outside('pool.total', 1, MAX_TOTAL, total)
  if (total !== undefined && (count !== undefined || units !== undefined))
    return { reason: 'not-together', facts: { field: 'pool.total', other: count !== undefined ? 'pool.count' : 'pool.units' } }
  if (!whole(expect, TTL_LIMIT)) return outside('pool.expect', 1, TTL_LIMIT, expect)
  if (!whole(from, TTL_LIMIT)) return outside('pool.from', 1, TTL_LIMIT, from)
  if (from !== undefined && maxLife === undefined) return { reason: 'needs', facts: { field: 'pool.from', other: 'maxLife' } }
  const badAccount = account === undefined ? undefined : badName(account)
  if (badAccount !== undefined) return within('pool.account', badAccount)
  const badNear = near === undefined ? undefined : badLabel(near)
  if (badNear !== undefined) return within('pool.near', badNear)
  if (!Array.isArray(match)) return { reason: 'not-list', facts: { field: 'pool.match', given: shown(match) } }
  if (match.length > MAX_CONDITIONS) return tooMany('pool.match', MAX_CONDITIONS)
  for (const [i, condition] of match.entries()) {
    const wrong = badCondition(condition)
    if (wrong !== undefined) return within(`pool.match[${i}]`, wrong)
  }
  return undefined
}

function badLabel(label: string): Flaw | undefined {
  return label === '' ? { reason: 'empty', facts: { field: '' } } : badText(label, LABEL_BYTES)
}

function badCondition({ label, test, values = [] }: PoolCondition): Flaw | undefined {
  const bad = badLabel(label)
  if (bad !== undefined) return within('label', bad)
  if (!Array.isArray(values)) return { reason: 'not-list', facts: { field: 'values', given: shown(values) } }
  if (values.length > MAX_CONDITION_VALUES) return tooMany('values', MAX_CONDITION_VALUES)
  for (const [i, value] of values.entries()) {
    const wrong = badText(value, LABEL_VALUE_BYTES)
    if (wrong !== undefined) return within(`values[${i}]`, wrong)
  }
  switch (test) {
    case 'in':
    case 'not-in':
      return values.length > 0 ? undefined : { reason: 'empty', facts: { field: 'values' } }
    case 'absent':
    case 'present':
      return values.length === 0 ? undefined : { reason: 'not-together', facts: { field: 'values', other: test } }
    default:
      return values.length === 1 && !Number.isNaN(decimal(values[0]!))
        ? undefined
        : { reason: 'not-decimal', facts: { field: 'values', given: shown(values[0]) } }
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
    passedOn: false,
    notice: 0,
    shape: undefined,
  }
}

/** Returns what was asked for, as facts. */
function requestOf({ count, units, total, near }: PoolClaim): { count: number; each?: number; total?: number; near?: string } {
  return { count, ...(units > 0 && { each: units }), ...(total > 0 && { total }), ...(near !== '' && { near }) }
}

/** Refuses a request that all present members together could not serve. */
export function impossible(state: State, pool: PoolState, claim: PoolClaim): Refused | undefined {
  if (isPossible(pool, claim)) return undefined
  const { name, members } = pool
  const fitting = [...members.values()].filter(({ labels }) => matches(labels, claim.match))
  const units = fitting.reduce((sum, { capacity }) => sum + capacity, 0)
  const isApart = claim.near !== '' && couldServe(pool, { ...claim, near: '' })
  const about = { pool: name, members: members.size, matching: fitting.length, units, ...requestOf(claim) }
  return refuse(state, 'pool-impossible', isApart ? { ...about, apart: true } : about)
}

/** Refuses a request that cannot be served now and does not wait. */
export function notNow(state: State, pool: PoolState, claim: PoolClaim): Refused {
  const used = usedUp(state, pool, claim)
  if (used !== undefined) return used
  const free = pool.free.filter(({ labels }) => matches(labels, claim.match))
  return refuse(state, 'pool-held', {
    pool: pool.name,
    members: pool.members.size,
    free: free.length,
    queue: pool.queue.length,
    ...requestOf(claim),
  })
}

/**
 * Refuses a waiter that keeps members of the pool while it waits for more: two such waiters could wait for each other for ever, and so could one
 * and the waiter before it. All that is needed together is asked for together.
 */
export function cannotWaitInPool(state: State, pool: PoolState, holding: readonly number[]): Refused | undefined {
  const most = rule(state, pool.name, 'waiters')
  if (pool.queue.length >= most) return refuse(state, 'too-many-pool-waiters', { pool: pool.name, limit: most })
  const kept = holding.find(id => findLease(state, id)?.extras?.pool?.pool === pool.name)
  if (kept === undefined) return undefined
  return refuse(state, 'pool-deadlock', { pool: pool.name, lease: kept, cycle: [pool.name] })
}
