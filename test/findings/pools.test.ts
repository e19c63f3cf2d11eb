/** Known findings: requests to pools and for numbered slots. */
import { expect } from 'vitest'
import { explainWaiter } from '../../src/pool/explain.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { knownFinding } from '../support/known-finding.ts'

knownFinding(
  'backfill-forecast',
  'under `backfill`, a waiter that would delay the first one is not said to start before it',
  async claim => {
    const { leases, lessor, clock } = silentLessor()
    await using _ = leases
    await leases.setPolicy('g', { queue: 'backfill' })
    const pool = leases.pool('g')
    const offers = [await pool.offer('a'), await pool.offer('b')]
    const running = await pool.take(1, { expect: 30_000 })
    pool.take(2, { expect: 10_000 }).catch(() => {})
    await clock.settle()
    pool.take(1, { expect: 60_000 }).catch(() => {})
    await clock.settle()
    const { value } = await lessor.read({ kind: 'pool', pool: 'g' }, { consistent: true })
    const [first, second] = value!.queue
    expect([first?.request.count, second?.request.count]).toEqual([2, 1])
    const start = explainWaiter(value!, second!.lease)!.start!
    expect([running, ...offers].every(({ held }) => held)).toBe(true) // one member is free, and neither waiter has it
    await claim(() => expect(start.median).toBeGreaterThan(0))
  },
)
