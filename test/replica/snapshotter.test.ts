import { expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
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

test('records that a failed snapshot was to replace still count, until one is kept', async () => {
  const rig = new Rig()
  const failing = { now: true }
  const store = rig.store()
  const snapshot = store.snapshot.bind(store)
  store.snapshot = (at, bytes) => (failing.now ? Promise.reject(new LeaseError('UNAVAILABLE', 'the disk is full')) : snapshot(at, bytes))
  await using replica = await Replica.open(store, { clock: rig.clock, snapshotRecords: 10 })
  const write = async (records: number) => {
    for (let i = 0; i < records; i++) await propose(replica, { kind: 'policy', prefix: 'p', rules: { capacity: i + 1 } })
    await rig.clock.settle()
  }
  await write(25)
  expect(replica.stats).toMatchObject({ snapshots: 0, snapshotFailures: 2, recordsSinceSnapshot: 25 })
  expect(replica.stats.bytesSinceSnapshot).toBeGreaterThan(25)
  failing.now = false
  await write(10)
  expect(replica.stats).toMatchObject({ snapshots: 1, snapshotFailures: 2 })
  expect(replica.stats.recordsSinceSnapshot).toBeLessThan(10)
})
