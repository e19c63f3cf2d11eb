/**
 * A simulated holder that combines features on the few names of the combined world: while one of its leases is held, another one waits; it passes leases
 * on to holders that wait for something else, gives back parts of them, widens, extends and renews with other ttls. It keeps the time law, as holder.ts does.
 */
import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import type { Acquire, Command } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { Held } from './holder.ts'
import { mixedPoolWish, mixedWish, NAMES, TTLS } from './mixed-wishes.ts'
import { type LessorAccess, pauseOn, type Site } from './participants.ts'
import type { Dice, Machine } from './world.ts'

/** The holders of one world tell each other here, outside the log, which leases wait for a process of their name. */
export class Board {
  readonly #offered = new Map<string, number[]>()

  /** All leases that were ever offered: processes that adopt one renew it, even if another one of their name waited for it. */
  readonly #everOffered = new Set<number>()

  offer(name: string, lease: number): void {
    this.#everOffered.add(lease)
    this.#offered.set(name, [...(this.#offered.get(name) ?? []).slice(-4), lease])
  }

  /** The leases for a name. Each process of the name may try: only one of them can have a lease. */
  leasesFor(name: string): readonly number[] {
    return this.#offered.get(name) ?? []
  }

  wasOffered(lease: number): boolean {
    return this.#everOffered.has(lease)
  }

  taken(name: string, lease: number): void {
    this.#offered.set(
      name,
      this.leasesFor(name).filter(other => other !== lease),
    )
  }
}

export interface MixedHolderOptions {
  readonly name: string
  /** Tells its operations from those of other processes of the same name. */
  readonly session: string
  readonly board: Board
  /** The names to which it passes leases on. */
  readonly peers: readonly string[]
}

export class MixedHolder {
  readonly name: string
  readonly #site: Site
  readonly #machine: Machine
  readonly #door: LessorAccess
  readonly #clock: Clock
  readonly #dice: Dice
  readonly #life: number
  readonly #options: MixedHolderOptions
  #seq = 0
  #incarnation: number | undefined
  /** Its leases that it uses now: parents of others. */
  readonly #held = new Set<Held>()
  /** Leases that one of its two loops has adopted. The other must not use them too: it would believe in a lease that the first has given back. */
  readonly #adopted = new Set<number>()
  /** The leases that it asked for and waits for itself. */
  readonly #requested = new Set<number>()
  stopped = false

  constructor(site: Site, machine: Machine, door: LessorAccess, options: MixedHolderOptions) {
    this.#site = site
    this.#machine = machine
    this.#door = door
    this.#options = options
    this.name = options.name
    this.#clock = machine.clock()
    this.#dice = machine.dice
    this.#life = machine.life
  }

  stop(): void {
    this.stopped = true
  }

  async live(): Promise<void> {
    await Promise.all([this.#loop(), this.#loop()])
  }

  async #loop(): Promise<void> {
    const { board } = this.#options
    while (!this.stopped && this.#machine.life === this.#life) {
      try {
        await pauseOn(this.#clock, this.#dice.between(5, 120))
        const offered = this.#dice.chance(0.6) ? board.leasesFor(this.name) : []
        if (offered.length > 0) await this.#adopt(this.#dice.pick(offered))
        else await this.#cycle()
      } catch (error) {
        if (!(error instanceof LeaseError)) throw error
      }
    }
  }

  /** The last part of the keys of its entries. */
  get #own(): string {
    return this.#options.session
  }

  #propose(command: Command): Promise<Outcome> {
    const seq = ++this.#seq
    const op = { session: this.#options.session, seq, acked: Math.max(0, seq - 40) }
    return this.#door.propose(command, command.kind === 'renew' ? undefined : op)
  }

  #wish(): Acquire {
    const dice = this.#dice
    const base = {
      ...{ kind: 'acquire' as const, holder: this.name, ttl: dice.pick(TTLS) },
      ...(this.#incarnation !== undefined && { incarnation: this.#incarnation }),
    } as const
    const wish = dice.chance(0.55) ? mixedWish(dice, base, this.#own) : mixedPoolWish(dice, base, this.#own)
    const [parent] = this.#held
    return parent !== undefined && dice.chance(0.3) ? { ...wish, parent: parent.lease } : wish
  }

  async #cycle(): Promise<void> {
    const { referee, world } = this.#site
    const wish = this.#wish()
    const held = new Held(this.name, this.#clock)
    const sent = held.mark(world.now)
    const outcome = await this.#propose(wish)
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued') return
    this.#incarnation ??= outcome.incarnation
    held.lease = outcome.lease
    // A reservation needs no process until its window: then every process of the name may come for it.
    if (wish.pool?.from !== undefined && this.#dice.chance(0.8)) return this.#options.board.offer(this.name, outcome.lease)
    this.#requested.add(outcome.lease)
    if (outcome.kind === 'queued') {
      if (!(await this.#waitFor(held, outcome.ttl, wish.any !== undefined))) return
    } else {
      referee.terms.acknowledged(outcome.lease, sent.world, outcome.ttl)
      const wanted = new Map(wish.wants.map(want => [want.resource, want]))
      held.grants = outcome.resources.map((resource, i) => {
        const { units = 1, shared = false } = wanted.get(resource) ?? {}
        return { resource, units: shared ? 0 : units, shared, token: outcome.tokens[i]! }
      })
      held.believe(sent, outcome.ttl)
      referee.beliefs.begins(held)
    }
    await this.#hold(held)
  }

  /** Keeps its place, sometimes widens its choice, and uses the lease after a renewal of its own. */
  async #waitFor(held: Held, term: number, choosing: boolean): Promise<boolean> {
    const dice = this.#dice
    const until = this.#clock.now() + dice.between(200, 3_000)
    let renewed = this.#clock.now()
    while (!this.stopped) {
      await pauseOn(this.#clock, dice.between(20, 60))
      if (this.#clock.now() > until) {
        await this.#release(held)
        return false
      }
      try {
        const view = await this.#door.lease(held.lease)
        if (view?.status === 'live') return await this.#confirm(held)
        if (view?.status !== 'waiting') return false
        if (choosing && dice.chance(0.15))
          await this.#propose({
            kind: 'widen',
            lease: held.lease,
            wants: [{ resource: dice.pick(NAMES), ...(dice.chance(0.3) && { shared: true }) }],
          })
        if (this.#clock.now() - renewed > term / 3) {
          renewed = this.#clock.now()
          await this.#propose({ kind: 'renew', leases: [held.lease], waiting: true })
        }
      } catch (error) {
        if (!(error instanceof LeaseError)) throw error
      }
    }
    return false
  }

  async #confirm(held: Held): Promise<boolean> {
    const { referee, world } = this.#site
    const sent = held.mark(world.now)
    const outcome = await this.#propose({ kind: 'renew', leases: [held.lease] })
    const ttl = outcome.kind === 'renewed' ? outcome.ttls[0]! : -1
    if (ttl <= 0) return false
    const view = await this.#door.lease(held.lease)
    if (view === undefined) return false
    held.grants = view.grants.map(({ resource, units, shared, token }) => ({ resource, units: shared ? 0 : units, shared, token }))
    referee.terms.acknowledged(held.lease, sent.world, ttl)
    held.believe(sent, ttl)
    if (held.holds()) referee.beliefs.begins(held)
    return held.holds()
  }

  async #hold(held: Held): Promise<void> {
    const dice = this.#dice
    const offers = held.grants.length === 0 // an offer of members, or what is left of a lease
    const until = this.#clock.now() + (offers ? dice.between(2_000, 6_000) : dice.between(50, 2_000))
    this.#held.add(held)
    try {
      while (!this.stopped && this.#clock.now() < until && held.holds()) {
        await pauseOn(this.#clock, Math.max(5, Math.min(held.remaining() / 2, 250)))
        if (this.stopped || !held.holds()) break
        await this.#renew(held)
        if (held.holds() && dice.chance(0.35)) await this.#change(held)
      }
    } finally {
      this.#held.delete(held)
    }
    const way = dice.unit()
    if (way < 0.25) return held.stop() // like a crash
    if (way < 0.6 && !this.stopped && held.grants.length > 0 && held.holds()) return this.#transfer(held)
    await this.#release(held)
  }

  async #renew(held: Held, ttl?: number): Promise<void> {
    const { referee, world } = this.#site
    const sent = held.mark(world.now)
    const outcome = await this.#propose({ kind: 'renew', leases: [held.lease], ...(ttl !== undefined && { ttl }) })
    if (outcome.kind !== 'renewed') return
    const term = outcome.ttls[0]!
    if (term <= 0) return held.stop()
    referee.terms.acknowledged(held.lease, sent.world, term)
    if (!held.holds()) return
    held.believe(sent, term)
    referee.beliefs.begins(held)
  }

  /** Changes the lease while it is held. */
  async #change(held: Held): Promise<void> {
    const dice = this.#dice
    const state = findLease(this.#site.referee.state, held.lease)
    const { lease, grants } = held
    const act = dice.whole(0, 3)
    if (act === 0) await this.#renew(held, dice.pick([1_500, 3_500]))
    // A holder under notice often gives back what it was asked for, and keeps the rest.
    if (act === 1 || (state?.extras?.recalled === true && dice.chance(0.5))) await this.#releasePart(held)
    if (state?.extras?.pool !== undefined && state.extras.maxLife > 0 && dice.chance(0.5))
      await this.#propose({ kind: 'extend', lease, by: dice.whole(100, 800) })
    if (act === 3) await this.#propose({ kind: 'put', lease, key: `e/${dice.chance(0.4) ? 'short' : 'long'}/${this.#own}`, value: 'x' })
    if (act === 2 && grants.length > 0) await this.#propose({ kind: 'recall', resource: dice.pick(grants).resource })
  }

  async #releasePart(held: Held): Promise<void> {
    const grant = held.grants.length === 0 ? undefined : this.#dice.pick(held.grants)
    if (grant === undefined) return
    held.grants = held.grants.filter(other => other !== grant)
    await this.#propose({ kind: 'release', lease: held.lease, resource: grant.resource })
  }

  async #release(held: Held): Promise<void> {
    held.stop()
    this.#site.referee.givenUp.add(held.lease)
    await this.#propose({ kind: 'release', lease: held.lease }).catch(ignoreLeaseErrors)
  }

  /** To a name alone, or to a process that is known to wait. */
  async #transfer(held: Held): Promise<void> {
    const { board, peers } = this.#options
    const to = this.#dice.pick(peers)
    held.stop()
    this.#site.referee.givenUp.add(held.lease)
    const waiter = [...this.#site.referee.state.leases.values()].find(({ holder }) => holder.name === to)
    const named = waiter !== undefined && this.#dice.chance(0.3) ? { incarnation: waiter.incarnation } : {}
    const outcome = await this.#propose({ kind: 'transfer', lease: held.lease, to, stopped: true, ...named })
    if (outcome.kind === 'done' && outcome.id !== undefined) board.offer(to, outcome.id)
  }

  /** Takes a lease that was transferred to its name, or that it had reserved. Several processes of one name may try. */
  async #adopt(lease: number): Promise<void> {
    if (this.#adopted.has(lease)) return this.#options.board.taken(this.name, lease)
    // A lease that answers a request which waits is used by that request.
    if (this.#requested.has(lease)) return this.#options.board.taken(this.name, lease)
    this.#adopted.add(lease)
    try {
      const held = new Held(this.name, this.#clock)
      held.lease = lease
      if ((await this.#claim(lease)) && (await this.#confirm(held))) await this.#hold(held)
    } finally {
      this.#adopted.delete(lease)
    }
  }

  /** As the library does: a lease must be claimed, since a renewal does not say which process sent it. */
  async #claim(lease: number): Promise<boolean> {
    const { board } = this.#options
    const view = await this.#door.lease(lease)
    if (view?.status === 'waiting' && this.#dice.chance(0.9)) return false
    if (view?.status === 'live') {
      const incarnation = this.#incarnation
      const claimed = await this.#propose({ kind: 'claim', lease, ...(incarnation !== undefined && { incarnation }) })
      if (claimed.kind === 'done') return true
      if (claimed.kind === 'refused' && claimed.reason === 'claimed' && claimed.facts.incarnation === incarnation) return true
    }
    board.taken(this.name, lease)
    return false
  }
}

function ignoreLeaseErrors(error: unknown): void {
  if (!(error instanceof LeaseError)) throw error
}
