/**
 * One stage of the directed world: a provider offers the members of a pool, and a main lease holds two of them, beyond the quota of its account and with a
 * limited life. Features meet on the main lease or in the pool. A stage is cleared before the next one begins.
 */
import type { Acquire, Command } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { WAITING } from '../src/kernel/state.ts'
import type { Crew } from './directed-crew.ts'
import { Held } from './holder.ts'
import { POOL } from './pools.ts'

/** The longest term of all leases of this world: as long as the silence after a loss of records. */
export const LONGEST = 1_500
const MEMBERS = ['m0', 'm1', 'm2', 'm3', 'm4', 'm5', 'm6'].map(name => `${POOL}/${name}`)
/** Three units. */
export const UNITS = 'p/0'
const LIFE = 20_000

export const POLICIES: readonly Command[] = [
  { kind: 'policy', prefix: 'p', rules: { capacity: 3 } },
  { kind: 'policy', prefix: `${POOL}/m0`, rules: { lockDelay: 100 } },
  { kind: 'policy', prefix: 'e', rules: { freeEntries: 1 } },
  ...['a', 'b', 'c'].map(name => ({
    ...{ kind: 'policy' as const, prefix: `${POOL}/accounts/${name}` },
    rules: { quotaUnits: 1, quotaBorrow: 2 },
  })),
]

export class Stage {
  readonly crew: Crew
  /** The lease on which operations act. */
  target = 0
  #main: Held
  #offer = 0
  #incarnation = 0
  /** The lease that was passed on last. */
  #passedOn = 0
  /** 0: nothing is reserved. */
  #reservation = 0

  constructor(crew: Crew) {
    this.crew = crew
    this.#main = new Held('main', crew.clock)
  }

  propose(command: Command): Promise<Outcome> {
    return this.crew.propose(command)
  }

  /** A member that the main lease does not hold: others ask for it by its name. */
  get named(): string {
    return MEMBERS.findLast(name => !this.#main.grants.some(({ resource }) => resource === name))!
  }

  /** A member that the main lease holds. */
  get own(): string {
    return this.#main.grants[0]?.resource ?? MEMBERS[0]!
  }

  async open(request: Partial<Acquire>): Promise<void> {
    const { dice, site } = this.crew
    const rules = {
      ...{ queue: dice.pick(['fit', 'fifo', 'backfill', 'fair'] as const), preempt: 'marked' as const },
      ...{ preemptNotice: dice.pick([50, 150]), minHold: 0, shareHalfLife: 4_000 },
    }
    await this.propose({ kind: 'policy', prefix: POOL, rules })
    const entries = MEMBERS.map(name => ({ key: `pool/${name}`, value: '{"units":1}' }))
    this.#offer = (await this.ask({ holder: 'provider', ttl: LONGEST, entries }))!
    const main = this.#main
    const sent = main.mark(site.world.now)
    const outcome = await this.propose({
      ...{ kind: 'acquire', holder: 'main', wants: [], ttl: dice.pick([1_000, LONGEST]), wait: true, maxLife: LIFE },
      ...(dice.chance(0.3) && { grace: 200 }),
      ...(dice.chance(0.3) && { entries: [{ key: 'e/main', value: 'x' }] }),
      ...request,
      pool: { pool: POOL, count: 2, account: 'a', ...request.pool },
    })
    if (outcome.kind !== 'granted') throw new Error(`a main lease was not granted: ${JSON.stringify(outcome)}`)
    this.target = outcome.lease
    this.#incarnation = outcome.incarnation
    main.lease = outcome.lease
    main.grants = outcome.resources.map((resource, i) => ({ resource, units: 1, shared: false, token: outcome.tokens[i]! }))
    this.#believe(sent, outcome.ttl)
  }

  #believe(sent: ReturnType<Held['mark']>, ttl: number): void {
    const { referee } = this.crew.site
    referee.terms.acknowledged(this.#main.lease, sent.world, ttl)
    this.#main.believe(sent, ttl)
    referee.beliefs.begins(this.#main)
  }

  /** A request of another process. Undefined: refused. */
  async ask(request: Partial<Acquire>): Promise<number | undefined> {
    const outcome = await this.propose({ kind: 'acquire', holder: 'other', ttl: 1_000, wants: [], ...request })
    return outcome.kind === 'granted' || outcome.kind === 'queued' ? outcome.lease : undefined
  }

  /** Asks the pool for further members. */
  take({ pool, ...request }: Partial<Acquire> = {}): Promise<number | undefined> {
    return this.ask({ wait: true, ...request, pool: { pool: POOL, account: 'b', ...pool } })
  }

  async reserve(from: number): Promise<void> {
    this.#reservation = (await this.take({ maxLife: 3_000, pool: { pool: POOL, from } })) ?? 0
  }

  /** The process that made the reservation takes it in its window. Then another process of its name tries to. */
  async claimReservation(): Promise<void> {
    const reservation = this.#reservation
    if (reservation === 0) return
    const isOpen = () => findLease(this.crew.site.referee.state, reservation)?.status !== WAITING
    await this.crew.until('the window of a reservation has begun', isOpen)
    await this.propose({ kind: 'renew', leases: [reservation] })
    await this.propose({ kind: 'claim', lease: reservation, incarnation: this.#incarnation })
  }

  /** A lease that holds the named member, and what else it asks for. */
  async hold(request: Partial<Acquire> = {}): Promise<number> {
    return (await this.ask({ holder: 'named', ttl: LONGEST, wants: [{ resource: this.named }], ...request }))!
  }

  /** Renews what must outlive a pause. */
  async renew(): Promise<void> {
    await this.propose({ kind: 'renew', leases: [this.#offer] })
    if (this.#main.holds()) await this.renewMain()
  }

  async renewMain(ttl?: number): Promise<void> {
    const main = this.#main
    const sent = main.mark(this.crew.site.world.now)
    const outcome = await this.propose({ kind: 'renew', leases: [main.lease], ...(ttl !== undefined && { ttl }) })
    if (outcome.kind !== 'renewed') return
    if (outcome.ttls[0]! <= 0) main.stop()
    else if (main.holds()) this.#believe(sent, outcome.ttls[0]!)
  }

  async giveBackMember(): Promise<void> {
    // A program with the library does not expect another process to give back its members.
    const lease = this.crew.programLease === this.target ? this.#main.lease : this.target
    const grant = findLease(this.crew.site.referee.state, lease)?.grants.at(-1)
    if (grant === undefined) return
    this.#main.grants = this.#main.grants.filter(({ resource }) => resource !== grant.resource.name)
    await this.propose({ kind: 'release', lease, resource: grant.resource.name })
  }

  /** Passes the target on to a name. The process of the main lease says that it has stopped; the process of another lease says nothing. */
  async transfer(): Promise<void> {
    const isMain = this.#main.lease === this.target
    if (isMain) this.#giveUp()
    const outcome = await this.propose({ kind: 'transfer', lease: this.target, to: 'recipient', ...(isMain && { stopped: true }) })
    if (outcome.kind === 'done' && outcome.id !== undefined) this.target = this.#passedOn = outcome.id
  }

  #giveUp(): void {
    this.#main.stop()
    this.crew.site.referee.givenUp.add(this.#main.lease)
  }

  /** A process takes the lease that was passed on to its name, and goes on with it as the main lease. */
  async claim(): Promise<void> {
    const { crew } = this
    const lease = this.#passedOn
    const outcome = await this.propose({ kind: 'claim', lease, incarnation: this.#incarnation })
    if (outcome.kind !== 'done') return
    this.#main = new Held('recipient', crew.clock)
    this.#main.lease = lease
    const sent = this.#main.mark(crew.site.world.now)
    const renewed = await this.propose({ kind: 'renew', leases: [lease] })
    if (renewed.kind !== 'renewed' || renewed.ttls[0]! <= 0) return
    const grants = findLease(crew.site.referee.state, lease)?.grants ?? []
    this.#main.grants = grants.map(({ resource, units, token }) => ({ resource: resource.name, units, shared: false, token }))
    this.#believe(sent, renewed.ttls[0]!)
  }

  /** Ends all leases but that of the face; sometimes they are left to end by themselves. */
  async clear(): Promise<void> {
    const { crew } = this
    const { referee } = crew.site
    this.#giveUp()
    await crew.endProgram()
    const face = await crew.faceLease()
    const left = () => [...referee.state.leases.values()].filter(({ id }) => id !== face)
    if (crew.dice.chance(0.9))
      for (const { id } of left()) {
        referee.beliefs.forced.add(id)
        await this.propose({ kind: 'revoke', target: { lease: id }, force: true })
      }
    await crew.until('all leases of a stage have ended, and the log grants', () => left().length === 0 && referee.state.quiet === undefined)
  }
}
