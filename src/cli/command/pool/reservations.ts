/** Tells which members of a pool are free, and which of them are kept for reservations, for tables and waiting lines. */
import { inWords } from '../../../duration.ts'
import { matches } from '../../../kernel/rule/pool/condition.ts'
import type { PoolMemberView, PoolView } from '../../../lessor.ts'

/**
 * Such as `1 is kept for a reservation of cid in 30 min`. Undefined if none is. Members that are free now are counted for the earliest windows first; a window
 * may also get members that are free again by then, so it is the most that may be kept.
 */
export function keptText({ members, reservations }: PoolView): string | undefined {
  const free = freeMembers(members)
  const texts = reservations.flatMap(({ account, holder, request }) => {
    const { count = 1, match = [], from = 0 } = request
    const fitting = free.filter(({ labels }) => matches(new Map(Object.entries(labels)), match)).slice(0, count)
    for (const member of fitting) free.splice(free.indexOf(member), 1)
    if (fitting.length === 0) return []
    const are = fitting.length === 1 ? 'is' : 'are'
    return [`${fitting.length} ${are} kept for a reservation of ${account || holder} in ${inWords(Math.max(0, from))}`]
  })
  return texts.length === 0 ? undefined : texts.join(', ')
}

export function freeMembers(members: readonly PoolMemberView[]): PoolMemberView[] {
  return members.filter(({ used, status }) => used === 0 && status === 'live')
}
