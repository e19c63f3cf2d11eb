/**
 * Says how long a holder may trust a lease: time law, rule 1. Validity counts from before the acknowledged request was sent, for the term in the
 * answer less a margin. Both the monotonic clock and the machine's uptime are read; the one that says less is left wins.
 */
import { LeaseError } from '../errors.ts'

/** A reading of both clocks at one moment. */
export interface ClockReading {
  readonly now: number
  readonly uptime: number
}

/** When a request was sent. Requests are numbered, because several may be sent within one clock reading. */
export interface Sent extends ClockReading {
  readonly number: number
}

/** Uptime is read in steps of 10 ms. A larger difference between the clocks can only be time that the machine slept. */
const UPTIME_STEP = 10

/** Milliseconds since `sent`, by the clock that says more. */
export function since(sent: Sent, now: number, uptime: number): number {
  const ran = now - sent.now
  const passed = uptime - sent.uptime
  return passed - ran > UPTIME_STEP ? passed + UPTIME_STEP : ran
}

/** The largest part of a term that is given up for late timers. */
const MAX_TIMER_SHARE = 1 / 10

/**
 * Returns how much of a term a holder may trust: the term less the margin for clocks of different rates. Of a short term, at least the lateness of
 * timers is given up, so that `signal` still fires before the term is over.
 */
export function validityOf(term: number, margin: number, lateness = 0): number {
  return term - Math.max(term * margin, Math.min(lateness, term * MAX_TIMER_SHARE))
}

/** δ: the part of a term that is given up for clocks of different rates. */
export function marginOf({ clockError = 0.005 }: { readonly clockError?: number | undefined }): number {
  if (!(clockError >= 0 && clockError < 0.5)) throw new LeaseError('INVALID', `clockError must be from 0 to 0.5, not ${clockError}`)
  // Leases are renewed at half of their term: with less than that to trust, every renewal would come too late.
  if (clockError >= 0.25)
    throw new LeaseError(
      'INVALID',
      `clockError ${clockError} gives up 2 × ${clockError} = ${2 * clockError} of each term, and leases are renewed when 0.5 of it has passed: it must be below 0.25`,
    )
  return 2 * clockError
}
