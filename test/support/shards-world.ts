/**
 * Members of one group of shards on one virtual clock, that join, leave, die and stall. Every assignment and every step is checked: no two members
 * have a shard at once, and a shard moves only after the work of its former owner has ended.
 */
import type { Shard } from '../../src/recipe/shards/shards.ts'
import type { SilentLessor, silentLessor } from '../../src/testing/in-memory.ts'
import type { ManualClock } from '../../src/testing/manual-clock.ts'

/** The world needs this of a build of the library: the source, or a copy of it with a mistake. */
export interface Build {
  readonly ManualClock: typeof ManualClock
  readonly silentLessor: typeof silentLessor
}

export const TTL = 10_000

interface WorldMember {
  readonly name: string
  readonly lessor: SilentLessor
  readonly off: AbortController
  readonly left: Promise<void>
  /** The work that is under way: from `onAssigned` until `onRevoked` has settled. */
  readonly working: Map<number, Shard>
  dead: boolean
}

export interface WorldOptions {
  readonly count: number
  /** Returns how long the work on a shard takes to end, in ms. */
  readonly stopTakes?: (shard: number) => number
  readonly budget?: number
}

export class ShardsWorld {
  readonly clock: ManualClock
  readonly members = new Map<string, WorldMember>()
  readonly #build: Build
  readonly #options: WorldOptions
  readonly #log: ReturnType<typeof silentLessor>['log']
  readonly #tokens = new Map<number, number>()
  readonly violations: string[] = []

  constructor(build: Build, options: WorldOptions) {
    this.#build = build
    this.#options = options
    this.clock = new build.ManualClock()
    this.#log = build.silentLessor({ clock: this.clock }).log
  }

  get living(): readonly WorldMember[] {
    return [...this.members.values()].filter(({ dead, off }) => !dead && !off.signal.aborted)
  }

  join(name: string): WorldMember {
    const { clock } = this
    const { count, budget, stopTakes = () => 0 } = this.#options
    const { leases, lessor } = this.#build.silentLessor({ clock, log: this.#log, holder: name })
    const off = new AbortController()
    const working = new Map<number, Shard>()
    const shards = leases.shards('s', { count, ttl: TTL, ...(budget !== undefined && { budget }) })
    const left = shards.join({
      signal: off.signal,
      onAssigned: shard => {
        const token = this.#tokens.get(shard.index) ?? 0
        if (shard.token <= token) this.#broken(`shard ${shard.index} came with token ${shard.token} after ${token}`)
        this.#tokens.set(shard.index, shard.token)
        for (const other of this.members.values()) {
          const had = other.working.get(shard.index)
          // Work whose lease is lost, or that has spent its budget, was told so by its signal.
          if (had !== undefined && other !== member && !other.dead && had.held)
            this.#broken(`${name} was assigned shard ${shard.index} while ${other.name} had it`)
          if (had !== undefined && other !== member && !other.dead && budget === undefined && had.lease.signal.reason?.code !== 'LOST')
            this.#broken(`${name} was assigned shard ${shard.index} before the work of ${other.name} had ended`)
        }
        working.set(shard.index, shard)
      },
      onRevoked: async shard => {
        if (!shard.signal.aborted) this.#broken(`shard ${shard.index} was revoked before its signal fired`)
        const ms = stopTakes(shard.index)
        if (ms > 0) await new Promise<void>(resolve => clock.after(ms, resolve))
        if (working.get(shard.index) === shard) working.delete(shard.index)
      },
    })
    const member: WorldMember = { name, lessor, off, left, working, dead: false }
    left.catch(error => this.#broken(`${name} failed: ${error}`))
    this.members.set(name, member)
    return member
  }

  leave(name: string): void {
    this.members.get(name)!.off.abort()
  }

  /** The process is gone: it says nothing any more, and believes nothing. */
  kill(name: string): void {
    const member = this.members.get(name)!
    member.dead = true
    member.lessor.stopAnswering()
  }

  /** The member cannot reach the lessor for `ms`. */
  stall(name: string, ms: number): void {
    const { lessor, dead } = this.members.get(name)!
    if (dead) return
    lessor.stopAnswering()
    this.clock.after(ms, () => {
      if (!this.members.get(name)!.dead) lessor.answer()
    })
  }

  async pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 250) {
      await this.clock.advance(Math.min(250, left))
      this.#check()
    }
  }

  #check(): void {
    const believers = new Map<number, string>()
    for (const { name, working, dead } of this.members.values())
      for (const [index, shard] of dead ? [] : working) {
        if (!shard.held) continue
        const other = believers.get(index)
        if (other !== undefined) this.#broken(`${name} and ${other} both have shard ${index}`)
        believers.set(index, name)
      }
  }

  /** The owner and the token of each shard. */
  get owners(): ReadonlyMap<number, { readonly name: string; readonly token: number }> {
    const owners = new Map<number, { name: string; token: number }>()
    for (const { name, working, dead } of this.members.values())
      for (const [index, shard] of dead ? [] : working) if (shard.held) owners.set(index, { name, token: shard.token })
    return owners
  }

  /** After everything has come to rest: every shard has an owner, and no member has more than its part. */
  checkRest(): void {
    const { living, owners } = this
    const { count } = this.#options
    if (living.length === 0) return
    if (owners.size !== count) this.#broken(`${count - owners.size} shards have no owner`)
    for (const { name } of living) {
      const has = [...owners.values()].filter(owner => owner.name === name).length
      if (has < Math.floor(count / living.length) || has > Math.ceil(count / living.length))
        this.#broken(`${name} has ${has} of ${count} shards, with ${living.length} members`)
    }
  }

  #broken(what: string): void {
    this.violations.push(`at ${this.clock.now()}: ${what}`)
  }
}

/** Long enough for lost leases to lapse, works to end and shards to move, twice. */
export const REST = 4 * TTL + 10_000
