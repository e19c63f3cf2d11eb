/**
 * The limits of keys and groups, again, the naive way: all leases and entries are counted anew after each command. What a command would do without limits, a twin
 * of the world says, whose keys have none.
 */
import type { Command, KeyLimits, KeyUse } from '../../../src/kernel/command.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'
import { type State, WAITING } from '../../../src/kernel/state.ts'
import { reload, World } from './world.ts'

const WHAT = ['leases', 'waiters', 'entries', 'bytes'] as const

/** Counts what these keys have together. */
export function countedFor(state: State, keys: ReadonlySet<number>): KeyUse {
  const use = { leases: 0, waiters: 0, entries: 0, bytes: 0 }
  const addEntry = (key: string, value: string) => {
    use.entries++
    use.bytes += Buffer.byteLength(key) + Buffer.byteLength(value)
  }
  for (const lease of state.leases.values()) {
    if (!keys.has(lease.key)) continue
    use.leases++
    if (lease.status === WAITING) use.waiters++
    for (const { key, value } of lease.extras?.pending ?? []) addEntry(key, value)
  }
  for (const { key, value, lease } of state.entries.values()) if (keys.has(lease.key)) addEntry(key, value)
  for (const { key, value, by } of state.free.values()) if (by !== undefined && keys.has(by)) addEntry(key, value)
  return use
}

export class KeyLimitModel {
  /** By key id. */
  readonly limits = new Map<number, KeyLimits>()
  readonly groups = new Map<string, { readonly keys: ReadonlySet<number>; limits: KeyLimits }>()

  /** Returns the answer that `state` must give: `LIMIT`, or what a world without limits says. */
  expected(state: State, command: Command, key: number): string {
    const twin = new World({ strict: false })
    twin.state = reload(state)
    for (const id of this.limits.keys()) twin.do({ kind: 'limit', id, limits: {} })
    for (const group of this.groups.keys()) twin.do({ kind: 'limit', group, limits: {} })
    const outcome = twin.do(command, { key })
    if (outcome.kind === 'refused') return said(outcome)
    const isOver = (keys: ReadonlySet<number>, limits: KeyLimits | undefined): boolean => {
      const [before, after] = [countedFor(state, keys), countedFor(twin.state, keys)]
      return WHAT.some(what => {
        const limit = limits?.[what]
        return limit !== undefined && after[what] > before[what] && after[what] > limit
      })
    }
    // A renewal that would claim a lease beyond the limit is answered as that of a lease which is not the caller's.
    const limited = command.kind === 'renew' ? 'renewed -1' : 'LIMIT'
    if (isOver(new Set([key]), this.limits.get(key))) return limited
    for (const { keys, limits } of this.groups.values()) if (keys.has(key) && isOver(keys, limits)) return limited
    return said(outcome)
  }
}

export function said(outcome: Outcome): string {
  return outcome.kind === 'refused' ? outcome.code : outcome.kind === 'renewed' ? `renewed ${outcome.ttls}` : outcome.kind
}
