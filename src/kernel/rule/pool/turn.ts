/** Turns: in which order the waiters of a pool are tried, and which of them may overtake. */
import type { LeaseState, PoolState, State } from '../../state.ts'

/** The waiters in the order in which they would be served if each of them fitted. */
export function serviceOrder(_state: State, pool: PoolState): readonly LeaseState[] {
  return pool.queue
}
