/** Moving house: a log whose leases have left decides nothing any more, so that no grant can be made in two places. */
import { isAdmin } from './authority.ts'
import type { Command, Move } from './command.ts'
import { type Effects, emit, restartTerm, startQuiet, startTimer } from './effects.ts'
import { badText } from './name.ts'
import { done, nothing, type Outcome } from './outcome.ts'
import { forbidden, invalid, refuse } from './refuse.ts'
import { type State, touch } from './state.ts'

const PLACE_BYTES = 2_048

export function move(state: State, effects: Effects, { to = '', stay = false }: Move, key: number): Outcome {
  const bad = badText(to, PLACE_BYTES)
  if (bad !== undefined) return invalid(state, `move: the place ${bad}`)
  if (!isAdmin(state, key)) return forbidden(state, 'move the leases elsewhere')
  if (stay && to !== '') return invalid(state, 'move: either they go somewhere or they stay')
  if (stay && state.moved === undefined) return invalid(state, 'move: nothing has left')
  state.moved = stay ? undefined : to
  if (stay) startAnew(state, effects)
  emit(state, effects, 'moved', undefined, { key: to, cause: stay ? 'staying' : to === '' ? 'leaving' : 'left' })
  return done()
}

/** What was due meanwhile did not count, and how long anything ran is not known where it arrives: later is always safe. */
function startAnew(state: State, effects: Effects): void {
  for (const lease of state.leases.values()) {
    touch(state, lease)
    restartTerm(state, effects, lease, lease.term)
    for (const [slot, timer] of lease.rare?.timers?.entries() ?? [])
      if (timer !== undefined) startTimer(state, effects, lease, slot as Parameters<typeof startTimer>[3], timer.duration)
  }
  if (state.quiet !== undefined) startQuiet(state, effects, state.quiet.duration)
}

/** The answer of a log whose leases have left; undefined for what concerns the log itself. */
export function elsewhere(state: State, place: string, { kind }: Command): Outcome | undefined {
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
      return place === ''
        ? refuse(state, 'UNAVAILABLE', 'the leases of this log are on their way to another: ask again in a moment', { moving: true })
        : refuse(state, 'UNAVAILABLE', `the leases of this log have moved to ${place}: ask there`, { moved: place })
  }
}
