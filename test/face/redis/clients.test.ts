/** Real clients of Redis locks, unmodified, on the real wire. */
import { describe, expect, test } from 'vitest'
import { redisFace } from '../../../src/face/redis/commands.ts'
import { redisJava, redisNode, redisProgram, redisPython } from '../../support/client-sets.ts'
import { JAVA, orSkip, output, python, recorded } from '../../support/foreign-clients.ts'
import { place } from '../../support/resp-place.ts'

const LONG = { timeout: 900_000 }

/** What the tests use of the clients; each is the package itself. */
interface RedlockLock {
  unlock(): Promise<void>
  release(): Promise<unknown>
  extend(ms: number): Promise<RedlockLock>
}
interface Redlock4 {
  lock(resources: string | string[], ms: number): Promise<RedlockLock>
}
interface Redlock5 {
  acquire(resources: string[], ms: number): Promise<RedlockLock>
  using<T>(resources: string[], ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T>
}
interface IoRedis {
  set(...args: readonly (string | number)[]): Promise<string | null>
  get(key: string): Promise<string | null>
  del(...keys: readonly string[]): Promise<number>
  pttl(key: string): Promise<number>
  pexpire(key: string, ms: number): Promise<number>
  exists(...keys: readonly string[]): Promise<number>
  call(...args: readonly string[]): Promise<unknown>
  disconnect(): void
}

async function world() {
  const here = await place({ faces: [redisFace()] })
  const door = await recorded(here.port, 'test/face/redis/recorded.jsonl')
  const holders = async (key: string) =>
    (await here.lessor.read({ kind: 'resource', resource: `redis/${key}` })).value.grants.map(({ holder }) => holder)
  return {
    holders,
    lessor: here.lessor,
    port: door.port,
    async [Symbol.asyncDispose]() {
      await door[Symbol.asyncDispose]()
      await here[Symbol.asyncDispose]()
    },
  }
}

describe('Node clients', () => {
  test('redlock 4 takes, extends and releases locks on one and on several keys, and waits for its turn', LONG, async context => {
    const require = await orSkip('redlock 4', redisNode(), context)
    const [Redis, Redlock] = [require('ioredis'), require('redlock')]
    await using here = await world()
    const client: IoRedis = new Redis(here.port)
    try {
      const redlock: Redlock4 = new Redlock([client], { retryCount: 0 })
      const patient: Redlock4 = new Redlock([client], { retryCount: 100, retryDelay: 20 })
      const lock = await redlock.lock('jobs', 5_000)
      expect(await here.holders('jobs')).toHaveLength(1)
      await expect(redlock.lock('jobs', 5_000)).rejects.toThrow(/Exceeded 0 attempts/)
      const extended = await lock.extend(5_000)
      const next = patient.lock('jobs', 5_000)
      await extended.unlock()
      await (await next).unlock()
      const both = await redlock.lock(['a', 'b'], 5_000)
      await expect(redlock.lock(['b', 'c'], 5_000)).rejects.toThrow(/Exceeded/)
      expect(await here.holders('c')).toEqual([])
      await both.unlock()
      expect([await here.holders('a'), await here.holders('b')]).toEqual([[], []])
      await expect(both.unlock()).rejects.toThrow(/Unable to fully release/)
    } finally {
      client.disconnect()
    }
  })

  test('redlock 5 takes, extends, releases and uses locks', LONG, async context => {
    const require = await orSkip('redlock 5', redisNode(), context)
    const Redis = require('ioredis')
    const { default: Redlock } = require('redlock5')
    await using here = await world()
    const client: IoRedis = new Redis(here.port)
    try {
      const redlock: Redlock5 = new Redlock([client], { retryCount: 0 })
      const lock = await redlock.acquire(['jobs'], 5_000)
      await expect(redlock.acquire(['jobs'], 5_000)).rejects.toThrow()
      await (await lock.extend(5_000)).release()
      const seen = await redlock.using(['jobs', 'more'], 5_000, async signal => [signal.aborted, await here.holders('more')])
      expect(seen).toEqual([false, [expect.any(String)]])
      expect(await here.holders('more')).toEqual([])
    } finally {
      client.disconnect()
    }
  })

  test('ioredis and node-redis send the commands of a lock by hand', LONG, async context => {
    const require = await orSkip('ioredis and node-redis', redisNode(), context)
    const Redis = require('ioredis')
    await using here = await world()
    const one: IoRedis = new Redis(here.port)
    const other = require('redis').createClient({ url: `redis://127.0.0.1:${here.port}` })
    try {
      await other.connect()
      expect(await one.set('k', 'mine', 'PX', 60_000, 'NX')).toBe('OK')
      expect(await other.set('k', 'yours', { condition: 'NX', expiration: { type: 'PX', value: 60_000 } })).toBe(null)
      expect(await other.get('k')).toBe('mine')
      const left = await one.pttl('k')
      expect(left).toBeGreaterThan(50_000)
      expect(left).toBeLessThanOrEqual(60_000)
      expect(await one.exists('k', 'absent')).toBe(1)
      expect(await one.pexpire('k', 60_000)).toBe(1)
      expect(await one.call('DELEX', 'k', 'IFEQ', 'yours')).toBe(0)
      expect(await one.call('SET', 'k', 'mine', 'IFEQ', 'mine', 'PX', '1000')).toBe('OK')
      expect(await other.sendCommand(['DELIFEQ', 'k', 'mine'])).toBe(1)
      expect([await one.get('k'), await one.pttl('k'), await one.del('k'), await one.pexpire('k', 5)]).toEqual([null, -2, 0, 0])
    } finally {
      one.disconnect()
      other.destroy()
    }
  })

  test('redlock-universal takes, extends and releases a lock', LONG, async context => {
    const require = await orSkip('redlock-universal', redisNode(), context)
    const Redis = require('ioredis')
    const { createLock, IoredisAdapter } = require('redlock-universal')
    await using here = await world()
    const client: IoRedis = new Redis(here.port)
    try {
      const lock = createLock({ adapter: new IoredisAdapter(client), key: 'jobs', ttl: 5_000, retryAttempts: 0 })
      const handle = await lock.acquire()
      await expect(lock.acquire()).rejects.toThrow()
      expect(await lock.extend(handle, 5_000)).toBe(true)
      expect(await lock.release(handle)).toBe(true)
      expect(await here.holders('jobs')).toEqual([])
    } finally {
      client.disconnect()
    }
  })
})

describe('Python clients', () => {
  test('redis-py Lock takes, waits, reacquires, extends and releases', LONG, async context => {
    const interpreter = await orSkip('redis-py', redisPython(), context)
    await using here = await world()
    const said = await python(
      interpreter,
      `
import sys, threading, redis
from redis.exceptions import LockError, LockNotOwnedError
client = redis.Redis(port=int(sys.argv[1]))
lock = client.lock('jobs', timeout=30)
print(lock.acquire(blocking=False), client.lock('jobs', timeout=30).acquire(blocking=False), lock.locked(), lock.owned())
print(lock.reacquire(), lock.extend(30, replace_ttl=True))
waiter = client.lock('jobs', timeout=30, blocking_timeout=20)
got = []
thread = threading.Thread(target=lambda: got.append(waiter.acquire()))
thread.start()
lock.release()
thread.join()
print(got)
try:
    lock.release()
except LockError as error:
    print('refused', type(error).__name__)
client.delete('jobs')
`,
      String(here.port),
    )
    expect(said.trim().split('\n')).toEqual(['True False True True', 'True True', '[True]', 'refused LockError'])
  })

  test('python-redis-lock takes, waits on its signal, extends and releases', LONG, async context => {
    const interpreter = await orSkip('python-redis-lock', redisPython(), context)
    await using here = await world()
    const said = await python(
      interpreter,
      `
import sys, threading, redis, redis_lock
client = redis.StrictRedis(port=int(sys.argv[1]))
lock = redis_lock.Lock(client, 'jobs', expire=30)
print(lock.acquire(blocking=False), redis_lock.Lock(client, 'jobs', expire=30).acquire(blocking=False))
lock.extend()
other = redis_lock.Lock(client, 'jobs', expire=30)
got = []
thread = threading.Thread(target=lambda: got.append(other.acquire(timeout=20)))
thread.start()
lock.release()
thread.join()
print(got)
try:
    lock.release()
except redis_lock.NotAcquired:
    print('not acquired')
`,
      String(here.port),
    )
    expect(said.trim().split('\n')).toEqual(['True False', '[True]', 'not acquired'])
  })
})

describe('Go clients', () => {
  test('bsm/redislock and redsync take, extend and release locks', LONG, async context => {
    const program = await orSkip('bsm/redislock and redsync', redisProgram(), context)
    await using here = await world()
    expect((await output(program, String(here.port))).trim().split('\n')).toEqual([
      'bsm obtained <nil>',
      'bsm second true',
      'bsm ttl true <nil>',
      'bsm refreshed <nil>',
      'bsm released <nil>',
      'bsm released again true',
      'redsync locked <nil>',
      'redsync second true',
      'redsync extended true <nil>',
      'redsync unlocked true <nil>',
    ])
  })
})

describe('Java clients', () => {
  test('ShedLock takes, extends and releases a lock, and keeps it for its shortest time', LONG, async context => {
    const classes = await orSkip('ShedLock', redisJava(), context)
    await using here = await world()
    expect((await output(JAVA, ...classes, 'Clients', String(here.port))).trim().split('\n')).toEqual([
      'locked true',
      'second false',
      'extended true',
      'again true',
      'kept true',
    ])
    const { value } = await here.lessor.read({ kind: 'resource', resource: 'redis/job-lock:test:nightly' })
    expect(value.grants).toHaveLength(1)
    expect(value.grants[0]!.remaining).toBeLessThanOrEqual(50_000)
  })
})
