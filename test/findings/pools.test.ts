/** Known findings: requests to pools and for numbered slots. */
import { expect } from 'vitest'
import { explainWaiter } from '../../src/pool/explain.ts'
import type { NumberedSlot } from '../../src/recipe/slots.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { knownFinding } from '../support/known-finding.ts'

knownFinding('slots-left-free', '260 simultaneous requests for one of 600 numbers get 260 numbers', async claim => {
  const { leases, clock } = silentLessor()
  await using _ = leases
  const got: NumberedSlot[] = []
  const requests = Array.from({ length: 260 }, () =>
    leases.slot('ports', { from: 0, to: 599, ttl: 60_000, wait: 2_000 }).then(
      slot => got.push(slot),
      () => {},
    ),
  )
  await clock.advance(1_000)
  const inTime = got.length
  await clock.advance(2_000)
  await Promise.all(requests)
  expect(got.every(({ held }) => held)).toBe(true)
  await claim(() => expect(inTime).toBe(260))
})

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
