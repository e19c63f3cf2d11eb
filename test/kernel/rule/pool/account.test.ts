import { expect, test, vi } from 'vitest'
import { forgetAccounts } from '../../../../src/kernel/rule/pool/account.ts'
import { accountOf, emptyPool } from '../../../../src/kernel/state/pools.ts'
import { createState } from '../../../../src/kernel/state.ts'

const MAX_ACCOUNTS = 4_096

test('beyond the limit, idle accounts with the least usage are forgotten; the table is read twice, however many they are', () => {
  const state = createState()
  const pool = emptyPool('gpus')
  for (let i = 0; i < 3 * MAX_ACCOUNTS; i++) accountOf(pool, `user-${i}`).usage = 1e9 + (i % 7)
  accountOf(pool, 'busy').held = 1
  const read = vi.spyOn(pool.accounts, 'values')
  forgetAccounts(state, pool)
  expect(read.mock.calls.length).toBeLessThanOrEqual(2)
  expect(pool.accounts.size).toBe(MAX_ACCOUNTS)
  expect(pool.accounts.has('busy')).toBe(true)
  const kept = [...pool.accounts.values()].filter(({ held }) => held === 0).map(({ usage }) => usage - 1e9)
  expect(Math.min(...kept)).toBe(4)
  expect(new Set(kept)).toEqual(new Set([4, 5, 6]))
})

test('of accounts with equal usage, those first in the alphabet are forgotten, whatever the order of the table', () => {
  const forget = (order: readonly number[]): string[] => {
    const pool = emptyPool('gpus')
    for (const i of order) accountOf(pool, `user-${10_000 + i}`).usage = 1e9
    forgetAccounts(createState(), pool)
    return [...pool.accounts.keys()].sort()
  }
  const numbers = Array.from({ length: MAX_ACCOUNTS + 3 }, (_, i) => i)
  const kept = forget(numbers)
  expect(kept[0]).toBe('user-10003')
  expect(forget(numbers.reverse())).toEqual(kept)
})
