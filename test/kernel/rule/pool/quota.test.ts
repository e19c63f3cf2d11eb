import { expect, test } from 'vitest'
import { mostUnits, standingWith } from '../../../../src/kernel/rule/pool/quota.ts'

test('an account is within its quota, borrows, or is over it', () => {
  const account = { held: 3, quota: 4, borrow: 2 }
  expect([1, 2, 3, 4].map(units => standingWith(account, units))).toEqual(['within', 'borrowed', 'borrowed', 'over'])
  expect(standingWith({ ...account, borrow: 0 }, 2)).toBe('over')
  expect(mostUnits(account)).toBe(6)
})

test('an account without a quota is always within it', () => {
  expect(standingWith({ held: 1e9, quota: 0, borrow: 0 }, 1e9)).toBe('within')
  expect(mostUnits({ held: 0, quota: 0, borrow: 5 })).toBeUndefined()
})

test('an account that holds more than a lowered quota borrows what is left of its allowance, and no more', () => {
  expect(standingWith({ held: 5, quota: 4, borrow: 2 }, 1)).toBe('borrowed')
  expect(standingWith({ held: 6, quota: 4, borrow: 2 }, 1)).toBe('over')
})
