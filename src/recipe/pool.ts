/**
 * Things of which one takes as many as one needs: GPUs, licences, test machines.
 *
 * A member is offered for as long as its offer is held, with labels to choose by and, if it can be shared out, units. Whoever takes waits
 * in one fair queue for any so many of those that match. Members that come to match while it waits are among them, from then on: it stands
 * in their queues where it would have stood from the start.
 *
 * Not promised: that what was granted still matches. A member that is offered no more, or relabelled, is not taken from those who wait for it.
 */
import { pause, whenAborted } from '../clock.ts'
import { type Duration, inWords, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { MAX_RESOURCES } from '../kernel/command.ts'
import type { Lease } from '../lease.ts'
import type { AcquireOptions, Leases } from '../leases.ts'
import { checkOptionNames } from '../options.ts'

/** Between two tries to follow what is offered, while the lessor does not answer. */
const RETRY = 500

export type Labels = Readonly<Record<string, string>>

export interface Member {
  readonly member: string
  /** What is held when it is taken. */
  readonly resource: string
  readonly labels: Labels
  readonly units: number
}

export interface TakeOptions
  extends Pick<AcquireOptions, 'ttl' | 'wait' | 'priority' | 'signal' | 'renew' | 'maxHold' | 'parent' | 'onWait'> {
  /** Of each member; all that it has unless said otherwise: then nobody else is on it. */
  readonly units?: number
  readonly match?: Labels
  /** How long it will be used, for those who wait and those who plan. */
  readonly expect?: Duration
}

const TAKE = ['ttl', 'wait', 'priority', 'signal', 'renew', 'maxHold', 'parent', 'onWait', 'units', 'match', 'expect'] as const

export class Pool {
  readonly #leases: Leases
  readonly #name: string
  readonly #match: Labels

  constructor(leases: Leases, name: string, options: { readonly match?: Labels } = {}) {
    checkOptionNames('pool', options, ['match'])
    this.#leases = leases
    this.#name = name
    this.#match = options.match ?? {}
  }

  /** The member is in the pool for as long as the returned lease is held. */
  async offer(member: string, options: { labels?: Labels; units?: number; ttl?: Duration } = {}): Promise<Lease> {
    checkOptionNames('offer', options, ['labels', 'units', 'ttl'])
    const { labels = {}, units = 1, ttl } = options
    let undo: Undo | undefined
    let offer: Lease | undefined
    try {
      // Before it is seen: whoever takes it must find its capacity in force. And after: one who has just withdrawn it may have taken that away.
      undo = await this.#fit(member, units)
      offer = await this.#leases.grant({
        entries: { [this.#key(member)]: written({ labels, units }) },
        ...(ttl !== undefined && { ttl }),
      })
      undo = (await this.#fit(member, units)) ?? undo
    } catch (error) {
      await offer?.release().catch(() => {}) // it lapses by itself
      await undo?.(offer?.id ?? 0)
      throw error
    }
    const { id, signal } = offer // and not the handle: an offer that is forgotten must be collected
    const gone = undo
    if (gone !== undefined) whenAborted(signal, () => void gone(id))
    return offer
  }

  /**
   * Its capacity, beside whatever rules an operator has set there; also where one who shared it out has died: who takes all of ours must be alone
   * on it. What this returns takes it away again, unless somebody has changed the rules.
   */
  async #fit(member: string, capacity: number): Promise<Undo | undefined> {
    const { clock, lessor } = this.#leases
    const prefix = `${this.#name}/${member}`
    const now = await lessor.read({ kind: 'resource', resource: prefix }, { consistent: true }).catch(error => {
      // Whose key may not read can offer what usually needs no rule.
      if (error instanceof LeaseError && error.code === 'FORBIDDEN' && capacity === 1) return undefined
      throw error
    })
    if (now === undefined || now.value.capacity === capacity) return undefined
    const rulesNow = async () => {
      const { value } = await lessor.read({ kind: 'policies' }, { consistent: true })
      return value.find(policy => policy.prefix === prefix)?.rules
    }
    const before = await rulesNow()
    await this.#leases.policy(prefix, { ...before, capacity })
    const others = JSON.stringify(await rulesNow())
    return async offer => {
      try {
        // Its release is on its way.
        let by = await this.#offerOf(member)
        for (let wait = RETRY / 16; by?.lease === offer && wait < 8 * RETRY; wait *= 2) {
          await pause(clock, wait)
          by = await this.#offerOf(member)
        }
        if (by !== undefined || JSON.stringify(await rulesNow()) !== others) return
        await lessor.propose({ kind: 'policy', prefix, ...(before !== undefined && { rules: before }) })
        // Whoever has offered it while we looked needs its own.
        const next = await this.#offerOf(member)
        if (next !== undefined) await this.#fit(member, next.units)
      } catch {
        // The lessor is gone or closed: the rule stays until the member is offered again, and does no harm to a name that nobody offers.
      }
    }
  }

  async #offerOf(member: string): Promise<(Offered & { readonly lease: number }) | undefined> {
    const { value } = await this.#leases.lessor.read({ kind: 'entries', prefix: this.#key(member) }, { consistent: true })
    const entry = value.find(({ key }) => key === this.#key(member))
    const offered = entry && read(entry.value)
    return offered && { ...offered, lease: entry.lease }
  }

  /** Other labels for a member that `offer` has offered. */
  async relabel(offer: Lease, member: string, labels: Labels): Promise<void> {
    const offered = await this.#offerOf(member)
    if (offered === undefined)
      throw new LeaseError('NOT_FOUND', `${member} is not offered in the pool ${this.#name}`, { facts: { member } })
    await offer.put(this.#key(member), written({ labels, units: offered.units }))
  }

  /** Those that match, taken or not. */
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
        const offered = read(value)
        return offered === undefined ? [] : [{ member, resource: `${this.#name}/${member}`, ...offered }]
      })
      .filter(({ labels }) => wanted.every(([name, value]) => labels[name] === value))
    return { revision, members }
  }

  #key(member: string): string {
    return `pool/${this.#name}/${member}`
  }

  /**
   * Any `count` of those that match, all at once. Its `resources` say which. Where fewer are offered, a `wait` also waits for members; without one
   * that is `NOT_FOUND`. Of more than 256 it asks for so many at a time, for free ones first.
   */
  async take(count = 1, options: TakeOptions = {}): Promise<Lease> {
    if (typeof count !== 'number') throw new LeaseError('INVALID', 'how many are taken comes first: write take(count, options)')
    checkOptionNames('take', options, TAKE)
    const { units, match = {}, expect, ...rest } = options
    const asked: Writable<typeof rest> = { ...rest }
    const { clock } = this.#leases
    const began = clock.now()
    const fitting = async () => {
      const { revision, members } = await this.#offered(match, asked.signal)
      return { revision, members: members.filter(member => units === undefined || member.units >= units) }
    }
    const waits = asked.wait !== undefined && asked.wait !== false && asked.wait !== 0
    const limit = asked.wait === true ? Number.POSITIVE_INFINITY : milliseconds(asked.wait || 0, 'wait')
    const unitsOf = (member: Member) => units ?? member.units
    for (;;) {
      let { revision, members } = await fitting()
      if (members.length < count && waits) {
        const enough = async () => {
          ;({ revision, members } = await fitting())
          return members.length >= count
        }
        await this.#whenOffered(revision, enough, Math.max(0, limit - (clock.now() - began)), asked.signal)
      }
      if (waits && limit < Number.POSITIVE_INFINITY) asked.wait = Math.max(1, Math.round(limit - (clock.now() - began)))
      if (members.length < count)
        throw new LeaseError('NOT_FOUND', `the pool ${this.#name} has ${members.length} members that match, ${count} were asked for`, {
          facts: { pool: this.#name, members: members.length, count },
        })
      const chosen = members.length <= MAX_RESOURCES ? members : await this.#some(members, unitsOf, asked.signal)
      let following = new AbortController()
      try {
        return await this.#leases.acquire(
          chosen.map(({ resource }) => resource),
          {
            ...asked,
            any: count,
            units: Object.fromEntries(chosen.map(member => [member.resource, unitsOf(member)])),
            ...(expect !== undefined && { labels: { expect: String(milliseconds(expect, 'expect')) } }),
            // Again when its place was lost: whatever was offered since then is not among what it asked for anew.
            onQueued: lease => {
              if (chosen !== members) return // it waits for as many as one can
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
        )
      } catch (error) {
        // A member that was withdrawn since we looked has no units to give any more: then it is not asked for.
        if (!(error instanceof LeaseError && error.code === 'INVALID')) throw error
        if (JSON.stringify((await fitting()).members) === JSON.stringify(members)) throw error
      } finally {
        following.abort()
      }
    }
  }

  /** As many as one can ask for at once: those that are free, and of all others any. */
  async #some(members: readonly Member[], unitsOf: (member: Member) => number, signal?: AbortSignal): Promise<readonly Member[]> {
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

  /** Resolves when there are enough; throws `TIMEOUT` when that took too long. */
  async #whenOffered(after: number, enough: () => Promise<boolean>, limit: number, signal: AbortSignal | undefined): Promise<void> {
    const { clock, lessor } = this.#leases
    const over = new AbortController()
    const leave = () => over.abort(signal!.reason)
    signal?.addEventListener('abort', leave, { once: true })
    if (signal?.aborted) leave()
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
      signal?.removeEventListener('abort', leave)
    }
  }

  /** Whatever is offered from `after` on is offered to whoever waits as well. */
  async #follow(after: number, signal: AbortSignal, widen: () => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      try {
        for await (const [event] of this.#leases.lessor.watch(`pool/${this.#name}`, { after, types: ['put'], signal })) {
          await widen()
          after = event!.revision
        }
      } catch (error) {
        if (isRefusal(error)) return // it goes on waiting for what it waits for
      }
      if (!signal.aborted) await pause(this.#leases.clock, RETRY, signal).catch(() => {})
    }
  }

  /** Undefined when fewer are free. */
  async tryTake(count = 1, options: Omit<TakeOptions, 'wait'> = {}): Promise<Lease | undefined> {
    checkOptionNames(
      'tryTake',
      options,
      TAKE.filter(name => name !== 'wait'),
    )
    try {
      return await this.take(count, { ...options, wait: 0 })
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'HELD') return undefined
      throw error
    }
  }
}

/** For an offer that has ended. */
type Undo = (offer: number) => Promise<void>

function sum(grants: readonly { readonly units: number }[]): number {
  return grants.reduce((total, { units }) => total + units, 0)
}

type Writable<T> = { -readonly [K in keyof T]: T[K] }

/** Asked again it would be refused again. */
function isRefusal(error: unknown): boolean {
  return error instanceof LeaseError && error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN'
}

interface Offered {
  readonly labels: Labels
  readonly units: number
}

function written(offered: Offered): string {
  return JSON.stringify(offered)
}

/** Undefined for what is no offer: whoever else writes there must not keep all from taking. */
function read(value: string): Offered | undefined {
  try {
    const { labels, units } = JSON.parse(value) as Offered
    return typeof labels === 'object' && labels !== null && Number.isSafeInteger(units) && units > 0 ? { labels, units } : undefined
  } catch {
    return undefined
  }
}
