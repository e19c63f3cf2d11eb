/** A process believes that it holds a resource. The simulator's checker of beliefs judges these, for leases and for the plain lock. */
import type { ObservedBelief } from '../sim/beliefs.ts'
import type { Machine } from '../sim/world.ts'
import { heldLeaseOf, type Lease } from '../src/lease.ts'

/** A belief in a lease. It is read without a call of the library, which would read its clocks and might act. */
export class LeaseBelief implements ObservedBelief {
  readonly who: string
  readonly lease: number
  readonly grants: ObservedBelief['grants']
  readonly #lease: Lease
  readonly #machine: Machine
  readonly #life: number

  constructor(lease: Lease, machine: Machine) {
    this.who = machine.name
    this.lease = lease.id
    this.grants = lease.resources.map(resource => ({ resource, units: 1, shared: false, token: lease.tokens[resource]! }))
    this.#lease = lease
    this.#machine = machine
    this.#life = machine.life
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

  /** A process that was killed or stands still need not know. */
  told(): boolean {
    const { life, stalledSince, lastStall, world } = this.#machine
    return life !== this.#life || stalledSince !== undefined || lastStall.to >= world.now || this.#lease.signal.aborted
  }
}

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
