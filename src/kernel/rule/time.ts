/**
 * Time, as far as a log can know it: a replica that counts proposes that a timer is due, or how long it has run at least. The kernel accepts that only for the
 * epoch that still runs. It never measures time itself.
 */

import type { Aged, AgedTogether, Due, Run, Tick } from '../command.ts'
import { done, nothing, type Outcome } from '../outcome.ts'
import { extrasOf, findLease, touch } from '../state/leases.ts'
import { noteRun } from '../state/lineage.ts'
import { blocks } from '../state/order.ts'
import { timerOf } from '../state/timers.ts'
import {
  BREAK,
  CAP,
  type Freed,
  type LeaseState,
  LIVE,
  PREEMPT,
  QUIET,
  type Resource,
  raiseCounters,
  SLOTS,
  type Slot,
  type State,
  SUSPECT,
  TERM,
  WAITING,
} from '../state.ts'
import { isWaitedForAround } from './covers.ts'
import { type Effects, emit, restartTerm } from './effects.ts'
import { end, reconsider } from './end.ts'
import { decayFlaps } from './flap.ts'
import { rule, TTL_LIMIT } from './policy.ts'
import { markPool, updateOffers } from './pool/member.ts'
import { preemptionDue } from './pool/preempt.ts'
import { showUpTime } from './pool/reservation.ts'
import { passTime } from './pool/time.ts'
import { beginWindows, isWaitedForInPool, waitsForPool } from './pool/waiters.ts'
import { relaxHolder } from './queue.ts'
import { emitForAll } from './renew.ts'
import { countLapse, countSuspect, nextSweeps, slowed } from './service.ts'
import { settle } from './settle.ts'

/** The term of a reservation is prolonged by at least so many ms. Log time advances in steps. */
const SHOW_UP_STEP = 1_000

/** The lease that a timer belongs to, if it still exists. */
function leaseOfTimer(state: State, timer: number): LeaseState | undefined {
  return findLease(state, Math.floor(timer / SLOTS))
}

export function due(state: State, effects: Effects, { timer, epoch }: Due): Outcome {
  if (timer === QUIET) {
    if (state.quiet?.epoch !== epoch) return nothing()
    return endQuiet(state, effects)
  }
  const lease = leaseOfTimer(state, timer)
  const slot = (timer % SLOTS) as Slot
  // Restarted since the proposer looked: the proposal was late, not wrong.
  if (lease === undefined || timerOf(lease, slot)?.epoch !== epoch) return nothing()
  const { freed } = state
  if (slot === TERM) termDue(state, effects, lease, freed)
  else if (slot === CAP) end(state, effects, lease, { type: 'revoked', cause: 'cap', stopped: false }, freed)
  else if (slot === PREEMPT && lease.extras!.pool !== undefined) preemptionDue(state, effects, lease)
  else if (slot >= BREAK) end(state, effects, lease, { type: 'revoked', cause: 'break', by: lease.extras!.by, stopped: false }, freed)
  else if (isHeldTooLong(state, lease)) end(state, effects, lease, { type: 'revoked', cause: 'hold', stopped: false }, freed)
  else {
    touch(state, lease)
    relaxHolder(state, effects, lease)
    return nothing()
  }
  settle(state, effects, freed)
  return done()
}

/** Returns whether another client waits for what it holds, and a policy limits how long that may be. */
function isHeldTooLong(state: State, lease: LeaseState): boolean {
  const limited = lease.grants.filter(({ resource }) => rule(state, resource.name, 'maxHold') > 0)
  const covers = lease.extras?.covers === true
  const isWanted = (resource: Resource) => isWaitedFor(resource) || isWaitedForAround(state, resource.name, covers)
  return limited.some(({ resource }) => isWanted(resource)) || (limited.length > 0 && isWaitedForInPool(state, lease))
}

/** Returns whether a waiter could be served if the resource became free. */
function isWaitedFor(resource: Resource): boolean {
  return resource.queue.some(waiter => blocks(waiter, resource))
}

function termDue(state: State, effects: Effects, lease: LeaseState, freed: Freed): void {
  const rest = showUpTime(state, lease)
  if (rest > 0) {
    touch(state, lease)
    return restartTerm(state, effects, lease, Math.max(rest, SHOW_UP_STEP))
  }
  const grace = lease.status === LIVE ? (lease.extras?.grace ?? 0) : 0
  const longer = grace === 0 ? slowed(state, lease) : 0
  if (grace === 0 && longer === 0) {
    countLapse(state, lease)
    end(state, effects, lease, { type: 'lapsed', cause: 'lapsed', stopped: true }, freed)
    return
  }
  touch(state, lease)
  extrasOf(lease).slowed += longer
  if (lease.status === LIVE) {
    lease.status = SUSPECT
    state.counts.suspect++
    emitForAll(state, effects, 'suspected', lease)
    countSuspect(state, effects, lease, 1)
    updateOffers(state, lease)
    // A registration whose holder is silent may be taken over.
    for (const key of lease.extras?.entries ?? []) reconsider(state, key)
  }
  restartTerm(state, effects, lease, grace + longer)
}

function endQuiet(state: State, effects: Effects): Outcome {
  state.quiet = undefined
  effects.timer(undefined, QUIET)
  emit(state, effects, 'generation', undefined, { cause: 'granting-again' })
  const { freed } = state
  // In the order of leases, not of resources: the order of leases is part of the state, the order of resources differs between replicas.
  for (const lease of state.leases.values())
    if (lease.status === WAITING) {
      for (const want of lease.extras!.wants) freed.add(state.resources.get(want.resource)!)
      if (waitsForPool(lease)) markPool(state, state.pools.get(lease.extras!.pool!.pool)!)
    }
  settle(state, effects, freed)
  return done()
}

export function aged(state: State, effects: Effects, { marks }: Aged): Outcome {
  for (const { timer, epoch, ms } of marks) {
    const lease = leaseOfTimer(state, timer)
    const slot = (timer % SLOTS) as Slot
    const running = timer === QUIET ? state.quiet : lease === undefined || slot === TERM ? lease : lease.extras?.timers?.[slot]
    if (running?.epoch !== epoch || !Number.isSafeInteger(ms) || ms <= running.aged) continue
    // Under an owner, timers that its run found age by the marks for all: a single mark beside them would count the same time twice.
    if (state.run.owned && running.run < state.run.number) continue
    if (lease !== undefined) touch(state, lease)
    running.aged = ms
    effects.timer(lease, slot)
  }
  return nothing()
}

export function agedTogether(state: State, effects: Effects, { run: number, ms }: AgedTogether): Outcome {
  if (!state.run.owned || number !== state.run.number || !(ms > state.run.ms)) return nothing()
  state.run.ms = ms
  effects.timer(undefined, TERM)
  return nothing()
}

/** The marks for all of the last run are added to the timers that it found. Timers that were renewed in it begin to age with the next mark. */
export function run(state: State, effects: Effects, { owned, nonce = 0, secret = '' }: Run): Outcome {
  const { number, ms } = state.run
  if (ms > 0) {
    for (const lease of state.leases.values()) {
      const timers = lease.extras?.timers
      if (lease.run >= number && timers === undefined) continue
      touch(state, lease)
      if (lease.run < number) lease.aged += ms
      for (const timer of timers ?? []) if (timer !== undefined && timer.run < number) timer.aged += ms
    }
    if (state.quiet !== undefined && state.quiet.run < number) state.quiet.aged += ms
  }
  state.run = { number: number + 1, owned, ms: 0 }
  // While leases are moved in, the counters are those of the log that they come from.
  if (state.floor === undefined) raiseCounters(state)
  if (nonce !== 0) noteRun(state.lineage, { number: state.run.number, nonce, index: state.index }, secret)
  effects.timer(undefined, TERM)
  return nothing()
}

export function tick(state: State, effects: Effects, { n, elapsed }: Tick): Outcome {
  if (n !== state.tick + 1 || !Number.isSafeInteger(elapsed) || elapsed < 0 || elapsed > TTL_LIMIT) return nothing()
  state.tick = n
  state.elapsed += elapsed
  decayFlaps(state, effects)
  nextSweeps(state)
  beginWindows(state, effects)
  passTime(state)
  settle(state, effects, state.freed)
  return nothing()
}
