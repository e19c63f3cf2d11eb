/** Simulated holders that keep the time law: they count from before they sent, subtract a margin, and stop before they release. */
import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import type { Acquire, Command } from '../src/kernel/command.ts'
import { UNCLAIMED } from '../src/kernel/state/leases.ts'
import { operationName } from './answers.ts'
import type { ObservedBelief } from './beliefs.ts'
import { type LessorAccess, pauseOn, type Site } from './participants.ts'
import { poolWish } from './pools.ts'
import type { Dice, Machine } from './world.ts'

/** The margin that a holder subtracts for clocks whose rates differ. */
const DELTA = 0.01

export interface Habits {
  readonly ttls: readonly number[]
  /** Renews without reading the answers, as a plain client of a protocol may. */
  readonly blind: boolean
  /** The key that it has at the moment, if any: it allows `x`, `p` and `e`, and nothing else. */
  readonly ring?: { readonly key: number } | undefined
  /** Never acknowledges answers: the log keeps them all for it. */
  readonly forgetful: boolean
  /** Sometimes asks for very long terms. */
  readonly long: boolean
  /** Offers members of a pool, and takes them. */
  readonly pools: boolean
}

const LONG = 45_000
/** The greatest depth of leases under leases. */
const DEPTH = 3

export class Holder {
  readonly name: string
  readonly #site: Site
  readonly #machine: Machine
  readonly #door: LessorAccess
  readonly #habits: Habits
  readonly #clock: Clock
  readonly #dice: Dice
  readonly #life: number
  readonly #session: string
  #seq = 0
  /** Operations that were sent and not answered yet, oldest first. */
  readonly #asking = new Set<number>()
  #key = 0
  #incarnation: number | undefined
  /** Its last lease: late work carries its token. */
  #late: Held | undefined
  /** Its last few leases: a process that was replaced may still use them. */
  readonly #had: number[] = []
  /** Leases transferred to this holder, other than those that it asked for. */
  readonly #inbox: number[] = []
  peers: readonly Holder[] = []
  stopped = false

  constructor(site: Site, machine: Machine, door: LessorAccess, name: string, habits: Habits) {
    this.#site = site
    this.#machine = machine
    this.#door = door
    this.#habits = habits
    this.name = name
    this.#clock = machine.clock()
    this.#dice = machine.dice
    this.#life = machine.life
    this.#session = `${name}.${machine.life}`
  }

  async live(): Promise<void> {
    while (!this.stopped && this.#machine.life === this.#life) {
      try {
        await pauseOn(this.#clock, this.#dice.between(5, 150))
        this.#key = this.#habits.ring?.key ?? 0
        if (this.#dice.chance(0.03)) await this.#intrude()
        if (this.#late !== undefined && this.#dice.chance(0.1)) await this.#fence(this.#late)
        const inherited = this.#inbox.shift()
        if (inherited !== undefined) await this.#adoptTransferred(inherited)
        else await this.#cycle()
      } catch (error) {
        if (!(error instanceof LeaseError)) throw error
      }
    }
  }

  /** Every change has an operation of its own. */
  async #propose(command: Command): Promise<Awaited<ReturnType<LessorAccess['propose']>>> {
    const seq = ++this.#seq
    this.#asking.add(seq)
    const [oldest] = this.#asking
    const op = { session: this.#session, seq, acked: this.#habits.forgetful ? 0 : oldest! - 1 }
    try {
      return await this.#door.propose(command, command.kind === 'renew' ? undefined : op, this.#key)
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'UNAVAILABLE') this.#site.referee.answers.failed(operationName(this.#key, op))
      throw error
    } finally {
      this.#asking.delete(seq)
    }
  }

  #wish(): Acquire {
    const dice = this.#dice
    const ttl = dice.pick(this.#habits.ttls)
    if (this.#habits.pools && dice.chance(0.7)) return poolWish(dice, this.name, ttl, this.#incarnation)
    const wait = dice.chance(0.6)
    const kind = dice.whole(0, 9)
    const wants =
      kind < 5
        ? [{ resource: `x/${dice.whole(0, 3)}` }]
        : kind < 6
          ? [{ resource: 'x/0' }, { resource: 'x/1' }]
          : kind < 7
            ? [{ resource: `s/${dice.whole(0, 1)}`, shared: dice.chance(0.6) }]
            : kind < 9
              ? [{ resource: `p/${dice.whole(0, 1)}`, units: dice.whole(1, 2) }]
              : []
    const base: Acquire = {
      kind: 'acquire',
      holder: this.name,
      ttl,
      wants,
      ...(this.#incarnation !== undefined && { incarnation: this.#incarnation }),
    }
    if (wants.length === 0) return { ...base, entries: [{ key: this.#entry(), value: `${this.#seq}` }], ...this.#asReplaced() }
    if (dice.chance(0.1)) return { ...base, wait: true, wants: [{ resource: 'x/2' }, { resource: 'x/3' }], any: 1 }
    if (dice.chance(0.03)) return { ...base, wait: true, steal: dice.chance(0.2) ? 'force' : 'after' }
    if (this.#habits.long && dice.chance(0.03)) return { ...base, ttl: LONG, wants: [{ resource: 'l/0' }] }
    return {
      ...base,
      ...(wait && { wait }),
      ...(dice.chance(0.1) && wait && { recall: true }),
      ...(dice.chance(0.15) && { priority: dice.whole(-1, 2) }),
    }
  }

  #entry(): string {
    return `e/${this.name}/${this.#dice.whole(0, 1)}`
  }

  /** Now and then, an earlier process of this holder that has not noticed that it was replaced. */
  #asReplaced(): { readonly incarnation?: number } {
    const past = this.#site.incarnations.get(this.name) ?? []
    return past.length > 1 && this.#dice.chance(0.2) ? { incarnation: this.#dice.pick(past) } : {}
  }

  /** Tries what only the holder of a lease may do, with a key of its own. */
  async #intrude(): Promise<void> {
    const leases = [...this.#site.referee.state.leases.values()]
    if (this.#key === 0 || leases.length === 0) return
    const { id, key } = this.#dice.pick(leases)
    // The first process to claim an unclaimed lease may have it.
    if (key === this.#key || key === UNCLAIMED) return
    await this.#propose({ kind: 'renew', leases: [id] }).catch(ignoreLeaseErrors)
    await this.#propose({ kind: 'release', lease: id }).catch(ignoreLeaseErrors)
  }

  #learn(lease: number, incarnation: number): void {
    this.#had.push(lease)
    if (this.#had.length > 4) this.#had.shift()
    if (this.#incarnation !== undefined) return
    this.#incarnation = incarnation
    const past = this.#site.incarnations.get(this.name) ?? []
    this.#site.incarnations.set(this.name, [...past.slice(-3), incarnation])
  }

  async #cycle(): Promise<void> {
    const { referee, world } = this.#site
    const wish = this.#wish()
    const held = new Held(this.name, this.#clock)
    const sent = held.mark(world.now)
    const outcome = await this.#propose(wish)
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued') return
    this.#learn(outcome.lease, outcome.incarnation)
    held.lease = outcome.lease
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
      this.#believes(held)
    }
    await this.#hold(held)
  }

  /** Writes to its resource, which checks the token. */
  #believes(held: Held): void {
    const { referee } = this.#site
    referee.beliefs.begins(held)
    for (const { resource, token } of held.grants) if (resource.startsWith('x/')) referee.beliefs.writes(held, resource, token)
  }

  /** Keeps its place; uses the lease only after a renewal that it sent after the event of its grant is acknowledged. */
  async #waitFor(held: Held, term: number, choosing: boolean): Promise<boolean> {
    const { referee, world } = this.#site
    const timeout = this.#dice.between(200, 4_000)
    const began = this.#clock.now()
    let renewed = this.#clock.now()
    while (!this.stopped) {
      await pauseOn(this.#clock, this.#dice.between(20, 60))
      if (this.#clock.now() - began > timeout) {
        await this.#release(held)
        return false
      }
      try {
        const view = await this.#door.lease(held.lease)
        if (view === undefined) return false
        if (view.status === 'live') {
          held.grants = view.grants.map(({ resource, units, shared, token }) => ({ resource, units: shared ? 0 : units, shared, token }))
          const sent = held.mark(world.now)
          const outcome = await this.#propose({ kind: 'renew', leases: [held.lease] })
          const ttl = outcome.kind === 'renewed' ? outcome.ttls[0]! : -1
          if (ttl <= 0) return false
          referee.terms.acknowledged(held.lease, sent.world, ttl)
          held.believe(sent, ttl)
          if (held.holds()) this.#believes(held)
          return true
        }
        if (view.status !== 'waiting') return false
        if (choosing && this.#dice.chance(0.1))
          await this.#propose({ kind: 'widen', lease: held.lease, wants: [{ resource: `x/${this.#dice.whole(0, 3)}` }] })
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

  /** Holds for a while and renews; then releases, transfers, or simply stops, like a process that died. */
  async #hold(held: Held): Promise<void> {
    const dice = this.#dice
    const until = this.#clock.now() + dice.between(10, 3_000)
    const child = held.grants.length === 0 && dice.chance(0.6) ? this.#child(held) : undefined
    if (this.#habits.blind && dice.chance(0.7)) await this.#renewBlindly(held, until)
    else
      while (!this.stopped && this.#clock.now() < until && held.holds()) {
        await pauseOn(this.#clock, Math.max(5, held.remaining() / 2))
        if (this.stopped || !held.holds()) break
        await this.#renew(held)
      }
    await child
    if (held.grants.length === 0) await this.#register(held)
    else if (dice.chance(0.15)) await this.#wantMore(held)
    if (dice.chance(0.1)) await this.#fence(held)
    this.#late = held
    const way = dice.unit()
    if (way < 0.25) return held.stop() // like a crash: its own clock ends the lease, and the replicas' timers do
    // A stopped holder must not transfer: the new lease would outlive the calm period at the end of a run.
    if (way < 0.35 && !this.stopped && held.grants.length > 0 && held.holds()) return this.#transfer(held)
    await this.#release(held)
  }

  /** Changes the entries of its lease, or deletes those of a former one. */
  async #register(held: Held): Promise<void> {
    const dice = this.#dice
    if (dice.chance(0.3)) await this.#propose({ kind: 'put', lease: held.lease, key: this.#entry(), value: `${this.#seq}` })
    if (dice.chance(0.2)) await this.#propose({ kind: 'delete', key: this.#entry(), lease: dice.pick(this.#had) })
  }

  /** Shows its token to the kernel's fence, in time or not. */
  async #fence(held: Held): Promise<void> {
    const grant = held.grants.find(({ resource }) => resource.startsWith('x/'))
    if (grant === undefined) return
    await this.#propose({ kind: 'fence', resource: grant.resource, token: grant.token })
  }

  /** Waits for a second resource while it keeps the first, and declares it: another holder may do the same in reverse order. */
  async #wantMore(first: Held): Promise<void> {
    const resource = `x/${this.#dice.whole(0, 3)}`
    const ttl = this.#dice.pick(this.#habits.ttls)
    const wish: Acquire = { kind: 'acquire', holder: this.name, ttl, wants: [{ resource }], wait: true, holding: [first.lease] }
    const outcome = await this.#propose(wish)
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued') return
    this.#learn(outcome.lease, outcome.incarnation)
    const until = this.#clock.now() + this.#dice.between(100, 1_500)
    while (!this.stopped && first.holds() && this.#clock.now() < until) {
      await pauseOn(this.#clock, Math.max(5, Math.min(first.remaining(), ttl) / 2))
      if (this.stopped || !first.holds()) break
      await this.#renew(first)
      await this.#propose({ kind: 'renew', leases: [outcome.lease], waiting: true })
    }
    this.#site.referee.givenUp.add(outcome.lease)
    await this.#propose({ kind: 'release', lease: outcome.lease })
  }

  async #renew(held: Held): Promise<void> {
    const { referee, world } = this.#site
    const sent = held.mark(world.now)
    try {
      const outcome = await this.#propose({ kind: 'renew', leases: [held.lease] })
      if (outcome.kind !== 'renewed') return
      const ttl = outcome.ttls[0]!
      if (ttl <= 0) return held.stop()
      referee.terms.acknowledged(held.lease, sent.world, ttl)
      // A lease that expired by the holder's own clock stays lost: the application may have been told.
      if (!held.holds()) return
      held.believe(sent, ttl)
      this.#believes(held)
    } catch (error) {
      if (!(error instanceof LeaseError)) throw error
      await pauseOn(this.#clock, 20)
    }
  }

  /** Sends renewals and does not wait for the answers. */
  async #renewBlindly(held: Held, until: number): Promise<void> {
    held.stop()
    while (!this.stopped && this.#clock.now() < until) {
      void this.#door.propose({ kind: 'renew', leases: [held.lease] }, undefined, this.#key).catch(() => {})
      await pauseOn(this.#clock, 60)
    }
  }

  async #child(parent: Held, depth = 1): Promise<void> {
    const { referee, world } = this.#site
    const child = new Held(this.name, this.#clock)
    const sent = child.mark(world.now)
    const resource = `x/${this.#dice.whole(0, 3)}`
    try {
      const outcome = await this.#propose({ kind: 'acquire', holder: this.name, ttl: 1_000, wants: [{ resource }], parent: parent.lease })
      if (outcome.kind !== 'granted') return
      child.lease = outcome.lease
      child.grants = [{ resource, units: 1, shared: false, token: outcome.tokens[0]! }]
      referee.terms.acknowledged(outcome.lease, sent.world, outcome.ttl)
      child.believe(sent, outcome.ttl)
      this.#believes(child)
      parent.children.push(child)
      const below = depth < DEPTH && this.#dice.chance(0.4) ? this.#child(child, depth + 1) : undefined
      const until = this.#clock.now() + this.#dice.between(50, 2_000)
      while (!this.stopped && child.holds() && this.#clock.now() < until) {
        await pauseOn(this.#clock, Math.max(5, child.remaining() / 2))
        if (!this.stopped && child.holds()) await this.#renew(child)
      }
      await below
      if (this.#dice.chance(0.5)) await this.#release(child)
    } catch (error) {
      if (!(error instanceof LeaseError)) throw error
    }
  }

  async #release(held: Held): Promise<void> {
    held.stop()
    this.#site.referee.givenUp.add(held.lease)
    // What hangs on it is given up with it, or left to itself.
    const stopped = held.below().filter(() => this.#dice.chance(0.5))
    for (const child of stopped) child.stop()
    for (const { lease } of stopped) this.#site.referee.givenUp.add(lease)
    const named = stopped.length > 0 ? { stopped: stopped.map(({ lease }) => lease) } : {}
    await this.#propose({ kind: 'release', lease: held.lease, ...named }).catch(ignoreLeaseErrors)
    // Work that was still on its way when the holder stopped: the resource refuses it after a newer token.
    if (this.#dice.chance(0.2))
      for (const { resource, token } of held.grants) if (resource.startsWith('x/')) this.#site.referee.beliefs.writes(held, resource, token)
  }

  async #transfer(held: Held): Promise<void> {
    const to = this.#dice.pick(this.peers)
    held.stop()
    this.#site.referee.givenUp.add(held.lease)
    const outcome = await this.#propose({ kind: 'transfer', lease: held.lease, to: to.name, stopped: true })
    if (outcome.kind === 'done' && outcome.id !== undefined) to.receive(outcome.id)
  }

  /** Takes a lease that was transferred to it. */
  receive(lease: number): void {
    if (!this.#had.includes(lease)) this.#inbox.push(lease) // otherwise it answers a request that waits
  }

  /** A lease that another holder transferred: renewed first, used then. */
  async #adoptTransferred(lease: number): Promise<void> {
    const held = new Held(this.name, this.#clock)
    held.lease = lease
    if (await this.#waitFor(held, 1_000, false)) await this.#hold(held)
  }
}

function ignoreLeaseErrors(error: unknown): void {
  if (!(error instanceof LeaseError)) throw error
}

export interface Mark {
  readonly now: number
  readonly uptime: number
  readonly world: number
}

/** A lease with the holder's own view of its validity. */
export class Held implements ObservedBelief {
  readonly who: string
  readonly #clock: Clock
  lease = 0
  grants: ObservedBelief['grants'] = []
  covers = false
  /** Leases acquired under it. */
  readonly children: Held[] = []
  #until = { now: Number.NEGATIVE_INFINITY, uptime: Number.NEGATIVE_INFINITY }

  constructor(who: string, clock: Clock) {
    this.who = who
    this.#clock = clock
  }

  /** Before anything is sent. */
  mark(world: number): Mark {
    return { now: this.#clock.now(), uptime: this.#clock.uptime(), world }
  }

  believe(sent: Mark, term: number): void {
    // Count from before the request was sent: the lessor cannot have started our term any earlier.
    const valid = term * (1 - DELTA)
    this.#until = { now: sent.now + valid, uptime: sent.uptime + valid }
  }

  holds(): boolean {
    return this.#clock.now() < this.#until.now && this.#clock.uptime() < this.#until.uptime
  }

  remaining(): number {
    return Math.max(0, Math.min(this.#until.now - this.#clock.now(), this.#until.uptime - this.#clock.uptime()))
  }

  /** All its descendants. */
  below(): readonly Held[] {
    return this.children.flatMap(child => [child, ...child.below()])
  }

  /** Stops using the lease, for good. */
  stop(): void {
    this.#until = { now: Number.NEGATIVE_INFINITY, uptime: Number.NEGATIVE_INFINITY }
  }
}
