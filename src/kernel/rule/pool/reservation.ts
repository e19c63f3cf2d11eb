/** Reservations: waiters of a pool whose window begins later. */
import type { PoolClaim, State } from '../../state.ts'

/** Whether the window of a waiter has not begun yet. */
export function isReserved(state: State, { from }: PoolClaim): boolean {
  return from > state.elapsed
}
