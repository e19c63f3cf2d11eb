/** Moving leases to another log: a log whose leases have left decides nothing any more, so that no grant is made in two logs. */

import type { Command, Move } from '../command.ts'
import { badText } from '../name.ts'
import { done, nothing, type Outcome, type Refused } from '../outcome.ts'
import { within } from '../reason.ts'
import { touch } from '../state/leases.ts'
import type { State } from '../state.ts'
import { isAdmin } from './authority.ts'
import { type Effects, emit, restartTerm, startQuiet, startTimer } from './effects.ts'
import { forbiddenAdmin, refuse, refuseFlaw } from './refuse.ts'

const PLACE_BYTES = 2_048

export function move(state: State, effects: Effects, { to = '', stay = false, prepare = false, since, into }: Move, key: number): Outcome {
  const bad = badText(to, PLACE_BYTES)
  if (bad !== undefined) return refuseFlaw(state, within('to', bad))
  if (!isAdmin(state, key)) return forbiddenAdmin(state, 'move')
  if (stay && to !== '') return refuse(state, 'not-together', { field: 'to', other: 'stay' })
  if (into !== undefined) return into === 'begin' ? expect(state, effects) : arrive(state, effects)
  const { moved } = state
  if (state.awaiting) return refuse(state, 'move-is-arriving', {})
  if (moved) {
    if (to === moved) return done()
    // Grants since then were made there. Moving back, or elsewhere from here, could grant the same units twice.
    return refuse(state, 'moved-for-good', { moved })
  }
  if (prepare) return moved === undefined ? announce(state, effects, to) : refuse(state, 'moving-already', { moving: true })
  if (stay || to !== '') {
    if (stay && moved === undefined) return refuse(state, 'not-moving', {})
    // The copy may be older than grants made here after the move was cancelled. While leases are being moved, the revision stays.
    if (moved === undefined || (since ?? state.revision) !== state.revision) return refuse(state, 'move-called-off', {})
  } else if (moved !== undefined) return refuse(state, 'moving-already', { moving: true })
  state.moved = stay ? undefined : to
  if (stay) startAnew(state, effects)
  emit(state, effects, 'moved', undefined, { key: to, cause: stay ? 'staying' : to === '' ? 'leaving' : 'left' })
  return done()
}

/** Replicas that have this log open also open the place that the leases will move to; without a place, they close it again. */
function announce(state: State, effects: Effects, to: string): Outcome {
  emit(state, effects, 'moved', undefined, { key: to, cause: 'preparing' })
  return done()
}

/** The log decides nothing from here on: replicas that read the moved leases would not know its decisions. */
function expect(state: State, effects: Effects): Outcome {
  const { leases, policies, keys, free } = state
  if (state.awaiting) return refuse(state, 'target-arriving', {})
  if (state.moved !== undefined) return refuse(state, 'target-moved', {})
  if (leases.size + policies.size + keys.size + free.size > 0)
    return refuse(state, 'target-not-empty', { leases: leases.size, policies: policies.size, keys: keys.size, entries: free.size })
  state.moved = ''
  state.awaiting = true
  emit(state, effects, 'moved', undefined, { cause: 'awaited' })
  return done()
}

function arrive(state: State, effects: Effects): Outcome {
  if (!state.awaiting) return refuse(state, 'not-arriving', {})
  state.moved = undefined
  state.awaiting = false
  if (state.floor !== undefined) raiseTo(state, state.floor)
  state.floor = undefined
  startAnew(state, effects)
  emit(state, effects, 'moved', undefined, { cause: 'arrived' })
  return done()
}

/** Revisions continue above all that readers of either log have seen: the old log has had two more since its last decision. */
function raiseTo(state: State, { revision, lease, token, key }: NonNullable<State['floor']>): void {
  state.revision = Math.max(state.revision, revision) + 2
  state.nextLease = Math.max(state.nextLease, lease)
  state.nextToken = Math.max(state.nextToken, token)
  state.nextKey = Math.max(state.nextKey, key)
}

/** Applies decisions of the log that the leases come from, as if this log were in force. */
export function whileOpen<T>(state: State, apply: () => T): T {
  const { moved, awaiting } = state
  state.moved = undefined
  state.awaiting = false
  const result = apply()
  state.moved = moved
  state.awaiting = awaiting
  return result
}

/** `due` proposals were ignored meanwhile, and the new log does not know how long timers have run. A later end is always safe. */
function startAnew(state: State, effects: Effects): void {
  for (const lease of state.leases.values()) {
    touch(state, lease)
    restartTerm(state, effects, lease, lease.term)
    for (const [slot, timer] of lease.extras?.timers?.entries() ?? [])
      if (timer !== undefined) startTimer(state, effects, lease, slot as Parameters<typeof startTimer>[3], timer.duration)
  }
  if (state.quiet !== undefined) startQuiet(state, effects, state.quiet.duration)
}

/** The answer of a log whose leases have left; undefined for commands that concern the log itself. */
export function refusalOfMovedLog(state: State, place: string, { kind }: Command): Outcome | undefined {
  switch (kind) {
    case 'move':
    case 'run':
    case 'generation':
    case 'upgrade':
      return undefined
    case 'due':
    case 'aged':
    case 'aged-together':
    case 'tick':
      return nothing()
    default:
      return movedAway(state, place)
  }
}

export function movedAway(state: State, place: string): Refused {
  if (place !== '') return refuse(state, 'moved', { moved: place })
  return refuse(state, state.awaiting ? 'arriving' : 'moving', { moving: true })
}
