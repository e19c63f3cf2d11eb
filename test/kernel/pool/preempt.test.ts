/** Preemption with notice: who makes room for whom, when, and when not any more. */
import { describe, expect, test } from 'vitest'
import { PREEMPT } from '../../../src/kernel/state.ts'
import { type Job, Lab, POOL, plainMembers, type Run } from '../../support/kernel/lab.ts'
import { reload } from '../../support/kernel/world.ts'

const second = 1_000
const minute = 60 * second
const hour = 60 * minute
const marked = { preempt: 'marked' as const, preemptNotice: 30 * second }

function said(lab: Lab, run: Run | undefined): string[] {
  return lab.events
    .filter(({ lease }) => lease === run!.lease)
    .map(({ type, cause, by, value }) => [type, cause, by, value].filter(Boolean).join(' '))
}

describe('a waiter of higher priority', () => {
  const submit = (lab: Lab, account: string, job: Partial<Job> = {}): Run => lab.submit({ account, takes: hour, ...job })!

  test('gets the members of a preemptible lease after the notice, and the deadline is hard', () => {
    const lab = new Lab({ members: plainMembers(1), rules: marked, strict: true })
    const low = submit(lab, 'low', { preemptible: true })
    const high = submit(lab, 'high', { priority: 1 })
    expect(said(lab, low)).toEqual(['granted', 'recalled preempt high 30000'])
    lab.runUntil(30 * second - 1)
    expect(low.preempted).toBe(false)
    lab.runUntil(30 * second)
    // The holder did not stop: it may still believe in its lease until its term is over.
    expect(said(lab, low).slice(2)).toEqual(['revoked preempted high', 'frozen preempted'])
    expect(high.started).toBeUndefined()
    lab.runUntil(minute)
    expect(high.started).toBe(50 * second)
  })

  test('gets them as soon as the holder has stopped', () => {
    const lab = new Lab({ members: plainMembers(1), rules: marked, strict: true })
    submit(lab, 'low', { preemptible: true, stopsAfter: 3 * second })
    const high = submit(lab, 'high', { priority: 1 })
    lab.runUntil(minute)
    expect(high.started).toBe(3 * second)
  })

  test('does not get those of leases that are not marked, of the same or a higher priority, or without the policy', () => {
    for (const [rules, low, high] of [
      [marked, {}, { priority: 1 }],
      [marked, { preemptible: true }, {}],
      [marked, { preemptible: true, priority: 2 }, { priority: 1 }],
      [{}, { preemptible: true }, { priority: 1 }],
    ] as const) {
      const lab = new Lab({ members: plainMembers(1), rules, strict: true })
      const holder = submit(lab, 'low', low)
      submit(lab, 'high', high)
      lab.runUntil(10 * minute)
      expect(said(lab, holder)).toEqual(['granted'])
    }
  })

  test('waits until the lease has held its members for minHold', () => {
    const lab = new Lab({ members: plainMembers(1), rules: { ...marked, minHold: 5 * minute }, strict: true })
    const low = submit(lab, 'low', { preemptible: true })
    lab.runUntil(minute)
    submit(lab, 'high', { priority: 1 })
    lab.runUntil(5 * minute - second)
    expect(low.told).toBeUndefined()
    lab.runUntil(5 * minute + second)
    expect(low.told).toBe(5 * minute)
  })

  test('preempts the youngest leases, and no more than it needs', () => {
    const lab = new Lab({ members: plainMembers(4), rules: marked, strict: true })
    const low = [0, 1, 2, 3].map(i => submit(lab, `low${i}`, { preemptible: true }))
    submit(lab, 'high', { priority: 1, count: 2 })
    expect(low.map(run => run.told)).toEqual([undefined, undefined, 0, 0])
  })

  test('that goes away gives the notice back', () => {
    const lab = new Lab({ members: plainMembers(1), rules: marked, strict: true })
    const low = submit(lab, 'low', { preemptible: true })
    const high = submit(lab, 'high', { priority: 1 })
    lab.runUntil(10 * second)
    lab.do({ kind: 'release', lease: high.lease })
    expect(said(lab, low).at(-1)).toBe('kept preempt')
    expect(lab.state.leases.get(low.lease)!.extras!.timers![PREEMPT]).toBeUndefined()
    lab.runUntil(10 * minute)
    expect(said(lab, low)).toHaveLength(3)
  })

  test('that gets other members meanwhile gives the notice back', () => {
    const lab = new Lab({ members: plainMembers(2), rules: marked, strict: true })
    const short = submit(lab, 'short', { takes: 10 * second })
    const low = submit(lab, 'low', { preemptible: true })
    const high = submit(lab, 'high', { priority: 1 })
    expect(low.told).toBe(0)
    lab.runUntil(10 * second)
    expect(short.ended).toBe(10 * second)
    expect(high.started).toBe(10 * second)
    expect(said(lab, low).at(-1)).toBe('kept preempt')
  })

  test('spares the older of two victims when it needs only one of them any more', () => {
    const lab = new Lab({ members: plainMembers(3), rules: marked, strict: true })
    submit(lab, 'short', { takes: 10 * second })
    const older = submit(lab, 'older', { preemptible: true })
    const younger = submit(lab, 'younger', { preemptible: true })
    const high = submit(lab, 'high', { priority: 1, count: 2 })
    expect([older.told, younger.told]).toEqual([0, 0])
    lab.runUntil(10 * second)
    expect([older.told, younger.told]).toEqual([undefined, 0])
    lab.runUntil(minute)
    expect([older.preempted, younger.preempted]).toEqual([false, true])
    expect(high.started).toBe(50 * second)
  })

  test('preempts leases of one group where it needs members near each other', () => {
    const on = (host: string) => ({ labels: { host } })
    const lab = new Lab({ members: { a0: on('a'), a1: on('a'), b0: on('b'), b1: on('b') }, rules: marked, strict: true })
    const low = [0, 1, 2, 3].map(i => submit(lab, `low${i}`, { preemptible: true }))
    submit(lab, 'high', { priority: 1, count: 2, near: 'host' })
    const hosts = low.filter(run => run.told !== undefined).map(run => run.members[0]![0])
    expect(hosts).toHaveLength(2)
    expect(new Set(hosts).size).toBe(1)
  })

  test('does not preempt a lease whose members it cannot use', () => {
    const lab = new Lab({ members: { a: { labels: { model: 'a' } }, h: { labels: { model: 'h' } } }, rules: marked, strict: true })
    const low = [0, 1].map(i => submit(lab, `low${i}`, { preemptible: true }))
    submit(lab, 'high', { priority: 1, match: [{ label: 'model', test: 'in', values: ['h'] }] })
    expect(low.filter(run => run.told !== undefined).map(run => run.members)).toEqual([['h']])
  })

  test('ends its victims at once where the notice is 0', () => {
    const lab = new Lab({ members: plainMembers(1), rules: { preempt: 'marked', preemptNotice: 0 }, strict: true })
    const low = submit(lab, 'low', { preemptible: true })
    submit(lab, 'high', { priority: 1 })
    expect(said(lab, low)).toEqual(['granted', 'recalled preempt high 0', 'revoked preempted high', 'frozen preempted'])
  })
})

test('a notice survives a snapshot, and a break beside it does not replace it', () => {
  const lab = new Lab({ members: plainMembers(1), rules: marked, strict: true })
  const low = lab.submit({ account: 'low', takes: hour, preemptible: true })!
  const high = lab.submit({ account: 'high', takes: hour, priority: 1 })!
  const copy = reload(lab.state)
  expect([...copy.pools.get(POOL)!.noticed].map(({ id }) => id)).toEqual([low.lease])
  expect(copy.leases.get(low.lease)!.extras!.pool!.notice).toBe(high.lease)
  for (let i = 1; i < 6; i++) lab.do({ kind: 'break', resource: `${POOL}/m0`, after: hour - i * minute })
  const timers = lab.state.leases.get(low.lease)!.extras!.timers!
  expect(timers[PREEMPT]!.duration).toBe(30 * second)
  lab.runUntil(minute)
  expect(said(lab, low)).toContain('revoked preempted high')
})

describe('quotas of units', () => {
  const accounts = { ann: { quotaUnits: 2, quotaBorrow: 1 }, bob: { quotaUnits: 2 } }
  const submit = (lab: Lab, account: string, job: Partial<Job> = {}): Run | undefined => lab.submit({ account, takes: hour, ...job })

  test('an account over its quota is passed over, and blocks no other', () => {
    const lab = new Lab({ members: plainMembers(6), accounts, strict: true })
    const bob = [0, 1, 2].map(() => submit(lab, 'bob'))
    const eve = submit(lab, 'eve')
    expect(bob.map(run => run!.started)).toEqual([0, 0, undefined])
    expect(eve!.started).toBe(0)
    lab.do({ kind: 'release', lease: bob[0]!.lease })
    expect(bob[2]!.started).toBe(0)
  })

  test('a request beyond what its account could ever hold is refused at once, with the reason', () => {
    const lab = new Lab({ members: plainMembers(6), accounts, strict: true })
    const pool = { pool: POOL, count: 4, account: 'ann' }
    const outcome = lab.do({ kind: 'acquire', holder: 'h', ttl: 10_000, wants: [], wait: true, pool })
    expect(outcome).toMatchObject({
      kind: 'refused',
      code: 'LIMIT',
      reason: 'pool-quota',
      facts: { account: 'ann', quota: 3, pool: 'gpus' },
    })
  })

  test('an account borrows what no waiter within its quota needs, and gives it back when one does', () => {
    const lab = new Lab({ members: plainMembers(3), accounts, rules: marked, strict: true })
    const ann = [0, 1, 2].map(() => submit(lab, 'ann', { stopsAfter: second })!)
    expect(ann.map(run => run.started)).toEqual([0, 0, 0])
    const bob = submit(lab, 'bob')!
    // Only the borrowed one, although it is not marked as preemptible.
    expect(ann.map(run => run.told)).toEqual([undefined, undefined, 0])
    lab.runUntil(minute)
    expect(bob.started).toBe(second)
  })

  test('an account does not borrow while a waiter within its quota waits for the members', () => {
    const lab = new Lab({ members: plainMembers(3), accounts, strict: true })
    submit(lab, 'eve', { takes: 10 * second })
    submit(lab, 'ann')
    submit(lab, 'ann')
    const third = submit(lab, 'ann')!
    const bob = submit(lab, 'bob', { count: 2, takes: minute })!
    lab.runUntil(10 * second)
    // One member is free; ann could have it as a loan, and bob needs two.
    expect([third.started, bob.started]).toEqual([undefined, undefined])
    lab.do({ kind: 'release', lease: bob.lease })
    expect(third.started).toBe(10 * second)
  })

  test('a lease that was borrowed is no loan any more once its account is within its quota', () => {
    const lab = new Lab({ members: plainMembers(3), accounts, rules: marked, strict: true })
    const ann = [0, 1, 2].map(() => submit(lab, 'ann')!)
    const bob = submit(lab, 'bob', { count: 1, takes: minute })!
    lab.do({ kind: 'release', lease: ann[0]!.lease })
    expect(bob.started).toBe(0)
    expect(ann[2]!.told).toBeUndefined()
    submit(lab, 'bob')
    lab.runUntil(10 * second)
    expect(ann.map(run => run.told)).toEqual([undefined, undefined, undefined])
  })
})
