/** Members that are removed from a cluster of etcd while a store uses it. */
import { expect, test } from 'vitest'
import { EtcdStore } from '../../../src/store/etcd/etcd.ts'
import { type Position, START } from '../../../src/store.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { describeEngine, engine } from '../../support/engine.ts'
import { asked } from '../../support/etcd.ts'
import { eventually } from '../../support/eventually.ts'
import { whileTimePasses } from '../../support/virtual-time.ts'

describeEngine('etcd3', 'a member that is removed from the cluster', () => {
  test('the store continues with the others, a waiting read too, and the profile no longer promises failover', async () => {
    await using etcd = await engine('etcd3')
    const clock = new ManualClock()
    await using store = new EtcdStore({ endpoints: etcd.ports.map(port => `127.0.0.1:${port}`), clock })
    await store.open()
    expect(store.profile.failover).toBe(true)
    const append = (after: Position) =>
      whileTimePasses(
        clock,
        eventually(async () => {
          const answer = await store.append(Uint8Array.of(1), after)
          if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
          return answer.position
        }),
        1,
      )
    const first = await append(START)
    const waiting = store.read(first, { wait: new AbortController().signal })
    // The one that the store is connected to.
    const { header } = await asked<{ header: { member_id: string } }>(etcd.port, '/maintenance/status')
    await eventually(() => asked(etcd.ports[1]!, '/cluster/member/remove', { ID: header.member_id }))
    const second = await append(first)
    expect(await whileTimePasses(clock, waiting, 1)).toMatchObject({ records: [{ position: { index: 2 } }] })
    const idle = store.read(second, { wait: new AbortController().signal })
    idle.catch(() => {}) // the store is closed
    await whileTimePasses(
      clock,
      eventually(() => expect(store.profile.failover).toBe(false)),
      20,
    )
  })
})
