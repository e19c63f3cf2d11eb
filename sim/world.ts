/**
 * A world in which real code runs without real time: one queue of events, and machines with clocks of their own. The same seed gives the
 * same world, to the byte.
 */
import { type Clock, turn } from '../src/clock.ts'
import { type FindingName, findings } from './findings.ts'

/** Clock rates in the world stay within this of each other. */
export const RHO = 0.005

/** Small, fast and the same everywhere. */
export class Dice {
  #a: number

  constructor(seed: number) {
    this.#a = seed >>> 0 || 0x9e3779b9
    for (let i = 0; i < 8; i++) this.next()
  }

  /** 32 bits. */
  next(): number {
    this.#a = (this.#a + 0x6d2b79f5) >>> 0
    let t = this.#a
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return (t ^ (t >>> 14)) >>> 0
  }

  unit(): number {
    return this.next() / 0x100000000
  }

  /** A whole number from `low` to `high`, both included. */
  whole(low: number, high: number): number {
    return low + (this.next() % (high - low + 1))
  }

  between(low: number, high: number): number {
    return low + this.unit() * (high - low)
  }

  chance(p: number): boolean {
    return this.unit() < p
  }

  pick<T>(items: readonly T[]): T {
    return items[this.next() % items.length]!
  }
}

interface Happening {
  readonly at: number
  readonly order: number
  readonly machine: Machine | undefined
  readonly life: number
  readonly timer: boolean
  /** Cancelled: it is skipped when its time comes. */
  off: boolean
  readonly run: () => void
}

/** Events between two turns of the real event loop, in which unhandled rejections are reported. */
const EVENTS_PER_TURN = 64

/** Resolves when all promises that can settle have. To be called from within a promise: ticks come after all of them, and cost less than a turn of the loop. */
function settled(): Promise<void> {
  return new Promise(resolve => process.nextTick(resolve))
}

/** An invariant was violated: the first violation ends the run. */
export class Violation extends Error {
  override readonly name = 'Violation'
  readonly invariant: string

  constructor(invariant: string, message: string) {
    super(`${invariant}: ${message}`)
    this.invariant = invariant
  }
}

export class World {
  readonly dice: Dice
  /** True time, which no process in the world can read. */
  now = 0
  events = 0
  faults = 0
  readonly machines: Machine[] = []
  /** A digest of all that happened: two runs of one seed must agree in it. */
  digest = 0x811c9dc5
  readonly #heap: Happening[] = []
  #order = 0
  #violation: Violation | undefined
  /** The known findings that this world has met, and how. */
  readonly met = new Map<FindingName, string>()
  readonly #trace: ((line: string) => void) | undefined

  constructor(seed: number, trace?: (line: string) => void) {
    this.dice = new Dice(seed)
    this.#trace = trace
  }

  machine(name: string, rate: number): Machine {
    const machine = new Machine(this, name, rate)
    this.machines.push(machine)
    return machine
  }

  note(what: string): void {
    this.#trace?.(`${this.now.toFixed(3)} ${what}`)
    for (let i = 0; i < what.length; i++) this.digest = Math.imul(this.digest ^ what.charCodeAt(i), 0x01000193) >>> 0
  }

  fault(what: string): void {
    this.faults++
    this.note(`fault ${what}`)
  }

  /** `finding`: the known finding that this violation shows, if no other mistake can be its cause. It is reported, and the run goes on. */
  violate(invariant: string, message: string, finding?: FindingName): void {
    if (finding !== undefined && finding in findings) {
      if (!this.met.has(finding)) this.met.set(finding, `${invariant}: ${message}`)
    } else this.#violation ??= new Violation(invariant, message)
  }

  /** With a machine: only if its present process still runs by then. */
  later(ms: number, then: () => void, machine?: Machine, timer = false, life = machine?.life ?? 0): () => void {
    const happening = { at: this.now + Math.max(0, ms), order: this.#order++, machine, life, timer, off: false, run: then }
    this.#push(happening)
    return () => {
      happening.off = true
    }
  }

  /** Runs until true time `end`. Throws the first violation. */
  async run(end: number): Promise<void> {
    await turn()
    for (let next = this.#heap[0]; next !== undefined && next.at <= end; next = this.#heap[0]) {
      this.#pop()
      if (next.off) continue
      this.now = Math.max(this.now, next.at)
      const { machine } = next
      if (machine !== undefined) {
        if (!machine.alive || machine.life !== next.life) continue
        if (machine.defer(next)) continue
      }
      this.events++
      next.run()
      await (this.events % EVENTS_PER_TURN === 0 ? turn() : settled())
      if (this.#violation !== undefined) throw this.#violation
    }
    this.now = Math.max(this.now, end)
    if (this.#violation !== undefined) throw this.#violation
  }

  #before(a: Happening, b: Happening): boolean {
    return a.at < b.at || (a.at === b.at && a.order < b.order)
  }

  #push(happening: Happening): void {
    const heap = this.#heap
    let at = heap.push(happening) - 1
    while (at > 0) {
      const above = (at - 1) >> 1
      if (!this.#before(happening, heap[above]!)) break
      heap[at] = heap[above]!
      at = above
    }
    heap[at] = happening
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop()!
    if (heap.length === 0) return
    let at = 0
    for (;;) {
      let below = at * 2 + 1
      if (below >= heap.length) break
      if (below + 1 < heap.length && this.#before(heap[below + 1]!, heap[below]!)) below++
      if (!this.#before(heap[below]!, last)) break
      heap[at] = heap[below]!
      at = below
    }
    heap[at] = last
  }
}

/** One machine and its process, which may stall, be suspended, die and restart. Its clock runs at its own rate. */
export class Machine {
  readonly name: string
  readonly world: World
  readonly dice: Dice
  life = 0
  alive = true
  rate: number
  #trueBase = 0
  #nowBase: number
  #upBase: number
  wallOffset = 1_700_000_000_000
  /** Timers fire at most this late, as far as its clock has noticed. */
  lateness = 0
  #stalledUntil = 0
  /** While the machine is suspended its monotonic clock stands still. */
  #asleep = false
  #deferred: Happening[] = []
  /** When its stall began; undefined while it runs. */
  stalledSince: number | undefined
  lastStall = { from: -1, to: -1, appending: false }
  /** Appends of this machine that are under way. */
  appending = 0
  /** The last append failed: it may be about to be sent again, and others wait behind it. */
  troubled = false
  /** When an append of this machine last failed or took long: it delays the appends behind it. */
  rough = -1
  /** Called when the present process ends. Promises of an ended process that never settle would cost Node memory and time. */
  readonly mourners = new Set<() => void>()
  /** Machines that stand for other threads of the same process: they are suspended with it, and do not stall with its loop. */
  readonly threads = new Set<Machine>()

  constructor(world: World, name: string, rate: number) {
    this.world = world
    this.name = name
    this.rate = rate
    this.dice = new Dice(world.dice.next())
    this.#nowBase = world.dice.whole(1_000, 1_000_000)
    this.#upBase = this.#nowBase
    this.#trueBase = world.now
  }

  monotonic(): number {
    return this.#asleep ? this.#nowBase : this.#nowBase + (this.world.now - this.#trueBase) * this.rate
  }

  uptime(): number {
    return this.#upBase + (this.world.now - this.#trueBase) * this.rate
  }

  setRate(rate: number): void {
    this.#rebase()
    this.rate = rate
  }

  #rebase(): void {
    const [now, up] = [this.monotonic(), this.uptime()]
    this.#trueBase = this.world.now
    this.#nowBase = now
    this.#upBase = up
  }

  /** The process stalls: SIGSTOP, a blocked loop, a slow disk. Afterwards timers or input come first: both happen in Node. */
  stall(ms: number): void {
    if (!this.alive || this.stalledSince !== undefined) return
    this.stalledSince = this.world.now
    this.#stalledUntil = this.world.now + ms
    const { life } = this
    const timersFirst = this.dice.chance(0.7)
    const appending = this.appending > 0 || this.troubled
    this.world.later(ms, () => {
      if (this.life !== life || this.stalledSince === undefined) return
      this.lastStall = { from: this.stalledSince, to: this.world.now, appending }
      this.stalledSince = undefined
      const waiting = this.#deferred
      this.#deferred = []
      const first = waiting.filter(({ timer }) => timer === timersFirst)
      const second = waiting.filter(({ timer }) => timer !== timersFirst)
      for (const happening of [...first, ...second]) {
        const { run, timer } = happening
        const still = () => {
          if (!happening.off) run()
        }
        this.world.later(0, still, this, timer)
      }
    })
  }

  /** The machine is suspended: its monotonic clock stops, its uptime and the world continue. */
  suspend(ms: number): void {
    if (!this.alive || this.stalledSince !== undefined) return
    this.stall(ms)
    for (const thread of this.threads) thread.stall(ms)
    const { life } = this
    this.#rebase()
    this.#asleep = true
    this.world.later(ms, () => {
      if (this.life === life) this.#wake()
    })
  }

  #wake(): void {
    this.#rebase()
    this.#asleep = false
  }

  defer(happening: Happening): boolean {
    if (this.stalledSince === undefined || this.world.now >= this.#stalledUntil) return false
    this.#deferred.push(happening)
    return true
  }

  /** The process dies at once: its timers never fire. */
  kill(): void {
    this.alive = false
    this.life++
    if (this.#asleep) this.#wake()
    this.#deferred = []
    this.stalledSince = undefined
    this.appending = 0
    this.troubled = false
    for (const tell of this.mourners) tell()
    this.mourners.clear()
  }

  revive(): void {
    this.alive = true
    this.life++
  }

  /** A clock for the code of the present process. */
  clock(): Clock {
    return new MachineClock(this)
  }
}

const SHORTEST = 0.1

class MachineClock implements Clock {
  readonly #machine: Machine
  /** Code of an ended process may still have its clock: nothing that it schedules happens. */
  readonly #life: number

  constructor(machine: Machine) {
    this.#machine = machine
    this.#life = machine.life
  }

  now(): number {
    return this.#machine.monotonic()
  }

  uptime(): number {
    return this.#machine.uptime()
  }

  wall(): number {
    return this.#machine.wallOffset + this.#machine.uptime()
  }

  boot(): string {
    return this.#machine.name
  }

  get lateness(): number {
    return this.#machine.lateness
  }

  /** An ended process draws no random numbers: its garbage is collected at a different time in each run. */
  random(): number {
    return this.#machine.life === this.#life ? this.#machine.dice.unit() : 0.5
  }

  bits(): bigint {
    return (BigInt(this.#machine.dice.next()) << 32n) | BigInt(this.#machine.dice.next())
  }

  after(ms: number, then: () => void): () => void {
    // No timer fires at the time it was set: a duration below the resolution of the clock would never pass.
    return this.#machine.world.later(Math.max(ms, SHORTEST) / this.#machine.rate, then, this.#machine, true, this.#life)
  }

  soon(then: () => void): void {
    this.#machine.world.later(0, then, this.#machine, false, this.#life)
  }
}
