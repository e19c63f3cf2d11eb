/**
 * A program that uses the real library on one machine, for one life of it: locks, elections and a cache, over a replica of its own or over
 * servers far away. What it believes is told to the referee; what it does to others is done to things that look for harm.
 */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Command } from '../../kernel/command.ts'
import type { Event } from '../../kernel/event.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { beliefOf, type Lease } from '../../lease.ts'
import { Leases } from '../../leases.ts'
import type { Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../../lessor.ts'
import type { Cache } from '../../recipe/cache.ts'
import type { Term } from '../../recipe/election.ts'
import type { Replica } from '../../replica/replica.ts'
import type { Belief } from './beliefs.ts'
import { type Host, pauseOn, type Site } from './party.ts'
import { BareSet, GuardedSet, LeaderLog, type Officer, Register } from './protected.ts'
import { operationName } from './referee.ts'
import type { Dice, Machine, World } from './world.ts'

/** One of each, for everyone. */
export class Town {
  readonly guarded: GuardedSet
  readonly bare: readonly BareSet[]
  readonly office: LeaderLog
  readonly register: Register

  constructor(world: World) {
    this.guarded = new GuardedSet(world)
    this.bare = [new BareSet(world), new BareSet(world), new BareSet(world)]
    this.office = new LeaderLog(world)
    this.register = new Register(world)
  }
}

const TTLS = [300, 900, 2_000] as const

export class Application {
  readonly name: string
  readonly #site: Site
  readonly #town: Town
  readonly #host: Host
  readonly #machine: Machine
  readonly #clock: Clock
  readonly #dice: Dice
  readonly #life: number
  readonly #stop = new AbortController()

  constructor(site: Site, town: Town, host: Host) {
    this.#site = site
    this.#town = town
    this.#host = host
    this.#machine = host.machine
    this.#clock = host.machine.clock()
    this.#dice = host.machine.dice
    this.#life = host.machine.life
    this.name = `${host.machine.name}/app`
  }

  get #over(): boolean {
    return this.#stop.signal.aborted || this.#machine.life !== this.#life
  }

  /** Opens its leases again whenever its lessor has ended: after a log lost its tail, nothing else helps. */
  async live(): Promise<void> {
    while (!this.#over) {
      await pauseOn(this.#clock, 20)
      const { replica } = this.#host
      if (replica === undefined || this.#over) continue
      const leases = new Leases(new NearLessor(this.#site, this.#host, replica), { holder: this.name, clock: this.#clock, ttl: 900 })
      const ended = new AbortController()
      const end = () => ended.abort()
      replica.signal.addEventListener('abort', end, { once: true })
      this.#stop.signal.addEventListener('abort', end, { once: true })
      await Promise.all([
        ...[1, 2, 3].map(() => this.#repeat(ended.signal, () => this.#lock(leases))),
        this.#repeat(ended.signal, () => this.#lead(leases, ended.signal)),
        this.#cache(leases, ended.signal),
      ])
      replica.signal.removeEventListener('abort', end)
      this.#stop.signal.removeEventListener('abort', end)
      await leases[Symbol.asyncDispose]()
    }
  }

  stop(): void {
    this.#stop.abort()
  }

  async #repeat(signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    while (!signal.aborted && !this.#over) {
      try {
        await pauseOn(this.#clock, this.#dice.between(5, 120))
        if (!signal.aborted) await work()
      } catch (error) {
        if (!(error instanceof LeaseError) && !signal.aborted) throw error
      }
    }
  }

  #believes(lease: Lease, shared = false): Believed {
    const believed = new Believed(this.name, lease, this.#machine, shared)
    this.#site.referee.believes(believed)
    this.#site.referee.minds(believed)
    return believed
  }

  // A set, under a lock

  async #lock(leases: Leases): Promise<void> {
    const dice = this.#dice
    const ttl = dice.pick(TTLS)
    const bare = this.#town.bare[dice.whole(0, 3)]
    const name = bare === undefined ? 'set/guarded' : `set/bare/${this.#town.bare.indexOf(bare)}`
    const work = (lease: Lease) => (bare === undefined ? this.#addGuarded(lease) : this.#addBare(lease, bare))
    const way = dice.unit()
    if (way < 0.5) await leases.lock(name, { ttl, wait: dice.whole(200, 4_000) }).run(work)
    else if (way < 0.7) await leases.request(name, { ttl, ifAvailable: true }, async lease => void (lease && (await work(lease))))
    else if (way < 0.8) await this.#abortSoon(leases, name, ttl)
    else {
      const lease = await leases.acquire([name, `set/other/${dice.whole(0, 2)}`], {
        ttl,
        wait: dice.whole(200, 4_000),
        renew: dice.pick(['half', 'continuous']),
      })
      try {
        await work(lease)
        // Now and then passed on to one who may be there and may wait; else it lapses and goes to the next.
        if (dice.chance(0.2) && lease.held) await lease.transfer(`host${dice.whole(0, 2)}/app`)
      } finally {
        await lease.release()
      }
    }
  }

  /** Called off at any moment: nothing may be left behind, and nothing is believed. */
  async #abortSoon(leases: Leases, name: string, ttl: number): Promise<void> {
    const calledOff = new AbortController()
    const cancel = this.#clock.after(this.#dice.between(0, 60), () => calledOff.abort(new LeaseError('WAITED', 'called off')))
    try {
      const lease = await leases.acquire(name, { ttl, signal: calledOff.signal })
      this.#believes(lease)
      await lease.release()
    } finally {
      cancel()
    }
  }

  async #addGuarded(lease: Lease): Promise<void> {
    const believed = this.#believes(lease)
    for (let i = this.#dice.whole(1, 4); i > 0; i--) {
      const seen = await this.#call(() => this.#town.guarded.read(lease.token))
      if (seen === undefined) return
      await pauseOn(this.#clock, this.#dice.between(0, 200))
      // It does not look at its lease at all: the token alone protects the set.
      if (!(await this.#call(() => this.#town.guarded.add(lease.token, seen, this.name)))) return
      this.#site.referee.believes(believed)
    }
  }

  async #addBare(lease: Lease, bare: BareSet): Promise<void> {
    const believed = this.#believes(lease)
    for (let i = this.#dice.whole(1, 4); i > 0; i--) {
      const seen = bare.read()
      if (!lease.held) return
      await pauseOn(this.#clock, this.#dice.between(0, 200))
      if (!lease.held || this.#over) return
      bare.add(seen, this.name)
      this.#site.referee.believes(believed)
    }
  }

  /** To something far away that is not the log: it arrives, late perhaps, or the answer is lost. */
  #call<T>(what: () => T): Promise<T | undefined> {
    const { world, wire } = this.#site
    return new Promise(resolve => {
      const there = wire.out(this.#machine)
      const cancel = world.later(1_000, () => resolve(undefined), this.#machine, true, this.#life)
      if (there === undefined) return
      world.later(there, () => {
        const answer = what()
        const back = wire.back(this.#machine)
        if (back === undefined) return
        const hear = () => {
          cancel()
          resolve(answer)
        }
        world.later(back, hear, this.#machine, false, this.#life)
      })
    })
  }

  // An office

  async #lead(leases: Leases, signal: AbortSignal): Promise<void> {
    const dice = this.#dice
    const election = leases.election('boss', { ttl: dice.pick(TTLS), priority: dice.whole(0, 1), yields: dice.chance(0.3) })
    for await (const term of election.terms(signal)) {
      await this.#govern(term)
      if (dice.chance(0.3)) return
    }
  }

  async #govern(term: Term): Promise<void> {
    const { office } = this.#town
    const believed = this.#believes(term.lease)
    const lost = () => (term.lease.signal.reason as LeaseError | undefined)?.code === 'LOST'
    const officer: Officer = { who: this.name, token: term.token, givenUp: () => beliefOf(term.lease).stage === 'ended' && !lost() }
    office.begins(officer)
    const until = this.#clock.now() + this.#dice.between(50, 3_000)
    while (!term.signal.aborted && this.#clock.now() < until) {
      await pauseOn(this.#clock, this.#dice.between(5, 150))
      if (!term.lease.held) continue
      office.append(officer)
      this.#site.referee.believes(believed)
    }
    // The last of the work, after it was asked to end; or the leader resigns and clears its desk.
    if (this.#dice.chance(0.3)) term.resign(this.#dice.chance(0.3) ? `host${this.#dice.whole(0, 2)}/app` : undefined)
    await pauseOn(this.#clock, this.#dice.between(0, 100))
    office.ends(officer)
  }

  // A register, through a cache

  async #cache(leases: Leases, signal: AbortSignal): Promise<void> {
    const { register } = this.#town
    const failing = <T>(answer: T | undefined): T => {
      if (answer === undefined) throw new LeaseError('UNAVAILABLE', 'the register does not answer, or turned us away')
      return answer
    }
    let saved = 0
    const cache: Cache<number> = leases.cache('reg', {
      ttl: 1_000,
      load: async (_, { token }) => failing(await this.#call(() => register.load(token))),
      save: async (_key, _value, { token }) => {
        saved = failing(await this.#call(() => register.save(token)))
      },
    })
    await Promise.all([
      this.#repeat(signal, async () => register.served(await cache.get('v'), this.name)),
      this.#repeat(signal, async () => {
        await pauseOn(this.#clock, this.#dice.between(200, 1_500))
        saved = 0
        await cache.write('v', 0, { wait: 3_000 })
        register.completed(saved)
      }),
    ])
    await cache[Symbol.asyncDispose]()
  }
}

/** What the real library believes, asked without asking it: a question would make it look at its clocks. */
class Believed implements Belief {
  readonly who: string
  readonly lease: number
  readonly grants: Belief['grants']
  readonly #lease: Lease
  readonly #machine: Machine
  readonly #life: number

  constructor(who: string, lease: Lease, machine: Machine, shared: boolean) {
    this.who = who
    this.lease = lease.id
    this.#lease = lease
    this.#machine = machine
    this.#life = machine.life
    this.grants = lease.resources.map(resource => ({ resource, units: shared ? 0 : 1, shared, token: lease.tokens[resource]! }))
  }

  holds(): boolean {
    if (this.#machine.life !== this.#life) return false
    const belief = beliefOf(this.#lease)
    if (belief.stage !== 'held' || belief.sent.number <= belief.keeper.doubted) return false
    return belief.left(this.#machine.monotonic(), this.#machine.uptime()) > 0
  }

  /** Whoever runs at all has been told. */
  told(): boolean {
    const { life, stalledSince, lastStall, world } = this.#machine
    return life !== this.#life || stalledSince !== undefined || lastStall.to >= world.now || this.#lease.signal.aborted
  }
}

/** The replica of one's own process, watched by the referee. It ends with that replica, and never answers in a life that is over. */
class NearLessor implements Lessor {
  readonly #site: Site
  readonly #host: Host
  readonly #replica: Replica
  readonly #life: number
  readonly #firstSent = new Map<string, number>()

  constructor(site: Site, host: Host, replica: Replica) {
    this.#site = site
    this.#host = host
    this.#replica = replica
    this.#life = host.machine.life
  }

  get profile() {
    return this.#replica.profile
  }

  get signal() {
    return this.#replica.signal
  }

  /** What is collected as garbage may still say farewell. */
  get #dead(): boolean {
    return this.#host.machine.life !== this.#life || this.#host.replica !== this.#replica
  }

  async propose(command: Command, { op, key = 0 }: ProposeOptions = {}): Promise<Outcome> {
    if (this.#dead) return never()
    const { referee, world } = this.#site
    const name = op && operationName(key, op)
    // Whoever asks again may be told what was answered to the first time, and counts from then.
    const sent = (name === undefined ? undefined : this.#firstSent.get(name)) ?? world.now
    if (name !== undefined) this.#firstSent.set(name, sent)
    if (command.kind === 'release' || command.kind === 'transfer') referee.givenUp.add(command.lease)
    try {
      const outcome = await this.#host.propose(command, op, key)
      if (outcome.kind === 'granted') referee.acknowledged(outcome.lease, sent, outcome.ttl)
      if (outcome.kind === 'renewed' && command.kind === 'renew' && command.waiting !== true)
        for (const [i, lease] of command.leases.entries()) if (outcome.ttls[i]! > 0) referee.acknowledged(lease, sent, outcome.ttls[i]!)
      return outcome
    } catch (error) {
      if (name !== undefined && op?.again !== true && error instanceof LeaseError && error.code === 'UNAVAILABLE') referee.failed(name)
      throw error
    }
  }

  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.#dead ? never() : this.#replica.read(query, options)
  }

  watch(prefix: string, options: WatchOptions): AsyncIterable<readonly Event[]> {
    return this.#replica.watch(prefix, options)
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

function never<T>(): Promise<T> {
  return new Promise(() => {})
}
