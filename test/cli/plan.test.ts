import { describe, expect, test } from 'vitest'
import { type Diagnosis, diagnose } from '../../src/cli/diagnosis.ts'
import { type FailoverPlan, planFailover, planSentences } from '../../src/cli/failover-plan.ts'
import { RULES } from '../../src/kernel/state.ts'
import type { GrantView, LeaseView } from '../../src/lessor.ts'

const measured = { write: { median: 2, longest: 10 }, read: { median: 1, longest: 2 }, stall: 20, drift: 3 }

describe('a plan for a failover', () => {
  test('takes over in time at worst, and renews with time for another attempt', () => {
    const plan = planFailover(10_000, measured) as FailoverPlan
    expect(plan.worst).toBeLessThanOrEqual(10_000)
    expect(plan.best).toBeLessThan(plan.worst)
    expect(plan.renewal + plan.outage + plan.margin).toBeLessThanOrEqual(plan.ttl)
    expect(planSentences(plan, measured).join(' ')).toContain(`a ttl of ${plan.ttl} ms: (10000 ms - 3 round trips - one stall) / 1.01`)
  })

  test('that cannot work is refused with the arithmetic', () => {
    expect(planFailover(1_000, { ...measured, write: { median: 200, longest: 400 } })).toMatch(/3 round trips of 400 ms.*at least/)
  })
})

function leaseView(view: Partial<LeaseView>): LeaseView {
  const plain = { lease: 7, holder: 'ann', incarnation: 1, key: 0, ttl: 30_000, status: 'live', since: 0, remaining: 25_000 } as const
  return { ...plain, grants: [], wants: [], entries: [], labels: [], parent: 0, children: [], recalled: false, ...view }
}

describe('doctor', () => {
  const healthy: Diagnosis = {
    summary: { rules: RULES, quiet: false },
    before: { leases: [leaseView({})], resources: [] },
    after: { leases: [leaseView({ remaining: 22_000 })], resources: [] },
    ...{ between: 3_000, services: [], histories: [], measured, wall: 1_000_000 },
  }
  const who = { resource: 'jobs/a', lease: 7, holder: 'ann', incarnation: 1 }
  const grant: GrantView = { ...who, token: 5, units: 1, shared: false, status: 'live', since: 0, remaining: 1 }
  const waiter = { lease: 8, holder: 'bob', incarnation: 2, position: 0, units: 1, shared: false, priority: 0, since: 0 }
  const queued = { resource: 'jobs/a', capacity: 1, grants: [grant], queue: [waiter], fence: 0 }

  test('finds nothing where all is well', () => {
    expect(diagnose(healthy)).toEqual([])
    expect(diagnose({ ...healthy, users: { count: 24, capacity: 24 } })).toEqual([])
  })

  const cases: readonly (readonly [string, Partial<Diagnosis>, RegExp])[] = [
    ['an old log', { summary: { rules: RULES - 1, quiet: false } }, /rules version 0/],
    ['a slow store', { measured: { ...measured, write: { median: 900, longest: 6_000 } } }, /a write took 6 s/],
    ['a ttl that is too short', { before: { leases: [leaseView({ ttl: 50 })], resources: [] } }, /less than 6 round trips/],
    ['late renewals', { after: { leases: [leaseView({ remaining: 2_000 })], resources: [] } }, /only 2 s of its ttl of 30 s/],
    ['clocks that disagree', { before: { leases: [leaseView({ since: 87_400_000 })], resources: [] } }, /in the future/],
    ['more processes than the store carries', { users: { count: 25, capacity: 24 } }, /25 processes use the store directly/],
    ['drift', { measured: { ...measured, drift: -9_000 } }, /9000 ppm/],
    [
      'flapping',
      {
        histories: [{ resource: 'jobs/a', past: Array.from({ length: 4 }, () => ({ ...grant, until: 1, cause: 'lapsed', revision: 1 })) }],
      },
      /4 of its last 4 leases lapsed/,
    ],
    [
      'a queue without progress',
      { before: { leases: [], resources: [queued] }, after: { leases: [], resources: [queued] } },
      /makes no progress: ann has held it/,
    ],
    ['waiters for what is free', { after: { leases: [], resources: [{ ...queued, grants: [], capacity: 0 }] } }, /its capacity is 0/],
  ]
  test.each(cases)('finds %s', (_, change, problem) => {
    const found = diagnose({ ...healthy, ...change })
    expect(found.map(finding => finding.problem).join('\n')).toMatch(problem)
    for (const finding of found) expect(finding.change.length).toBeGreaterThan(10)
  })
})
