/** A renewal of many leases takes several commands and has one answer. */
import { expect, test } from 'vitest'
import { GONE } from '../../src/kernel/outcome.ts'
import { propose } from '../../src/lessor/propose.ts'
import { acquire, granted, Rig } from '../support/replica/rig.ts'

test('a renewal of more than a thousand leases is answered in their order, also if it is an operation that is repeated', async () => {
  const rig = new Rig()
  await using replica = await rig.open()
  const taken = await Promise.all(Array.from({ length: 1_500 }, (_, i) => propose(replica, acquire('h', `jobs/${i}`))))
  const leases = taken.map(outcome => granted(outcome).lease)
  await propose(replica, { kind: 'release', lease: leases[1_200]! })
  const op = { session: 's', seq: 1, acked: 0 }
  for (const again of [false, true]) {
    const outcome = await propose(replica, { kind: 'renew', leases }, { op: { ...op, again } })
    const { ttls } = outcome as Extract<typeof outcome, { kind: 'renewed' }>
    expect(ttls.flatMap((ttl, i) => (ttl === GONE ? [i] : []))).toEqual([1_200])
    expect(ttls).toHaveLength(1_500)
  }
  expect((await rig.commands('renew')).map(({ leases: part }) => part.length).slice(0, 2)).toEqual([1_000, 500])
})
