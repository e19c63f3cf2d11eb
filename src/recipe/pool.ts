/**
 * Things of which one takes as many as one needs: GPUs, licences, test machines.
 *
 * A member is offered for as long as its offer is held, with labels to choose by and, if it can be shared out, units. Whoever takes waits
 * in one fair queue for any so many of those that match. Members that come to match while it waits are among them, from then on: it stands
 * in their queues where it would have stood from the start.
 *
 * Not promised: that what was granted still matches. A member that is offered no more, or relabelled, is not taken from those who wait for it.
 */
import { pause } from '../clock.ts'
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Lease } from '../lease.ts'
import type { AcquireOptions, Leases } from '../leases.ts'

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

export class Pool {
  readonly #leases: Leases
  readonly #name: string
  readonly #match: Labels

  constructor(leases: Leases, name: string, { match = {} }: { readonly match?: Labels } = {}) {
    this.#leases = leases
    this.#name = name
    this.#match = match
  }

  /** The member is in the pool for as long as the returned lease is held. */
  async offer(member: string, { labels = {}, units = 1, ttl }: { labels?: Labels; units?: number; ttl?: Duration } = {}): Promise<Lease> {
    // Before it is seen: whoever takes it must find its capacity in force.
    if (units !== 1) await this.#leases.policy(`${this.#name}/${member}`, { capacity: units })
    return this.#leases.open({ entries: { [this.#key(member)]: written({ labels, units }) }, ...(ttl !== undefined && { ttl }) })
  }

  /** Other labels for a member that `offer` has offered. */
  async relabel(offer: Lease, member: string, labels: Labels): Promise<void> {
    const { value } = await this.#leases.read({ kind: 'entries', prefix: this.#key(member) }, { consistent: true })
    const entry = value.find(({ key }) => key === this.#key(member))
    if (entry === undefined) throw new LeaseError('NOT_FOUND', `${member} is not offered in the pool ${this.#name}`, { facts: { member } })
    await offer.put(this.#key(member), written({ labels, units: read(entry.value).units }))
  }

  /** Those that match, taken or not. */
  async members(match: Labels = {}): Promise<readonly Member[]> {
    return (await this.#offered(match)).members
  }

  async #offered(match: Labels): Promise<{ readonly revision: number; readonly members: readonly Member[] }> {
    const wanted = Object.entries({ ...this.#match, ...match })
    const { revision, value } = await this.#leases.read({ kind: 'entries', prefix: `pool/${this.#name}` }, { consistent: true })
    const members = value
      .map(({ key, value }) => {
        const member = key.slice(this.#key('').length)
        return { member, resource: `${this.#name}/${member}`, ...read(value) }
      })
      .filter(({ labels }) => wanted.every(([name, value]) => labels[name] === value))
    return { revision, members }
  }

  #key(member: string): string {
    return `pool/${this.#name}/${member}`
  }

  /** Any `count` of those that match, all at once. Its `resources` say which. */
  async take(count = 1, options: TakeOptions = {}): Promise<Lease> {
    const { units, match = {}, expect, ...asked } = options
    const fitting = async () => {
      const { revision, members } = await this.#offered(match)
      return { revision, members: members.filter(member => units === undefined || member.units >= units) }
    }
    const { revision, members } = await fitting()
    if (members.length < count)
      throw new LeaseError('NOT_FOUND', `the pool ${this.#name} has ${members.length} members that match, ${count} were asked for`, {
        facts: { pool: this.#name, members: members.length, count },
      })
    const unitsOf = (member: Member) => units ?? member.units
    const done = new AbortController()
    let following: Following | undefined
    try {
      return await this.#leases.acquire(
        members.map(({ resource }) => resource),
        {
          ...asked,
          any: count,
          units: Object.fromEntries(members.map(member => [member.resource, unitsOf(member)])),
          ...(expect !== undefined && { labels: { expect: String(milliseconds(expect, 'expect')) } }),
          onQueued: lease => {
            following ??= this.#follow(revision, done.signal, async waiting => {
              const wants = (await fitting()).members.map(member => ({ resource: member.resource, units: unitsOf(member) }))
              await this.#leases.widen(waiting, wants)
            })
            following.lease = lease
          },
        },
      )
    } finally {
      done.abort()
    }
  }

  /** Whatever is offered from `after` on is offered to whoever waits as well. */
  #follow(after: number, signal: AbortSignal, widen: (lease: number) => Promise<void>): Following {
    const following: Following = { lease: 0 }
    void (async () => {
      while (!signal.aborted) {
        try {
          for await (const [event] of this.#leases.lessor.watch(`pool/${this.#name}`, { after, types: ['put'], signal })) {
            await widen(following.lease)
            after = event!.revision
          }
        } catch (error) {
          if (isRefusal(error)) return // it goes on waiting for what it waits for
        }
        if (!signal.aborted) await pause(this.#leases.clock, RETRY, signal).catch(() => {})
      }
    })()
    return following
  }

  /** Undefined when fewer are free. */
  async tryTake(count = 1, options: Omit<TakeOptions, 'wait'> = {}): Promise<Lease | undefined> {
    try {
      return await this.take(count, { ...options, wait: 0 })
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'HELD') return undefined
      throw error
    }
  }
}

/** Asked again it would be refused again. */
function isRefusal(error: unknown): boolean {
  return error instanceof LeaseError && error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN'
}

/** The wait that is followed for: another when its place was lost. */
interface Following {
  lease: number
}

interface Offered {
  readonly labels: Labels
  readonly units: number
}

function written(offered: Offered): string {
  return JSON.stringify(offered)
}

function read(value: string): Offered {
  const { labels, units } = JSON.parse(value) as Offered
  return { labels, units }
}
