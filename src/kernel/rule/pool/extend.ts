/** Extending: a lease that holds members of a pool may live longer, unless a waiter or a reservation needs them. */
import type { Extend } from '../../command.ts'
import { done, type Outcome } from '../../outcome.ts'
import { findLease, rareOf, touch } from '../../state/leases.ts'
import { agedOf } from '../../state/timers.ts'
import { CAP, type LeaseState, LIVE, type State, SUSPECT } from '../../state.ts'
import { mayTouch } from '../authority.ts'
import { type Effects, startTimer } from '../effects.ts'
import { rule, TTL_LIMIT } from '../policy.ts'
import { gone, invalid, refuse } from '../refuse.ts'
import { missedBy } from './reservation.ts'
import { firstInNeed } from './waiters.ts'

export function extend(state: State, effects: Effects, { lease: id, by }: Extend, key: number): Outcome {
  if (!Number.isSafeInteger(by) || by < 1 || by > TTL_LIMIT) return invalid(state, `by must be a duration above 0, not ${String(by)}`)
  const lease = findLease(state, id)
  const isHeld = lease !== undefined && (lease.status === LIVE || lease.status === SUSPECT)
  if (!isHeld || !mayTouch(state, key, lease)) return gone(state, id)
  const claim = lease.rare?.pool
  if (claim === undefined || lease.grants.length === 0)
    return invalid(state, `lease ${id} holds no members of a pool: only those are extended`)
  const timer = lease.rare!.timers?.[CAP]
  if (timer === undefined) return invalid(state, `lease ${id} has no maxLife that could be extended: it lasts as long as it is renewed`)
  const whole = lease.rare!.maxLife + by
  const most = longestLife(state, lease)
  if (whole > most)
    return refuse(state, 'LIMIT', `lease ${id} would live for ${whole} ms in all, and its policy allows ${most}`, {
      lease: id,
      limit: most,
    })
  const waiter = firstInNeed(state, lease)
  if (waiter !== undefined)
    return refuse(state, 'HELD', `${waiter.holder.name} waits for members of ${claim.pool} that lease ${id} holds: it is not extended`, {
      pool: claim.pool,
      holder: waiter.holder.name,
      waiter: waiter.id,
    })
  const reservation = missedBy(state, lease, whole)
  if (reservation !== undefined)
    return refuse(
      state,
      'HELD',
      `${reservation.holder.name} has reserved members of ${claim.pool} for that time: lease ${id} is not extended`,
      {
        pool: claim.pool,
        holder: reservation.holder.name,
        waiter: reservation.id,
        begin: reservation.rare!.pool!.from - state.elapsed,
      },
    )
  touch(state, lease)
  rareOf(lease).maxLife = whole
  // The time that it has run counts on: an extension is no new life.
  const aged = agedOf(state, timer)
  startTimer(state, effects, lease, CAP, timer.duration + by)
  lease.rare!.timers![CAP]!.aged = aged
  effects.timer(lease, CAP)
  return done()
}

/** The longest life that policies allow for all that it holds. */
function longestLife(state: State, { rare, grants }: LeaseState): number {
  const limits = [rare!.pool!.pool, ...grants.map(({ resource }) => resource.name)].map(name => rule(state, name, 'maxLife'))
  return Math.min(TTL_LIMIT, ...limits.filter(limit => limit > 0))
}
