/** The waiters of pools: how they join the one queue of their pool and leave it. */

import { touch } from '../../state/leases.ts'
import { insertionIndex } from '../../state/order.ts'
import { accountOf, dropAccountIfIdle, dropPoolIfIdle, poolOf } from '../../state/pools.ts'
import { FROZEN, HOLD, type LeaseState, type PoolState, type State, WAITING } from '../../state.ts'
import { type Effects, emit, restartTerm, startTimer } from '../effects.ts'
import { rule } from '../policy.ts'
import { isPossible, shapeKey } from './choice.ts'
import { matches } from './condition.ts'
import { markPool } from './member.ts'
import { isPlanned, ShareStanding } from './order.ts'
import { isReserved } from './reservation.ts'

/** Returns whether the lease waits for members of a pool. (A lease that is transferred while it holds members waits for these by name.) */
export function waitsForPool({ status, extras }: LeaseState): boolean {
  return status === WAITING && extras!.pool !== undefined && extras!.wants.length === 0
}

export function joinPool(state: State, lease: LeaseState): void {
  listWaiter(state, poolOf(state, lease.extras!.pool!.pool), lease)
}

/** `settle` then serves the waiters that it held up. */
export function leavePool(state: State, lease: LeaseState): void {
  const pool = state.pools.get(lease.extras!.pool!.pool)!
  unlistWaiter(pool, lease)
  markPool(state, pool)
  dropPoolIfIdle(state, pool)
}

export function listWaiter(state: State, pool: PoolState, lease: LeaseState): void {
  const { pool: claim, rank } = lease.extras!
  pool.queue.splice(insertionIndex(pool.queue, rank, lease.id), 0, lease)
  const { waiting } = accountOf(pool, claim!.account)
  waiting.splice(insertionIndex(waiting, rank, lease.id), 0, lease)
  if (isReserved(state, claim!)) pool.reserved.add(lease)
  const key = shapeKey(claim!)
  let shape = pool.shapes.get(key)
  if (shape === undefined) {
    shape = { key, waiters: 0, possible: false, version: 0, largest: 1, measured: 0, failed: 0, failedBefore: 0, kinds: undefined }
    pool.shapes.set(key, shape)
  }
  shape.waiters++
  claim!.shape = shape
}

export function unlistWaiter(pool: PoolState, lease: LeaseState): void {
  const { pool: claim, rank } = lease.extras!
  pool.queue.splice(insertionIndex(pool.queue, rank, lease.id), 1)
  pool.reserved.delete(lease)
  const account = pool.accounts.get(claim!.account)!
  account.waiting.splice(insertionIndex(account.waiting, rank, lease.id), 1)
  dropAccountIfIdle(pool, account)
  const shape = claim!.shape!
  claim!.shape = undefined
  shape.waiters--
  if (shape.waiters === 0) pool.shapes.delete(shape.key)
}

export function positionInPool(state: State, lease: LeaseState): number {
  const pool = state.pools.get(lease.extras!.pool!.pool)!
  if (rule(state, pool.name, 'queue') === 'fair') return new ShareStanding(state, pool, lease).position
  return insertionIndex(pool.queue, lease.extras!.rank, lease.id)
}

/** A waiter has come. */
export function announceWaiter(state: State, effects: Effects, lease: LeaseState): void {
  const pool = state.pools.get(lease.extras!.pool!.pool)!
  emit(state, effects, 'queued', lease, { resource: pool.name })
  pressPool(state, effects, pool)
  // It may overtake, or others make room for it.
  if (isPlanned(state, pool)) markPool(state, pool)
}

/** Starts the HOLD timers of holders whose policy limits holding while others wait. */
export function pressPool(state: State, effects: Effects, pool: PoolState): void {
  if (rule(state, pool.name, 'maxHold') === 0 || !pool.queue.some(waiter => !isReserved(state, waiter.extras!.pool!))) return
  for (const lease of pool.holders) {
    if (lease.status === FROZEN || lease.extras!.timers?.[HOLD] !== undefined) continue
    const limits = lease.grants.map(({ resource }) => rule(state, resource.name, 'maxHold')).filter(limit => limit > 0)
    if (limits.length === 0) continue
    touch(state, lease)
    startTimer(state, effects, lease, HOLD, Math.min(...limits))
  }
}

/** Log time has passed: reservations whose window has begun are served. Returns whether there are any. */
export function beginWindows(state: State, effects: Effects): boolean {
  if (state.pools.size === 0) return false
  // By name: the order of the table differs between replicas.
  const begun = [...state.pools.values()].filter(({ reserved }) => [...reserved].some(({ extras }) => !isReserved(state, extras!.pool!)))
  for (const pool of begun.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    for (const lease of [...pool.reserved]) {
      if (isReserved(state, lease.extras!.pool!)) continue
      pool.reserved.delete(lease)
      touch(state, lease)
      restartTerm(state, effects, lease, lease.ttl)
    }
    markPool(state, pool)
    pressPool(state, effects, pool)
  }
  return begun.length > 0
}

/** Returns whether reservations or estimates depend on log time. */
export function poolsNeedTicks(state: State): 'fast' | 'slow' | undefined {
  let need: 'slow' | undefined
  for (const pool of state.pools.values()) {
    const { reserved, queue, holders } = pool
    if (reserved.size > 0 || (queue.length > 0 && isPlanned(state, pool))) return 'fast'
    if (queue.length + holders.size > 0) need = 'slow'
  }
  return need
}

/** Returns whether a waiter of its pool could use what the lease holds. */
export function isWaitedForInPool(state: State, lease: LeaseState): boolean {
  return firstInNeed(state, lease) !== undefined
}

/** The first waiter that could use a member that this lease holds. */
export function firstInNeed(state: State, { extras, grants }: LeaseState): LeaseState | undefined {
  const pool = extras?.pool === undefined ? undefined : state.pools.get(extras.pool.pool)
  return pool?.queue.find(waiter => {
    const claim = waiter.extras!.pool!
    if (isReserved(state, claim) || !isPossible(pool, claim)) return false
    return grants.some(({ resource: { member } }) => member !== undefined && matches(member.labels, claim.match))
  })
}
