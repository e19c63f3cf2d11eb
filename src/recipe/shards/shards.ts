/**
 * Shards: a fixed number of parts of a work, spread evenly over the members that live.
 *
 * Each shard is a lease (`shards/NAME/NUMBER`) that hangs on the lease of its member's presence. All members compute the same plan from the same
 * entries (shard-plan.ts); each acquires what the plan gives it and gives back what the plan gives to another. The leases keep two members
 * from having one shard, whatever they believe about the plan.
 *
 * Promised: a shard is assigned to a member after the former owner's `onAssigned` and `onRevoked` have settled, or its budget for that is spent,
 * or its last term has run. The token of a shard grows with each assignment. A member's death moves only its own shards.
 *
 * Not promised: that every shard has an owner at every moment, or that the last messages of a former owner have arrived; compare tokens
 * where that matters.
 */
import { BACKOFF } from '../../backoff.ts'
import { pause, whenAborted } from '../../clock.ts'
import { type Duration, milliseconds } from '../../duration.ts'
import { isRefusal, LeaseError } from '../../errors.ts'
import { checkSignal } from '../../holder/acquire-options.ts'
import type { LeaseClient } from '../../holder/lease-client.ts'
import type { Lease } from '../../lease.ts'
import { checkOptionNames } from '../../options.ts'
import { planShards, type ShardMember } from './shard-plan.ts'

/** The most shards of one name: every member computes the plan for all of them. */
const MAX_SHARDS = 4_096
/** Changes of this many ms are answered by one plan. */
const GATHER = 20
/** Pause in ms before the next attempt after an error. */
const RETRY = BACKOFF.round.first

export interface ShardsOptions {
  /** There are this many shards, at most 4096. The same for all members, for as long as the name is used. */
  readonly count: number
  /**
   * A member lasts this long without a renewal: after a crash, its shards are assigned to others this much later.
   * @default '10s'
   */
  readonly ttl?: Duration | undefined
  /**
   * The work on a shard may take this long to end once its signal has fired. After that the shard goes to its next owner anyway.
   * @default no limit
   */
  readonly budget?: Duration | undefined
  /**
   * The name of this member, for people and for the hash. A member that comes back under its name gets much the same shards.
   * @default the holder
   */
  readonly member?: string | undefined
}

export interface JoinOptions {
  /** Begins the work on a shard. It may last until `shard.signal` fires: the shard is not given back before the returned promise has settled. */
  readonly onAssigned: (shard: Shard) => void | PromiseLike<void>
  /** Ends the work on a shard, after its signal has fired. The shard is not given back before the returned promise has settled. */
  readonly onRevoked?: ((shard: Shard) => void | PromiseLike<void>) | undefined
  /** Ends the membership: all shards are given back, then `join` resolves. */
  readonly signal: AbortSignal
}

/** A shard in the hands of this member. */
export class Shard {
  /** From 0 to `count` - 1. */
  readonly index: number
  readonly lease: Lease
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal

  constructor(index: number, lease: Lease) {
    this.index = index
    this.lease = lease
    this.#signal = AbortSignal.any([lease.signal, this.#stop.signal])
  }

  /** The epoch of this assignment, greater than that of every earlier one. */
  get token(): number {
    return this.lease.token
  }

  /** Fires when the work on the shard must end: it is assigned to another member, or lost. */
  get signal(): AbortSignal {
    return this.#signal
  }

  /** Returns whether the shard is this member's. Reads the clocks. */
  get held(): boolean {
    return this.lease.held
  }

  /** @internal */
  stop(reason: LeaseError): void {
    this.#stop.abort(reason)
  }
}

/**
 * @example
 * const orders = leases.shards('orders', { count: 64, budget: '30s' })
 * await orders.join({ signal, onAssigned: async shard => consume(shard.index, shard.token, shard.signal) })
 */
export class Shards {
  readonly #leases: LeaseClient
  readonly #prefix: string
  readonly #count: number
  readonly #ttl: number
  readonly #budget: number
  readonly #member: string
  readonly #memberships = new Set<Membership>()

  constructor(leases: LeaseClient, name: string, options: ShardsOptions) {
    checkOptionNames('shards', options, ['count', 'ttl', 'budget', 'member'])
    const { count, ttl = '10s', budget, member = leases.holder } = options
    if (!Number.isSafeInteger(count) || count < 1 || count > MAX_SHARDS)
      throw new LeaseError('INVALID', `count must be a whole number from 1 to ${MAX_SHARDS}, not ${String(count)}`, {
        facts: { option: 'count' },
      })
    this.#leases = leases
    this.#prefix = `shards/${name}`
    this.#count = count
    this.#ttl = milliseconds(ttl, 'ttl')
    this.#budget = budget === undefined ? Number.POSITIVE_INFINITY : milliseconds(budget, 'budget')
    this.#member = member
  }

  /** The shards that this object has now, lowest first. */
  get owned(): readonly Shard[] {
    return [...this.#memberships].flatMap(({ shards }) => shards).sort((a, b) => a.index - b.index)
  }

  /** The name of the member that has each shard, by index; undefined where none has it. */
  async owners(): Promise<readonly (string | undefined)[]> {
    const { members, owners } = await readShards(this.#leases, this.#prefix)
    const names = new Map(members.map(({ id, name }) => [id, name]))
    return Array.from({ length: this.#count }, (_, shard) => names.get(owners.get(shard) ?? ''))
  }

  /**
   * Becomes a member until `signal` fires, then gives everything back. A membership that was lost begins again. Rejects if a callback does, or if
   * the lessor refuses (a key without rights): then this is no member any more.
   *
   * @example
   * await orders.join({ signal, onAssigned: shard => start(shard), onRevoked: shard => stop(shard) })
   */
  async join(options: JoinOptions): Promise<void> {
    checkSignal(options?.signal, 'join of shards')
    checkOptionNames('join', options, ['onAssigned', 'onRevoked', 'signal'])
    const { onAssigned, signal } = options
    if (typeof onAssigned !== 'function')
      throw new LeaseError('INVALID', 'join calls back for each shard: write join({ onAssigned: shard => …, signal })')
    const { clock, lessor } = this.#leases
    while (!signal.aborted) {
      let failure: MembershipFailure | undefined
      try {
        failure = await this.#memberOnce(options)
      } catch (error) {
        if (signal.aborted) return
        if (isRefusal(error)) throw error
        lessor.signal.throwIfAborted()
      }
      if (failure !== undefined) throw failure.error
      if (!signal.aborted) await pause(clock, RETRY, signal, { ref: true }).catch(() => {})
    }
  }

  /** Returns when the membership was called off, lost or failed, and everything is given back. */
  async #memberOnce(options: JoinOptions): Promise<MembershipFailure | undefined> {
    const id = this.#leases.clock.bits().toString(36)
    const key = `${this.#prefix}/members/${id}`
    const presence = await this.#leases.grant({ ttl: this.#ttl, entries: { [key]: this.#member } })
    const settings = { count: this.#count, ttl: this.#ttl, budget: this.#budget, prefix: this.#prefix, id }
    const membership = new Membership(this.#leases, presence, settings, options)
    this.#memberships.add(membership)
    try {
      await membership.run()
    } finally {
      // First from the list of members: the others plan for the shards before these are given back. Not awaited: the work ends, answered or not.
      presence.delete(key).catch(() => {})
      await membership.leave()
      await presence.release().catch(() => {}) // it lapses by itself
      this.#memberships.delete(membership)
    }
    return membership.failure
  }
}

/** A callback threw, or the lessor refused. */
interface MembershipFailure {
  readonly error: unknown
}

interface MembershipSettings {
  readonly count: number
  readonly ttl: number
  readonly budget: number
  readonly prefix: string
  readonly id: string
}

/** One membership, from its presence lease to the end of that. */
class Membership {
  readonly #leases: LeaseClient
  readonly #presence: Lease
  readonly #settings: MembershipSettings
  readonly #options: JoinOptions
  /** Fires when the membership ends: called off, lost or failed. */
  readonly #over = new AbortController()
  readonly #waiting = new Map<number, AbortController>()
  readonly #working = new Map<number, Work>()
  /** The revision of the newest plan: plans may be made at the same time, and read in another order. */
  #planned = 0
  #plansAgain = false
  failure: MembershipFailure | undefined

  constructor(leases: LeaseClient, presence: Lease, settings: MembershipSettings, options: JoinOptions) {
    this.#leases = leases
    this.#presence = presence
    this.#settings = settings
    this.#options = options
  }

  get shards(): readonly Shard[] {
    return [...this.#working.values()].filter(({ stopped }) => stopped === undefined).map(({ shard }) => shard)
  }

  /** Follows the plan until the membership ends. */
  async run(): Promise<void> {
    const { clock } = this.#leases
    const over = this.#over.signal
    const off = [this.#options.signal, this.#presence.signal].map(signal => whenAborted(signal, () => this.#over.abort(signal.reason)))
    const { prefix } = this.#settings
    try {
      while (!over.aborted) {
        try {
          let planned = await this.#followPlan()
          for await (const [event] of this.#leases.watch(prefix, { after: planned, types: ['put', 'deleted'], signal: over })) {
            if (event!.type !== 'resync' && event!.revision <= planned) continue
            await pause(clock, GATHER, over, { ref: true })
            planned = await this.#followPlan()
          }
        } catch (error) {
          if (over.aborted) return
          if (isRefusal(error)) throw error
        }
        await pause(clock, RETRY, over, { ref: true }).catch(() => {})
      }
    } finally {
      for (const remove of off) remove()
    }
  }

  /** Ends all work and gives everything back. */
  async leave(): Promise<void> {
    this.#over.abort(new LeaseError('GONE', `${this.#settings.prefix}: the member has left`))
    for (const wait of this.#waiting.values()) wait.abort(this.#over.signal.reason)
    await Promise.all([...this.#working.keys()].map(shard => this.#giveBack(shard)))
  }

  /** Compares what this member has with what it should have. Returns the revision that the plan is for. */
  async #followPlan(): Promise<number> {
    const { count, prefix, id } = this.#settings
    const { members, owners, revision } = await readShards(this.#leases, prefix, this.#over.signal)
    if (this.#over.signal.aborted || revision < this.#planned) return revision
    this.#planned = revision
    const plan = planShards(count, members, owners)
    for (const [shard, wait] of this.#waiting) if (plan[shard] !== id) wait.abort(new LeaseError('GONE', 'planned for another member'))
    for (const [shard, { stopped }] of this.#working) if (plan[shard] !== id && stopped === undefined) void this.#giveBack(shard)
    for (let shard = 0; shard < count; shard++)
      if (plan[shard] === id && !this.#working.has(shard) && !this.#waiting.has(shard)) void this.#take(shard)
    return revision
  }

  /** Plans again, although no entry has changed. */
  #planAgain(after: number): void {
    const over = this.#over.signal
    if (this.#plansAgain || over.aborted) return
    this.#plansAgain = true
    const again = async () => {
      await pause(this.#leases.clock, after, over, { ref: true })
      this.#plansAgain = false
      await this.#followPlan()
    }
    again().catch(error => {
      if (over.aborted) return
      if (isRefusal(error)) this.#fail(error)
      else this.#planAgain(RETRY)
    })
  }

  async #take(shard: number): Promise<void> {
    const { prefix, ttl, id } = this.#settings
    const wait = new AbortController()
    this.#waiting.set(shard, wait)
    let work: Work | undefined
    try {
      const lease = await this.#leases.acquire(`${prefix}/${shard}`, {
        ...{ ttl, parent: this.#presence, signal: wait.signal, entries: { [`${prefix}/owners/${shard}/${id}`]: '' } },
        // The shard stays frozen until the work on it has ended, or its last term has run.
        onLost: async () => {
          await work?.stop(this.#options).catch(error => this.#fail(error))
          this.#working.delete(shard)
          this.#planAgain(GATHER)
        },
      })
      // The membership ended, or the plan changed, in the moment of the grant.
      if (wait.signal.aborted || this.#over.signal.aborted) return await lease.release().catch(() => {})
      work = new Work(new Shard(shard, lease))
      this.#working.set(shard, work)
      work.begin(this.#options).catch(error => {
        if (work?.stopped === undefined && !lease.signal.aborted) this.#fail(error)
      })
    } catch (error) {
      if (wait.signal.aborted || this.#over.signal.aborted) return
      // Refused for good: this member would keep a shard from all others that the plan gives to it.
      if (isRefusal(error) && !LeaseError.is(error, 'GONE', 'LOST')) this.#fail(error)
      else this.#planAgain(RETRY)
    } finally {
      this.#waiting.delete(shard)
    }
  }

  /** Ends the work on a shard, within the budget, and releases it. */
  async #giveBack(shard: number): Promise<void> {
    const work = this.#working.get(shard)!
    const { clock } = this.#leases
    const { budget } = this.#settings
    const over = new AbortController()
    const spent = budget === Number.POSITIVE_INFINITY ? [] : [pause(clock, budget, over.signal, { ref: true }).catch(() => {})]
    await Promise.race([work.stop(this.#options).catch(error => this.#fail(error)), ...spent])
    over.abort()
    await work.shard.lease.release().catch(() => {}) // it lapses by itself
    if (this.#working.get(shard) === work) this.#working.delete(shard)
    this.#planAgain(GATHER)
  }

  #fail(error: unknown): void {
    this.failure ??= { error }
    this.#over.abort(error)
  }
}

/** The work on one shard, from `onAssigned` until both callbacks have settled. */
class Work {
  readonly shard: Shard
  #running: Promise<void> = Promise.resolve()
  /** Settles when the work has ended. Undefined: it has not been asked to end. */
  stopped: Promise<void> | undefined

  constructor(shard: Shard) {
    this.shard = shard
  }

  begin({ onAssigned }: JoinOptions): Promise<void> {
    this.#running = (async () => onAssigned(this.shard))()
    return this.#running
  }

  stop({ onRevoked }: JoinOptions): Promise<void> {
    this.stopped ??= (async () => {
      this.shard.stop(new LeaseError('GONE', `${this.shard.lease.resources[0]} is assigned to another member`))
      const revoked = (async () => onRevoked?.(this.shard))()
      await Promise.allSettled([this.#running, revoked])
      await revoked
    })()
    return this.stopped
  }
}

interface ShardsView {
  readonly revision: number
  readonly members: readonly ShardMember[]
  readonly owners: ReadonlyMap<number, string>
}

/** The members and owners now, read from their entries in one revision. Entries of other forms are ignored. */
async function readShards(leases: LeaseClient, prefix: string, signal?: AbortSignal): Promise<ShardsView> {
  const { value, revision } = await leases.read({ kind: 'entries', prefix }, { consistent: true, ...(signal !== undefined && { signal }) })
  const members: ShardMember[] = []
  const owners = new Map<number, string>()
  for (const { key, value: name } of value) {
    const [kind, first = '', second] = key.slice(prefix.length + 1).split('/')
    if (kind === 'members' && second === undefined) members.push({ id: first, name })
    else if (kind === 'owners' && second !== undefined && /^\d{1,4}$/.test(first)) owners.set(Number(first), second)
  }
  return { revision, members, owners }
}
