import { afterAll, beforeAll, test } from 'vitest'
import { EtcdStore } from '../../../src/store/etcd/etcd.ts'
import { type StoreFixture, storeSuite } from '../../../src/testing/store-suite.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { LogInEtcd, Lossy } from '../../support/etcd.ts'
import { passLeaseBetween } from '../../support/handed-in.ts'

let logs = 0

describeEngine('etcd', 'a store in etcd', () => {
  let etcd: Engine
  beforeAll(async () => {
    etcd = await engine('etcd')
  })
  afterAll(() => etcd?.[Symbol.asyncDispose]())

  async function fixture(): Promise<StoreFixture> {
    const { endpoints, name } = { endpoints: [`127.0.0.1:${etcd.port}`], name: `test/${++logs}` }
    return {
      store: () => new EtcdStore({ endpoints, name, timeout: EVENT_TIMEOUT }),
      loseTail: count => new LogInEtcd(etcd, name).loseTail(count),
      async linked() {
        const link = await Lossy.to(etcd.port)
        const store = new EtcdStore({ endpoints: [`127.0.0.1:${link.port}`], name, timeout: 300 })
        return {
          store,
          fail: failure => link.fail(failure),
          [Symbol.asyncDispose]: () => link[Symbol.asyncDispose](),
        }
      },
      [Symbol.asyncDispose]: async () => {},
    }
  }

  for (const { name, run } of storeSuite(fixture)) test(name, run)

  test('a store that is handed to connect holds leases', async () => {
    const options = { endpoints: [`127.0.0.1:${etcd.port}`], name: `test/${++logs}` }
    await passLeaseBetween(() => new EtcdStore(options))
  })
})
