/**
 * Which member should have which shard: a pure function of the members and of who has what now, so that all members compute the same.
 *
 * - Bounded load: every member gets the same number of shards, or one more. Which members get one more is a fixed order of their names, so
 *   the quota of a member never falls when another member leaves.
 * - A member keeps what it has, up to its quota. So a death moves only the shards of the dead member, and a member that joins takes only what the
 *   others have above their quota.
 * - The rest goes by rendezvous hash: each free shard to the member that draws the highest number for it and has room.
 *
 * The plan does not change while it is carried out: once a member has got or given back a shard as planned, the plan for all others is the same.
 * The members look at different moments, and would take shards from each other otherwise.
 */
import { draw, hash } from '../../registry/rendezvous.ts'

export interface ShardMember {
  /** Unique. */
  readonly id: string
  /** For the hash: a member that comes back under its name gets much the same shards. */
  readonly name: string
}

/** The member of each shard, by index. Undefined: there is no member. */
export type ShardPlan = readonly (string | undefined)[]

/** `owners`: the id of the member that has each shard now. An id that is no member counts as none. */
export function planShards(count: number, members: readonly ShardMember[], owners: ReadonlyMap<number, string>): ShardPlan {
  const ranked = members.map(({ id, name }) => ({ id, hash: hash(name) })).sort(byHash)
  const room = quotas(count, ranked)
  const plan: (string | undefined)[] = Array.from({ length: count })
  const hashes = Array.from({ length: count }, (_, shard) => hash(String(shard)))
  for (const member of ranked) {
    const owned = [...owners].filter(([shard, id]) => id === member.id && shard < count).map(([shard]) => shard)
    // A member keeps the shard longest for which it draws the highest number.
    owned.sort((a, b) => draw(member.hash, hashes[b]!) - draw(member.hash, hashes[a]!) || a - b)
    for (const shard of owned.slice(0, room.get(member.id))) plan[shard] = member.id
    room.set(member.id, Math.max(0, room.get(member.id)! - owned.length))
  }
  for (let shard = 0; shard < count; shard++) {
    if (plan[shard] !== undefined) continue
    let best: string | undefined
    let highest = -1
    for (const member of ranked) {
      if (room.get(member.id) === 0) continue
      const drawn = draw(member.hash, hashes[shard]!)
      if (drawn <= highest) continue
      highest = drawn
      best = member.id
    }
    if (best === undefined) continue
    plan[shard] = best
    room.set(best, room.get(best)! - 1)
  }
  return plan
}

/** Returns how many shards each member gets. The first ones of a fixed order get the remainder, one each. */
function quotas(count: number, ranked: readonly { readonly id: string }[]): Map<string, number> {
  const each = Math.floor(count / ranked.length)
  const rest = count % ranked.length
  return new Map(ranked.map(({ id }, i) => [id, each + (i < rest ? 1 : 0)]))
}

function byHash(a: { readonly id: string; readonly hash: number }, b: { readonly id: string; readonly hash: number }): number {
  return a.hash - b.hash || (a.id < b.id ? -1 : 1)
}
