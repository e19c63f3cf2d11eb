import { describe, expect, test } from 'vitest'
import { kindOf } from '../../../../src/kernel/rule/pool/condition.ts'
import { askedKinds, kindQuota } from '../../../../src/kernel/rule/pool/kind.ts'
import { poolOf } from '../../../../src/kernel/state/pools.ts'
import { PoolLab } from '../../../support/kernel/pool-lab.ts'

const KINDS = { h0: { kind: 'h100' }, h1: { kind: 'h100' }, h2: { model: 'h100' }, a0: { model: 'a100' } }
const ONLY_A = [{ label: 'model', test: 'in' as const, values: ['a100'] }]

/** Three members of one kind and one of another; `a` may hold two of the first. */
function limited(quota = 2) {
  const lab = new PoolLab([])
  for (const [member, labels] of Object.entries(KINDS)) lab.offer(member, { labels })
  lab.policy('g/kinds/h100/accounts/a', { quotaUnits: quota })
  return lab
}

const held = (lab: PoolLab) => Object.fromEntries(poolOf(lab.state, 'g').accounts.get('a')?.kinds ?? [])

test('the kind of a member is its label kind, or its model', () => {
  expect(kindOf(new Map([['model', 'x']]))).toBe('x')
  expect(
    kindOf(
      new Map([
        ['model', 'x'],
        ['kind', 'y'],
      ]),
    ),
  ).toBe('y')
  expect(kindOf(new Map())).toBeUndefined()
})

describe('a quota for a kind', () => {
  test('limits the members of that kind and no others', () => {
    const lab = limited()
    expect(lab.held(lab.take('a1', { match: [{ label: 'model', test: 'absent' }], count: 2 }))).toBe(2)
    const waiter = lab.take('a2')
    const other = lab.take('a3', { match: ONLY_A })
    expect([waiter, other].map(lease => lab.held(lease))).toEqual([0, 1])
    expect(lab.held(lab.take('b1'))).toBe(1)
  })

  test('is free again when a member is given back', () => {
    const lab = limited(1)
    const match = [{ label: 'model', test: 'absent' as const }]
    const lease = lab.take('a1', { match })
    const waiter = lab.take('a2', { match })
    expect(lab.held(waiter)).toBe(0)
    lab.release(lease)
    expect(lab.held(waiter)).toBe(1)
    expect(held(lab)).toEqual({ h100: 1 })
  })

  test('counts no more of a kind than there is', () => {
    const lab = limited(3)
    expect(lab.ask('a1', [], { pool: { pool: 'g', account: 'a', count: 4 } }).kind).toBe('granted')
  })

  test('refuses a request that could get more of the kind, and says of which', () => {
    const lab = limited()
    const facts = { pool: 'g', account: 'a', kind: 'h100', quota: 2, units: 3, policy: 'g/kinds/h100/accounts/a' }
    lab.refused(lab.ask('a1', [], { pool: { pool: 'g', account: 'a', count: 3 }, wait: true }), 'LIMIT', 'pool-quota', facts)
  })

  test('refuses a request that does not wait while it is used up', () => {
    const lab = limited()
    lab.take('a1', { match: [{ label: 'model', test: 'absent' }], count: 2 })
    const facts = { kind: 'h100', held: 2, quota: 2, units: 1 }
    lab.refused(lab.ask('a2', [], { pool: { pool: 'g', account: 'a' } }), 'HELD', 'pool-quota-used', facts)
  })

  test('holds for all reservations of the account for one time together', () => {
    const lab = limited()
    const reserve = (count: number) =>
      lab.ask('a1', [], { pool: { pool: 'g', account: 'a', count, from: 1_000 }, wait: true, maxLife: 1_000 })
    expect(reserve(1).kind).toBe('queued')
    lab.refused(reserve(2), 'LIMIT', 'pool-quota', { kind: 'h100', units: 3 })
  })

  test('for all accounts is set without the name of one', () => {
    const lab = limited()
    lab.policy('g/kinds/h100', { quotaUnits: 1 })
    const pool = poolOf(lab.state, 'g')
    expect(['a', 'b'].map(account => kindQuota(lab.state, pool, 'h100', account))).toEqual([2, 1])
  })

  test('is not what is set for all kinds together', () => {
    const lab = limited()
    lab.policy('g', { quotaUnits: 1 })
    expect(kindQuota(lab.state, poolOf(lab.state, 'g'), 'a100', 'a')).toBe(0)
    expect(kindQuota(lab.state, poolOf(lab.state, 'g'), 'h100', 'b')).toBe(0)
  })

  test('follows the labels of a member that is held, and counts none that has left', () => {
    const lab = limited()
    lab.take('a1', { match: ONLY_A })
    expect(held(lab)).toEqual({ a100: 1 })
    const host = lab.offer('a0', { labels: { kind: 'h100' } })
    expect(held(lab)).toEqual({ h100: 1 })
    lab.do({ kind: 'release', lease: host })
    expect(held(lab)).toEqual({})
  })

  test('is looked up once for all waiters with equal needs', () => {
    const lab = limited(1)
    const waiters = ['a1', 'a2', 'a3'].map(holder => lab.take(holder, { match: [{ label: 'model', test: 'absent' }] }))
    const [one, other] = waiters.slice(1).map(lease => askedKinds(lab.state, poolOf(lab.state, 'g'), lab.lease(lease)!.extras!.pool!))
    expect(one).toEqual([{ kind: 'h100', units: 1 }])
    expect(one).toBe(other)
  })
})
