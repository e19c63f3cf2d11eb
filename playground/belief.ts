/** A process believes that it holds the plain lock. The simulator's checker of beliefs judges it beside beliefs in leases. */
import type { ObservedBelief } from '../sim/beliefs.ts'
import type { Machine } from '../sim/world.ts'

/** A belief in the plain lock: it lasts until an answer says otherwise, because the process counts no time. */
export class PlainBelief implements ObservedBelief {
  readonly who: string
  readonly lease: number
  readonly grants: ObservedBelief['grants']
  readonly #machine: Machine
  readonly #life: number
  isOver = false

  constructor(machine: Machine, resource: string, turn: number) {
    this.who = machine.name
    this.lease = turn
    this.grants = [{ resource, units: 1, shared: false, token: turn }]
    this.#machine = machine
    this.#life = machine.life
  }

  holds(): boolean {
    return !this.isOver && this.#machine.life === this.#life
  }
}
