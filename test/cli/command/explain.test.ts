/** The sentences of `leasehold explain`. */
import { expect, test } from 'vitest'
import { type ExplainedRules, explanation } from '../../../src/cli/command/explain.ts'

const GRANT = { lease: 7, incarnation: 7, token: 9, units: 1, shared: false, since: 0, remaining: 4_000 } as const

test('explain says the state of a resource, its reason and what would change it', () => {
  const grant = { ...GRANT, resource: 'r', holder: 'h' } as const
  const past = { lease: 7, holder: 'h', token: 9, since: 0, until: 60_000, revision: 1 } as const
  const known: ExplainedRules = {
    resource: { resource: 'r', capacity: 1, grants: [], queue: [], fence: 0 },
    summary: { quiet: false },
    history: [],
    policies: [],
    now: 120_000,
  }
  const say = (more: Partial<ExplainedRules>) => explanation({ ...known, ...more }).join('\n')
  const holding = (status: 'live' | 'suspect' | 'frozen') => ({ ...known.resource, grants: [{ ...grant, status }] })
  expect(say({})).toMatch(/r is free\. No past holders are recorded[\s\S]*No policy applies\. Defaults: /)
  expect(say({ history: [{ ...past, cause: 'revoked', by: 'op' }] })).toMatch(
    /Its last holder was h \(token 9\), until 60 s ago: revoked by op/,
  )
  expect(say({ resource: holding('live') })).toMatch(
    /held by h \(lease 7, token 9\) for 2 min\. Without a renewal it expires in 4 s[\s\S]*leasehold revoke 7 or leasehold break r/,
  )
  const labels = new Map([
    [
      7,
      [
        ['by', 'alice'],
        ['deploy', '#4711'],
        ['note', ''],
      ] as const,
    ],
  ])
  expect(say({ resource: holding('live'), labels })).toContain('held by h (lease 7, token 9) (by alice, deploy #4711) for 2 min.')
  expect(say({ resource: holding('suspect') })).toMatch(/Its grace lasts another 4 s/)
  expect(say({ resource: holding('frozen'), history: [{ ...past, cause: 'revoked', by: 'op' }] })).toMatch(
    /frozen: .* \(revoked by op\), but its holder may still be running[\s\S]*in 4 s at the latest/,
  )
  expect(say({ resource: holding('frozen'), history: [{ ...past, cause: 'lapsed' }] })).toMatch(/withheld for another 4 s: .*lock-delay/)
  expect(say({ summary: { quiet: true } })).toMatch(/No lease is granted at the moment/)
  const waiter = { lease: 8, holder: 'w', incarnation: 8, position: 0, units: 2, shared: false, priority: 5, since: 60_000 }
  const queue = Array.from({ length: 7 }, (_, position) => ({ ...waiter, position, holder: `w${position}` }))
  expect(say({ resource: { ...holding('live'), capacity: 4, queue } })).toMatch(
    /1 of 4 units are taken; the first waiter wants 2\.\n7 waiters: w0 \(for 60 s, priority 5, wants 2\), .* and w4 .*2 more are behind them/,
  )
  expect(say({ resource: { ...known.resource, capacity: 0 } })).toMatch(/capacity is 0/)
  const policies = [
    { prefix: '', rules: { ttlMax: 60_000, capacity: 2 } },
    { prefix: 'r', rules: { ttlMax: 3_600_000 } },
    { prefix: 'elsewhere', rules: { ttlMax: 1 } },
  ]
  expect(explanation({ ...known, policies }).slice(1)).toEqual([
    'The policy of r applies: ttlMax=1h.',
    'The policy of everything applies: capacity=2.',
  ])
})

test('explain says how many permits are taken, and who states which number where they differ', () => {
  const grant = (holder: string, permits?: number) => ({
    ...{ resource: 's', lease: 7, holder, incarnation: 7, token: 9, units: 1, shared: false, since: 0, remaining: 4_000 },
    ...{ status: 'live' as const, ...(permits !== undefined && { permits }) },
  })
  const say = (grants: ReturnType<typeof grant>[], limit: number, queue: ExplainedRules['resource']['queue'] = []) =>
    explanation({
      resource: { resource: 's', capacity: 1, limit, grants, queue, fence: 0 },
      summary: { quiet: false },
      history: [],
      policies: [],
      now: 1_000,
    }).join('\n')
  expect(say([grant('ann', 3), grant('bob', 3)], 3)).toContain('2 of 3 permits are taken.')
  expect(say([grant('ann', 3), grant('bob', 3)], 3)).not.toContain('different')
  expect(say([grant('ann', 3), grant('bob', 5), grant('cid', 5)], 3)).toContain(
    'Its clients state different permits: 3 (ann) and 5 (bob and 1 more). A grant keeps to the smallest number of all holders and the requester. 3 is in force now.',
  )
  const waiter = { lease: 8, holder: 'lock', incarnation: 8, position: 0, units: 1, shared: false, priority: 0, since: 0 }
  expect(say([grant('ann', 3)], 3, [waiter])).toContain('3 (ann) and none, which means 1 (lock)')
})

test('explain says what stands in the way around a name', () => {
  const grant = { ...GRANT, holder: 'ann', status: 'live' } as const
  const waiter = { lease: 8, holder: 'bob', incarnation: 8, position: 0, units: 1, shared: false, priority: 0, since: 0, covers: true }
  const say = (resource: Partial<ExplainedRules['resource']>) =>
    explanation({
      resource: { resource: 'lib', capacity: 1, grants: [], queue: [], fence: 0, ...resource },
      ...{ summary: { quiet: false }, history: [], policies: [], now: 1_000 },
    }).join('\n')
  expect(say({ resource: 'lib/a', waitersAbove: [{ ...waiter, resource: 'lib' }] })).toContain(
    'bob waits for lib with all names below it: a new request for lib/a waits behind that.',
  )
  const held = say({ queue: [waiter], heldBelow: [{ ...grant, resource: 'lib/a' }] })
  expect(held).toContain('A request for lib with all names below it waits for lib/a (ann).\n1 waiter: bob')
})
