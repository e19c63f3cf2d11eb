/** The checks of the referee read here all that they know about the log that they judge. */
import type { Event } from '../src/kernel/event.ts'
import type { State } from '../src/kernel/state.ts'

export interface LogView {
  readonly state: State
  /** The log has lost records this many times. */
  readonly losses: number
  /** When the proposer sent the record that is judged now. */
  readonly sentAt: number
  readonly ended: ReadonlyMap<number, Ended>
}

/** When and how a lease ended. */
export interface Ended {
  readonly at: number
  readonly index: number
  readonly type: Event['type']
  readonly cause: string | undefined
}
