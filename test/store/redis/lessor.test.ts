import { afterAll, beforeAll, test } from 'vitest'
import { RedisStore } from '../../../src/store/redis/redis.ts'
import { lessorSuite } from '../../../src/testing/lessor-suite.ts'
import { replicasOn } from '../../../src/testing/manual-time-store.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'

describeEngine('redis', 'replicas on one log in Redis', () => {
  let server: Engine
  let logs = 0

  beforeAll(async () => {
    server = await engine('redis')
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  const fixture = async () => {
    const name = `lessor-${++logs}`
    return replicasOn(() => new RedisStore({ url: server.url, name, timeout: EVENT_TIMEOUT }))
  }

  for (const { name, run } of lessorSuite(fixture)) test(name, run)
})
