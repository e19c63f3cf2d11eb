/**
 * When a waiter of a pool will probably start. The forecast plays the queue forward many times: each time it draws how long every running and every
 * earlier waiting lease will be held, serves the queue as the kernel would, and notes when the waiter gets its members. The interval is made of the
 * quantiles of those starts.
 *
 * It assumes that no later request overtakes and that members neither come nor go.
 */
import { BACKFILL_DEPTH, mayOvertake } from '../kernel/rule/pool/backfill.ts'
import type { PoolRules } from '../lessor.ts'
import type { DurationModel } from './duration-model.ts'
import { ExpectedEnds } from './expected-ends.ts'
import type { ForecastInput, ForecastRequest, Taken } from './forecast-input.ts'

/** In ms from now. `high` is Infinity if some of the work ahead may never end. */
export interface StartForecast {
  readonly low: number
  readonly median: number
  readonly high: number
}

/** Beyond this many waiters ahead, their work is summed up instead of played. */
const PLAYED = 128
const FEWEST_SAMPLES = 16
const MOST_SAMPLES = 200
/** Bounds the work of one forecast: draws of durations. */
const DRAWS = 16_000

/**
 * In each course of events all work runs faster or slower than its model by one common factor. Its logarithm has this standard deviation for a waiter with
 * very many ahead of it, and half of that with `PACE_HALF` ahead. Without it, errors of the model would cancel out over the jobs ahead, and the intervals
 * of long waits would be far too narrow: work that arrives together is of one kind. Chosen on two traces (docs/pools-measured.md).
 */
const PACE_SPREAD = 0.6
const PACE_HALF = 32
/** Rounds in which the time that the rest of a long queue takes is found. */
const ROUNDS = 12

/** The share of starts that should lie between `low` and `high`. */
export const COVERAGE = 0.8

/** Work between two steps of a forecast: draws, and waiters and ends that were looked at. */
const WORK_PER_STEP = 5_000

/** Forecasts the start of the waiter at `position` of the queue. */
export function forecastStart(input: ForecastInput, position: number, coverage = COVERAGE): StartForecast {
  const steps = forecastInSteps(input, position, coverage)
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

/** As `forecastStart`, in steps of bounded work. */
export function* forecastInSteps(input: ForecastInput, position: number, coverage = COVERAGE): Generator<undefined, StartForecast, void> {
  const played = Math.min(position, PLAYED)
  const queue: ForecastRequest[] = []
  const together = Math.ceil(WORK_PER_STEP / Math.max(1, input.units.length))
  for (let at = 0; at < played; at++) {
    // The members that match are looked for.
    if (at % together === together - 1) yield undefined
    queue.push(input.waiter(at))
  }
  queue.push(input.waiter(position))
  const samples = Math.max(FEWEST_SAMPLES, Math.min(MOST_SAMPLES, Math.floor(DRAWS / (input.running.length + played + 1))))
  const random = new Random(0x9e3779b9)
  const play = new Play(input, queue, random)
  const restOfQueue = position > played ? workBetween(input, played, position, random) : (_pace: number) => 0
  const starts = new Float64Array(samples)
  const spread = (PACE_SPREAD * position) / (position + PACE_HALF)
  for (let sample = 0; sample < samples; sample++) {
    // The mean of three even draws is close enough to a normal distribution.
    const pace = Math.exp(spread * 2 * (random.next() + random.next() + random.next() - 1.5))
    starts[sample] = play.start(pace) + restOfQueue(pace)
    if (play.work < WORK_PER_STEP) continue
    play.work = 0
    yield undefined
  }
  starts.sort()
  const tail = (1 - coverage) / 2
  return { low: quantile(starts, tail), median: quantile(starts, 0.5), high: quantile(starts, 1 - tail) }
}

function quantile(sorted: Float64Array, share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.floor(share * sorted.length)))]!
}

/**
 * Returns how long the pool takes to work off the waiters from `first` to `last`, one draw per call: the sum of their work, divided by the units of the members
 * that the last one may use. Of work that runs longer than all this takes, only that time counts: a job of a month holds its own members for a month, and
 * not up the others.
 */
function workBetween({ waiter, units }: ForecastInput, first: number, last: number, random: Random): (pace: number) => number {
  const capacity = waiter(last).matching.reduce((sum, member) => sum + units[member]!, 0)
  // A few of the waiters stand for all of them: each call has to be cheap.
  const step = Math.max(1, Math.floor((last - first) / 64))
  const sampled: number[] = []
  const draws = new Draws(random)
  for (let at = first; at < last; at += step) {
    const request = waiter(at)
    sampled.push(unitsOf(request, units))
    draws.add(request.duration, 0, request.atMost)
  }
  const scale = (last - first) / (sampled.length * Math.max(1, capacity))
  const drawn = new Float64Array(sampled.length)
  return pace => {
    for (let i = 0; i < drawn.length; i++) drawn[i] = draws.draw(i, pace)
    let takes = Number.POSITIVE_INFINITY
    for (let round = 0; round < ROUNDS; round++) {
      let work = 0
      for (let i = 0; i < drawn.length; i++) work += sampled[i]! * Math.min(drawn[i]!, takes)
      if (scale * work >= takes) break
      takes = scale * work
    }
    return takes
  }
}

function unitsOf({ total, count, each, matching }: ForecastRequest, units: readonly number[]): number {
  if (total > 0) return total
  return count * (each > 0 ? each : (units[matching[0] ?? -1] ?? 1))
}

/** Draws how long each of many pieces of work still takes. It is asked tens of thousands of times, so it looks up nothing. */
class Draws {
  readonly #remaining: ((chance: number) => number)[] = []
  readonly #atMost: number[] = []
  readonly #random: Random

  constructor(random: Random) {
    this.#random = random
  }

  get length(): number {
    return this.#remaining.length
  }

  add(duration: DurationModel, age: number, atMost = Number.POSITIVE_INFINITY): void {
    this.#remaining.push(duration.remaining(age))
    this.#atMost.push(atMost)
  }

  /** Returns how long one of them still takes, if it runs at this pace. */
  draw(which: number, pace: number): number {
    const drawn = pace * this.#remaining[which]!(this.#random.next())
    const atMost = this.#atMost[which]!
    return drawn < atMost ? drawn : atMost
  }
}

/** Plays the queue up to one waiter. It is used for many courses of events, so it allocates little for each. */
class Play {
  /** Draws, and waiters and ends that were looked at. */
  work = 0
  readonly #units: readonly number[]
  readonly #discipline: PoolRules['queue']
  /** The earlier waiters, and at the end the waiter itself. */
  readonly #queue: readonly ForecastRequest[]
  /** For each waiter, which members match. Waiters with equal conditions share one. */
  readonly #matches: readonly MatchIndex[]
  readonly #indexes: readonly MatchIndex[]
  /** For each waiter, the number of what it needs: of equal needs that do not fit, one is tried. */
  readonly #needs: readonly number[]
  /** By needs: the turn of service in which they were found not to fit. */
  readonly #refused: Int32Array
  #turn = 0
  /** The waiters that have not started, from `#first` on. */
  readonly #waiting: number[] = []
  #first = 0
  /** Of the running leases, then of the queue. */
  readonly #draws: Draws
  readonly #running: number
  readonly #freeAtFirst: Float64Array
  #pace = 1
  readonly #free: Float64Array
  /** The members with free units: in a busy pool, there are few. */
  readonly #freeMembers = new Set<number>()
  readonly #takes: (readonly Taken[])[]
  readonly #ends: Ends
  /** Of the running leases, then of the queue: what is stated about their ends. */
  readonly #expected: ExpectedEnds
  /** By member: the turn of service in which a waiter that could use it was found not to fit. */
  readonly #claimed: Int32Array

  constructor({ units, running, discipline }: ForecastInput, queue: readonly ForecastRequest[], random: Random) {
    this.#units = units
    this.#discipline = discipline
    this.#running = running.length
    this.#queue = queue
    this.#matches = indexMatches(this.#queue, units.length)
    this.#indexes = [...new Set(this.#matches)]
    this.#needs = numberNeeds(queue)
    this.#refused = new Int32Array(queue.length)
    this.#draws = new Draws(random)
    for (const { duration, age, atMost } of running) this.#draws.add(duration, age, atMost)
    for (const { duration, atMost } of queue) this.#draws.add(duration, 0, atMost)
    this.#freeAtFirst = Float64Array.from(units)
    for (const { takes } of running) for (const { member, units } of takes) this.#freeAtFirst[member]! -= units
    this.#free = new Float64Array(units.length)
    this.#takes = running.map(({ takes }) => takes)
    this.#ends = new Ends(this.#draws.length)
    this.#expected = new ExpectedEnds(units, running, queue)
    this.#claimed = new Int32Array(units.length)
  }

  /** When the waiter starts; Infinity if it never does. */
  start(pace: number): number {
    this.#pace = pace
    this.#begin()
    let mayServe = true
    for (let now = 0; ; ) {
      if (mayServe && this.#serve(now)) return now
      this.work++
      const ended = this.#ends.take()
      if (ended === undefined || this.#ends.at(ended) === Number.POSITIVE_INFINITY) return Number.POSITIVE_INFINITY
      if (!this.#expected.holds(ended)) continue // it had to yield
      now = this.#ends.at(ended)
      this.#release(ended)
      // In a fifo queue, the first waiter is tried again only when a member that it could use has become free.
      const usable = this.#matches[this.#waiting[this.#first]!]!
      mayServe = this.#discipline !== 'fifo' || this.#takes[ended]!.some(({ member }) => usable.matches[member] === 1)
    }
  }

  #release(use: number): void {
    this.#expected.end(use)
    for (const { member, units } of this.#takes[use]!) {
      this.#free[member]! += units
      if (this.#free[member]! > 0) this.#list(member)
    }
  }

  /** Serves those that fit, and returns whether the last one was. */
  #serve(now: number): boolean {
    const waiting = this.#waiting
    const turn = ++this.#turn
    for (let at = this.#first; at < waiting.length && this.#freeMembers.size > 0; ) {
      this.work++
      const which = waiting[at]!
      const takes = this.#refused[this.#needs[which]!] === turn ? undefined : this.#place(which)
      if (takes === undefined) {
        if (this.#discipline !== 'fit') return this.#discipline !== 'fifo' && this.#serveBehind(at, now)
        this.#refused[this.#needs[which]!] = turn
        at++
      } else {
        if (which === this.#queue.length - 1) return true
        at = this.#startAt(at, now, takes, false)
      }
    }
    return false
  }

  /** The waiter at this place starts. Returns the place of the next one. */
  #startAt(at: number, now: number, takes: readonly Taken[], yields: boolean): number {
    this.#use(this.#running + this.#waiting[at]!, now, takes, yields)
    if (at === this.#first) return ++this.#first
    this.#waiting.splice(at, 1)
    return at
  }

  /** Serves those behind the head, as far as that does not delay it: `fair` and `backfill`. */
  #serveBehind(headAt: number, now: number): boolean {
    const waiting = this.#waiting
    const turn = this.#turn
    const head = waiting[headAt]!
    const isBackfill = this.#discipline === 'backfill'
    if (isBackfill) {
      const yielding = this.#expected.yieldingTo(this.#queue[head]!, this.#matches[head]!.matches, this.#free)
      for (const use of yielding) this.#release(use)
      if (yielding.length > 0) return this.#serve(now)
    }
    let start: { readonly at: number | undefined } | undefined
    this.#claim(head)
    for (let at = headAt + 1; at < waiting.length && this.#freeMembers.size > 0; ) {
      this.work++
      if (isBackfill && at - headAt > BACKFILL_DEPTH) return false
      const which = waiting[at]!
      let yields = false
      let takes = this.#place(which, turn)
      if (takes === undefined && isBackfill) {
        const { expect = 0, preemptible = false } = this.#queue[which]!
        start ??= { at: this.#expected.startOf(this.#queue[head]!, this.#matches[head]!.matches, this.#free, now) }
        yields = mayOvertake({ expect, preemptible }, now, start.at)
        takes = yields ? this.#place(which) : undefined
      }
      if (takes === undefined) {
        this.#claim(which)
        at++
      } else {
        if (which === this.#queue.length - 1) return true
        at = this.#startAt(at, now, takes, yields)
      }
    }
    return false
  }

  /** A waiter that does not fit: members that it could use are not given to those behind it. */
  #claim(which: number): void {
    const { matches } = this.#matches[which]!
    for (const member of this.#freeMembers) if (matches[member] === 1) this.#claimed[member] = this.#turn
  }

  #begin(): void {
    this.work += this.#draws.length
    this.#first = 0
    this.#waiting.length = this.#queue.length
    for (let at = 0; at < this.#waiting.length; at++) this.#waiting[at] = at
    this.#free.set(this.#freeAtFirst)
    this.#freeMembers.clear()
    for (const index of this.#indexes) index.free = 0
    for (let member = 0; member < this.#free.length; member++) if (this.#free[member]! > 0) this.#list(member)
    this.#ends.begin(this.#running, this.#draws, this.#pace)
    this.#expected.begin()
  }

  #list(member: number): void {
    if (this.#freeMembers.has(member)) return
    this.#freeMembers.add(member)
    for (const index of this.#indexes) index.free += index.matches[member]!
  }

  #use(use: number, now: number, takes: readonly Taken[], yields: boolean): void {
    for (const { member, units } of takes) {
      this.#free[member]! -= units
      if (this.#free[member]! > 0) continue
      this.#freeMembers.delete(member)
      for (const index of this.#indexes) index.free -= index.matches[member]!
    }
    this.#takes[use] = takes
    this.#expected.begins(use, now, takes, yields)
    this.#ends.add(use, now + this.#draws.draw(use, this.#pace))
  }

  /** The members that a request would get now. `unclaimed`: only of those that no waiter claims in this turn. */
  #place(which: number, unclaimed = 0): readonly Taken[] | undefined {
    const { groups } = this.#queue[which]!
    if (groups === undefined) return this.#placeAmong(which, undefined, unclaimed)
    const tried = new Set<number>()
    for (const member of this.#freeMembers) {
      const group = groups[member]!
      if (tried.has(group)) continue
      tried.add(group)
      const takes = this.#placeAmong(which, group, unclaimed)
      if (takes !== undefined) return takes
    }
    return undefined
  }

  #placeAmong(which: number, group: number | undefined, unclaimed: number): readonly Taken[] | undefined {
    const { count, each, total, groups } = this.#queue[which]!
    const { matches, free: matching } = this.#matches[which]!
    if (total === 0 && matching < count) return undefined
    const takes: Taken[] = []
    let sum = 0
    for (const member of this.#freeMembers) {
      if (matches[member] === 0 || (group !== undefined && groups![member] !== group)) continue
      if (unclaimed > 0 && this.#claimed[member] === unclaimed) continue
      const free = this.#free[member]!
      if (total > 0) {
        const taken = Math.min(free, total - sum)
        takes.push({ member, units: taken })
        sum += taken
        if (sum === total) return takes
        continue
      }
      const wanted = each > 0 ? each : this.#units[member]!
      if (free < wanted) continue
      takes.push({ member, units: wanted })
      if (takes.length === count) return takes
    }
    return undefined
  }
}

interface MatchIndex {
  /** By member: 1 if it matches. */
  readonly matches: Uint8Array
  /** The number of matching members that have free units. */
  free: number
}

/** Equal needs get equal numbers. */
function numberNeeds(queue: readonly ForecastRequest[]): readonly number[] {
  const numbers = new Map<readonly number[], Map<string, number>>()
  let next = 0
  return queue.map(({ matching, count, each, total, groups }) => {
    if (groups !== undefined) return next++
    const known = numbers.get(matching) ?? new Map<string, number>()
    numbers.set(matching, known)
    const needs = `${count},${each},${total}`
    if (!known.has(needs)) known.set(needs, next++)
    return known.get(needs)!
  })
}

function indexMatches(queue: readonly ForecastRequest[], members: number): readonly MatchIndex[] {
  const indexes = new Map<readonly number[], MatchIndex>()
  return queue.map(({ matching }) => {
    let index = indexes.get(matching)
    if (index === undefined) {
      index = { matches: new Uint8Array(members), free: 0 }
      for (const member of matching) index.matches[member] = 1
      indexes.set(matching, index)
    }
    return index
  })
}

/** The ends to come, earliest first: a binary heap of numbered uses. */
class Ends {
  readonly #at: Float64Array
  readonly #heap: Int32Array
  #size = 0

  constructor(most: number) {
    this.#at = new Float64Array(most)
    this.#heap = new Int32Array(most)
  }

  at(use: number): number {
    return this.#at[use]!
  }

  /** Starts over with the first `count` uses. */
  begin(count: number, draws: Draws, pace: number): void {
    this.#size = count
    for (let use = 0; use < count; use++) {
      this.#at[use] = draws.draw(use, pace)
      this.#heap[use] = use
    }
    for (let place = (count >> 1) - 1; place >= 0; place--) this.#sink(place)
  }

  add(use: number, at: number): void {
    this.#at[use] = at
    let place = this.#size++
    while (place > 0) {
      const above = (place - 1) >> 1
      if (this.#at[this.#heap[above]!]! <= at) break
      this.#heap[place] = this.#heap[above]!
      place = above
    }
    this.#heap[place] = use
  }

  take(): number | undefined {
    if (this.#size === 0) return undefined
    const first = this.#heap[0]!
    this.#heap[0] = this.#heap[--this.#size]!
    this.#sink(0)
    return first
  }

  #sink(from: number): void {
    const moved = this.#heap[from]!
    const at = this.#at[moved]!
    let place = from
    for (;;) {
      let below = 2 * place + 1
      if (below >= this.#size) break
      if (below + 1 < this.#size && this.#at[this.#heap[below + 1]!]! < this.#at[this.#heap[below]!]!) below++
      if (this.#at[this.#heap[below]!]! >= at) break
      this.#heap[place] = this.#heap[below]!
      place = below
    }
    this.#heap[place] = moved
  }
}

/** Equal questions get equal answers: the numbers follow from the seed (mulberry32). */
class Random {
  #state: number

  constructor(seed: number) {
    this.#state = seed
  }

  /** Above 0, below 1. */
  next(): number {
    const state = (this.#state + 0x6d2b79f5) | 0
    this.#state = state
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 4_294_967_296
  }
}
