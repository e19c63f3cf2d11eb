/**
 * Reservations: waiters of a pool whose window begins later.
 *
 * A reservation is accepted only if the windows that were accepted before leave it enough members at every moment of its own. From then on a
 * grant must leave enough members at the beginning of each window: it is given only if it ends before (by `maxLife`), if it yields, or if enough
 * other members are there. When its window begins, the reservation goes before all other waiters.
 *
 * Nothing renews a reservation before its window: its term lasts until then, and one ttl more, in which its holder shows up. A holder that does
 * not show up loses it after that time. Terms are counted in real time and windows in log time, which may lag behind: a term that is over sooner is prolonged.
 *
 * Windows are in log time. Holders that have no known end may still be there when a window begins; then the reservation waits as the first.
 */
import type { Refused } from '../../outcome.ts'
import { emptyPool } from '../../state/pools.ts'
import { type LeaseState, LIVE, type PoolClaim, type PoolState, type State, WAITING } from '../../state.ts'
import { refuse } from '../refuse.ts'
import { type Candidate, type Choice, choose, chooseMembers, type Needs } from './choice.ts'
import { matches } from './condition.ts'

/** The rank of reservations: before ordinary waiters, behind steals and recipients of transfers. The earliest window comes first. */
const RESERVED = -5e14
/** Each grant looks at all windows ahead, and for each of them at the members that the windows before it leave: fewer windows in a large pool. */
const MAX_RESERVATIONS = 64
const LEAST_RESERVATIONS = 8
const WINDOW_STEPS = 200_000

/** The most reservations of a pool. */
function reservationLimit({ members }: PoolState): number {
  let most = MAX_RESERVATIONS
  while (most > LEAST_RESERVATIONS && most * most * members.size > 2 * WINDOW_STEPS) most--
  return most
}

/** With how many members the waiters of one turn may still be compared because of windows ahead. The first waiter is always judged. */
export class WindowBudget {
  #left = WINDOW_STEPS

  spend(steps: number): void {
    this.#left -= steps
  }

  get isHalfSpent(): boolean {
    return this.#left <= WINDOW_STEPS / 2
  }

  get isSpent(): boolean {
    return this.#left <= 0
  }
}

/** Returns whether the window of a waiter has not begun yet. */
export function isReserved(state: State, { from }: PoolClaim): boolean {
  return from > state.elapsed
}

export function reservedRank({ from }: PoolClaim): number {
  return RESERVED + from
}

/** For how many ms a waiter may be silent, beside its ttl: until its window begins. */
export function untilWindow(state: State, { status, extras }: LeaseState): number {
  return status === WAITING && extras?.pool !== undefined ? Math.max(0, extras.pool.from - state.elapsed) : 0
}

/**
 * For how many ms of log time a reservation still waits for its holder: until its window begins, and one ttl from then or from its grant on. 0: it waits no
 * longer, or a process has taken it. Log time stands still while no replica runs, so a downtime ends no reservation.
 */
export function showUpTime(state: State, { status, ttl, extras }: LeaseState): number {
  const claim = extras?.pool
  if (claim === undefined || claim.from === 0 || extras!.handed) return 0
  if (status === WAITING && isReserved(state, claim)) return claim.from - state.elapsed + ttl
  const isOpen = extras!.open && (status === WAITING || status === LIVE)
  return isOpen ? Math.max(0, Math.max(claim.from, claim.start) + ttl - state.elapsed) : 0
}

/** A window that was accepted: of a waiter, or of a lease that has been granted it. */
interface Window {
  readonly lease: LeaseState
  readonly needs: Needs
  readonly begin: number
  readonly end: number
}

function windowOf(lease: LeaseState): Window {
  const { pool: claim, maxLife } = lease.extras!
  const begin = Math.max(claim!.from, claim!.start)
  return { lease, needs: claim!, begin, end: begin + maxLife }
}

/** The windows of waiters, the earliest first. Reservations are the first waiters of a queue, in the order of their windows. */
export function waitingWindows({ queue }: PoolState): Window[] {
  const windows: Window[] = []
  for (let i = 0; i < queue.length && queue[i]!.extras!.pool!.from > 0; i++) windows.push(windowOf(queue[i]!))
  return windows
}

/** All windows, the earliest first. */
function windowsOf(pool: PoolState): Window[] {
  const windows = waitingWindows(pool)
  for (const lease of pool.holders) if (lease.extras!.pool!.from > 0) windows.push(windowOf(lease))
  return windows.sort((a, b) => a.begin - b.begin || a.lease.id - b.lease.id)
}

/** A lease would hold this of a member. */
interface TakenUnits {
  readonly resource: string
  readonly units: number
}

/** Members with the room that they have at some moment, ordered by room, then by name. */
class Rooms {
  #free: Candidate[]

  constructor(members: Iterable<Candidate>) {
    this.#free = [...members].filter(({ room }) => room > 0)
    this.#free.sort(inOrder)
  }

  /** The number of members with room. */
  get size(): number {
    return this.#free.length
  }

  copy(): Rooms {
    const copy = new Rooms([])
    copy.#free = this.#free.slice()
    return copy
  }

  /** In one pass over the members, however many are taken. */
  take(taken: readonly TakenUnits[]): void {
    if (taken.length === 0) return
    const units = new Map(taken.map(each => [each.resource, each.units]))
    const [kept, cut]: [Candidate[], Candidate[]] = [[], []]
    for (const member of this.#free) {
      const room = member.room - (units.get(member.resource) ?? 0)
      if (room === member.room) kept.push(member)
      else if (room > 0) cut.push({ ...member, room })
    }
    this.#free = cut.length === 0 ? kept : merged(kept, cut.sort(inOrder))
  }

  /** Takes what the request needs. False: there is too little. */
  serve(needs: Needs): boolean {
    const chosen = choose(this.#free, needs)
    if (chosen !== undefined) this.take(chosen)
    return chosen !== undefined
  }
}

function inOrder(one: Candidate, other: Candidate): number {
  return isBefore(one, other) ? -1 : 1
}

function merged(one: readonly Candidate[], other: readonly Candidate[]): Candidate[] {
  const all: Candidate[] = []
  let at = 0
  for (const member of one) {
    while (at < other.length && isBefore(other[at]!, member)) all.push(other[at++]!)
    all.push(member)
  }
  return all.concat(other.slice(at))
}

function isBefore(one: Candidate, other: Candidate): boolean {
  return one.room < other.room || (one.room === other.room && one.name < other.name)
}

function wholeRooms({ members }: PoolState): Rooms {
  return new Rooms(
    [...members.values()].map(({ name, resource, labels, capacity }) => ({ name, resource, labels, capacity, room: capacity })),
  )
}

/**
 * Serves the windows of a pool, the earliest first, and says what they leave. It is asked for one moment after the other. Only the windows that have begun since
 * the last moment are added; if one has ended since, or if the members are others, all windows of the new moment are served again.
 */
class ServedWindows {
  readonly #windows: readonly Window[]
  readonly #budget: WindowBudget
  /** The members that are there for windows. */
  #members: Rooms | undefined
  #rooms!: Rooms
  /** The number of windows, from the first on, that have been looked at. */
  #next = 0
  /** When the first of those that were served ends. */
  #end = Number.POSITIVE_INFINITY
  readonly #unserved = new Set<Window>()

  constructor(windows: readonly Window[], budget = new WindowBudget()) {
    this.#windows = windows
    this.#budget = budget
  }

  /** `members` are those that are there for windows at this moment; `taken` is held by another lease. */
  at(moment: number, members: Rooms, taken: readonly TakenUnits[]): Rooms {
    if (members !== this.#members || this.#end <= moment) this.#begin(members, taken)
    for (; this.#next < this.#windows.length && this.#windows[this.#next]!.begin <= moment; this.#next++) {
      const window = this.#windows[this.#next]!
      if (window.end <= moment) continue
      this.#end = Math.min(this.#end, window.end)
      this.#budget.spend(this.#rooms.size)
      if (!this.#rooms.serve(window.needs)) this.#unserved.add(window)
    }
    return this.#rooms
  }

  #begin(members: Rooms, taken: readonly TakenUnits[]): void {
    this.#members = members
    this.#rooms = members.copy()
    this.#rooms.take(taken)
    this.#budget.spend(members.size)
    this.#next = 0
    this.#end = Number.POSITIVE_INFINITY
    this.#unserved.clear()
  }

  /** Returns whether the window had too few members at the last moment. */
  isUnserved(window: Window): boolean {
    return this.#unserved.has(window)
  }
}

/** The windows accepted before at each moment of a new one at which they change. */
export function windowsDuring(pool: PoolState, claim: PoolClaim, maxLife: number): readonly (readonly Window[])[] {
  const windows = windowsOf(pool)
  return momentsOf(windows, claim, maxLife).map(moment => presentAt(windows, moment))
}

/** The moments of a new window at which those accepted before change, the first one first. */
function momentsOf(windows: readonly Window[], { from }: PoolClaim, maxLife: number): readonly number[] {
  const begins = windows.flatMap(({ begin }) => (begin > from && begin < from + maxLife ? [begin] : []))
  return [from, ...new Set(begins)]
}

function presentAt(windows: readonly Window[], moment: number): readonly Window[] {
  return windows.filter(({ begin, end }) => begin <= moment && moment < end)
}

/** Refuses a reservation for which the windows accepted before leave too little. */
export function windowRefusal(state: State, pool: PoolState, claim: PoolClaim, maxLife: number): Refused | undefined {
  const most = reservationLimit(pool)
  if (pool.reserved.size >= most) return refuse(state, 'too-many-reservations', { pool: pool.name, limit: most })
  const members = wholeRooms(pool)
  const windows = windowsOf(pool)
  const served = new ServedWindows(windows)
  for (const moment of momentsOf(windows, claim, maxLife)) {
    if (served.at(moment, members, []).copy().serve(claim)) continue
    const present = presentAt(windows, moment)
    return refuse(state, 'pool-reserved', {
      pool: pool.name,
      holders: present.map(({ lease }) => lease.holder.name),
      leases: present.map(({ lease }) => lease.id),
      begin: present.map(({ begin }) => begin - state.elapsed),
    })
  }
  return undefined
}

/**
 * The windows ahead of a pool, and what they leave to others, worked out once for all waiters of a turn. Not valid any more once members are granted or freed.
 *
 * What a request would get depends on its needs and on the number of windows that begin before it ends, and on nothing else of it. A request that would take
 * from one of the first windows takes from it even if more windows follow. So if a request does not fit, neither does an equal one that stays as long or longer.
 */
export class WindowsAhead {
  readonly #state: State
  readonly #pool: PoolState
  readonly #except: LeaseState | undefined
  readonly #budget: WindowBudget
  readonly #windows: readonly Window[]
  /** The times at which holders leave, the earliest first. Infinity: the holder has no end. */
  #ends: readonly number[] | undefined
  /** The members that are not held, by the number of holders that have left. */
  readonly #left = new Map<number, Rooms>()

  /** `except`: as if this lease held nothing. `budget`: that of the turn. */
  constructor(
    state: State,
    pool: PoolState,
    { except, budget = new WindowBudget() }: { readonly except?: LeaseState; readonly budget?: WindowBudget } = {},
  ) {
    this.#state = state
    this.#pool = pool
    this.#budget = budget
    this.#except = except
    this.#windows = pool.reserved.size === 0 ? [] : waitingWindows(pool)
  }

  /** Returns how many windows begin before a lease ends that would begin now. */
  before(maxLife: number): number {
    const until = endOf(this.#state.elapsed, maxLife)
    let count = 0
    while (count < this.#windows.length && this.#windows[count]!.begin < until) count++
    return count
  }

  /** Returns what the request would get of the members that are free now, without taking from a reservation; undefined: it has to wait. */
  offer(claim: PoolClaim, maxLife: number): readonly Choice[] | undefined {
    const pool = this.#pool
    const chosen = chooseMembers(pool, claim)
    if (chosen === undefined || this.#windows.length === 0) return chosen
    if (this.#budget.isSpent) return undefined
    const until = endOf(this.#state.elapsed, maxLife)
    const robbed = this.robbed(until, claim.yields ? [] : chosen)
    if (robbed === undefined) return chosen
    // Perhaps members will do that the reservation has no use for.
    const others = pool.free.filter(({ labels }) => !matches(labels, robbed.needs.match))
    const other = choose(others, claim)
    return other === undefined || this.robbed(until, other) !== undefined ? undefined : other
  }

  /** Returns whether windows ahead have enough members, if these are held for `maxLife` ms from now on. */
  leaves(maxLife: number, chosen: readonly TakenUnits[]): boolean {
    return this.#windows.length === 0 || (!this.#budget.isSpent && this.robbed(endOf(this.#state.elapsed, maxLife), chosen) === undefined)
  }

  /** The first window ahead that has too few members at its beginning, if `taken` is held until then. */
  robbed(until: number, taken: readonly TakenUnits[]): Window | undefined {
    const served = new ServedWindows(this.#windows, this.#budget)
    for (const window of this.#windows) {
      const { lease, begin } = window
      if (begin >= until) return undefined
      if (!this.#pool.reserved.has(lease)) continue
      served.at(begin, this.#leftAt(begin), taken)
      if (served.isUnserved(window)) return window
    }
    return undefined
  }

  /** The same object for two moments between which no holder leaves. */
  #leftAt(moment: number): Rooms {
    this.#ends ??= this.#holderEnds()
    let [gone, high] = [0, this.#ends.length]
    while (gone < high) {
      const middle = (gone + high) >>> 1
      if (this.#ends[middle]! <= moment) gone = middle + 1
      else high = middle
    }
    let rooms = this.#left.get(gone)
    if (rooms === undefined) {
      rooms = this.#roomsAt(moment)
      this.#left.set(gone, rooms)
    }
    return rooms
  }

  #holderEnds(): readonly number[] {
    const ends = new Set<number>()
    for (const { resource } of this.#pool.members.values())
      for (const { lease } of this.#state.resources.get(resource)?.grants ?? []) ends.add(lastMoment(lease))
    return [...ends].sort((a, b) => a - b)
  }

  #roomsAt(moment: number): Rooms {
    const members: Candidate[] = []
    for (const { name, resource, labels, capacity } of this.#pool.members.values()) {
      let room = capacity
      for (const { lease, units } of this.#state.resources.get(resource)?.grants ?? [])
        if (lease !== this.#except && lastMoment(lease) > moment) room -= units
      members.push({ name, resource, labels, capacity, room })
    }
    return new Rooms(members)
  }
}

/** The reservation that would miss what `lease` holds, if it held it for `maxLife` ms in all. */
export function missedBy(state: State, lease: LeaseState, maxLife: number): LeaseState | undefined {
  const claim = lease.extras!.pool!
  const pool = state.pools.get(claim.pool) ?? emptyPool(claim.pool)
  const own = lease.grants.map(({ resource, units }) => ({ resource: resource.name, units }))
  return new WindowsAhead(state, pool, { except: lease }).robbed(endOf(claim.start, maxLife), own)?.lease
}

function endOf(start: number, maxLife: number): number {
  return maxLife === 0 ? Number.POSITIVE_INFINITY : start + maxLife
}

/** Until when a holder may be there. */
function lastMoment({ extras }: LeaseState): number {
  const claim = extras?.pool
  if (claim?.yields === true) return Number.NEGATIVE_INFINITY
  return claim === undefined ? Number.POSITIVE_INFINITY : endOf(claim.start, extras!.maxLife)
}
