/**
 * Pools of members, of which a caller takes as many as it needs: GPUs, licences, test machines.
 *
 * A member is in the pool while its offer is held, with labels to choose by and, if it can be shared, units. A taker waits in one fair queue for
 * any members that match. Members that come to match during the wait count from then on: the taker gets the place in their queues that it
 * would have had from the start.
 *
 * Not promised: that a granted member still matches. A member that is withdrawn or relabelled is not taken from the queues of those that
 * already wait for it.
 */
import { chainAbort, pause, whenAborted } from '../clock.ts'
import { type Duration, inWords, milliseconds } from '../duration.ts'
import { isRefusal, LeaseError } from '../errors.ts'
import { type AcquireOptions, waitOf } from '../holder/acquire-options.ts'
import type { LeaseClient } from '../holder/lease-client.ts'
import { MAX_RESOURCES } from '../kernel/command.ts'
import type { Lease } from '../lease.ts'
import { checkOptionNames } from '../options.ts'

/** Pause before the pool is followed again after an error. */
const RETRY = 500

export type Labels = Readonly<Record<string, string>>

export interface PoolOptions {
  /** Only members with these labels. */
  readonly match?: Labels
}

export interface Member {
  readonly member: string
  /** The resource that is held while the member is taken. */
  readonly resource: string
  readonly labels: Labels
  readonly units: number
}

export interface OfferOptions {
  readonly labels?: Labels
  /**
   * How many units the member has. Takers share it if they take fewer.
   * @default 1
   */
  readonly units?: number
  /** How long the member stays in the pool after its owner crashed. */
  readonly ttl?: Duration
}

/** Options of `take`. It waits by the same rule as `acquire`: until granted, unless `wait`, `ifAvailable` or `signal` end the wait. */
export interface TakeOptions
  extends Pick<AcquireOptions, 'ttl' | 'wait' | 'ifAvailable' | 'signal' | 'priority' | 'renew' | 'maxHold' | 'parent' | 'onWait'> {
  /**
   * How many units of each member.
   * @default all of them: then no other taker is on it
   */
  readonly units?: number
  /** Only members with these labels, besides those of the pool. */
  readonly match?: Labels
  /** How long it will be used, for waiters and planners. */
  readonly expect?: Duration
}

const TRY_TAKE = ['ttl', 'priority', 'signal', 'renew', 'maxHold', 'parent', 'onWait', 'units', 'match', 'expect'] as const
const TAKE = ['wait', 'ifAvailable', ...TRY_TAKE] as const

/** Removes the capacity that an offer has set, after the offer has ended. */
type UndoCapacity = (offer: number) => Promise<void>

/**
 * @example
 * const gpus = leases.pool('gpu', { match: { model: 'A100' } })
 * await using two = await gpus.take(2, { wait: '1h', expect: '20m' })
 * console.log(two.resources)
 */
export class Pool {
  readonly #leases: LeaseClient
  readonly #name: string
  readonly #match: Labels

  constructor(leases: LeaseClient, name: string, options: PoolOptions = {}) {
    checkOptionNames('pool', options, ['match'])
    this.#leases = leases
    this.#name = name
    this.#match = options.match ?? {}
  }

  /**
   * Offers a member: it is in the pool while the returned lease is held.
   *
   * @example
   * await using offer = await leases.pool('gpu').offer('gpu-0', { labels: { model: 'A100' } })
   */
  async offer(member: string, options: OfferOptions = {}): Promise<Lease> {
    checkOptionNames('offer', options, ['labels', 'units', 'ttl'])
    const { labels = {}, units = 1, ttl } = options
    let undo: UndoCapacity | undefined
    let offer: Lease | undefined
    try {
      // Before it is listed: a taker must find its capacity in force. And after: a former owner that has just withdrawn it may have removed that.
      undo = await this.#setCapacity(member, units)
      offer = await this.#leases.grant({
        entries: { [this.#key(member)]: JSON.stringify({ labels, units }) },
        ...(ttl !== undefined && { ttl }),
      })
      undo = (await this.#setCapacity(member, units)) ?? undo
    } catch (error) {
      await offer?.release().catch(() => {}) // it lapses by itself
      await undo?.(offer?.id ?? 0)
      throw error
    }
    const { id, signal } = offer // not the handle: an offer without references must be collected
    const undoCapacity = undo
    if (undoCapacity !== undefined) whenAborted(signal, () => void undoCapacity(id))
    return offer
  }

  /**
   * Sets the capacity of a member, beside the rules that an operator has set there; also if a former owner with other units has died, because a
   * taker of all units must be alone on it. The returned function removes the capacity, unless the rules have been changed since.
   */
  async #setCapacity(member: string, capacity: number): Promise<UndoCapacity | undefined> {
    const { clock, lessor } = this.#leases
    const prefix = `${this.#name}/${member}`
    const present = await lessor.read({ kind: 'resource', resource: prefix }, { consistent: true }).catch(error => {
      // A key that may not read can offer a member of one unit, which usually needs no rule.
      if (LeaseError.is(error, 'FORBIDDEN') && capacity === 1) return undefined
      throw error
    })
    if (present === undefined || present.value.capacity === capacity) return undefined
    const readRules = async () => {
      const { value } = await lessor.read({ kind: 'policies' }, { consistent: true })
      return value.find(policy => policy.prefix === prefix)?.rules
    }
    const before = await readRules()
    await this.#leases.setPolicy(prefix, { ...before, capacity })
    const ours = JSON.stringify(await readRules())
    return async offer => {
      try {
        // The release of the offer is under way.
        let present = await this.#offerOf(member)
        for (let wait = RETRY / 16; present?.lease === offer && wait < 8 * RETRY; wait *= 2) {
          await pause(clock, wait)
          present = await this.#offerOf(member)
        }
        if (present !== undefined || JSON.stringify(await readRules()) !== ours) return
        await lessor.propose({ kind: 'policy', prefix, ...(before !== undefined && { rules: before }) })
        // An owner that has offered it meanwhile needs its own capacity.
        const next = await this.#offerOf(member)
        if (next !== undefined) await this.#setCapacity(member, next.units)
      } catch {
        // The lessor is gone or closed: the rule stays until the member is offered again. It does no harm to a name that is not offered.
      }
    }
  }

  async #offerOf(member: string): Promise<(OfferEntry & { readonly lease: number }) | undefined> {
    const { value } = await this.#leases.lessor.read({ kind: 'entries', prefix: this.#key(member) }, { consistent: true })
    const entry = value.find(({ key }) => key === this.#key(member))
    const offered = entry && parseOffer(entry.value)
    return offered && { ...offered, lease: entry.lease }
  }

  /** Changes the labels of a member that `offer` has offered. */
  async relabel(offer: Lease, member: string, labels: Labels): Promise<void> {
    const offered = await this.#offerOf(member)
    if (offered === undefined)
      throw new LeaseError('NOT_FOUND', `${member} is not offered in the pool ${this.#name}`, { facts: { member } })
    await offer.put(this.#key(member), JSON.stringify({ labels, units: offered.units }))
  }

  /** The members that match, taken or not. */
  async members(match: Labels = {}): Promise<readonly Member[]> {
    return (await this.#offered(match)).members
  }

  async #offered(match: Labels, signal?: AbortSignal): Promise<{ readonly revision: number; readonly members: readonly Member[] }> {
    signal?.throwIfAborted()
    const wanted = Object.entries({ ...this.#match, ...match })
    const { revision, value } = await this.#leases.read(
      { kind: 'entries', prefix: `pool/${this.#name}` },
      { consistent: true, ...(signal !== undefined && { signal }) },
    )
    const members = value
      .flatMap(({ key, value }) => {
        const member = key.slice(this.#key('').length)
        const offered = parseOffer(value)
        return offered === undefined ? [] : [{ member, resource: `${this.#name}/${member}`, ...offered }]
      })
      .filter(({ labels }) => wanted.every(([name, value]) => labels[name] === value))
    return { revision, members }
  }

  #key(member: string): string {
    return `pool/${this.#name}/${member}`
  }

  /**
   * Takes any `count` of the members that match, all at once; `resources` of the lease says which. Waits until enough members are offered and
   * free, unless `wait`, `ifAvailable` or `signal` end the wait. With `ifAvailable`, rejects with `HELD`. Of more than 256 members, 256 are
   * requested at a time, free ones first.
   *
   * @example
   * await using gpu = await leases.pool('gpu').take(1, { match: { model: 'H100' }, wait: '10m' })
   */
  async take(count = 1, options: TakeOptions = {}): Promise<Lease> {
    if (typeof count !== 'number') throw new LeaseError('INVALID', 'the count comes first: write take(count, options)')
    checkOptionNames('take', options, TAKE)
    return this.#take(count, options, waitOf(options, 'take'))
  }

  /** As `take`, without waiting: undefined if too few are offered or free. */
  async tryTake(count = 1, options: Omit<TakeOptions, 'wait' | 'ifAvailable'> = {}): Promise<Lease | undefined> {
    checkOptionNames('tryTake', options, TRY_TAKE)
    try {
      return await this.#take(count, options, 0)
    } catch (error) {
      if (LeaseError.is(error, 'HELD')) return undefined
      throw error
    }
  }

  async #take(count: number, options: TakeOptions, limit: number): Promise<Lease> {
    const { units, match = {}, expect, wait: _, ifAvailable: __, ...rest } = options
    const { signal } = rest
    const { clock } = this.#leases
    const end = clock.now() + limit
    const fitting = async () => {
      const { revision, members } = await this.#offered(match, signal)
      return { revision, members: members.filter(member => units === undefined || member.units >= units) }
    }
    const unitsOf = (member: Member) => units ?? member.units
    for (;;) {
      let { revision, members } = await fitting()
      if (members.length < count) {
        if (limit === 0) throw this.#tooFew(members.length, count)
        const enough = async () => {
          ;({ revision, members } = await fitting())
          return members.length >= count
        }
        await this.#whenOffered(revision, enough, Math.max(0, end - clock.now()), signal)
        if (members.length < count) continue // the watch ended: read again
      }
      const chosen = members.length <= MAX_RESOURCES ? members : await this.#freeFirst(members, unitsOf, signal)
      let following = new AbortController()
      try {
        return await this.#leases.acquire(
          chosen.map(({ resource }) => resource),
          {
            ...rest,
            ...(limit === 0 && { ifAvailable: true }),
            ...(limit > 0 && limit < Number.POSITIVE_INFINITY && { wait: Math.max(1, Math.round(end - clock.now())) }),
            units: Object.fromEntries(chosen.map(member => [member.resource, unitsOf(member)])),
            ...(expect !== undefined && { labels: { expect: String(milliseconds(expect, 'expect')) } }),
            advanced: {
              any: count,
              // Called again if the place was lost: the new request lacks the members that were offered since.
              onQueued: lease => {
                if (chosen !== members) return // it waits for as many as one request can name
                following.abort()
                following = new AbortController()
                const widen = async () => {
                  const offered = await fitting()
                  const wants = offered.members.map(member => ({ resource: member.resource, units: unitsOf(member) }))
                  if (await this.#leases.widen(lease, wants)) revision = offered.revision
                }
                void this.#follow(revision, following.signal, widen)
              },
            },
          },
        )
      } catch (error) {
        // A member that was withdrawn since we read has no units any more: read again, without it.
        if (!LeaseError.is(error, 'INVALID')) throw error
        if (JSON.stringify((await fitting()).members) === JSON.stringify(members)) throw error
      } finally {
        following.abort()
      }
    }
  }

  #tooFew(members: number, count: number): LeaseError {
    return new LeaseError('HELD', `${members} members of the pool ${this.#name} match, fewer than the ${count} to take`, {
      facts: { pool: this.#name, members, count },
    })
  }

  /** As many as one request can name: the free ones, then any others. */
  async #freeFirst(members: readonly Member[], unitsOf: (member: Member) => number, signal?: AbortSignal): Promise<readonly Member[]> {
    const { clock, lessor } = this.#leases
    const { value } = await lessor.read(
      { kind: 'resources', prefix: this.#name },
      { consistent: true, ...(signal !== undefined && { signal }) },
    )
    const used = new Map(value.map(({ resource, grants, queue }) => [resource, queue.length > 0 ? Number.POSITIVE_INFINITY : sum(grants)]))
    const rank = (member: Member) => ((used.get(member.resource) ?? 0) + unitsOf(member) <= member.units ? 0 : 1) + clock.random()
    const ranked = members.map(member => ({ member, rank: rank(member) })).sort((a, b) => a.rank - b.rank)
    return ranked.slice(0, MAX_RESOURCES).map(({ member }) => member)
  }

  /** Resolves when enough members are offered; throws `TIMEOUT` when that took too long. */
  async #whenOffered(after: number, enough: () => Promise<boolean>, limit: number, signal: AbortSignal | undefined): Promise<void> {
    const { clock, lessor } = this.#leases
    const over = new AbortController()
    const unchain = chainAbort(signal, over)
    const late = new LeaseError('TIMEOUT', `the pool ${this.#name} had too few members that match for ${inWords(limit)}`, {
      facts: { pool: this.#name },
    })
    const cancel = limit === Number.POSITIVE_INFINITY ? () => {} : clock.after(limit, () => over.abort(late), { ref: true })
    try {
      for await (const [event] of this.#leases.watch(`pool/${this.#name}`, { after, signal: over.signal })) {
        after = event!.revision
        if (await enough()) return
      }
      over.signal.throwIfAborted()
      lessor.signal.throwIfAborted()
    } finally {
      cancel()
      over.abort()
      unchain()
    }
  }

  /** Calls `widen` whenever a member is offered after `after`. */
  async #follow(after: number, signal: AbortSignal, widen: () => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      try {
        for await (const [event] of this.#leases.lessor.watch(`pool/${this.#name}`, { after, types: ['put'], signal })) {
          await widen()
          after = event!.revision
        }
      } catch (error) {
        if (isRefusal(error)) return // it goes on waiting for the members that it has named
      }
      if (!signal.aborted) await pause(this.#leases.clock, RETRY, signal).catch(() => {})
    }
  }
}

function sum(grants: readonly { readonly units: number }[]): number {
  return grants.reduce((total, { units }) => total + units, 0)
}

/** The value of an offer's entry. */
interface OfferEntry {
  readonly labels: Labels
  readonly units: number
}

/** Undefined for a value that is no offer: a foreign entry must not keep all takers from taking. */
function parseOffer(value: string): OfferEntry | undefined {
  try {
    const { labels, units } = JSON.parse(value) as OfferEntry
    return typeof labels === 'object' && labels !== null && Number.isSafeInteger(units) && units > 0 ? { labels, units } : undefined
  } catch {
    return undefined
  }
}
