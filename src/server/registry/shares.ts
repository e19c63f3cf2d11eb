/**
 * Work that several servers on one store share: it is cut into parts, a part is a resource, and whoever holds its lease does its work. Nobody does
 * work whose lease it no longer believes in.
 *
 * Each server also lists itself; a fair share is the parts over the servers that are listed. Who has more gives back, who has less takes what is free.
 */
import { type Clock, pause } from '../../clock.ts'
import { GONE } from '../../kernel/outcome.ts'
import type { Lessor } from '../../lessor.ts'

export interface WorkSharesOptions {
  readonly lessor: Lessor
  readonly clock: Clock
  /** The name of the work: `leasehold/NAME/parts/3`, `leasehold/NAME/servers/ID` (for checks: `CHECKERS` of recipe/registry/entry.ts). */
  readonly name: string
  /** This server, by a name that nobody else has. */
  readonly id: string
  readonly parts?: number
  readonly ttl?: number
}

interface Held {
  readonly lease: number
  /** Believed in until then, counted from before the request left. */
  until: number
}

/** The margin for clocks that run at different rates. */
const BELIEVED = 0.99
/** For giving back what is held, at the end. */
const GOODBYE = 1_000

export class WorkShares implements AsyncDisposable {
  readonly #options: Required<WorkSharesOptions>
  readonly #held = new Map<number, Held>()
  #listed: Held | undefined
  #cancel: (() => void) | undefined
  #working: Promise<void> = Promise.resolve()
  #closed = false

  constructor(options: WorkSharesOptions) {
    this.#options = { parts: 64, ttl: 10_000, ...options }
    this.#working = this.#round()
  }

  get parts(): number {
    return this.#options.parts
  }

  /** How many parts are this server's now. */
  get size(): number {
    let size = 0
    for (let part = 0; part < this.parts; part++) if (this.has(part)) size++
    return size
  }

  has(part: number): boolean {
    return (this.#held.get(part)?.until ?? 0) > this.#options.clock.now()
  }

  async #round(): Promise<void> {
    const { clock, ttl } = this.#options
    try {
      await this.#renew()
      await this.#list()
      await this.#balance()
    } catch {
      // Nobody answers: what is held ends by our own clock.
    }
    if (!this.#closed) this.#cancel = clock.after((ttl / 4) * (0.8 + clock.random() / 5), () => (this.#working = this.#round()))
  }

  async #renew(): Promise<void> {
    const { lessor, clock } = this.#options
    const all = [...this.#held.values(), ...(this.#listed === undefined ? [] : [this.#listed])]
    if (all.length === 0) return
    const sent = clock.now()
    const outcome = await lessor.propose({ kind: 'renew', leases: all.map(({ lease }) => lease) })
    if (outcome.kind !== 'renewed') return
    for (const [i, held] of all.entries()) held.until = outcome.ttls[i] === GONE ? 0 : sent + outcome.ttls[i]! * BELIEVED
    for (const [part, { until }] of this.#held) if (until === 0) this.#held.delete(part)
    if (this.#listed?.until === 0) this.#listed = undefined
  }

  async #list(): Promise<void> {
    if (this.#listed !== undefined) return
    const { name, id } = this.#options
    this.#listed = await this.#acquire([], [{ key: `leasehold/${name}/servers/${id}`, value: '' }])
  }

  async #balance(): Promise<void> {
    const { lessor, name, parts, clock } = this.#options
    const { value: servers } = await lessor.read({ kind: 'entries', prefix: `leasehold/${name}/servers` })
    const fair = Math.ceil(parts / Math.max(1, servers.length))
    const { value: taken } = await lessor.read({ kind: 'resources', prefix: `leasehold/${name}/parts` })
    const busy = new Set(taken.map(({ resource }) => Number(resource.slice(resource.lastIndexOf('/') + 1))))
    for (const [part, { lease }] of this.#held) {
      if (this.#held.size <= fair) break
      this.#held.delete(part) // stop first, then tell
      await lessor.propose({ kind: 'release', lease })
    }
    const free = Array.from({ length: parts }, (_, part) => part).filter(part => !busy.has(part) && !this.#held.has(part))
    while (this.#held.size < fair && free.length > 0 && !this.#closed) {
      const [part] = free.splice(Math.floor(clock.random() * free.length), 1)
      const held = await this.#acquire([{ resource: `leasehold/${name}/parts/${part}` }], [])
      if (held !== undefined) this.#held.set(part!, held)
    }
  }

  async #acquire(wants: { resource: string }[], entries: { key: string; value: string }[]): Promise<Held | undefined> {
    const { lessor, clock, id, ttl } = this.#options
    const sent = clock.now()
    const outcome = await lessor.propose({ kind: 'acquire', holder: id, ttl, wants, entries })
    return outcome.kind === 'granted' ? { lease: outcome.lease, until: sent + outcome.ttl * BELIEVED } : undefined
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#cancel?.()
    // While the store does not answer, a server that stops does not wait for it: what it held lapses by itself.
    const { clock } = this.#options
    const late = new AbortController()
    await Promise.race([this.#leave(), pause(clock, GOODBYE, late.signal, { ref: true })])
    late.abort()
  }

  async #leave(): Promise<void> {
    await this.#working
    const all = [...this.#held.values(), ...(this.#listed === undefined ? [] : [this.#listed])]
    this.#held.clear()
    await Promise.allSettled(all.map(({ lease }) => this.#options.lessor.propose({ kind: 'release', lease })))
  }
}
