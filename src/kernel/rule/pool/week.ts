/**
 * Counts how long an account of a pool has used units in the last week, for its quota of unit-time (`quotaWeek`).
 *
 * With log time t (ticks, never a clock), use is summed up in steps of six hours at fixed points of log time: the present step and the 28 before it. So use
 * counts for a week at least and for six hours more at most, and an account keeps 29 numbers at most, however often it is granted units.
 */
import type { StepUse } from '../../state.ts'

export const WEEK = 604_800_000
export const WEEK_STEP = 21_600_000
const STEPS = WEEK / WEEK_STEP
/** Use of one step is counted up to here. */
const MAX_USED = 2 ** 52

export type Week = readonly StepUse[]

/** Steps in their order, without those in which nothing was used, as they were at log time `at`; and the units held since. */
export interface WeekUse {
  readonly week: Week
  readonly at: number
  readonly held: number
}

/** The steps that count at log time `now`. */
export function weekAt({ week, at, held }: WeekUse, now: number): Week {
  const present = Math.floor(now / WEEK_STEP)
  const steps = week.filter(({ step }) => step >= present - STEPS)
  if (held === 0) return steps
  for (let step = Math.max(present - STEPS, Math.floor(at / WEEK_STEP)); step <= present; step++) {
    const ms = Math.min(now, (step + 1) * WEEK_STEP) - Math.max(at, step * WEEK_STEP)
    if (ms <= 0) continue
    const before = steps.at(-1)?.step === step ? steps.pop()!.used : 0
    steps.push({ step, used: Math.min(MAX_USED, before + held * ms) })
  }
  return steps
}

export function usedIn(week: Week): number {
  return week.reduce((sum, { used }) => sum + used, 0)
}

/** The log time at which less than `quota` counts, if nothing more is used. */
export function lessThan(quota: number, week: Week): number {
  let left = usedIn(week)
  let from = 0
  for (const { step, used } of week) {
    if (left < quota) break
    left -= used
    from = (step + STEPS + 1) * WEEK_STEP
  }
  return from
}
