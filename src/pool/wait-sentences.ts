/** Sentences about a wait in a pool, for people. */
import { inWords } from '../duration.ts'
import type { PoolRequest } from '../kernel/command.ts'
import type { PoolView, PoolWaiterView } from '../lessor.ts'
import type { StartForecast } from './forecast.ts'
import type { WaitExplanation } from './wait-explanation.ts'

export function wantedText({ count = 1, total, units, near }: PoolRequest): string {
  if (total !== undefined) return `${total} units`
  const each = units === undefined ? '' : ` with ${units} free units each`
  return `${count}${each}${near === undefined ? '' : ` of the same ${near}`}`
}

export function membersText(count: number): string {
  return `${count} member${count === 1 ? '' : 's'}`
}

/** The holder, with its account unless the holder's name begins with it: `ann@a:4711`, `vision (ann@a:4711)`. */
export function whoText(holder: string, account: string): string {
  return account === '' || holder.startsWith(account) ? holder : `${account} (${holder})`
}

/** `now`, `in about 12 min (80 %: 4 min to 1.1 h)`, or `in 60 min` where the time is known. */
export function startText({ low, median, high }: StartForecast): string {
  if (high <= 0) return 'now'
  const later = (ms: number) => (ms === Number.POSITIVE_INFINITY ? 'never' : inWords(ms))
  if (median === Number.POSITIVE_INFINITY) return 'at an unknown time'
  if (later(low) === later(high)) return `in ${later(median)}`
  const upTo = high === Number.POSITIVE_INFINITY ? `from ${later(low)} on` : `${later(low)} to ${later(high)}`
  return `in about ${later(median)} (80 %: ${upTo})`
}

/** The leases of the reservations that stand before a waiter. They have places in the queue, and do not wait yet. */
export function reservedBefore({ reservations }: PoolView, { position }: PoolWaiterView): ReadonlySet<number> {
  return new Set(reservations.filter(reservation => reservation.position < position).map(({ lease }) => lease))
}

/** An explanation in sentences. */
export function sentences(
  view: PoolView,
  waiter: PoolWaiterView,
  { reasons, blockers, start, alternatives }: Pick<WaitExplanation, 'reasons' | 'blockers' | 'start' | 'alternatives'>,
): readonly string[] {
  const { pool, waiting, reservations } = view
  const { lease, holder, account, position } = waiter
  const isReservation = reservations.some(reservation => reservation.lease === lease)
  const place = position - reservedBefore(view, waiter).size + 1
  const lines = [
    isReservation
      ? `${whoText(holder, account)} has a reservation of ${pool}.`
      : `${whoText(holder, account)} is number ${place} of ${waiting - reservations.length} waiting for ${pool}.`,
  ]
  // The name of an account begins as it is written.
  for (const { text } of reasons)
    lines.push(text.startsWith(`${account} `) ? `${text}.` : `${text.charAt(0).toUpperCase()}${text.slice(1)}.`)
  for (const { holder, account, members, held, likelyEnd, frozen, recalled } of blockers.slice(0, 3)) {
    const end = frozen
      ? 'has ended, but its holder may not have stopped yet'
      : `held for ${inWords(held)}, ${recalled ? 'recalled, ' : ''}ends in about ${inWords(likelyEnd)}`
    lines.push(`${members.join(', ')}: ${whoText(holder, account)}, ${end}.`)
  }
  lines.push(start === undefined ? 'It cannot start with the present members.' : `It starts ${startText(start)}.`)
  for (const { change, start } of alternatives) lines.push(`With another request, ${change}: ${startText(start)}.`)
  return lines
}
