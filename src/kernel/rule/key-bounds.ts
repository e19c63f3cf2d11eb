/**
 * The requests of a key are bound by this: its accounts, holder names and priorities, and whether it may name members of pools. A key without such bounds may
 * say anything.
 *
 * Not guaranteed: a key that may not name members can still acquire a name under a pool that has no members, waiters or usage, and so is not there.
 */
import { type Acquire, type KeyBounds, MAX_KEY_NAMES, PRIORITY_LIMIT } from '../command.ts'
import { badPrefix } from '../name.ts'
import type { Refused } from '../outcome.ts'
import { type Flaw, outside, shown, tooMany, within } from '../reason.ts'
import type { State } from '../state.ts'
import { refuse } from './refuse.ts'

/** Returns what is wrong with the bounds of a new key, or undefined. */
export function badBounds({ accounts, holders, priority }: KeyBounds): Flaw | undefined {
  const wrong = badNames('accounts', accounts) ?? badNames('holders', holders)
  if (wrong !== undefined || priority === undefined) return wrong
  const { low, high } = priority
  for (const [field, value] of Object.entries({ low, high }))
    if (!Number.isSafeInteger(value) || Math.abs(value) > PRIORITY_LIMIT)
      return outside(`priority.${field}`, -PRIORITY_LIMIT, PRIORITY_LIMIT, value)
  if (low > high) return { reason: 'above', facts: { field: 'priority.low', value: low, other: 'priority.high', limit: high } }
  return undefined
}

function badNames(field: string, names: readonly string[] | undefined): Flaw | undefined {
  if (names === undefined) return undefined
  if (!Array.isArray(names)) return { reason: 'not-list', facts: { field, given: shown(names) } }
  if (names.length > MAX_KEY_NAMES) return tooMany(field, MAX_KEY_NAMES)
  for (const [i, name] of names.entries()) {
    const bad = name === '' ? ({ reason: 'empty', facts: { field: '' } } as const) : badPrefix(stem(name))
    if (bad !== undefined) return within(`${field}[${i}]`, bad)
  }
  return undefined
}

function stem(name: unknown): unknown {
  return typeof name === 'string' && name.endsWith('*') ? name.slice(0, -1) : name
}

function isOneOf(names: readonly string[] | undefined, name: string): boolean {
  return names === undefined || names.some(known => (known.endsWith('*') ? name.startsWith(known.slice(0, -1)) : name === known))
}

/** Returns the request with what its key says where it says nothing itself. */
export function withKeyDefaults(state: State, command: Acquire, key: number): Acquire {
  const { accounts, priority: range } = state.keys.get(key) ?? {}
  const { pool, priority } = command
  const nearest = range === undefined || priority !== undefined ? 0 : Math.max(range.low, Math.min(range.high, 0))
  const account = pool === undefined || pool.account !== undefined ? undefined : accounts?.find(name => !name.endsWith('*'))
  if (nearest === 0 && account === undefined) return command
  return { ...command, ...(nearest !== 0 && { priority: nearest }), ...(account !== undefined && { pool: { ...pool!, account } }) }
}

/** Refuses a request that says what its key may not say. `account`: of a request of a pool. */
export function outsideBounds(state: State, key: number, { holder, priority = 0, wants }: Acquire, account?: string): Refused | undefined {
  const known = key === 0 ? undefined : state.keys.get(key)
  if (known === undefined) return undefined
  const { name, holders, accounts, priority: range } = known
  if (holder !== name && !isOneOf(holders, holder)) return refuse(state, 'forbidden-holder', { holder, holders: holders! })
  if (account !== undefined && !isOneOf(accounts, account)) return refuse(state, 'forbidden-account', { account, accounts: accounts! })
  if (range !== undefined && (priority < range.low || priority > range.high))
    return refuse(state, 'forbidden-priority', { priority, ...range })
  for (const { resource } of wants) {
    const refused = memberNamed(state, key, resource)
    if (refused !== undefined) return refused
  }
  return undefined
}

/** Refuses the name of a member to a key that may only ask its pool. A name under a pool counts as well: the member may come later. */
export function memberNamed(state: State, key: number, name: string): Refused | undefined {
  if (key === 0 || state.pools.size === 0 || state.keys.get(key)?.noMembers !== true) return undefined
  for (let slash = name.lastIndexOf('/'); slash > 0; slash = name.lastIndexOf('/', slash - 1)) {
    const pool = name.slice(0, slash)
    if (state.pools.has(pool)) return refuse(state, 'forbidden-member', { name, pool })
  }
  return undefined
}

/** Returns whether a key may have a lease that another key passed on: under this holder name, of this account. */
export function isWithinBounds(state: State, key: number, holder: string, account: string | undefined): boolean {
  const { name, holders, accounts } = state.keys.get(key) ?? {}
  return (holder === name || isOneOf(holders, holder)) && (account === undefined || isOneOf(accounts, account))
}
