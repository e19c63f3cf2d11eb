/**
 * Things of which one takes as many as one needs: GPUs, licences, test machines.
 *
 * A member is offered for as long as its offer is held, with labels to choose by and, if it can be shared out, units. Whoever takes waits
 * in one fair queue for any so many of those that match when it asks; members that are offered later are not among them.
 */
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Lease } from '../lease.ts'
import type { AcquireOptions, Leases } from '../leases.ts'

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
    const value = JSON.stringify({ labels, units })
    return this.#leases.open({ entries: { [`pool/${this.#name}/${member}`]: value }, ...(ttl !== undefined && { ttl }) })
  }

  /** Those that match, taken or not. */
  async members(match: Labels = {}): Promise<readonly Member[]> {
    const wanted = Object.entries({ ...this.#match, ...match })
    const { value } = await this.#leases.read({ kind: 'entries', prefix: `pool/${this.#name}` }, { consistent: true })
    return value
      .map(({ key, value }) => {
        const member = key.slice(`pool/${this.#name}/`.length)
        const { labels, units } = JSON.parse(value) as { labels: Labels; units: number }
        return { member, resource: `${this.#name}/${member}`, labels, units }
      })
      .filter(({ labels }) => wanted.every(([name, value]) => labels[name] === value))
  }

  /** Any `count` of those that match, all at once. Its `resources` say which. */
  async take(count = 1, options: TakeOptions = {}): Promise<Lease> {
    const { units, match, expect, ...asked } = options
    const members = await this.members(match)
    const fitting = members.filter(member => units === undefined || member.units >= units)
    if (fitting.length < count)
      throw new LeaseError('NOT_FOUND', `the pool ${this.#name} has ${fitting.length} members that match, ${count} were asked for`, {
        facts: { pool: this.#name, members: fitting.length, count },
      })
    return this.#leases.acquire(
      fitting.map(({ resource }) => resource),
      {
        ...asked,
        any: count,
        units: Object.fromEntries(fitting.map(member => [member.resource, units ?? member.units])),
        ...(expect !== undefined && { labels: { expect: String(milliseconds(expect, 'expect')) } }),
      },
    )
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
