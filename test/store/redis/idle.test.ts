/** What processes that only hold leases cost their Redis. */
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { RedisStore } from '../../../src/store/redis/redis.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { eventually } from '../../support/eventually.ts'
import { tell } from '../../support/redis-command.ts'

/** A renewal comes after half of it. */
const TTL = 20_000

describeEngine('redis', 'processes that only hold leases on Redis', () => {
  let redis: Engine
  beforeAll(async () => {
    redis = await engine('redis')
  })
  afterAll(() => redis?.[Symbol.asyncDispose]())

  /** The connections by what they did last, without the one that asks. */
  async function connections(): Promise<readonly string[]> {
    const lines = String(await tell(redis, 'CLIENT', 'LIST'))
      .trim()
      .split('\n')
    return lines.map(line => /cmd=(\S+)/.exec(line)![1]!).filter(last => !last.startsWith('client|list'))
  }
  const calls = async (command: string) =>
    Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(String(await tell(redis, 'INFO', 'commandstats')))?.[1] ?? 0)

  test('each has one connection between its renewals, and blocks on it', async () => {
    await using one = await connect(`${redis.url}?name=few`, { holder: 'one' })
    await using two = await connect(`${redis.url}?name=few`, { holder: 'two' })
    const leases = [await one.acquire('a', { ttl: TTL }), await two.acquire('b', { ttl: TTL })]
    await eventually(async () => expect(await connections()).toEqual(['blpop', 'blpop']))
    for (const lease of leases) await lease.renew()
    await eventually(async () => expect(await connections()).toEqual(['blpop', 'blpop']))
    expect(leases.map(({ held }) => held)).toEqual([true, true])
  })

  test('each reads the log once for each renewal at most, and not while others renew', async () => {
    await using one = await connect(`${redis.url}?name=reads`, { holder: 'one' })
    await using two = await connect(`${redis.url}?name=reads`, { holder: 'two' })
    const leases = [await one.acquire('a', { ttl: TTL }), await two.acquire('b', { ttl: TTL })]
    await eventually(async () => expect(await connections()).toEqual(['blpop', 'blpop']))
    const before = [await calls('xread'), await calls('evalsha')]
    for (let i = 0; i < 3; i++) for (const lease of leases) await lease.renew()
    expect(await calls('xread')).toBe(before[0])
    // An append for each renewal, and a read before it, unless the other process reads.
    expect((await calls('evalsha')) - before[1]!).toBeLessThanOrEqual(12)
  })

  test('a process is told at once that its lease was revoked', async () => {
    await using holder = await connect(`${redis.url}?name=told`, { holder: 'holder' })
    await using operator = await connect(`${redis.url}?name=told`, { holder: 'operator' })
    const lease = await holder.acquire('mine', { ttl: 120_000, ifAvailable: true })
    await eventually(async () => expect(await connections()).toContain('blpop'))
    const ended = new Promise<void>(resolve => lease!.signal.addEventListener('abort', () => resolve()))
    await operator.revoke({ lease: lease!.id })
    await ended // long before its next renewal, which is due after a minute
    expect(lease!.held).toBe(false)
  })

  test('while it waits it has the two connections of a process that follows the log, and one again afterwards', async () => {
    await using holder = await connect(`${redis.url}?name=waits`, { holder: 'holder' })
    const held = await holder.acquire('a', { ttl: TTL })
    await using other = await connect(`${redis.url}?name=waits`, { holder: 'other' })
    const waiting = other.acquire('a', { ttl: TTL })
    await eventually(async () => expect((await connections()).toSorted()).toEqual(['blpop', 'evalsha', 'xread']))
    await held.release()
    await waiting
    await eventually(async () => expect(await connections()).toEqual(['blpop', 'blpop']))
  })

  const clients = {
    redis: async () => {
      const client = createClient({ url: redis.url })
      await client.connect()
      return { client, close: () => client.destroy() }
    },
    ioredis: async () => {
      const client = new Redis(redis.url)
      return { client, close: () => client.disconnect() }
    },
  }
  test.each(['redis', 'ioredis'] as const)(
    'with a client of %s of the application it has no connection of its own between its renewals',
    async kind => {
      const { client, close } = await clients[kind]()
      onTestFinished(close)
      const name = `given-${kind}`
      await eventually(async () => expect(await connections()).toHaveLength(1))
      await using leases = await connect(new RedisStore({ client, name }), { holder: 'one' })
      const lease = await leases.acquire('a', { ttl: TTL })
      await eventually(async () => expect(await connections()).toHaveLength(1))
      await lease.renew()
      await eventually(async () => expect(await connections()).toHaveLength(1))
      // It learns with its renewal what it is not told.
      await using operator = await connect(`${redis.url}?name=${name}`, { holder: 'operator' })
      await operator.revoke({ lease: lease.id })
      await expect(lease.renew()).rejects.toMatchObject({ code: 'LOST' })
    },
  )

  test('a user without the rights for it holds leases, and is told with its next renewal', async () => {
    const rights = ['on', '>secret', '~{*}:*', '+@all', '-blpop', '-lpush']
    await tell(redis, 'ACL', 'SETUSER', 'deaf', ...rights)
    const url = `${redis.url.replace('redis://', 'redis://deaf:secret@')}?name=deaf`
    await using holder = await connect(url, { holder: 'holder' })
    await using operator = await connect(url, { holder: 'operator' })
    const lease = await holder.acquire('mine', { ttl: 120_000 })
    await operator.revoke({ lease: lease.id })
    await expect(lease.renew()).rejects.toMatchObject({ code: 'LOST' })
  })
})
