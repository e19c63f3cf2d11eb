/**
 * Requests say this about their ends, in a course of events that a forecast plays: by that a `backfill` queue decides who may overtake. How long the work really
 * takes is drawn elsewhere (forecast.ts).
 */
import { expectedEnd } from '../kernel/rule/pool/backfill.ts'
import type { ForecastRequest, ForecastUse, Taken } from './forecast-input.ts'

type Stated = Pick<ForecastRequest, 'expect' | 'atMost'>

/** Uses are numbered: the running leases, then the waiters. */
export class ExpectedEnds {
  readonly #units: readonly number[]
  readonly #running: readonly ForecastUse[]
  readonly #queue: readonly Stated[]
  readonly #takes: (readonly Taken[])[]
  /** When each is expected to end, in ms from the time of the forecast; Infinity: unknown. One that has overstayed is expected to end at any moment. */
  readonly #at: Float64Array
  readonly #holds: Uint8Array
  /** The uses that overtook and hold members. */
  readonly #yields = new Set<number>()
  /** The uses whose end is known, the earliest first. May contain some that have ended. */
  readonly #order: number[] = []
  readonly #orderAtFirst: readonly number[]

  constructor(units: readonly number[], running: readonly ForecastUse[], queue: readonly Stated[]) {
    this.#units = units
    this.#running = running
    this.#queue = queue
    this.#takes = running.map(({ takes }) => takes)
    this.#at = new Float64Array(running.length + queue.length)
    this.#holds = new Uint8Array(running.length + queue.length)
    for (const [use, stated] of running.entries()) this.#at[use] = endOf(-stated.age, stated, stated.age)
    this.#orderAtFirst = [...running.keys()]
      .filter(use => this.#at[use]! < Number.POSITIVE_INFINITY)
      .sort((a, b) => this.#at[a]! - this.#at[b]!)
  }

  /** Starts over with the running leases. */
  begin(): void {
    this.#holds.fill(0)
    this.#holds.fill(1, 0, this.#running.length)
    this.#order.length = 0
    this.#order.push(...this.#orderAtFirst)
    this.#yields.clear()
    for (const [use, { yields }] of this.#running.entries()) if (yields === true) this.#yields.add(use)
  }

  begins(use: number, now: number, takes: readonly Taken[], yields: boolean): void {
    this.#takes[use] = takes
    this.#holds[use] = 1
    if (yields) this.#yields.add(use)
    const at = endOf(now, this.#queue[use - this.#running.length]!, 0)
    this.#at[use] = at
    if (at === Number.POSITIVE_INFINITY) return
    let place = this.#order.length
    while (place > 0 && this.#at[this.#order[place - 1]!]! > at) place--
    this.#order.splice(place, 0, use)
  }

  holds(use: number): boolean {
    return this.#holds[use] === 1
  }

  end(use: number): void {
    this.#holds[use] = 0
    this.#yields.delete(use)
  }

  /** The leases that overtook, if the head would fit once they have ended; otherwise none. */
  yieldingTo(head: ForecastRequest, matches: Uint8Array, free: Float64Array): readonly number[] {
    if (this.#yields.size === 0) return []
    const room = new Room(this.#units, head, matches, free)
    for (const use of this.#yields) room.add(this.#takes[use]!)
    return room.suffices ? [...this.#yields] : []
  }

  /** When the head is expected to start; undefined: unknown. */
  startOf(head: ForecastRequest, matches: Uint8Array, free: Float64Array, now: number): number | undefined {
    const room = new Room(this.#units, head, matches, free)
    for (const use of this.#yields) room.add(this.#takes[use]!)
    if (room.suffices) return now
    for (const use of this.#order) {
      if (this.#holds[use] === 0 || this.#yields.has(use)) continue
      room.add(this.#takes[use]!)
      if (room.suffices) return Math.max(now, this.#at[use]!)
    }
    return undefined
  }
}

function endOf(start: number, { expect = 0, atMost = 0 }: Stated, age: number): number {
  return expectedEnd(start, expect, atMost === 0 ? 0 : atMost + age, Number.NEGATIVE_INFINITY) ?? Number.POSITIVE_INFINITY
}

/** A request could take this, while more and more becomes free. */
class Room {
  readonly #units: readonly number[]
  readonly #request: ForecastRequest
  readonly #matches: Uint8Array
  readonly #free: Float64Array
  /** By group: members that suffice, or units. */
  readonly #sums = new Map<number, number>()
  suffices = false

  constructor(units: readonly number[], request: ForecastRequest, matches: Uint8Array, free: Float64Array) {
    this.#units = units
    this.#request = request
    this.#matches = matches
    this.#free = free.slice()
    for (let member = 0; member < free.length; member++) if (free[member]! > 0) this.#count(member, 0)
  }

  add(takes: readonly Taken[]): void {
    for (const { member, units } of takes) {
      const before = this.#free[member]!
      this.#free[member] = before + units
      this.#count(member, before)
    }
  }

  #count(member: number, before: number): void {
    if (this.#matches[member] === 0) return
    const { each, total, count, groups } = this.#request
    const now = this.#free[member]!
    const wanted = each > 0 ? each : this.#units[member]!
    const more = total > 0 ? now - Math.max(0, before) : before < wanted && now >= wanted ? 1 : 0
    if (more === 0) return
    const group = groups?.[member] ?? 0
    const sum = (this.#sums.get(group) ?? 0) + more
    this.#sums.set(group, sum)
    if (sum >= (total > 0 ? total : count)) this.suffices = true
  }
}
