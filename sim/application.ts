/**
 * A program that uses the real library on one machine until the machine is killed: locks, elections and a cache, over a local replica or over
 * remote servers. It reports the leases that it uses to the referee. The objects that it changes (protected.ts) detect conflicting changes.
 */
import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import { heldLeaseOf, type Lease } from '../src/lease.ts'
import { Leases } from '../src/leases.ts'
import type { Lessor } from '../src/lessor.ts'
import type { Cache } from '../src/recipe/cache.ts'
import type { Term } from '../src/recipe/election.ts'
import { Believed } from './believed.ts'
import { ObservedLessor } from './observed.ts'
import { pauseOn, type Site } from './participants.ts'
import { BareSet, GuardedSet, LeaderLog, type Officer, Register } from './protected.ts'
import type { Dice, Machine, World } from './world.ts'

/** The protected objects, shared by all programs. */
export class ApplicationWorld {
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

export interface ApplicationOptions {
  readonly machine: Machine
  /** Opens a local or remote lessor. Undefined, or a LeaseError, while it cannot be reached. */
  readonly connect: () => Promise<Lessor | undefined>
  /** Other programs, to which it transfers leases. */
  readonly peers: readonly string[]
  /** True if it watches all events through its lessor, for the referee. */
  readonly watches: boolean
}

export function applicationOn(machine: Pick<Machine, 'name'>): string {
  return `${machine.name}/app`
}

export class Application {
  readonly name: string
  readonly #site: Site
  readonly #applicationWorld: ApplicationWorld
  readonly #connect: ApplicationOptions['connect']
  readonly #peers: readonly string[]
  readonly #watches: boolean
  readonly #machine: Machine
  readonly #clock: Clock
  readonly #dice: Dice
  readonly #life: number
  readonly #stop = new AbortController()
  #ended = false
  /** Rejects when the machine is killed. Does not settle before. */
  readonly #killed: Promise<never>

  constructor(site: Site, applicationWorld: ApplicationWorld, { machine, connect, peers, watches }: ApplicationOptions) {
    this.#site = site
    this.#applicationWorld = applicationWorld
    this.#connect = connect
    this.#peers = peers
    this.#watches = watches
    this.#machine = machine
    this.#clock = machine.clock()
    this.#dice = machine.dice
    this.#life = machine.life
    this.name = applicationOn(machine)
    this.#killed = new Promise((_, reject) => machine.mourners.add(() => reject(new LeaseError('LOST', 'killed'))))
    this.#killed.catch(() => {})
  }

  get #over(): boolean {
    return this.#stop.signal.aborted || this.#machine.life !== this.#life
  }

  /** It sends no command any more. One that was stopped may wait for an answer that was lost, and sends its last commands again. */
  get hasEnded(): boolean {
    return this.#ended || this.#machine.life !== this.#life || !this.#machine.alive
  }

  async live(): Promise<void> {
    await this.#live()
    this.#ended = true
  }

  /** Opens a new lessor whenever the last one has ended: a lessor does not survive a log that lost its tail. */
  async #live(): Promise<void> {
    while (!this.#over) {
      await pauseOn(this.#clock, 20)
      const there = await this.#reach()
      if (there === undefined || this.#over) continue
      const lessor = new ObservedLessor(this.#site, this.#machine, there)
      const leases = new Leases(lessor, { holder: this.name, clock: this.#clock, ttl: 900 })
      const ended = new AbortController()
      const end = () => ended.abort()
      lessor.signal.addEventListener('abort', end, { once: true })
      this.#stop.signal.addEventListener('abort', end, { once: true })
      await Promise.all([
        ...[1, 2, 3].map(() => this.#repeat(ended.signal, () => this.#lock(leases))),
        this.#repeat(ended.signal, () => this.#lead(leases, ended.signal)),
        this.#cache(leases, ended.signal),
        this.#watches ? lessor.observe(ended.signal) : undefined,
      ])
      lessor.signal.removeEventListener('abort', end)
      this.#stop.signal.removeEventListener('abort', end)
      await leases[Symbol.asyncDispose]()
      await there[Symbol.asyncDispose]()
    }
  }

  async #reach(): Promise<Lessor | undefined> {
    try {
      return await this.#connect()
    } catch (error) {
      if (!(error instanceof LeaseError)) throw error
      return undefined
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
    this.#site.referee.beliefs.begins(believed)
    this.#site.referee.beliefs.watch(believed)
    return believed
  }

  // A set, under a lock

  async #lock(leases: Leases): Promise<void> {
    const dice = this.#dice
    const ttl = dice.pick(TTLS)
    const bare = this.#applicationWorld.bare[dice.whole(0, 3)]
    const name = bare === undefined ? 'set/guarded' : `set/bare/${this.#applicationWorld.bare.indexOf(bare)}`
    // A callback that never settles would make Node track every promise, including those of later worlds.
    const work = (lease: Lease) => Promise.race([bare === undefined ? this.#addGuarded(lease) : this.#addBare(lease, bare), this.#killed])
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
        // Sometimes transferred to a program that may be down or not waiting. The lease then lapses, and the next waiter is granted.
        if (dice.chance(0.2) && lease.held) await lease.transfer(dice.pick(this.#peers))
      } finally {
        await lease.release()
      }
    }
  }

  /** Aborts an acquisition at any moment: no lease may be left behind, and the program uses none. */
  async #abortSoon(leases: Leases, name: string, ttl: number): Promise<void> {
    const aborted = new AbortController()
    const cancel = this.#clock.after(this.#dice.between(0, 60), () => aborted.abort(new LeaseError('TIMEOUT', 'aborted')))
    try {
      const lease = await leases.acquire(name, { ttl, signal: aborted.signal })
      this.#believes(lease)
      await lease.release()
    } finally {
      cancel()
    }
  }

  async #addGuarded(lease: Lease): Promise<void> {
    const believed = this.#believes(lease)
    for (let i = this.#dice.whole(1, 4); i > 0; i--) {
      const seen = await this.#call(() => this.#applicationWorld.guarded.read(lease.token))
      if (seen === undefined) return
      await pauseOn(this.#clock, this.#dice.between(0, 200))
      // The program does not check its lease: the token alone protects the set.
      if (!(await this.#call(() => this.#applicationWorld.guarded.add(lease.token, seen, this.name)))) return
      this.#site.referee.beliefs.begins(believed)
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
      this.#site.referee.beliefs.begins(believed)
    }
  }

  /** Calls a remote object that is not the log. The request may arrive late, or the answer may be lost. */
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

  // An election

  async #lead(leases: Leases, signal: AbortSignal): Promise<void> {
    const dice = this.#dice
    const election = leases.election('boss', { ttl: dice.pick(TTLS), priority: dice.whole(0, 1), yields: dice.chance(0.3) })
    for await (const term of election.terms({ signal })) {
      await this.#govern(term)
      if (dice.chance(0.3)) return
    }
  }

  async #govern(term: Term): Promise<void> {
    const { office } = this.#applicationWorld
    const believed = this.#believes(term.lease)
    const lost = () => (term.lease.signal.reason as LeaseError | undefined)?.code === 'LOST'
    const officer: Officer = { who: this.name, token: term.token, givenUp: () => heldLeaseOf(term.lease).stage === 'ended' && !lost() }
    office.begins(officer)
    const until = this.#clock.now() + this.#dice.between(50, 3_000)
    while (!term.signal.aborted && this.#clock.now() < until) {
      await pauseOn(this.#clock, this.#dice.between(5, 150))
      if (!term.lease.held) continue
      office.append(officer)
      this.#site.referee.beliefs.begins(believed)
    }
    // The leader finishes its work after its term has ended or after it has resigned.
    if (this.#dice.chance(0.3)) term.resign(this.#dice.chance(0.3) ? this.#dice.pick(this.#peers) : undefined)
    await pauseOn(this.#clock, this.#dice.between(0, 100))
    office.ends(officer)
  }

  // A register, through a cache

  async #cache(leases: Leases, signal: AbortSignal): Promise<void> {
    const { register } = this.#applicationWorld
    const failing = <T>(answer: T | undefined): T => {
      if (answer === undefined) throw new LeaseError('UNAVAILABLE', 'the register did not answer, or refused the token')
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
