import { afterAll, beforeAll, test } from 'vitest'
import { EtcdStore } from '../../../src/store/etcd/etcd.ts'
import { lessorSuite } from '../../../src/testing/lessor-suite.ts'
import { replicasOn } from '../../../src/testing/manual-time-store.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'

describeEngine('etcd', 'replicas on one log in etcd', () => {
  let server: Engine
  let logs = 0

  beforeAll(async () => {
    server = await engine('etcd')
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  const fixture = async () => {
    const name = `lessor-${++logs}`
    return replicasOn(() => new EtcdStore({ endpoints: [`127.0.0.1:${server.port}`], name, timeout: EVENT_TIMEOUT }))
  }

  for (const { name, run } of lessorSuite(fixture)) test(name, run)
})
