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
/** Each grant looks at all windows ahead. */
const MAX_RESERVATIONS = 64

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
function waitingWindows({ queue }: PoolState): Window[] {
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

/** What a lease would hold of a member. */
interface TakenUnits {
  readonly resource: string
  readonly units: number
}

/** Members with the room that they have at some moment. */
class Rooms {
  readonly #rooms = new Map<string, Candidate & { room: number }>()

  constructor({ members }: Pick<PoolState, 'members'>) {
    for (const { name, resource, labels, capacity } of members.values())
      this.#rooms.set(resource, { name, resource, labels, capacity, room: capacity })
  }

  copy(): Rooms {
    const copy = new Rooms({ members: new Map() })
    for (const [resource, member] of this.#rooms) copy.#rooms.set(resource, { ...member })
    return copy
  }

  take({ resource, units }: TakenUnits): void {
    const member = this.#rooms.get(resource)
    if (member !== undefined) member.room = Math.max(0, member.room - units)
  }

  /** Takes what the request needs. False: there is too little. */
  serve(needs: Needs): boolean {
    const free = [...this.#rooms.values()].filter(({ room }) => room > 0)
    free.sort((a, b) => a.room - b.room || (a.name < b.name ? -1 : 1))
    const chosen = choose(free, needs)
    for (const want of chosen ?? []) this.take(want)
    return chosen !== undefined
  }
}

/** The windows accepted before at each moment of a new one at which they change. */
export function windowsDuring(pool: PoolState, { from }: PoolClaim, maxLife: number): readonly (readonly Window[])[] {
  const windows = windowsOf(pool)
  const moments = [from, ...windows.flatMap(({ begin }) => (begin > from && begin < from + maxLife ? [begin] : []))]
  return moments.map(moment => windows.filter(({ begin, end }) => begin <= moment && moment < end))
}

/** Refuses a reservation for which the windows accepted before leave too little. */
export function windowRefusal(state: State, pool: PoolState, claim: PoolClaim, maxLife: number): Refused | undefined {
  if (pool.reserved.size >= MAX_RESERVATIONS) return refuse(state, 'too-many-reservations', { pool: pool.name, limit: MAX_RESERVATIONS })
  for (const present of windowsDuring(pool, claim, maxLife)) {
    const rooms = new Rooms(pool)
    for (const { needs } of present) rooms.serve(needs)
    if (rooms.serve(claim)) continue
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
  readonly #windows: readonly Window[]
  /** By window: the members without those that are held until it begins. */
  readonly #left = new Map<Window, Rooms>()

  /** `except`: as if this lease held nothing. */
  constructor(state: State, pool: PoolState, except?: LeaseState) {
    this.#state = state
    this.#pool = pool
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
    return this.#windows.length === 0 || this.robbed(endOf(this.#state.elapsed, maxLife), chosen) === undefined
  }

  /** The first window ahead that has too few members at its beginning, if `taken` is held until then. */
  robbed(until: number, taken: readonly TakenUnits[]): Window | undefined {
    for (const window of this.#windows) {
      const { lease, begin } = window
      if (begin >= until) return undefined
      if (!this.#pool.reserved.has(lease)) continue
      const rooms = this.#leftAt(window).copy()
      for (const want of taken) rooms.take(want)
      for (const { lease: first, needs, begin: from, end } of this.#windows) {
        if (from > begin || begin >= end) continue
        if (!rooms.serve(needs) && first === lease) return window
      }
    }
    return undefined
  }

  #leftAt(window: Window): Rooms {
    let rooms = this.#left.get(window)
    if (rooms === undefined) {
      rooms = new Rooms(this.#pool)
      for (const { resource } of this.#pool.members.values())
        for (const grant of this.#state.resources.get(resource)?.grants ?? [])
          if (grant.lease !== this.#except && staysUntil(grant.lease, window.begin)) rooms.take({ resource, units: grant.units })
      this.#left.set(window, rooms)
    }
    return rooms
  }
}

/** The reservation that would miss what `lease` holds, if it held it for `maxLife` ms in all. */
export function missedBy(state: State, lease: LeaseState, maxLife: number): LeaseState | undefined {
  const claim = lease.extras!.pool!
  const pool = state.pools.get(claim.pool) ?? emptyPool(claim.pool)
  const own = lease.grants.map(({ resource, units }) => ({ resource: resource.name, units }))
  return new WindowsAhead(state, pool, lease).robbed(endOf(claim.start, maxLife), own)?.lease
}

function endOf(start: number, maxLife: number): number {
  return maxLife === 0 ? Number.POSITIVE_INFINITY : start + maxLife
}

/** Returns whether a holder may still be there at this time. */
function staysUntil({ extras }: LeaseState, time: number): boolean {
  const claim = extras?.pool
  return claim === undefined || (!claim.yields && endOf(claim.start, extras!.maxLife) > time)
}
