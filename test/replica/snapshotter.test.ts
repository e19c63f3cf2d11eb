import { expect, test } from 'vitest'
import { propose } from '../../src/lessor/propose.ts'
import { acquire, granted, Rig } from '../support/replica/rig.ts'

const VALUE = 'v'.repeat(16_000)

test('as many bytes are appended between two snapshots as a snapshot has, with the values of entries', async () => {
  const rig = new Rig()
  await using replica = await rig.open({ snapshotBytes: 100_000, snapshotRecords: 1_000_000 })
  await propose(replica, { kind: 'policy', prefix: 'kv', rules: { freeEntries: 1_000 } })
  const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: 3_600_000 })))
  for (let i = 0; i < 40; i++) {
    await propose(replica, { kind: 'transaction', success: [{ key: `kv/${i}`, value: VALUE }] })
    await propose(replica, { kind: 'put', lease, key: `mine/${i}`, value: VALUE })
    await rig.clock.settle()
  }
  const before = replica.stats.snapshots
  // The state has 1.28 MB. Half of it is written again: no more than one snapshot can be due.
  for (let i = 0; i < 40; i++) {
    await propose(replica, { kind: 'transaction', success: [{ key: `kv/${i}`, value: VALUE }] })
    await rig.clock.settle()
  }
  expect(before).toBeGreaterThan(0)
  expect(replica.stats.snapshots - before).toBeLessThanOrEqual(1)
})
