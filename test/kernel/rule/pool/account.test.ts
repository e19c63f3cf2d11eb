import { expect, test } from 'vitest'
import { forgetAccounts } from '../../../../src/kernel/rule/pool/account.ts'
import { ACCOUNT_SLICES } from '../../../../src/kernel/state/account-table.ts'
import { accountOf, emptyPool } from '../../../../src/kernel/state/pools.ts'
import { createState, type PoolState } from '../../../../src/kernel/state.ts'

const MAX_ACCOUNTS = 4_096

/** As so many ticks do. */
function forgetIn(pool: PoolState, ticks: number): void {
  const state = createState()
  for (let tick = 0; tick < ticks; tick++) forgetAccounts(Object.assign(state, { tick }), pool)
}

test('beyond the limit, idle accounts with the least usage are forgotten within 64 ticks, and busy ones never', () => {
  const pool = emptyPool('gpus')
  for (let i = 0; i < 3 * MAX_ACCOUNTS; i++) accountOf(pool, `user-${i}`).usage = 1e9 + (i % 7)
  accountOf(pool, 'busy').held = 1
  forgetIn(pool, ACCOUNT_SLICES)
  expect(pool.accounts.size).toBeLessThanOrEqual(MAX_ACCOUNTS + ACCOUNT_SLICES)
  expect(pool.accounts.size).toBeGreaterThan(MAX_ACCOUNTS - ACCOUNT_SLICES)
  expect(pool.accounts.has('busy')).toBe(true)
  const kept = [...pool.accounts.values()].filter(({ held }) => held === 0).map(({ usage }) => usage - 1e9)
  expect(Math.min(...kept)).toBeGreaterThanOrEqual(3)
})

test('a tick looks at a small part of sixteen thousand accounts', () => {
  const pool = emptyPool('gpus')
  for (let i = 0; i < 4 * MAX_ACCOUNTS; i++) accountOf(pool, `user-${i}`).usage = 1e9
  let looked = 0
  for (const account of pool.accounts.values()) {
    const { held } = account
    const get = (): number => {
      looked++
      return held
    }
    Object.defineProperty(account, 'held', { get })
  }
  forgetIn(pool, 1)
  expect(looked).toBeGreaterThan(0)
  expect(looked).toBeLessThan(4 * ((4 * MAX_ACCOUNTS) / ACCOUNT_SLICES))
})

test('which accounts are forgotten does not depend on the order of the table', () => {
  const kept = (order: readonly number[]): string[] => {
    const pool = emptyPool('gpus')
    for (const i of order) accountOf(pool, `user-${10_000 + i}`).usage = 1e9
    forgetIn(pool, ACCOUNT_SLICES)
    return [...pool.accounts.keys()].sort()
  }
  const numbers = Array.from({ length: MAX_ACCOUNTS + 300 }, (_, i) => i)
  const first = kept(numbers)
  expect(first.length).toBeLessThan(numbers.length)
  expect(kept(numbers.reverse())).toEqual(first)
})
