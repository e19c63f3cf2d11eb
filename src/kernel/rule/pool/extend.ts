/** Extending: a lease that holds members of a pool may live longer, unless a waiter or a reservation needs them. */
import type { Extend } from '../../command.ts'
import { done, type Outcome } from '../../outcome.ts'
import { outside } from '../../reason.ts'
import { extrasOf, findLease, touch } from '../../state/leases.ts'
import { agedOf } from '../../state/timers.ts'
import { CAP, type LeaseState, LIVE, type State, SUSPECT } from '../../state.ts'
import { mayTouch } from '../authority.ts'
import { type Effects, startTimer } from '../effects.ts'
import { rule, TTL_LIMIT } from '../policy.ts'
import { gone, refuse, refuseFlaw } from '../refuse.ts'
import { missedBy } from './reservation.ts'
import { firstInNeed } from './waiters.ts'

export function extend(state: State, effects: Effects, { lease: id, by }: Extend, key: number): Outcome {
  if (!Number.isSafeInteger(by) || by < 1 || by > TTL_LIMIT) return refuseFlaw(state, outside('by', 1, TTL_LIMIT, by))
  const lease = findLease(state, id)
  const isHeld = lease !== undefined && (lease.status === LIVE || lease.status === SUSPECT)
  if (!isHeld || !mayTouch(state, key, lease)) return gone(state, id)
  const claim = lease.extras?.pool
  if (claim === undefined || lease.grants.length === 0) return refuse(state, 'holds-no-members', { lease: id })
  const timer = lease.extras!.timers?.[CAP]
  if (timer === undefined) return refuse(state, 'no-max-life', { lease: id })
  const whole = lease.extras!.maxLife + by
  const most = longestLife(state, lease)
  if (whole > most) return refuse(state, 'too-long-life', { lease: id, limit: most, life: whole })
  const waiter = firstInNeed(state, lease)
  if (waiter !== undefined)
    return refuse(state, 'needed-by-waiter', { pool: claim.pool, holder: waiter.holder.name, waiter: waiter.id, lease: id })
  const reservation = missedBy(state, lease, whole)
  if (reservation !== undefined)
    return refuse(state, 'needed-by-reservation', {
      pool: claim.pool,
      holder: reservation.holder.name,
      waiter: reservation.id,
      begin: reservation.extras!.pool!.from - state.elapsed,
      lease: id,
    })
  touch(state, lease)
  extrasOf(lease).maxLife = whole
  // The time that it has run counts on: an extension is no new life.
  const aged = agedOf(state, timer)
  startTimer(state, effects, lease, CAP, timer.duration + by)
  lease.extras!.timers![CAP]!.aged = aged
  effects.timer(lease, CAP)
  return done()
}

/** The longest life that policies allow for all that it holds. */
function longestLife(state: State, { extras, grants }: LeaseState): number {
  const limits = [extras!.pool!.pool, ...grants.map(({ resource }) => resource.name)].map(name => rule(state, name, 'maxLife'))
  return Math.min(TTL_LIMIT, ...limits.filter(limit => limit > 0))
}
