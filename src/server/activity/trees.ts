/** Trees of leases, the newest first: sessions, and leases with others below them. What ends with what. */
import type { LeaseView } from '../../lessor.ts'
import type { Caller } from '../access-control.ts'
import type { GuardedLessor } from '../guarded-lessor.ts'

/** Leases of one tree. */
const MAX_LEASES = 200

export interface LeaseTree {
  /** The root first, and each lease before those below it. */
  readonly leases: readonly LeaseView[]
  readonly more: boolean
}

export interface TreePage {
  readonly total: number
  readonly revision: number
  readonly trees: readonly LeaseTree[]
}

export async function treePage(
  guarded: GuardedLessor,
  caller: Caller,
  page: { readonly offset: number; readonly limit: number },
  signal: AbortSignal,
): Promise<TreePage> {
  const { total, revision, value } = await guarded.page<'leases'>(
    caller,
    { kind: 'leases' },
    { ...page, sort: '-since', roots: true },
    signal,
  )
  const trees: LeaseTree[] = []
  for (const root of value) trees.push(await treeOf(guarded, caller, root))
  return { total, revision, trees }
}

async function treeOf({ access, lessor }: GuardedLessor, caller: Caller, root: LeaseView): Promise<LeaseTree> {
  const leases: LeaseView[] = []
  const next = [root]
  let more = false
  while (next.length > 0 && leases.length < MAX_LEASES) {
    const lease = next.pop()!
    leases.push(lease)
    // Leases that cannot be shown any more need not be read.
    const room = MAX_LEASES - leases.length
    more ||= lease.children.length > room
    for (const child of lease.children.slice(0, room).reverse()) {
      const query = { kind: 'lease', lease: child } as const
      const { value } = access.filter(caller, query, await lessor.read<'lease'>(query))
      if (value !== undefined) next.push(value)
    }
  }
  return { leases, more: more || next.length > 0 }
}
