/**
 * The pools of a state: find, create and drop them, and keep their tables consistent.
 *
 * A pool is derived from the entries `pool/NAME/MEMBER`, from the leases that wait for its members or hold them, and from policies. Only the
 * usage of accounts is kept by itself.
 */

import type { PoolAccount, PoolMember, PoolState, State } from '../state.ts'
import { AccountTable } from './account-table.ts'

/** Entries under this prefix are members of pools. */
export const POOL_ROOT = 'pool/'

export function emptyPool(name: string): PoolState {
  return {
    name,
    members: new Map(),
    free: [],
    queue: [],
    holders: new Set(),
    noticed: new Set(),
    reserved: new Set(),
    accounts: new AccountTable<PoolAccount>(),
    shapes: new Map(),
    version: 1,
    turn: 0,
    freed: false,
  }
}

export function poolOf(state: State, name: string): PoolState {
  let pool = state.pools.get(name)
  if (pool === undefined) {
    pool = emptyPool(name)
    state.pools.set(name, pool)
  }
  return pool
}

/** Forgets a pool that has no members, waiters, holders or usage. */
export function dropPoolIfIdle(state: State, pool: PoolState): void {
  const { members, queue, holders, accounts } = pool
  if (members.size + queue.length + holders.size + accounts.size === 0 && state.pools.get(pool.name) === pool) state.pools.delete(pool.name)
}

/** The member that a resource is, or undefined. */
export function memberOf(state: State, resource: string): PoolMember | undefined {
  const slash = resource.lastIndexOf('/')
  return slash < 0 ? undefined : state.pools.get(resource.slice(0, slash))?.members.get(resource.slice(slash + 1))
}

export function accountOf(pool: PoolState, name: string): PoolAccount {
  let account = pool.accounts.get(name)
  if (account === undefined) {
    account = { name, usage: 0, at: 0, week: [], held: 0, leases: 0, kinds: undefined, waiting: [] }
    pool.accounts.set(name, account)
  }
  return account
}

/** Forgets an account that has nothing and used nothing. */
export function dropAccountIfIdle(pool: PoolState, account: PoolAccount): void {
  if (account.held + account.waiting.length + account.leases + account.usage + account.week.length === 0) pool.accounts.delete(account.name)
}

/** Where a member with this room and name is, or belongs, in `free`. */
function placeOfRoom(free: readonly PoolMember[], room: number, name: string): number {
  let low = 0
  let high = free.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const one = free[middle]!
    if (one.room < room || (one.room === room && one.name < name)) low = middle + 1
    else high = middle
  }
  return low
}

/** The first member in `free` with at least this room. */
export function firstWithRoom(free: readonly PoolMember[], room: number): number {
  return placeOfRoom(free, room, '')
}

/** Lists the member with this room among the free ones; 0: not at all. */
export function setRoom(member: PoolMember, room: number): void {
  if (member.room === room) return
  const { free } = member.pool
  if (member.room > 0) free.splice(placeOfRoom(free, member.room, member.name), 1)
  member.room = room
  if (room > 0) free.splice(placeOfRoom(free, room, member.name), 0, member)
}
