/**
 * Counts how much an account of a pool has used lately: the sum of the units that it held, over time, where older use counts less.
 *
 * With log time t (ticks, never a clock) and h(s) units held at s, the usage is
 *
 *     u(t) = ∫ h(s) · 2^−((t − s) / halfLife) ds        in unit-milliseconds
 *
 * computed in whole numbers. Usage decays in steps of a sixteenth of the half-life, at fixed points of log time. So it does not matter how often an account
 * is looked at: use that is brought up to date every second decays as much as use that is brought up to date once a day. Within a step, usage only grows.
 * A step is a whole number of milliseconds, so the half-life is rounded down to a multiple of 16 ms.
 * The result is off by at most 4.5 %, for all accounts at the same points, and deterministic: products beyond 2^53 are rounded as IEEE 754 says, then capped.
 */

/** Usage is counted up to here: five million units over the default half-life. */
export const MAX_USAGE = 2 ** 52

/** 2^16 · 2^(−i/16), rounded. */
const SIXTEENTHS = [
  65_536, 62_757, 60_097, 57_549, 55_109, 52_773, 50_535, 48_393, 46_341, 44_376, 42_495, 40_693, 38_968, 37_316, 35_734, 34_219,
] as const
const ONE = 65_536
/** 2^16 · r / (1 − r), with r = 2^(−1/16): what a unit held for ever has left of all steps before the present one. */
const ALL_STEPS = 1_480_244
const STEPS = 16
/** Nothing is left after so many half-lives: 2^52 has become less than 1. */
const FORGOTTEN = 53

/** Returns what is left of 2^16 after this number of steps. */
function leftOf(steps: number): number {
  const halves = Math.floor(steps / STEPS)
  return halves >= FORGOTTEN ? 0 : SIXTEENTHS[steps % STEPS]! / 2 ** halves
}

/** The usage as it was at log time `at`, with the units held since. */
export interface Usage {
  readonly usage: number
  readonly at: number
  readonly held: number
}

/** The usage at log time `now`. */
export function usageAt({ usage, at, held }: Usage, now: number, halfLife: number): number {
  if (now <= at) return usage
  const step = Math.max(1, Math.floor(halfLife / STEPS))
  const [from, to] = [Math.floor(at / step), Math.floor(now / step)]
  if (from === to) return Math.min(MAX_USAGE, usage + held * (now - at))
  const steps = to - from
  const before = (usage + held * ((from + 1) * step - at)) * leftOf(steps)
  // Whole steps between: the oldest has decayed steps − 1 times, the newest once.
  const between = held * step * Math.floor((ALL_STEPS * (ONE - leftOf(steps - 1))) / ONE)
  return Math.min(MAX_USAGE, Math.floor(before / ONE) + Math.floor(between / ONE) + held * (now - to * step))
}
