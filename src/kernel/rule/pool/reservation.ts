/**
 * Reservations: waiters of a pool whose window begins later.
 *
 * A reservation is accepted only if the windows that were accepted before leave it enough members at every moment of its own. From then on a
 * grant must leave enough members at the beginning of each window: it is given only if it ends before (by `maxLife`), if it yields, or if enough
 * other members are there. When its window begins, the reservation goes before all other waiters.
 *
 * Nothing renews a reservation before its window: its term lasts until then, and one ttl more, in which its holder shows up. A holder that does
 * not show up loses it after that time.
 *
 * Windows are in log time. Holders that have no known end may still be there when a window begins; then the reservation waits as the first.
 */
import type { Refused } from '../../outcome.ts'
import { emptyPool } from '../../state/pools.ts'
import { type LeaseState, type PoolClaim, type PoolState, type State, WAITING } from '../../state.ts'
import { refuse } from '../refuse.ts'
import { type Candidate, type Choice, choose, chooseMembers, type Needs } from './choice.ts'
import { matches } from './condition.ts'

/** The rank of reservations: before ordinary waiters, behind steals and recipients of transfers. The earliest window comes first. */
const RESERVED = -5e14
/** Each grant looks at all windows ahead. */
const MAX_RESERVATIONS = 64

/** Whether the window of a waiter has not begun yet. */
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

/** A window that was accepted: of a waiter, or of a lease that has been granted it. */
interface Window {
  readonly lease: LeaseState
  readonly needs: Needs
  readonly begin: number
  readonly end: number
}

function windowsOf(pool: PoolState): Window[] {
  const windows: Window[] = []
  for (const lease of [...pool.queue, ...pool.holders]) {
    const { pool: claim, maxLife } = lease.extras!
    if (claim!.from === 0) continue
    const begin = Math.max(claim!.from, claim!.start)
    windows.push({ lease, needs: claim!, begin, end: begin + maxLife })
  }
  return windows.sort((a, b) => a.begin - b.begin || a.lease.id - b.lease.id)
}

/** Members with the room that they have at some moment. */
class Rooms {
  readonly #rooms: Map<string, Candidate & { room: number }>

  constructor({ members }: PoolState) {
    this.#rooms = new Map()
    for (const { name, resource, labels, capacity } of members.values())
      this.#rooms.set(resource, { name, resource, labels, capacity, room: capacity })
  }

  take({ resource, units }: { readonly resource: string; readonly units: number }): void {
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

/** Refuses a reservation for which the windows accepted before leave too little. */
export function windowRefusal(state: State, pool: PoolState, claim: PoolClaim, maxLife: number): Refused | undefined {
  const windows = windowsOf(pool)
  if (pool.reserved.size >= MAX_RESERVATIONS) return refuse(state, 'too-many-reservations', { pool: pool.name, limit: MAX_RESERVATIONS })
  const end = claim.from + maxLife
  const moments = [claim.from, ...windows.flatMap(({ begin }) => (begin > claim.from && begin < end ? [begin] : []))]
  for (const moment of moments) {
    const rooms = new Rooms(pool)
    const present = windows.filter(window => window.begin <= moment && moment < window.end)
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

/** What the request would get of the members that are free now, without taking from a reservation; undefined: it has to wait. */
export function offerMembers(state: State, pool: PoolState, claim: PoolClaim, maxLife: number): readonly Choice[] | undefined {
  const chosen = chooseMembers(pool, claim)
  if (chosen === undefined || pool.reserved.size === 0) return chosen
  const until = endOf(state.elapsed, maxLife)
  const robbed = robbedWindow(state, pool, until, claim.yields ? [] : chosen)
  if (robbed === undefined) return chosen
  // Perhaps members will do that the reservation has no use for.
  const others = pool.free.filter(({ labels }) => !matches(labels, robbed.needs.match))
  const other = choose(others, claim)
  return other === undefined || robbedWindow(state, pool, until, other) !== undefined ? undefined : other
}

/** Whether windows ahead have enough members, if these are held for `maxLife` ms from now on. */
export function leavesWindows(
  state: State,
  pool: PoolState,
  maxLife: number,
  chosen: readonly { readonly resource: string; readonly units: number }[],
): boolean {
  return pool.reserved.size === 0 || robbedWindow(state, pool, endOf(state.elapsed, maxLife), chosen) === undefined
}

/** The reservation that would miss what `lease` holds, if it held it for `maxLife` ms in all. */
export function missedBy(state: State, lease: LeaseState, maxLife: number): LeaseState | undefined {
  const claim = lease.extras!.pool!
  const pool = state.pools.get(claim.pool) ?? emptyPool(claim.pool)
  const own = lease.grants.map(({ resource, units }) => ({ resource: resource.name, units }))
  return robbedWindow(state, pool, endOf(claim.start, maxLife), own, lease)?.lease
}

function endOf(start: number, maxLife: number): number {
  return maxLife === 0 ? Number.POSITIVE_INFINITY : start + maxLife
}

/** The first window ahead that has too few members at its beginning, if `taken` is held until then. */
function robbedWindow(
  state: State,
  pool: PoolState,
  until: number,
  taken: readonly { readonly resource: string; readonly units: number }[],
  except?: LeaseState,
): Window | undefined {
  const windows = windowsOf(pool)
  for (const window of windows) {
    const { lease, begin } = window
    if (!pool.reserved.has(lease) || begin >= until) continue
    const rooms = new Rooms(pool)
    for (const { resource } of pool.members.values())
      for (const grant of state.resources.get(resource)?.grants ?? [])
        if (grant.lease !== except && staysUntil(grant.lease, begin)) rooms.take({ resource, units: grant.units })
    for (const want of taken) rooms.take(want)
    const others = windows.filter(other => other.lease.status === WAITING && other.begin <= begin && begin < other.end)
    for (const { lease: first, needs } of others) if (!rooms.serve(needs) && first === lease) return window
  }
  return undefined
}

/** Whether a holder may still be there at this time. */
function staysUntil({ extras }: LeaseState, time: number): boolean {
  const claim = extras?.pool
  return claim === undefined || (!claim.yields && endOf(claim.start, extras!.maxLife) > time)
}
