import { createClient } from 'redis'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { RedisStore } from '../src/store/redis.ts'
import { type StoreFixture, storeSuite } from '../src/testing/store-suite.ts'
import { describeEngine, type Engine, engine } from './engine.ts'

describeEngine('redis', 'a store in Redis', () => {
  let redis: Engine
  let admin: ReturnType<typeof createClient>
  let logs = 0

  beforeAll(async () => {
    redis = await engine('redis')
    admin = createClient({ url: redis.url })
    admin.on('error', () => {})
    await admin.connect()
  })
  afterAll(async () => {
    admin?.destroy()
    await redis?.[Symbol.asyncDispose]()
  })

  async function fixture(): Promise<StoreFixture> {
    const name = `log-${++logs}`
    return {
      store: () => new RedisStore({ url: redis.url, name }),
      loseTail: count => loseTail(name, count),
      [Symbol.asyncDispose]: async () => {},
    }
  }

  /** As a Redis that comes back from an earlier moment: everything fits together, only less of it. */
  async function loseTail(name: string, count: number): Promise<void> {
    const key = `{${name}}:log`
    const entries = (await admin.xRevRange(key, '+', '-', { COUNT: count })) ?? []
    await admin.xDel(
      key,
      entries.map(({ id }) => id),
    )
    const [last] = (await admin.xRevRange(key, '+', '-', { COUNT: 1 })) ?? []
    if (last) await admin.sendCommand(['XSETID', key, last.id])
    else await admin.del(key)
  }

  describe('with a URL', () => {
    for (const { name, run } of storeSuite(fixture)) test(name, run)
  })
})
