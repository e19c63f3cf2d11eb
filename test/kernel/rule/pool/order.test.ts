/** The order in which the waiters of a pool are served, with reservations, quotas and members that are gone. */
import { describe, expect, test } from 'vitest'
import { positionInPool } from '../../../../src/kernel/rule/pool/waiters.ts'
import { PoolLab } from '../../../support/kernel/pool-lab.ts'

describe('in a fair queue, a reservation whose window begins', () => {
  function windowOf() {
    const lab = new PoolLab(['m0', 'm1'])
    lab.policy('g', { queue: 'fair' })
    const used = lab.take('a1')
    lab.tick(10_000)
    lab.release(used)
    const reservation = lab.take('a2', { count: 2, from: 20_000 }, { maxLife: 60_000 })
    const newcomer = lab.take('b1')
    lab.tick(20_001)
    return { lab, reservation, newcomer }
  }

  test('gets the members that were kept for it, although its account used more', () => {
    const { lab, reservation, newcomer } = windowOf()
    expect([lab.held(reservation), lab.held(newcomer)]).toEqual([2, 0])
  })
})

describe('in a fair queue, a waiter that the present members cannot serve', () => {
  function largeRequest() {
    const lab = new PoolLab(['m0', 'm1'])
    lab.policy('g', { queue: 'fair', preempt: 'marked' })
    const [first, second] = [lab.take('c1'), lab.take('a1')]
    const host = lab.offer('m2')
    const large = lab.take('b1', { count: 3 })
    lab.release(host)
    const other = lab.take('a2')
    const small = lab.take('b2')
    const position = (lease: number) => positionInPool(lab.state, lab.lease(lease)!)
    const positions = [large, small, other].map(position)
    lab.release(first)
    return { lab, second, large, small, other, positions }
  }

  test('does not hold up the other waiters of its account', () => {
    const { lab, small, other, positions } = largeRequest()
    expect(positions).toEqual([0, 1, 2])
    expect([lab.held(small), lab.held(other)]).toEqual([1, 0])
  })

  test('does not hold them up either while its window is ahead', () => {
    const lab = new PoolLab(['m0', 'm1'])
    lab.policy('g', { queue: 'fair', preempt: 'marked' })
    lab.take('a1')
    const first = lab.take('c1', {}, { maxLife: 500 })
    lab.take('b1', { count: 1, from: 3_600_000 }, { maxLife: 60_000 })
    const other = lab.take('a2', {}, { maxLife: 500 })
    const small = lab.take('b2', {}, { maxLife: 500 })
    lab.release(first)
    expect([lab.held(small), lab.held(other)]).toEqual([1, 0])
  })
})

describe('the end of a lease on a member that is gone', () => {
  function frozenOnGone() {
    const lab = new PoolLab(['m1'])
    const host = lab.offer('m2')
    lab.policy('g', { queue: 'fit' })
    lab.policy('g/accounts/b', { quotaUnits: 1 })
    lab.take('a1')
    const frozen = lab.take('b1')
    const behind = lab.take('b2')
    // The host dies: its member leaves, and the lease of its holder is frozen until that has stopped.
    lab.due(host)
    lab.offer('m3')
    expect(lab.held(behind)).toBe(0)
    lab.release(frozen)
    return { lab, behind }
  }

  test('lets a waiter be served that is within its quota now, in the same revision', () => {
    const { lab, behind } = frozenOnGone()
    expect(lab.held(behind)).toBe(1)
  })
})

describe('in a backfill queue, a waiter behind one of its own account that would be over its quota then', () => {
  function sameAccount() {
    const lab = new PoolLab(['m0', 'm1'])
    lab.policy('g', { queue: 'backfill', preemptNotice: 1_000 })
    lab.policy('g/accounts/a', { quotaUnits: 2, quotaBorrow: 1 })
    lab.take('b1')
    const head = lab.take('a1', { count: 2 })
    const small = lab.take('a2')
    const overtaker = lab.take('a3', { preemptible: true })
    const isRecalled = lab.lease(overtaker)!.extras?.recalled ?? false
    return { held: [head, small, overtaker].map(lease => lab.held(lease)), isRecalled }
  }

  test('does not overtake', () => {
    expect(sameAccount()).toEqual({ held: [0, 0, 0], isRecalled: false })
  })
})
