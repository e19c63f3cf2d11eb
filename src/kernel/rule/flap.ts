/**
 * Flap damping, after RFC 2439, for the keys of registrations: an instance that comes and goes too often is listed as suppressed until it has stayed.
 *
 * A lapse adds `flapPenalty` to the penalty of its key. With log time t (ticks, never a clock) the penalty decays as
 *
 *     p(t) = p(t₀) · 2^−((t − t₀) / flapHalfLife)
 *
 * computed in integers: halves by shifting, sixteenths of a half-life by a table. Except for the last point, the steps make it at most 4.4 % too high and never
 * too low. Above `flapSuppress` the key is suppressed, at `flapReuse` it is free again. A penalty never exceeds 16 × `flapReuse` (or one flap above
 * `flapSuppress`), so with the defaults no key is suppressed for more than four half-lives after its last lapse.
 */

import type { Flap, State } from '../state.ts'
import { type Effects, emit } from './effects.ts'
import { rule } from './policy.ts'

/** The most keys that are remembered; beyond that, those that lapsed longest ago are forgotten. */
const MAX_FLAPS = 65_536
const LONGEST = 16
/** Each tick checks this many keys for forgetting. */
const FORGET = 256

/** 2^16 · 2^(−i/16), rounded up. */
const SIXTEENTHS = [
  65_536, 62_758, 60_097, 57_549, 55_109, 52_773, 50_536, 48_393, 46_341, 44_377, 42_495, 40_694, 38_968, 37_316, 35_734, 34_219,
] as const

export function decayed(penalty: number, ms: number, halfLife: number): number {
  const halves = Math.floor(ms / halfLife)
  if (halves >= 32) return 0
  const sixteenth = Math.floor(((ms - halves * halfLife) * 16) / halfLife)
  return Math.floor((Math.floor(penalty / 2 ** halves) * SIXTEENTHS[sixteenth]!) / 65_536)
}

/** The present penalty. */
function current(state: State, key: string, { penalty, at }: Flap): number {
  return decayed(penalty, state.elapsed - at, rule(state, key, 'flapHalfLife'))
}

/** The present penalty of a key and what it is compared with, for readers. Undefined if it has none. */
export function flapOf(
  state: State,
  key: string,
): { readonly penalty: number; readonly suppress: number; readonly reuse: number } | undefined {
  const flap = state.flaps.get(key)
  if (flap === undefined) return undefined
  return { penalty: current(state, key, flap), suppress: rule(state, key, 'flapSuppress'), reuse: rule(state, key, 'flapReuse') }
}

/** Adds the penalty of a lapse. */
export function charge(state: State, key: string): void {
  const penalty = rule(state, key, 'flapPenalty')
  if (penalty === 0) return
  const there = state.flaps.get(key)
  const suppress = rule(state, key, 'flapSuppress')
  const most = Math.max(LONGEST * rule(state, key, 'flapReuse'), suppress + penalty)
  const sum = Math.min(most, penalty + (there === undefined ? 0 : current(state, key, there)))
  const suppressed = there?.suppressed === true || sum > suppress
  forgetFlap(state, key)
  state.flaps.set(key, { penalty: sum, at: state.elapsed, suppressed })
  if (suppressed) state.suppressed.add(key)
  if (state.flaps.size <= MAX_FLAPS) return
  const [oldest] = state.flaps.keys()
  forgetFlap(state, oldest!)
}

function forgetFlap(state: State, key: string): void {
  state.flaps.delete(key)
  state.suppressed.delete(key)
}

/** Log time has passed: frees keys whose penalty has decayed enough, and forgets negligible penalties. */
export function decayFlaps(state: State, effects: Effects): void {
  for (const key of state.suppressed) {
    const flap = state.flaps.get(key)!
    if (current(state, key, flap) > rule(state, key, 'flapReuse')) continue
    flap.suppressed = false
    state.suppressed.delete(key)
    const entry = state.entries.get(key)
    if (entry !== undefined) emit(state, effects, 'reused', entry.lease, { key })
  }
  let looked = 0
  for (const [key, flap] of state.flaps) {
    if (++looked > FORGET) return
    if (!flap.suppressed && 2 * current(state, key, flap) < rule(state, key, 'flapReuse')) state.flaps.delete(key)
  }
}
