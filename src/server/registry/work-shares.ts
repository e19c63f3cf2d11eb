/**
 * Divides work between the servers on one store. The work has a fixed number of parts, each part is a resource, and the server that holds its
 * lease does its work. A server stops work on a part before its lease can end.
 *
 * Each server also lists itself. A fair share is the number of parts divided by the number of listed servers: a server with more releases some,
 * a server with less acquires free ones.
 */
import { type Clock, pause } from '../../clock.ts'
import { GONE } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import type { Lessor } from '../../lessor.ts'

export interface WorkSharesOptions {
  readonly lessor: Lessor
  readonly clock: Clock
  /** The name of the work, in `leasehold/NAME/parts/3` and `leasehold/NAME/servers/ID` (`CHECKERS` of src/registry/entry.ts is one). */
  readonly name: string
  /** A unique name of this server. */
  readonly id: string
  /** @default 64 */
  readonly parts?: number
  /** @default 10_000 */
  readonly ttl?: number
}

interface HeldPart {
  readonly lease: number
  /** Counted from before the request was sent: the lease cannot have started earlier. */
  until: number
}

/** A margin for clocks that run at different rates. */
const USABLE_SHARE = 0.99
/** `close` waits this long for the releases. */
const CLOSE_TIMEOUT = 1_000

export class WorkShares implements AsyncDisposable {
  readonly #options: Required<WorkSharesOptions>
  readonly #held = new Map<number, HeldPart>()
  #listed: HeldPart | undefined
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

  /** The number of parts that this server has now. */
  get size(): number {
    let size = 0
    for (let part = 0; part < this.parts; part++) if (this.has(part)) size++
    return size
  }

  /** Returns whether this server does the work of `part` now. */
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
      // The lessor does not answer. The parts of this server end by its own clock.
    }
    if (!this.#closed) this.#cancel = clock.after((ttl / 4) * (0.8 + clock.random() / 5), () => (this.#working = this.#round()))
  }

  async #renew(): Promise<void> {
    const { lessor, clock } = this.#options
    const all = [...this.#held.values(), ...(this.#listed === undefined ? [] : [this.#listed])]
    if (all.length === 0) return
    const sent = clock.now()
    const outcome = await propose(lessor, { kind: 'renew', leases: all.map(({ lease }) => lease) })
    if (outcome.kind !== 'renewed') return
    for (const [i, held] of all.entries()) held.until = outcome.ttls[i] === GONE ? 0 : sent + outcome.ttls[i]! * USABLE_SHARE
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
      this.#held.delete(part) // stop first, then release
      await propose(lessor, { kind: 'release', lease })
    }
    const free = Array.from({ length: parts }, (_, part) => part).filter(part => !busy.has(part) && !this.#held.has(part))
    while (this.#held.size < fair && free.length > 0 && !this.#closed) {
      const [part] = free.splice(Math.floor(clock.random() * free.length), 1)
      const held = await this.#acquire([{ resource: `leasehold/${name}/parts/${part}` }], [])
      if (held !== undefined) this.#held.set(part!, held)
    }
  }

  async #acquire(wants: { resource: string }[], entries: { key: string; value: string }[]): Promise<HeldPart | undefined> {
    const { lessor, clock, id, ttl } = this.#options
    const sent = clock.now()
    const outcome = await propose(lessor, { kind: 'acquire', holder: id, ttl, wants, entries })
    return outcome.kind === 'granted' ? { lease: outcome.lease, until: sent + outcome.ttl * USABLE_SHARE } : undefined
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#cancel?.()
    // A server that stops does not wait for a store that does not answer: its leases lapse by themselves.
    const { clock } = this.#options
    const late = new AbortController()
    await Promise.race([this.#release(), pause(clock, CLOSE_TIMEOUT, late.signal, { ref: true })])
    late.abort()
  }

  async #release(): Promise<void> {
    await this.#working
    const all = [...this.#held.values(), ...(this.#listed === undefined ? [] : [this.#listed])]
    this.#held.clear()
    await Promise.allSettled(all.map(({ lease }) => propose(this.#options.lessor, { kind: 'release', lease })))
  }
}
