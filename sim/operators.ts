/** The simulated operators: they revoke, break and transfer leases, and change policies and keys. */
import type { Command } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import type { Holder } from './holder.ts'
import type { Referee } from './referee.ts'
import type { Dice, World } from './world.ts'

/** The world in which operators act. */
export interface OperatedScene {
  readonly world: World
  readonly dice: Dice
  readonly referee: Referee
  readonly holders: readonly Holder[]
  /** Holders are programs with the real library. */
  readonly usesLibrary: boolean
  /** The key that some holders share at the moment. */
  readonly ring: { key: number }
  readonly isOver: boolean
  propose(command: Command): Promise<boolean>
  outcome(command: Command): Promise<Outcome | undefined>
}

/** Holders with a key have these scopes. */
const SCOPES = [
  { verb: 'acquire', prefix: 'x' },
  { verb: 'acquire', prefix: 'p' },
  { verb: 'register', prefix: 'e' },
] as const

export class Operators {
  readonly #scene: OperatedScene
  #keys = 0

  constructor(scene: OperatedScene) {
    this.#scene = scene
  }

  start(): void {
    this.#scene.world.later(this.#scene.dice.between(100, 700), () => {
      if (this.#scene.isOver) return
      const dice = this.#scene.dice
      const leases = [...this.#scene.referee.state.leases.values()]
      const act = dice.whole(0, 9)
      if (act < 3 && leases.length > 0) this.#revoke(dice.pick(leases).id)
      else if (act < 5) this.#breakHold(`x/${dice.whole(0, 3)}`)
      else if (act === 5 && this.#scene.holders.length > 0)
        void this.#scene.propose({ kind: 'revoke', target: { holder: dice.pick(this.#scene.holders).name }, by: 'operator' })
      else if (act === 6) this.#changePolicy()
      else if (act === 7 && leases.length > 0 && this.#scene.holders.length > 0)
        void this.#transfer(dice.pick(leases).id, dice.pick(this.#scene.holders))
      else if (act === 8) void (dice.chance(0.3) ? this.changeKey() : this.#scene.propose({ kind: 'revoke', target: { prefix: 'x/2' } }))
      else void this.#scene.propose({ kind: 'recall', resource: `x/${dice.whole(0, 3)}` })
      this.start()
    })
  }

  #revoke(lease: number): void {
    // A program under a lease that was revoked by force has no guarantee.
    const force = this.#scene.dice.chance(0.15) && !this.#scene.usesLibrary
    if (force) this.#force(lease)
    void this.#scene.propose({ kind: 'revoke', target: { lease }, force, by: 'operator' })
  }

  /** Often twice: the earlier deadline counts. */
  #breakHold(resource: string): void {
    const { dice } = this.#scene.world
    for (const after of dice.chance(0.5) ? [dice.pick([0, 100, 500])] : [dice.pick([100, 300]), dice.pick([200, 1_200])])
      void this.#scene.propose({ kind: 'break', resource, after, by: 'operator' })
  }

  #changePolicy(): void {
    const { dice } = this.#scene.world
    if (dice.chance(0.6))
      void this.#scene.propose({ kind: 'policy', prefix: `x/${dice.whole(0, 3)}`, rules: { lockDelay: dice.pick([0, 150]) } })
    else void this.#scene.propose({ kind: 'policy', prefix: 'p', rules: { capacity: dice.whole(1, 3), queue: dice.pick(['fifo', 'fit']) } })
  }

  /** Transfers without asking the holder, which may use the lease for a while yet. */
  async #transfer(lease: number, to: Holder): Promise<void> {
    const outcome = await this.#scene.outcome({ kind: 'transfer', lease, to: to.name })
    if (outcome?.kind === 'done' && outcome.id !== undefined) to.receive(outcome.id)
  }

  /** A lease revoked by force, and its descendants, are excepted from S1. */
  #force(id: number): void {
    this.#scene.referee.beliefs.forced.add(id)
    for (const lease of this.#scene.referee.state.leases.values())
      for (let above = lease.extras?.parent; above !== undefined; above = above.extras?.parent)
        if (above.id === id) this.#scene.referee.beliefs.forced.add(lease.id)
  }

  /** Replaces the shared key: holders may do nothing with the old one any more, even as waiters. */
  async changeKey(): Promise<void> {
    const old = this.#scene.ring.key
    if (old !== 0 && !(await this.#scene.propose({ kind: 'unkey', id: old }))) return
    const name = `key-${++this.#keys}`
    if (!(await this.#scene.propose({ kind: 'key', name, hash: String(this.#keys).padStart(64, '0'), allow: SCOPES }))) return
    for (const { id, name: known } of this.#scene.referee.state.keys.values()) if (known === name) this.#scene.ring.key = id
  }
}
