/** The outlook of a waiter: whether it would fit if some of the leases that hold members ended. */
import { MAX_RESOURCES } from '../../command.ts'
import { type LeaseState, LIVE, type PoolMember, type PoolState, type State } from '../../state.ts'
import type { Needs } from './choice.ts'
import { matches } from './condition.ts'

export interface Outlook {
  /** Returns whether the waiter fits once these leases have ended and their units are free. More leases never make it false. */
  fits(ended: Iterable<LeaseState>): boolean
  /** Units of members that the waiter could use, held by this lease. */
  useful(lease: LeaseState): number
}

/** A group of members that the waiter could take together: all of them, or those with the same value of the `near` label. */
interface Group {
  readonly rooms: number[]
  readonly capacities: number[]
}

/** `members`: those that are considered; all of them when left out. */
export function outlookOf(state: State, pool: PoolState, needs: Needs, members: Iterable<PoolMember> = pool.members.values()): Outlook {
  const groups = new Map<string, Group>()
  const places = new Map<PoolMember, { readonly group: Group; readonly place: number }>()
  for (const member of members) {
    if (!isOffered(state, member) || !matches(member.labels, needs.match)) continue
    const value = needs.near === '' ? '' : member.labels.get(needs.near)
    if (value === undefined) continue
    const group = groups.get(value) ?? { rooms: [], capacities: [] }
    groups.set(value, group)
    const used = state.resources.get(member.resource)?.used ?? 0
    places.set(member, { group, place: group.rooms.push(member.capacity - used) - 1 })
    group.capacities.push(member.capacity)
  }
  return {
    fits(ended) {
      const freed: { readonly rooms: number[]; readonly place: number; readonly units: number }[] = []
      for (const { grants } of ended)
        for (const { resource, units } of grants) {
          const there = resource.member === undefined ? undefined : places.get(resource.member)
          if (there === undefined) continue
          there.group.rooms[there.place]! += units
          freed.push({ rooms: there.group.rooms, place: there.place, units })
        }
      let fits = false
      for (const group of groups.values()) if (suffices(group, needs)) fits = true
      for (const { rooms, place, units } of freed) rooms[place]! -= units
      return fits
    },
    useful({ grants }) {
      let sum = 0
      for (const { resource, units } of grants) if (resource.member !== undefined && places.has(resource.member)) sum += units
      return sum
    },
  }
}

/** Returns whether a member can be given to waiters of the pool at all. Waiters for its resource itself come first. */
function isOffered(state: State, { entry, resource: name, capacity }: PoolMember): boolean {
  if (entry.lease.status !== LIVE || capacity === 0) return false
  const resource = state.resources.get(name)
  return resource === undefined || (resource.sharers === 0 && resource.queue.length === 0)
}

function suffices({ rooms, capacities }: Group, { count, units, total }: Needs): boolean {
  if (total > 0) {
    const open = rooms.filter(room => room > 0)
    // Only the largest count: a lease takes a limited number of members.
    const largest = open.length <= MAX_RESOURCES ? open : open.sort((a, b) => b - a).slice(0, MAX_RESOURCES)
    return largest.reduce((sum, room) => sum + room, 0) >= total
  }
  let open = 0
  for (let i = 0; i < rooms.length && open < count; i++) if (rooms[i]! >= (units === 0 ? capacities[i]! : units)) open++
  return open >= count
}
