import { describe, expect, test } from 'vitest'
import { lessThan, usedIn, WEEK, WEEK_STEP, weekAt } from '../../../../src/kernel/rule/pool/week.ts'
import { poolOf } from '../../../../src/kernel/state/pools.ts'
import { PoolLab } from '../../../support/kernel/pool-lab.ts'

const hour = 3_600_000

describe('the use of a week', () => {
  test('is summed up in steps, and is the same however often it is looked at', () => {
    const once = weekAt({ week: [], at: hour, held: 2 }, 20 * hour)
    let often = { week: weekAt({ week: [], at: hour, held: 2 }, hour + 1), at: hour + 1, held: 2 }
    for (let at = 2 * hour; at <= 20 * hour; at += hour) often = { week: weekAt(often, at), at, held: 2 }
    expect(often.week).toEqual(once)
    expect(once.map(({ used }) => used / hour)).toEqual([10, 12, 12, 4])
    expect(usedIn(once)).toBe(38 * hour)
  })

  test('counts for a week at least and for one step more at most', () => {
    const week = weekAt({ week: [], at: 0, held: 1 }, 1)
    expect(usedIn(weekAt({ week, at: 1, held: 0 }, WEEK + WEEK_STEP - 1))).toBe(1)
    expect(weekAt({ week, at: 1, held: 0 }, WEEK + WEEK_STEP)).toEqual([])
    const late = weekAt({ week: [], at: WEEK_STEP - 1, held: 1 }, WEEK_STEP)
    expect(usedIn(weekAt({ week: late, at: WEEK_STEP, held: 0 }, WEEK + WEEK_STEP - 1))).toBe(1)
  })

  test('is a bounded number of steps, also of an account that holds units for a year', () => {
    const week = weekAt({ week: [], at: 0, held: 3 }, 52 * WEEK + 1)
    expect(week).toHaveLength(29)
    expect(usedIn(week)).toBe(3 * (WEEK + 1))
  })

  test('says when less than the quota counts', () => {
    const week = weekAt({ week: weekAt({ week: [], at: 0, held: 1 }, hour), at: 10 * hour, held: 1 }, 11 * hour)
    expect(lessThan(3 * hour, week)).toBe(0)
    expect(lessThan(2 * hour, week)).toBe(WEEK + WEEK_STEP)
    expect(lessThan(hour, week)).toBe(WEEK + 2 * WEEK_STEP)
    const again = lessThan(2 * hour, week)
    expect([again - 1, again].map(now => usedIn(weekAt({ week, at: 11 * hour, held: 0 }, now)) < 2 * hour)).toEqual([false, true])
  })
})

/** Two members, and an account `a` that may use three unit-hours in a week. */
function limited() {
  const lab = new PoolLab(['m0', 'm1'])
  lab.policy('g/accounts/a', { quotaWeek: 3 * hour })
  return lab
}

const request = (account: string) => ({ pool: { pool: 'g', account } })

describe('an account with a quota for the week', () => {
  test('keeps its leases when the quota is used up, and is granted nothing more', () => {
    const lab = limited()
    const first = lab.take('a1')
    const second = lab.take('a2')
    lab.tick(2 * hour)
    expect([first, second].map(lease => lab.held(lease))).toEqual([1, 1])
    lab.release(second)
    const waiter = lab.take('a3')
    const other = lab.take('b1')
    expect([first, waiter, other].map(lease => lab.held(lease))).toEqual([1, 0, 1])
  })

  test('is granted units again a week after it used them', () => {
    const lab = limited()
    lab.release(tickWith(lab, lab.take('a1'), 3 * hour))
    const waiter = lab.take('a2')
    lab.tick(WEEK + WEEK_STEP - 3 * hour - 1)
    expect(lab.held(waiter)).toBe(0)
    lab.tick(1)
    expect(lab.held(waiter)).toBe(1)
  })

  test('is told what it has used, and when some of it is free again', () => {
    const lab = limited()
    lab.release(tickWith(lab, lab.take('a1', { count: 2 }), 2 * hour))
    const facts = { pool: 'g', account: 'a', used: 4 * hour, quota: 3 * hour, again: WEEK + 4 * hour, policy: 'g/accounts/a' }
    lab.refused(lab.ask('a2', [], request('a')), 'HELD', 'pool-week-used', facts)
  })

  test('reserves no more for a week than it may use in one', () => {
    const lab = limited()
    const reserve = (from: number, maxLife: number) => lab.ask('a1', [], { pool: { pool: 'g', account: 'a', from }, wait: true, maxLife })
    lab.policy('', { ttlMax: 3 * WEEK })
    lab.refused(reserve(hour, 4 * hour), 'LIMIT', 'pool-week', { quota: 3 * hour, used: 0, reserved: 4 * hour })
    expect(reserve(hour, 2 * hour).kind).toBe('queued')
    lab.refused(reserve(5 * hour, 2 * hour), 'LIMIT', 'pool-week', { reserved: 4 * hour })
    expect(reserve(WEEK + 2 * hour, 2 * hour).kind).toBe('queued')
    // It would stand in one week with the one after it.
    lab.refused(reserve(WEEK / 2, 2 * hour), 'LIMIT', 'pool-week', { reserved: 4 * hour })
  })

  test('reserves no more than what is left beside what it has used', () => {
    const lab = limited()
    lab.release(tickWith(lab, lab.take('a1'), 2 * hour))
    const reserve = (from: number) => lab.ask('a1', [], { pool: { pool: 'g', account: 'a', from }, wait: true, maxLife: 2 * hour })
    lab.policy('', { ttlMax: 3 * WEEK })
    lab.refused(reserve(hour), 'LIMIT', 'pool-week', { used: 2 * hour, reserved: 2 * hour })
    expect(reserve(WEEK + WEEK_STEP).kind).toBe('queued')
  })

  test('counts from the moment at which the quota is set, and forgets when it is removed', () => {
    const lab = new PoolLab(['m0'])
    const lease = lab.take('a1')
    lab.tick(5 * hour)
    const used = () => usedIn(weekAt(poolOf(lab.state, 'g').accounts.get('a')!, lab.state.elapsed))
    lab.policy('g/accounts', { quotaWeek: 3 * hour })
    expect(used()).toBe(0)
    lab.tick(hour)
    lab.policy('g/accounts', { quotaWeek: 2 * hour })
    lab.tick(hour)
    lab.release(lease)
    expect(used()).toBe(2 * hour)
    expect(lab.held(lab.take('a2'))).toBe(0)
    lab.do({ kind: 'policy', prefix: 'g/accounts' })
    expect(poolOf(lab.state, 'g').accounts.get('a')!.week).toEqual([])
  })

  test('is remembered while its use counts, also without preemption debts, and no longer', () => {
    const lab = limited()
    lab.policy('g', { shareHalfLife: 1_000 })
    lab.release(tickWith(lab, lab.take('a1'), hour))
    for (let i = 0; i < 70; i++) lab.tick(1_000)
    expect(poolOf(lab.state, 'g').accounts.has('a')).toBe(true)
    lab.tick(WEEK)
    lab.tick(WEEK_STEP)
    for (let i = 0; i < 70; i++) lab.tick(1_000)
    expect(poolOf(lab.state, 'g').accounts.has('a')).toBe(false)
  })
})

function tickWith(lab: PoolLab, lease: number, elapsed: number): number {
  lab.tick(elapsed)
  return lease
}
