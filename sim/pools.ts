/** Judges pools: no waiter overtakes another, no member is free while the first waiter fits, and a member that is gone is held by no lease. */
import type { Acquire, Command } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { FROZEN, type LeaseState, LIVE, type State } from '../src/kernel/state.ts'
import type { Dice } from './world.ts'

/** The holders of this world offer members of one unit, and ask for a number of them without conditions. */
const POOL = 'g'

/** Offers members, or asks for some. */
export function poolWish(dice: Dice, holder: string, ttl: number, incarnation: number | undefined): Acquire {
  const base = { kind: 'acquire', holder, ttl, wants: [], ...(incarnation !== undefined && { incarnation }) } as const
  if (dice.chance(0.35)) {
    const members = dice.chance(0.3) ? [0, 1] : [dice.whole(0, 4)]
    const entries = members.map(i => ({ key: `pool/${POOL}/m${i}`, value: '{"units":1}' }))
    return { ...base, entries, ...(dice.chance(0.3) && { grace: 300 }) }
  }
  return {
    ...base,
    pool: { pool: POOL, count: dice.whole(1, 2) },
    ...(dice.chance(0.8) && { wait: true }),
    ...(dice.chance(0.15) && { priority: dice.whole(-1, 2) }),
  }
}

interface PoolJudge {
  violate(invariant: string, message: string): void
  /** The rank that a lease has by its command, also if it never waited. */
  rankOf(lease: number): number | undefined
}

export function judgePools(state: State, { kind }: Command, events: readonly Event[], { violate, rankOf }: PoolJudge): void {
  if (state.pools.size === 0) return
  const granted = new Map<number, string[]>()
  for (const { type, lease, resource, key = '', cause } of events) {
    if (type === 'granted' && resource?.startsWith(`${POOL}/`)) granted.set(lease, [...(granted.get(lease) ?? []), resource])
    const isGone = type === 'deleted' && key.startsWith(`pool/${POOL}/`) && cause !== 'deleted' && cause !== 'released'
    const left = isGone ? state.resources.get(key.slice('pool/'.length))?.grants : undefined
    const still = left?.find(grant => grant.lease.status !== FROZEN)
    // In the same revision another holder may have offered it again.
    if (still !== undefined && !state.entries.has(key)) violate('S8', `${key} is gone, and lease ${still.lease.id} still holds it`)
  }
  const first = state.pools.get(POOL)?.queue.find(waiter => isPossible(state, waiter))
  for (const [id, resources] of granted) {
    const lease = findLease(state, id)
    const claim = lease?.rare?.pool
    // The recipient of a transfer takes the holder's place, and none in the queue.
    if (claim === undefined || kind === 'transfer') continue
    if (new Set(resources).size !== claim.count)
      violate('S10', `lease ${id} was granted ${resources}, and asked for ${claim.count} members`)
    const rank = rankOf(id) ?? lease!.rare!.rank
    const isOvertaken = first !== undefined && (first.rare!.rank < rank || (first.rare!.rank === rank && first.id < id))
    if (isOvertaken) violate('S14', `${id} was granted members before ${first.id}, which had waited longer`)
  }
  if (first === undefined || state.quiet !== undefined || state.moved !== undefined) return
  const free = membersOf(state).filter(resource => {
    const there = state.resources.get(resource)
    return (
      state.entries.get(`pool/${resource}`)!.lease.status === LIVE &&
      (there === undefined || there.grants.length + there.queue.length === 0)
    )
  })
  if (free.length >= first.rare!.pool!.count)
    violate('L1', `${free} are free, and ${first.holder.name} waits for ${first.rare!.pool!.count} of them`)
}

function membersOf(state: State): string[] {
  return [...state.entries.keys()].flatMap(key => (key.startsWith(`pool/${POOL}/`) ? [key.slice('pool/'.length)] : []))
}

function isPossible(state: State, { rare }: LeaseState): boolean {
  return membersOf(state).length >= rare!.pool!.count
}
