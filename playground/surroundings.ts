/** The part of a world that its processes see and report to. */
import type { ObservedBelief } from '../sim/beliefs.ts'
import type { Believed } from '../sim/believed.ts'
import type { World } from '../sim/world.ts'
import type { History, Side } from './history.ts'
import type { SharedLog } from './linked-store.ts'
import type { Links } from './links.ts'
import type { PlainLockServer } from './plain-lock.ts'
import type { Settings } from './settings.ts'

export interface Surroundings {
  readonly timeline: World
  readonly history: History
  readonly links: Links
  readonly shared: SharedLog
  readonly server: PlainLockServer
  readonly settings: Settings
  /** True time. */
  readonly now: number
  /** A process uses what it believes to hold. */
  uses(side: Side, belief: ObservedBelief): void
  /** From now on its holder must know when the lease ends. */
  watches(belief: Believed): void
  /** Its holder is about to give a lease up. */
  gives(lease: number): void
  /** SET NX PX. Returns the number of the turn, or undefined if the lock is taken. */
  takePlain(name: string): number | undefined
  /** A write has arrived at the resource. */
  written(side: Side, name: string, belief: ObservedBelief): void
}
