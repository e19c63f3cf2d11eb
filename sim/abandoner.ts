/**
 * A client that renews its lease until the owner of the log stalls. The owner reads the client's last renewal when the stall ends, and the client
 * sends no more. Its lease must be gone one term later, however long the stall was.
 */
import { LeaseError } from '../src/errors.ts'
import type { Command } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import type { Host } from './participants.ts'
import type { World } from './world.ts'

export interface AbandonerOptions {
  readonly name: string
  readonly ttl: number
  /** It renews this often, in ms. If that is late in its term, the term is over during the stall, and only the renewal in the socket keeps the lease. */
  readonly pace: number
}

export class Abandoner {
  readonly #world: World
  readonly #host: Host
  #lease: number | undefined
  #count = 0
  readonly #options: AbandonerOptions
  stopped = false

  constructor(world: World, host: Host, options: AbandonerOptions) {
    this.#world = world
    this.#host = host
    this.#options = options
    this.#again()
  }

  #again(): void {
    this.#world.later(this.#options.pace, () => {
      if (this.stopped) return
      this.#again()
      this.#visit()
    })
  }

  #visit(): void {
    const lease = this.#lease
    const { name, ttl } = this.#options
    const { replica, arrivedWhileStalled } = this.#host
    const { stalledSince } = this.#host.machine
    if (lease === undefined) {
      if (stalledSince === undefined) this.#ask({ kind: 'acquire', holder: name, ttl, wants: [{ resource: `${name}/${++this.#count}` }] })
      return
    }
    // This last renewal waits in the socket until the stall ends.
    if (stalledSince !== undefined) {
      this.#lease = undefined
      if (replica !== undefined) arrivedWhileStalled.set(lease, this.#world.now)
    }
    this.#ask({ kind: 'renew', leases: [lease] })
  }

  #ask(command: Command): void {
    const { machine } = this.#host
    this.#world.later(0, () => void this.#host.propose(command).then(outcome => this.#answered(command, outcome), ignored), machine, false)
  }

  #answered(command: Command, outcome: Outcome): void {
    if (outcome.kind === 'granted') this.#lease = outcome.lease
    if (command.kind === 'renew' && command.leases[0] === this.#lease && (outcome.kind !== 'renewed' || outcome.ttls[0]! <= 0))
      this.#lease = undefined
  }
}

function ignored(error: unknown): void {
  if (!(error instanceof LeaseError)) throw error
}
