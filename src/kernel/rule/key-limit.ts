/** The limits of keys and groups of keys: refuses what would be more than they may have. What they have already is never ended for it. */
import type { Acquire, Attachment, KeyLimits, KeyUse } from '../command.ts'
import type { Refused } from '../outcome.ts'
import { type Flaw, outside } from '../reason.ts'
import { entryBytes } from '../state/free-entries.ts'
import { noUse } from '../state/key-use.ts'
import type { State } from '../state.ts'
import { refuse } from './refuse.ts'

const COUNT_LIMIT = 1_000_000_000

const BOUNDS: Readonly<Record<keyof KeyLimits, readonly [low: number, high: number]>> = {
  leases: [0, COUNT_LIMIT],
  waiters: [0, COUNT_LIMIT],
  entries: [0, COUNT_LIMIT],
  bytes: [0, 2 ** 40],
  connections: [1, 1_000_000],
  requests: [1, 1_000_000],
  burst: [1, 1_000_000],
}
const COUNTED = ['leases', 'waiters', 'entries', 'bytes'] as const satisfies readonly (keyof KeyLimits & keyof KeyUse)[]

/** Returns what is wrong with limits, or undefined. */
export function badLimits(limits: KeyLimits): Flaw | undefined {
  for (const [name, [low, high]] of Object.entries(BOUNDS)) {
    const value = limits[name as keyof KeyLimits]
    if (value !== undefined && (!Number.isSafeInteger(value) || value < low || value > high))
      return outside(`limits.${name}`, low, high, value)
  }
  const { burst, requests } = limits
  return burst !== undefined && requests === undefined
    ? { reason: 'needs', facts: { field: 'limits.burst', other: 'limits.requests' } }
    : undefined
}

/** Refuses a key that would have `more` than it may, or than its group may. What shrinks or stays is not checked. */
export function beyondLimits(state: State, key: number, more: KeyUse): Refused | undefined {
  const known = key === 0 ? undefined : state.keys.get(key)
  if (known === undefined) return undefined
  const { limits, group: name } = known
  if (limits !== undefined) {
    const over = exceeded(limits, state.keyUse.get(key), more)
    if (over !== undefined) return refuse(state, 'key-limit', over)
  }
  if (name === undefined) return undefined
  const group = state.groups.get(name)!
  const over = group.limits === undefined ? undefined : exceeded(group.limits, group.use, more)
  return over === undefined ? undefined : refuse(state, 'group-limit', { group: name, ...over })
}

interface Exceeded {
  readonly what: string
  readonly limit: number
  readonly used: number
}

function exceeded(limits: KeyLimits, has: KeyUse | undefined, more: KeyUse): Exceeded | undefined {
  for (const what of COUNTED) {
    const limit = limits[what]
    const used = has?.[what] ?? 0
    if (limit !== undefined && more[what] > 0 && used + more[what] > limit) return { what, limit, used }
  }
  return undefined
}

/** Returns what a new lease adds. `waits`: it joins a queue. */
export function useOfRequest(state: State, key: number, { entries = [] }: Acquire, waits: boolean): KeyUse {
  const more: KeyUse = { leases: 1, waiters: waits ? 1 : 0, entries: 0, bytes: 0 }
  // The entries of a waiter come beside those that they will replace.
  for (const entry of entries) addEntryUse(more, entry, waits ? undefined : ownEntry(state, key, entry.key))
  return more
}

/** Returns what one entry adds to a key. */
export function useOfEntry(state: State, key: number, entry: Attachment): KeyUse {
  const more = noUse()
  addEntryUse(more, entry, ownEntry(state, key, entry.key))
  return more
}

/** Finds the entry that another with the same name would replace, if it counts for this key. */
function ownEntry(state: State, key: number, name: string): Attachment | undefined {
  const attached = state.entries.get(name)
  if (attached !== undefined) return attached.lease.key === key ? attached : undefined
  const free = state.free.get(name)
  return free?.by === key ? free : undefined
}

function addEntryUse(more: KeyUse, entry: Attachment, replaced: Attachment | undefined): void {
  if (replaced === undefined) more.entries++
  more.bytes += entryBytes(entry) - (replaced === undefined ? 0 : entryBytes(replaced))
}

/** The growth of several keys by the changes of one transaction. */
export class KeyGrowth {
  readonly #more = new Map<number, KeyUse>()

  add(key: number, entries: number, bytes: number): void {
    if (key === 0) return
    const more = this.#more.get(key) ?? noUse()
    more.entries += entries
    more.bytes += bytes
    this.#more.set(key, more)
  }

  refusal(state: State): Refused | undefined {
    for (const [key, more] of this.#more) {
      const refused = beyondLimits(state, key, more)
      if (refused !== undefined) return refused
    }
    return undefined
  }
}
