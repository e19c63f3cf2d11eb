/** Ages by the clock of Redis: as advice, and as known ages where that clock is trusted. */
import { createClient, createCluster } from 'redis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { RIGHTS } from '../../../src/store/redis/errors.ts'
import { RedisStore } from '../../../src/store/redis/redis.ts'
import { type LogRecord, type Position, START } from '../../../src/store.ts'
import { storeSuite } from '../../../src/testing/store-suite.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'

const MINUTE = 60_000

describeEngine('redis', 'the clock of Redis', () => {
  let server: Engine
  let logs = 0
  beforeAll(async () => {
    server = await engine('redis')
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  const opened = async (name: string, setting = ''): Promise<RedisStore> => {
    const store = new RedisStore({ url: `${server.url}?name=${name}${setting}`, timeout: EVENT_TIMEOUT })
    await store.open()
    return store
  }

  const tell = async (script: string, name: string, argument: string): Promise<void> => {
    const client = createClient({ url: server.url, RESP: 2 })
    await client.connect()
    await client.sendCommand(['EVAL', script, '2', `{${name}}:log`, `{${name}}:snapshot`, argument])
    client.destroy()
  }
  /** As if the records and snapshots of the log had been written so much earlier. */
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
  /** Deletes the last records, as in a Redis that restarts with older, consistent data. */
  const loseTail = (name: string, count: number): Promise<void> =>
    tell(
      `local rows = redis.call('XRANGE', KEYS[1], '-', '+')
      redis.call('DEL', KEYS[1])
      for i = 1, #rows - ARGV[1] do redis.call('XADD', KEYS[1], rows[i][1], unpack(rows[i][2])) end`,
      name,
      String(count),
    )

  describe('trusted', () => {
    const fixture = async () => {
      const name = `trusted-${++logs}`
      return {
        store: () => new RedisStore({ url: server.url, name, trustEngineClock: true, timeout: EVENT_TIMEOUT }),
        loseTail: (count: number) => loseTail(name, count),
        [Symbol.asyncDispose]: async () => {},
      }
    }
    for (const { name, run } of storeSuite(fixture)) test(name, run)
  })

  test('every record has an advisory age by that clock; its age is known only if the clock is trusted', async () => {
    await using store = await opened('ages')
    await using trusting = await opened('ages', '&clock=trusted')
    expect([store.profile.ages, trusting.profile.ages]).toEqual([false, true])
    expect(trusting.profile.notes.join()).toMatch(/clock=trusted: .*If that clock is set forward, a lease may end while its holder/)
    const a = await append(store)
    await older('ages', 9 * MINUTE)
    for (const [reader, age] of [
      [store, 0],
      [trusting, 9 * MINUTE],
    ] as const) {
      const [record] = recordsOf(await reader.read(START))
      expect(record!.advisoryAge).toBeGreaterThanOrEqual(9 * MINUTE)
      expect(record!.age).toBe(age === 0 ? 0 : record!.advisoryAge)
    }
    const answer = await trusting.append(Uint8Array.of(2), START)
    expect(answer).toMatchObject({ kind: 'appended', missed: [{ position: a, age: expect.toSatisfy(age => age >= 9 * MINUTE) }] })
  })

  test('a clock that was set back gives a negative advisory age, and no age', async () => {
    await using store = await opened('back', '&clock=trusted')
    await append(store)
    await older('back', -60 * MINUTE)
    expect(recordsOf(await store.read(START))).toMatchObject([{ age: 0, advisoryAge: expect.toSatisfy(age => age < -30 * MINUTE) }])
  })

  test('after a restart of the server, the ages of earlier records and snapshots are not known, whatever its clock says', async () => {
    const a = await (async () => {
      await using store = await opened('restart', '&clock=trusted')
      const position = await append(store)
      expect(await store.snapshot(position, once(Uint8Array.of(1)))).toBe('kept')
      await older('restart', 9 * MINUTE)
      expect((await store.newest())!.age).toBeGreaterThanOrEqual(9 * MINUTE)
      return position
    })()
    await server.restart()
    await using store = await opened('restart', '&clock=trusted')
    expect(recordsOf(await store.read(START))).toMatchObject([{ age: 0, advisoryAge: expect.toSatisfy(age => age >= 9 * MINUTE) }])
    expect((await store.newest())!.age).toBe(0)
    await append(store, a)
    await older('restart', 9 * MINUTE)
    expect(recordsOf(await store.read(a))[0]!.age).toBeGreaterThanOrEqual(9 * MINUTE)
  })

  test('a process that does not stay gets the name of a dead holder, if the clock is trusted', async () => {
    const leases = (holder: string, setting = '') => connect(`${server.url}?name=dead${setting}`, { holder })
    const dead = await leases('dead')
    const lease = await dead.acquire('nightly', { ttl: '5m', renew: 'never' })
    await older('dead', 9 * MINUTE)
    const options = { ttl: '5m', advanced: { confirm: 0 } } as const
    {
      await using job = await leases('job')
      await expect(job.tryAcquire('nightly', options)).rejects.toMatchObject({ code: 'UNCONFIRMED' })
    }
    {
      await using job = await leases('job', '&clock=trusted')
      const granted = await job.tryAcquire('nightly', options)
      expect(granted!.token).toBeGreaterThan(lease.token)
    }
    await dead.close()
  })

  test('another value of ?clock= is refused with a sentence, and so is the clock of a cluster', () => {
    expect(() => new RedisStore({ url: `${server.url}?clock=quartz` })).toThrow('?clock= must be trusted, or be left out; it is "quartz"')
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

async function append(store: RedisStore, after: Position = START): Promise<Position> {
  const answer = await store.append(Uint8Array.of(1), after)
  if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
  return answer.position
}

function recordsOf(read: Awaited<ReturnType<RedisStore['read']>>): readonly LogRecord[] {
  if (read.kind !== 'records') throw new Error(JSON.stringify(read))
  return read.records
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}
