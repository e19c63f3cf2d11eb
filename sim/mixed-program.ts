/**
 * A program with the real library in the combined world: sessions, learned terms, leases that are never renewed, a heartbeat on a second thread, pools,
 * reservations and transfers, on the names that all other holders use. It checks that each answer is what it asked for.
 */
import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import type { Lease } from '../src/lease.ts'
import type { AcquireOptions } from '../src/leases.ts'
import { Leases } from '../src/leases.ts'
import type { Lessor } from '../src/lessor.ts'
import { Believed } from './believed.ts'
import { type Feature, MARKS_LABEL } from './features.ts'
import { startThread } from './heartbeat-thread.ts'
import type { Board } from './mixed-holder.ts'
import { FACE_NAME, NAMES, UNITS } from './mixed-wishes.ts'
import { ObservedLessor } from './observed.ts'
import { type Host, pauseOn, type Site } from './participants.ts'
import { POOL } from './pools.ts'
import type { Dice, Machine } from './world.ts'

const TTLS = [500, 1_500, 4_000] as const

export interface MixedProgramOptions {
  readonly name: string
  readonly machine: Machine
  /** Opens a lessor. Undefined while none can be reached. */
  readonly connect: () => Promise<Lessor | undefined>
  readonly board: Board
  readonly peers: readonly string[]
  /** Where its second thread runs; left out: its loop alone renews. */
  readonly thread?: Machine | undefined
  readonly hosts: readonly Host[]
}

export class MixedProgram {
  readonly name: string
  readonly #site: Site
  readonly #options: MixedProgramOptions
  readonly #machine: Machine
  readonly #clock: Clock
  readonly #dice: Dice
  readonly #life: number
  readonly #stop = new AbortController()

  constructor(site: Site, options: MixedProgramOptions) {
    this.#site = site
    this.#options = options
    this.name = options.name
    this.#machine = options.machine
    this.#clock = options.machine.clock()
    this.#dice = options.machine.dice
    this.#life = options.machine.life
  }

  stop(): void {
    this.#stop.abort()
  }

  get #over(): boolean {
    return this.#stop.signal.aborted || this.#machine.life !== this.#life
  }

  async live(): Promise<void> {
    const { connect, thread, hosts } = this.#options
    while (!this.#over) {
      await pauseOn(this.#clock, 20)
      const there = await connect().catch(onlyLeaseErrors)
      if (there === undefined || this.#over) continue
      const lessor = new ObservedLessor(this.#site, this.#machine, there)
      const heartbeat = thread === undefined ? undefined : startThread(this.#site, this.#machine, thread, hosts)
      const leases = new Leases(lessor, { holder: this.name, clock: this.#clock, ttl: 900 }, heartbeat)
      const ended = new AbortController()
      const end = () => ended.abort()
      lessor.signal.addEventListener('abort', end, { once: true })
      this.#stop.signal.addEventListener('abort', end, { once: true })
      const works = [
        () => this.#takeNames(leases),
        () => this.#takeNames(leases),
        () => this.#session(leases),
        () => this.#pool(leases),
        () => this.#adopt(leases),
      ]
      await Promise.all(works.map(work => this.#repeat(ended.signal, work)))
      lessor.signal.removeEventListener('abort', end)
      this.#stop.signal.removeEventListener('abort', end)
      await leases[Symbol.asyncDispose]()
      await there[Symbol.asyncDispose]()
    }
  }

  async #repeat(signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    while (!signal.aborted && !this.#over) {
      try {
        await pauseOn(this.#clock, this.#dice.between(5, 150))
        if (!signal.aborted) await work()
      } catch (error) {
        if (!(error instanceof LeaseError) && !signal.aborted) throw error
      }
    }
  }

  /** Labels that tell the referee what the kernel cannot see. */
  #marks(...features: readonly Feature[]): Readonly<Record<string, string>> {
    const own = this.#options.thread === undefined ? features : [...features, 'worker-renews']
    return own.length === 0 ? {} : { [MARKS_LABEL]: own.join(' ') }
  }

  // Requests

  /** Options that combine features at random. */
  #wish(features: readonly Feature[] = []): AcquireOptions {
    const dice = this.#dice
    const renew = dice.pick(['half', 'half', 'continuous', 'never', 'manual'] as const)
    const never: Feature[] = renew === 'never' || renew === 'manual' ? ['renew-never'] : []
    const auto = dice.chance(0.2)
    const learned: Feature[] = auto ? ['learned-term'] : []
    return {
      ...{ ttl: auto ? 'auto' : dice.pick(TTLS), renew, wait: dice.whole(100, 2_500) },
      ...(dice.chance(0.2) && { entries: { [`e/${dice.chance(0.3) ? 'short' : 'long'}/${this.name}`]: 'x' } }),
      ...(dice.chance(0.2) && { priority: dice.whole(-1, 2) }),
      ...(dice.chance(0.03) && { steal: true }),
      advanced: {
        ...(dice.chance(0.2) && { grace: 200 }),
        ...(dice.chance(0.2) && { maxLife: dice.whole(400, 3_000) }),
      },
      labels: this.#marks(...never, ...learned, ...features),
    }
  }

  async #takeNames(leases: Leases): Promise<void> {
    const dice = this.#dice
    const names = this.#names()
    const options = this.#wish()
    if (dice.chance(0.25)) {
      const { wait: _, ...others } = options
      const lease = await leases.tryAcquire(names, { ...others, ...this.#mode(names) })
      if (lease !== undefined) await this.#use(lease, options)
    } else if (dice.chance(0.2)) {
      const choice = NAMES.slice(0, 3)
      const more = (waiting: number) =>
        void this.#clock.after(
          dice.between(10, 200),
          () => void leases.widen(waiting, [{ resource: dice.pick(NAMES) }]).catch(onlyLeaseErrors),
        )
      const lease = await leases.acquire(choice, { ...options, advanced: { ...options.advanced, any: 1, onQueued: more } })
      await this.#use(lease, options)
    } else {
      const lease = await leases.acquire(names, { ...options, ...this.#mode(names) })
      this.#judgeAnswer(lease, names)
      await this.#use(lease, options)
    }
  }

  #names(): readonly string[] {
    const dice = this.#dice
    const names = dice.pick([[dice.pick(NAMES)], [dice.pick(NAMES), dice.pick(NAMES)], [UNITS], [UNITS, dice.pick(NAMES)], [FACE_NAME]])
    return [...new Set(names)]
  }

  #mode(names: readonly string[]): Pick<AcquireOptions, 'mode' | 'units'> {
    if (names.includes(FACE_NAME)) return {}
    if (this.#dice.chance(0.2)) return { mode: 'shared' }
    return names.includes(UNITS) ? { units: { [UNITS]: this.#dice.whole(1, 3) } } : {}
  }

  /** The answer to a request is what it asked for. */
  #judgeAnswer(lease: Lease, names: readonly string[], parent?: number): void {
    const { world, referee } = this.#site
    const state = findLease(referee.state, lease.id)
    const came = state?.extras?.handed === true || referee.pairs.isMarked(lease.id, 'transfer')
    // A transfer may bring more than was asked for.
    const isMore = lease.resources.length !== names.length && !came
    if (isMore || names.some(name => !lease.resources.includes(name)))
      world.violate('S10', `${this.name} asked for ${names} and got ${lease.resources}`)
    if (parent !== undefined && state !== undefined && state.extras?.parent?.id !== parent && state.status === 1)
      world.violate('S8', `${this.name} acquired lease ${lease.id} under lease ${parent}, and it is not under it`)
  }

  // Held leases

  async #use(lease: Lease, { renew }: AcquireOptions = {}): Promise<void> {
    const dice = this.#dice
    const { referee } = this.#site
    if ((renew === 'never' || renew === 'manual') && !this.#options.board.wasOffered(lease.id))
      referee.neverRenewed.set(lease.id, this.#site.world.now)
    const believed = this.#believes(lease)
    const until = this.#clock.now() + dice.between(20, 2_500)
    while (lease.held && !this.#over && this.#clock.now() < until) {
      await pauseOn(this.#clock, dice.between(10, 200))
      if (lease.held) referee.beliefs.begins(believed)
    }
    const way = dice.unit()
    if (way < 0.3 && lease.held && lease.resources.length > 0 && !this.#over) {
      const to = dice.pick(this.#options.peers)
      referee.neverRenewed.delete(lease.id) // a transfer that is refused makes it valid again by a renewal
      const id = await lease.transfer(to)
      this.#options.board.offer(to, id)
    } else if (way < 0.85) await lease.release()
    // Otherwise it is left to itself: the library renews it until its strategy, its limits or an operator end it.
    else void pauseOn(this.#clock, dice.between(500, 4_000)).then(() => lease.release().catch(onlyLeaseErrors))
  }

  #believes(lease: Lease): Believed {
    const { referee } = this.#site
    const grants = findLease(referee.state, lease.id)?.grants ?? []
    const shared = grants.some(grant => grant.shared)
    const units = new Map(grants.map(grant => [grant.resource.name, grant.units]))
    const threaded = this.#options.thread !== undefined
    const unitsOf = (resource: string) => units.get(resource) ?? 1
    const believed = new CappedBelief(this.#site, this.name, lease, this.#machine, { shared, unitsOf, threaded })
    referee.beliefs.begins(believed)
    referee.beliefs.watch(believed)
    return believed
  }

  /** A session with leases and waiters under it. Sometimes it ends while they wait. */
  async #session(leases: Leases): Promise<void> {
    const dice = this.#dice
    const ttl = dice.pick([900, 2_500])
    const session = await leases.session({ ttl, renew: dice.pick(['half', 'on-activity'] as const), labels: this.#marks('session') })
    const names = this.#names()
    const under = async () => {
      const options = this.#wish(['session'])
      const lease = await session.acquire(names, { ...options, ...this.#mode(names) })
      this.#judgeAnswer(lease, names, session.id)
      await this.#use(lease, options)
    }
    const work = [under(), under()].map(one => one.catch(onlyLeaseErrors))
    const until = this.#clock.now() + dice.between(100, 2_500)
    while (session.active && !this.#over && this.#clock.now() < until) {
      session.touch()
      if (dice.chance(0.2)) await session.put(`e/long/${this.name}/s`, 'x').catch(onlyLeaseErrors)
      await pauseOn(this.#clock, dice.between(50, 300))
    }
    await session.end()
    await Promise.all(work)
  }

  async #pool(leases: Leases): Promise<void> {
    const dice = this.#dice
    const pool = leases.pool(POOL)
    const account = dice.pick(['a', 'b', 'c'])
    if (dice.chance(0.35)) {
      const offer = await pool.offer(`m${dice.whole(0, 3)}`, { ttl: 2_500 })
      await pauseOn(this.#clock, dice.between(300, 3_000))
      return offer.release()
    }
    if (dice.chance(0.15)) {
      const { lease } = await pool.reserve(1, { from: dice.whole(100, 900), for: dice.whole(500, 1_500), ttl: 2_000, account })
      return this.#options.board.offer(this.name, lease)
    }
    const { ttl = 900, renew = 'half', labels = {}, priority = 0, advanced = {} } = this.#wish()
    const request = { ttl, renew, labels, priority, account, ...(dice.chance(0.6) && { preemptible: true }) }
    const maxLife = advanced.maxLife === undefined ? {} : { maxLife: advanced.maxLife }
    const grace = advanced.grace === undefined ? {} : { advanced: { grace: advanced.grace } }
    const options = { ...request, ...maxLife, ...grace }
    const count = dice.whole(1, 2)
    const lease = dice.chance(0.25)
      ? await pool.tryTake(count, options)
      : await pool.take(count, { ...options, wait: dice.whole(100, 2_000) })
    if (lease !== undefined) await this.#use(lease, { renew })
  }

  /** Leases that were transferred to its name, and its reservations. */
  async #adopt(leases: Leases): Promise<void> {
    const { board } = this.#options
    const offered = board.leasesFor(this.name)
    if (offered.length === 0) return pauseOn(this.#clock, 100)
    const id = this.#dice.pick(offered)
    if (this.#dice.chance(0.3)) board.taken(this.name, id)
    const lease = await leases.adopt(id, { renew: this.#dice.pick(['half', 'continuous'] as const) })
    board.taken(this.name, id)
    await this.#use(lease)
  }
}

/** The library's belief, with a second thread never for longer than the acknowledged term. */
class CappedBelief extends Believed {
  readonly #site: Site
  readonly #threaded: boolean

  constructor(
    site: Site,
    who: string,
    lease: Lease,
    machine: Machine,
    { shared, unitsOf, threaded }: { readonly shared: boolean; readonly unitsOf: (resource: string) => number; readonly threaded: boolean },
  ) {
    super(who, lease, machine, shared, unitsOf)
    this.#site = site
    this.#threaded = threaded
  }

  override holds(): boolean {
    if (!super.holds()) return false
    const { world, referee } = this.#site
    const until = referee.terms.believableUntil(this.lease)
    if (!this.#threaded || until === undefined || world.now <= until) return true
    world.violate('S1', `${this.who} believes in lease ${this.lease} ${Math.round(world.now - until)} ms beyond its acknowledged term`)
    return false
  }
}

function onlyLeaseErrors(error: unknown): undefined {
  if (!(error instanceof LeaseError)) throw error
  return undefined
}
