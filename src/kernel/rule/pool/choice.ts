/**
 * Which members a request gets: deterministic, all or nothing.
 *
 * - Members with the least room that suffices come first, then by name: small gaps are filled before large ones are cut.
 * - With `total`, the members with the most room are taken whole, and the rest on the member with the least room that holds it. No choice needs
 *   fewer members.
 * - With `near`, the group with the least room that suffices, then the one whose label value comes first.
 */
import { MAX_RESOURCES, type Want } from '../../command.ts'
import { firstWithRoom } from '../../state/pools.ts'
import type { PoolClaim, PoolMember, PoolState } from '../../state.ts'
import { matches } from './condition.ts'

/** A member and the room that it has, or would have. */
export type Candidate = Pick<PoolMember, 'name' | 'resource' | 'labels' | 'capacity' | 'room'>

/** This is granted of a member. */
export type Choice = Required<Want>

/** The conditions of a request on members. */
export type Needs = Pick<PoolClaim, 'count' | 'units' | 'total' | 'match' | 'near'>

/** Returns what the request would get of the members that are free now; undefined: they do not suffice. Its place in the queue is not considered. */
export function chooseMembers({ free }: PoolState, needs: Needs): readonly Choice[] | undefined {
  if (free.length < needs.count) return undefined
  return choose(free, needs, firstWithRoom(free, Math.max(1, needs.units)))
}

/** Returns whether all present members together could serve the request if no lease held them. */
export function couldServe({ members }: PoolState, needs: Needs): boolean {
  const all: Candidate[] = []
  for (const { name, resource, labels, capacity } of members.values())
    if (capacity > 0) all.push({ name, resource, labels, capacity, room: capacity })
  return choose(all, needs) !== undefined
}

/** As `couldServe`, for a waiter. Judged once for all waiters with equal needs, until members change. */
export function isPossible(pool: PoolState, claim: PoolClaim): boolean {
  const shape = claim.shape ?? pool.shapes.get(shapeKey(claim))
  if (shape === undefined) return couldServe(pool, claim)
  if (shape.version !== pool.version) {
    shape.possible = couldServe(pool, claim)
    shape.version = pool.version
  }
  return shape.possible
}

/** Equal for equal needs, and for no others: every text comes after its length. */
export function shapeKey({ count, units, total, match, near }: Needs): string {
  const texts = [near, ...match.flatMap(({ label, test, values = [] }) => [label, test, String(values.length), ...values])]
  return [count, units, total, match.length, ...texts.map(text => `${text.length}:${text}`)].join(' ')
}

/** The choice among candidates that are ordered by room, then by name, beginning with the one at `from`. */
export function choose(candidates: readonly Candidate[], needs: Needs, from = 0): readonly Choice[] | undefined {
  if (needs.near === '')
    return needs.total > 0 ? chooseTotal(matching(candidates, needs), needs.total) : chooseCount(candidates, needs, from)
  const groups = new Map<string, Candidate[]>()
  for (const candidate of matching(candidates, needs)) {
    const value = candidate.labels.get(needs.near)
    if (value === undefined) continue
    const group = groups.get(value)
    if (group === undefined) groups.set(value, [candidate])
    else group.push(candidate)
  }
  let best: { readonly room: number; readonly value: string; readonly chosen: readonly Choice[] } | undefined
  for (const [value, group] of groups) {
    const room = roomOf(group)
    if (best !== undefined && (room > best.room || (room === best.room && value > best.value))) continue
    const chosen = needs.total > 0 ? chooseTotal(group, needs.total) : chooseCount(group, needs, 0)
    if (chosen !== undefined) best = { room, value, chosen }
  }
  return best?.chosen
}

function matching(candidates: readonly Candidate[], { match }: Needs): readonly Candidate[] {
  return match.length === 0 ? candidates : candidates.filter(({ labels }) => matches(labels, match))
}

function roomOf(candidates: readonly Candidate[]): number {
  let sum = 0
  for (const { room } of candidates) sum += room
  return sum
}

function chooseCount(candidates: readonly Candidate[], { count, units, match }: Needs, from: number): Choice[] | undefined {
  const chosen: Choice[] = []
  for (let i = from; i < candidates.length && chosen.length < count; i++) {
    const { resource, labels, capacity, room } = candidates[i]!
    if (units === 0 ? room < capacity : room < units) continue
    if (match.length === 0 || matches(labels, match)) chosen.push({ resource, units: units === 0 ? capacity : units, shared: false })
  }
  return chosen.length === count ? chosen : undefined
}

function chooseTotal(candidates: readonly Candidate[], total: number): Choice[] | undefined {
  if (roomOf(candidates) < total) return undefined
  const ordered = [...candidates].sort((a, b) => b.room - a.room || (a.name < b.name ? -1 : 1))
  const chosen: Choice[] = []
  let rest = total
  for (const [i, { resource, room }] of ordered.entries()) {
    if (chosen.length === MAX_RESOURCES) return undefined
    if (room < rest) {
      chosen.push({ resource, units: room, shared: false })
      rest -= room
      continue
    }
    // This one holds the rest. So may smaller ones: they follow, and the last of them has the least room.
    let last = i
    while (last + 1 < ordered.length && ordered[last + 1]!.room >= rest) last++
    // Of several with that room, the first by name.
    while (last > i && ordered[last - 1]!.room === ordered[last]!.room) last--
    chosen.push({ resource: ordered[last]!.resource, units: rest, shared: false })
    return chosen
  }
  return undefined
}
