/**
 * Backfilling: a waiter may start before others that came earlier, if that does not delay the first of them.
 *
 * The first waiter, the head, is expected to start when enough of the leases that hold members have ended, each as long after its grant as it said. A waiter
 * behind it may overtake if it expects to end by then, or if it may be preempted. Expectations can be wrong, so a lease that overtook yields: as soon as
 * the head would fit without it, it is preempted, whatever it expected. So the head starts no later than if no waiter had overtaken, plus the notice.
 */

/** The most waiters behind the head that are tried. */
export const BACKFILL_DEPTH = 100

export interface Running {
  /** Log time at which it is expected to end; undefined: unknown. */
  readonly ends: number | undefined
}

/** When a lease that holds members is expected to end. One that has overstayed may end at any moment: it is expected to end now. */
export function expectedEnd(start: number, expect: number, maxLife: number, now: number): number | undefined {
  const life = expect === 0 ? maxLife : maxLife === 0 ? expect : Math.min(expect, maxLife)
  return life === 0 ? undefined : Math.max(now, start + life)
}

/**
 * When the head is expected to start: the first expected end after which it fits; undefined: unknown. `fits` says whether the head fits once these leases
 * have ended; it must not become false when more of them end.
 */
export function expectedStart<T extends Running>(
  running: readonly T[],
  now: number,
  fits: (ended: readonly T[]) => boolean,
): number | undefined {
  const known = running.filter(({ ends }) => ends !== undefined).sort((a, b) => a.ends! - b.ends!)
  let [low, high] = [0, known.length + 1]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (fits(known.slice(0, middle))) high = middle
    else low = middle + 1
  }
  if (low > known.length) return undefined
  return low === 0 ? now : known[low - 1]!.ends!
}

/** Returns whether a waiter may overtake a head that is expected to start at `start`. */
export function mayOvertake(
  { expect, preemptible }: { readonly expect: number; readonly preemptible: boolean },
  now: number,
  start: number | undefined,
): boolean {
  return preemptible || (expect > 0 && start !== undefined && now + expect <= start)
}
