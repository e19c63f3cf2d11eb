/** A process believes in a lease of the real library. The checker of beliefs judges it, in the simulator and in the playground. */
import { heldLeaseOf, type Lease } from '../src/lease.ts'
import type { ObservedBelief } from './beliefs.ts'
import type { Machine } from './world.ts'

/** Tells whether the real library considers a lease valid, found without calling the library: a call would make it read its clocks. */
export class Believed implements ObservedBelief {
  readonly who: string
  readonly lease: number
  readonly grants: ObservedBelief['grants']
  readonly #lease: Lease
  readonly #machine: Machine
  readonly #life: number

  constructor(who: string, lease: Lease, machine: Machine, shared: boolean, unitsOf: (resource: string) => number = () => 1) {
    this.who = who
    this.lease = lease.id
    this.#lease = lease
    this.#machine = machine
    this.#life = machine.life
    this.grants = lease.resources.map(resource => ({
      resource,
      units: shared ? 0 : unitsOf(resource),
      shared,
      token: lease.tokens[resource]!,
    }))
  }

  /** Milliseconds that are left by the clocks of the process; 0 or less when it is over. */
  left(): number {
    if (this.#machine.life !== this.#life) return 0
    const held = heldLeaseOf(this.#lease)
    if (held.stage !== 'held' || held.sent.number <= held.keeper.doubtedUpTo) return 0
    return held.timeLeft(this.#machine.monotonic(), this.#machine.uptime())
  }

  /** The true time at which the clocks of the process end it. */
  deadline(): number {
    const { world, rate } = this.#machine
    return world.now + this.left() / rate
  }

  holds(): boolean {
    return this.left() > 0
  }

  /** A program that was killed or stalled need not know. */
  told(): boolean {
    const { life, stalledSince, lastStall, world } = this.#machine
    return life !== this.#life || stalledSince !== undefined || lastStall.to >= world.now || this.#lease.signal.aborted
  }
}
