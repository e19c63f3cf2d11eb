import { expect, test } from 'vitest'
import { BUDGET, DnsBudget } from '../../../src/server/registry/dns-budget.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

test('addresses of one network share a budget, and the number of remembered networks is bounded', () => {
  const clock = new ManualClock()
  const budget = new DnsBudget(clock)
  budget.spend('192.0.2.1', BUDGET)
  expect([budget.has('192.0.2.9'), budget.has('192.0.3.1')]).toEqual([false, true])
  budget.spend('2001:db8:0:100::1', BUDGET)
  expect([budget.has('2001:db8:0:1ff::9'), budget.has('2001:db8:0:200::1'), budget.has('fe80::1%eth0')]).toEqual([false, true, true])
  for (let i = 0; i < 100_000; i++)
    budget.has(`10.${i >> 8}.${i & 255}.1`.replace(/^10\.(\d+)/, (_, n) => `${Number(n) >> 8}.${Number(n) & 255}`))
  expect(budget.size).toBeLessThanOrEqual(4_096)
})
