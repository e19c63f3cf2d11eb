/** Ages by the clock of Redis: as advice, and as known ages where that clock is trusted. */
import { createClient, createCluster } from 'redis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { RIGHTS } from '../../../src/store/redis/errors.ts'
import { RedisStore } from '../../../src/store/redis/redis.ts'
import { START } from '../../../src/store.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { append, engineClockSuite, MINUTE, recordsOf } from '../../support/engine-clock.ts'

describeEngine('redis', 'the clock of Redis', () => {
  let server: Engine
  beforeAll(async () => {
    server = await engine('redis')
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  const tell = async (script: string, name: string, argument: string): Promise<void> => {
    const client = createClient({ url: server.url, RESP: 2 })
    await client.connect()
    await client.sendCommand(['EVAL', script, '2', `{${name}}:log`, `{${name}}:snapshot`, argument])
    client.destroy()
  }
  const older = (name: string, ms: number): Promise<void> =>
    tell(
      `local function earlier(time) return string.format('%.0f', tonumber(time) - ARGV[1] * 1000) end
      local rows = redis.call('XRANGE', KEYS[1], '-', '+')
      redis.call('DEL', KEYS[1])
      for _, row in ipairs(rows) do
        row[2][8] = earlier(row[2][8])
        redis.call('XADD', KEYS[1], row[1], unpack(row[2]))
      end
      local time = redis.call('HGET', KEYS[2], 'time')
      if time then redis.call('HSET', KEYS[2], 'time', earlier(time)) end`,
      name,
      String(ms),
    )
  const loseTail = (name: string, count: number): Promise<void> =>
    tell(
      `local rows = redis.call('XRANGE', KEYS[1], '-', '+')
      redis.call('DEL', KEYS[1])
      for i = 1, #rows - ARGV[1] do redis.call('XADD', KEYS[1], rows[i][1], unpack(rows[i][2])) end`,
      name,
      String(count),
    )

  engineClockSuite({ server: () => server, store: options => new RedisStore(options), older, loseTail })

  test('the clock of a cluster cannot be trusted', () => {
    const client = createCluster({ rootNodes: [{ url: server.url }] })
    expect(() => new RedisStore({ client, trustEngineClock: true })).toThrow('the clock of a cluster cannot be trusted')
  })

  test('a Redis that does not reveal its run id has no ages, and the profile says why', async () => {
    const admin = createClient({ url: server.url, RESP: 2 })
    await admin.connect()
    await admin.sendCommand(['ACL', 'SETUSER', 'quiet', 'on', '>secret', '~*', '-@all', ...RIGHTS.split(' ')])
    admin.destroy()
    await using store = new RedisStore({
      url: `redis://quiet:secret@127.0.0.1:${server.port}?name=quiet&clock=trusted`,
      timeout: EVENT_TIMEOUT,
    })
    await store.open()
    await append(store)
    await older('quiet', 9 * MINUTE)
    expect(recordsOf(await store.read(START))).toMatchObject([{ age: 0, advisoryAge: expect.toSatisfy(age => age >= 9 * MINUTE) }])
    expect(store.profile).toMatchObject({
      ages: false,
      notes: expect.arrayContaining([expect.stringMatching(/^clock=trusted has no effect/)]),
    })
  })

  test('a log of the former layout is refused with a sentence', async () => {
    await tell(`redis.call('XADD', KEYS[1], '1-0', 'n', '7', 'p', '0', 'b', ARGV[1])`, 'former', 'bytes')
    await using store = new RedisStore({ url: server.url, name: 'former' })
    await expect(store.open()).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      reason: 'older',
      message: expect.stringMatching(
        /^\{former\}:log was written by an earlier version of Leasehold, which this version cannot read: use that version/,
      ),
    })
  })
})
