/** Faults of a real Redis: the errors that stores report, and that they continue afterwards. */
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import { type AddressInfo, connect as connectTo, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { pause, systemClock } from '../../../src/clock.ts'
import { connect } from '../../../src/connect/connect.ts'
import type { LeaseError } from '../../../src/errors.ts'
import { RedisStore, type RedisStoreOptions } from '../../../src/store/redis/redis.ts'
import { type Position, START, type Store } from '../../../src/store.ts'
import { Cable } from '../../../src/testing/cuttable-connection.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { tell } from '../../support/redis-command.ts'
import { whileTimePasses } from '../../support/virtual-time.ts'

/** For stores whose server falls silent, in virtual time: a busy server is not taken for a silent one. */
const TIMEOUT = 1_500
const NOT_PERSISTENT = ['--appendonly', 'no']

describeEngine('redis', 'refusals of Redis', () => {
  test('while Redis is unreachable every call is UNAVAILABLE, at open and later, and calls succeed when it is back', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    const a = await append(store, 'a')
    await redis.kill9()
    await rejects(new RedisStore({ url: redis.url }).open(), 'UNAVAILABLE', 'unreachable')
    for (const call of [
      () => store.append(bytes('b'), a),
      () => store.read(a),
      () => store.newest(),
      () => store.snapshot(a, pieces('s')),
    ]) {
      await eventually(() => rejects(call(), 'UNAVAILABLE', 'unreachable')) // the first call may still lose an open connection
    }
    await redis.restart()
    const b = await append(store, 'b', a)
    expect(await words(store)).toEqual(['a', 'b'])
    expect(b.index).toBe(2)
  })

  test('a restart keeps acknowledged records, and a waiting reader receives later ones', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    const a = await append(store, 'a')
    const waiting = rejects(store.read(a, { wait: new AbortController().signal }), 'UNAVAILABLE')
    await redis.kill9()
    await waiting
    await redis.restart()
    const again = store.read(a, { wait: new AbortController().signal })
    await append(store, 'b', a)
    expect(await again).toMatchObject({ kind: 'records', records: { length: 1 } })
  })

  test('while Redis loads its data calls are UNAVAILABLE, and they succeed afterwards', async () => {
    await using redis = await engine('redis', { args: ['--key-load-delay', '500', '--loading-process-events-interval-bytes', '1024'] })
    await using store = await opened(redis)
    const after = await append(store, 'a')
    await tell(redis, 'EVAL', "for i = 1, 2000 do redis.call('SET', 'k' .. i, i) end", '0')
    await tell(redis, 'BGREWRITEAOF')
    await eventually(async () => expect(String(await tell(redis, 'INFO', 'persistence'))).toMatch(/aof_rewrite_in_progress:0/))
    await redis.kill9()
    await redis.members[0]!.restart()
    await eventually(() => rejects(store.read(after), 'UNAVAILABLE', 'loading'))
    await redis.ready()
    await eventually(async () => expect((await store.read(after)).kind).toBe('records'))
    await append(store, 'after', after)
  })

  test('a replica serves neither writes nor reads, since its log may be out of date', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    const a = await append(store, 'a')
    await tell(redis, 'REPLICAOF', '127.0.0.1', '1')
    await rejects(store.append(bytes('b'), a), 'UNAVAILABLE', 'readonly')
    await rejects(store.read(a), 'UNAVAILABLE', 'readonly')
    await rejects(store.read(a, { wait: new AbortController().signal }), 'UNAVAILABLE', 'readonly')
    await rejects(new RedisStore({ url: redis.url }).open(), 'UNAVAILABLE', 'readonly')
    await tell(redis, 'REPLICAOF', 'NO', 'ONE')
    await append(store, 'b', a)
  })

  test('a primary that became a replica under an open connection refuses the first read', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    const a = await append(store, 'a')
    await tell(redis, 'REPLICAOF', '127.0.0.1', '1')
    await rejects(store.read(a), 'UNAVAILABLE', 'readonly')
    await tell(redis, 'REPLICAOF', 'NO', 'ONE')
    expect(await store.read(a)).toMatchObject({ kind: 'records', records: { length: 0 } })
  })

  test('a read writes nothing, although it is refused where a write is', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    const a = await append(store, 'a')
    const size = async () => /aof_current_size:(\d+)/.exec(String(await tell(redis, 'INFO', 'persistence')))![1]
    const before = await size()
    for (let i = 0; i < 50; i++) await store.read(i % 2 === 0 ? a : START)
    expect(await size()).toBe(before)
  })

  test('full memory, missing replicas and a failing disk are UNAVAILABLE with their reason; the call has no effect, and calls succeed later', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    let after = await append(store, 'a')
    const folder = ((await tell(redis, 'CONFIG', 'GET', 'dir')) as string[])[1]!
    const ills: readonly (readonly [reason: string, ill: () => Promise<unknown>, heal: () => Promise<unknown>])[] = [
      ['memory', () => tell(redis, 'CONFIG', 'SET', 'maxmemory', '1'), () => tell(redis, 'CONFIG', 'SET', 'maxmemory', '0')],
      [
        'replicas',
        () => tell(redis, 'CONFIG', 'SET', 'min-replicas-to-write', '1'),
        () => tell(redis, 'CONFIG', 'SET', 'min-replicas-to-write', '0'),
      ],
      [
        'disk',
        async () => {
          await mkdir(join(folder, 'dump.rdb', 'in the way'), { recursive: true }) // the dump cannot be renamed to this path
          await tell(redis, 'CONFIG', 'SET', 'save', '3600 1000000')
          await tell(redis, 'BGSAVE')
          await eventually(async () => expect(String(await tell(redis, 'INFO', 'persistence'))).toMatch(/rdb_last_bgsave_status:err/))
        },
        () => tell(redis, 'CONFIG', 'SET', 'save', ''),
      ],
    ]
    for (const [reason, ill, heal] of ills) {
      await ill()
      await rejects(store.append(bytes('no'), after), 'UNAVAILABLE', reason)
      await heal()
      after = await append(store, reason, after)
    }
    expect(await words(store)).toEqual(['a', 'memory', 'replicas', 'disk'])
  })

  test('a script that Redis no longer has is sent again', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    const a = await append(store, 'a')
    await tell(redis, 'SCRIPT', 'FLUSH')
    const b = await append(store, 'b', a)
    await tell(redis, 'SCRIPT', 'FLUSH')
    expect(await words(store)).toEqual(['a', 'b'])
    await tell(redis, 'SCRIPT', 'FLUSH')
    expect(await store.snapshot(b, pieces('s'))).toBe('kept')
  })
})

describeEngine('redis', 'lost answers of Redis', () => {
  test('an append whose connection is cut before the answer is UNKNOWN, and the record is in the log', async () => {
    await using redis = await engine('redis')
    await using cable = await Cable.to(redis.port)
    await using store = await opened({ url: `redis://127.0.0.1:${cable.port}` })
    const a = await append(store, 'a')
    cable.cutAnswers(1)
    await rejects(store.append(bytes('b'), a), 'UNKNOWN', 'connection')
    expect(cable.cut).toBe(1)
    expect(await words(store)).toEqual(['a', 'b'])
    const [, b] = await positions(store)
    cable.cutAnswers(1)
    await rejects(store.read(a), 'UNAVAILABLE', 'connection')
    await append(store, 'c', b)
  })

  test('while Redis is paused an append is UNKNOWN and a read UNAVAILABLE, within the timeout; the append may take effect later', async () => {
    await using redis = await engine('redis')
    const clock = new ManualClock()
    await using store = await opened(redis, { timeout: TIMEOUT, clock })
    const a = await append(store, 'a')
    const waiting = rejects(store.read(a, { wait: new AbortController().signal }), 'UNAVAILABLE')
    redis.pause()
    const began = clock.now()
    await whileTimePasses(clock, rejects(store.append(bytes('b'), a), 'UNKNOWN', 'silent'))
    await whileTimePasses(clock, rejects(store.read(a), 'UNAVAILABLE'))
    await whileTimePasses(clock, rejects(store.append(bytes('c'), a), 'UNAVAILABLE')) // no connection was established
    await whileTimePasses(clock, waiting)
    expect(clock.now() - began).toBeLessThan(TIMEOUT * 10)
    redis.resume()
    await eventually(async () => expect(await words(store)).toEqual(['a', 'b']))
    await append(store, 'd', (await positions(store)).at(-1)!)
  })

  test('CLIENT PAUSE longer than the timeout gives the same errors', async () => {
    await using redis = await engine('redis')
    const clock = new ManualClock()
    await using store = await opened(redis, { timeout: TIMEOUT, clock })
    const a = await append(store, 'a')
    await tell(redis, 'CLIENT', 'PAUSE', String(3 * TIMEOUT), 'WRITE')
    await whileTimePasses(clock, rejects(store.append(bytes('b'), a), 'UNKNOWN', 'silent'))
    await eventually(async () => expect((await words(store))[0]).toBe('a'))
    // Redis may or may not serve the abandoned connection: both are allowed after UNKNOWN.
    const after = (await positions(store)).at(-1)!
    await append(store, 'c', after)
    expect(['a,c', 'a,b,c']).toContain((await words(store)).join())
  })

  test('CLIENT KILL makes a waiting read UNAVAILABLE; appends succeed or fail as UNKNOWN or UNAVAILABLE, and the log has no gap', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    await using other = await opened(redis)
    let after = await append(store, 'start')
    const waiting = rejects(other.read(after, { wait: new AbortController().signal }), 'UNAVAILABLE')
    await eventually(async () => expect(String(await tell(redis, 'CLIENT', 'LIST'))).toMatch(/cmd=xread/))
    await tell(redis, 'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    await waiting
    let failed = 0
    for (let i = 0; i < 100; i++) {
      const killing = i % 10 === 5 ? tell(redis, 'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes') : undefined
      try {
        after = await append(store, `${i}`, after)
      } catch (error) {
        expect(['UNKNOWN', 'UNAVAILABLE']).toContain((error as LeaseError).code)
        failed++
        after = (await eventually(() => positions(store))).at(-1)!
      }
      await killing
    }
    expect(failed).toBeLessThan(100)
    const indexes = (await positions(store)).map(({ index }) => index)
    expect(indexes).toEqual(indexes.map((_, i) => i + 1))
  })
})

describeEngine('redis', 'data loss in Redis', () => {
  test('after a flush open stores report DIVERGED, waiting or not, and a new store finds an empty log', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    const a = await append(store, 'a')
    const waiting = store.read(a, { wait: new AbortController().signal })
    await tell(redis, 'FLUSHALL')
    const diverged = { kind: 'diverged', reason: expect.stringMatching(/flushed.*evicted.*Restart its processes/) }
    expect(await store.append(bytes('b'), a)).toEqual(diverged)
    expect(await store.read(a)).toEqual(diverged)
    expect(await waiting).toEqual(diverged)
    await expect(store.snapshot(a, pieces('s'))).rejects.toMatchObject({ code: 'DIVERGED' })
    await using next = new RedisStore({ url: redis.url })
    expect((await next.open()).head).toEqual(START)
    await append(next, 'other')
    expect(await store.append(bytes('b'), a)).toMatchObject({
      kind: 'diverged',
      reason: expect.stringMatching(/another record is at 1/),
    })
  })

  test('after a flush under load leases are LOST because the log has diverged; a new connection is granted leases only after the lost terms, with higher tokens', async () => {
    await using redis = await engine('redis')
    await using a = await connect(redis.url, { holder: 'a' })
    await using b = await connect(redis.url, { holder: 'b' })
    const held = await Promise.all([a.acquire('x', { ttl: '2s' }), a.acquire('y', { ttl: '2s' }), b.acquire('z', { ttl: '2s' })])
    const load = Promise.allSettled(
      [a, b].map(async (leases, i) => {
        for (;;) await leases.request(`load/${i}`, { ttl: '2s' }, () => {})
      }),
    )
    const lost = held.map(({ signal }) => new Promise<unknown>(resolve => signal.addEventListener('abort', () => resolve(signal.reason))))
    await tell(redis, 'FLUSHALL')
    const flushed = systemClock.now()
    for (const reason of await Promise.all(lost)) {
      expect(reason).toMatchObject({ code: 'LOST' })
      expect(chain(reason)).toMatch(/DIVERGED/)
    }
    for (const lease of held) expect(lease.held).toBe(false)
    for (const result of await load) expect(result.status === 'rejected' && chain(result.reason)).toMatch(/DIVERGED/)
    await using next = await connect(redis.url)
    await using again = await next.acquire('x')
    expect(systemClock.now() - flushed).toBeGreaterThan(1_990) // an uninformed holder could have held its lease until then
    for (const { token } of held) expect(again.token).toBeGreaterThan(token)
  })

  test('no store appends in place of last records that were deleted, and the error at open says what to do', async () => {
    await using redis = await engine('redis')
    await using witness = await opened(redis)
    const [a, b, c] = [await append(witness, 'a'), { index: 2, nonce: 0n }, { index: 3, nonce: 0n }] as [Position, Position, Position]
    Object.assign(b, await append(witness, 'b', a))
    Object.assign(c, await append(witness, 'c', b))
    await using behind = await opened(redis)
    await tell(redis, 'XDEL', '{leasehold}:log', '3-0')
    const missing = { kind: 'diverged', reason: expect.stringMatching(/Redis has lost its end|is missing: it was deleted/) }
    expect(await witness.append(bytes('d'), c)).toEqual(missing)
    expect(await witness.read(c)).toEqual(missing)
    expect(await behind.append(bytes('d'), b)).toMatchObject({
      kind: 'diverged',
      reason: expect.stringMatching(/XDEL.*start with an empty one/),
    })
    await expect(new RedisStore({ url: redis.url }).open()).rejects.toMatchObject({
      code: 'DIVERGED',
      message: expect.stringMatching(/record 3 .* is missing: it was deleted.*Delete every key/),
    })
  })

  const deletions: readonly (readonly [what: string, command: string[], reason: RegExp])[] = [
    ['all records (XTRIM)', ['XTRIM', '{leasehold}:log', 'MAXLEN', '0'], /every record .* was deleted/],
    ['a record in the middle', ['XDEL', '{leasehold}:log', '3-0'], /record 3 .* is missing/],
    ['records that no snapshot covers (XTRIM)', ['XTRIM', '{leasehold}:log', 'MAXLEN', '2'], /record 3 .* is missing|begins at 4/],
    ['the log itself', ['DEL', '{leasehold}:log'], /is gone/],
    ['the log, with a key of another type in its place', ['SET', '{leasehold}:log', 'x'], /another program uses the name/],
  ]
  test.each(deletions)(
    '%s deleted: open stores report DIVERGED, and so do new stores if the loss is detectable',
    async (_, command, reason) => {
      await using redis = await engine('redis')
      await using store = await opened(redis)
      let after = START
      for (const word of 'abcde') after = await append(store, word, after)
      const [, second] = await positions(store)
      const waiting = store.read(after, { wait: new AbortController().signal })
      waiting.catch(() => {}) // if its position still exists, the read waits until the end of the test
      await tell(redis, ...command)
      const answers = [await store.read(second!), await store.append(bytes('f'), second!)]
      for (const answer of answers) expect(answer).toEqual({ kind: 'diverged', reason: expect.stringMatching(reason) })
      if (command[0] !== 'XDEL' && !command.includes('2')) expect((await waiting).kind).toBe('diverged')
      if (command[0] === 'DEL') return // the loss is not detectable
      await using next = new RedisStore({ url: redis.url })
      const read = await next.open().then(
        () => next.read(START),
        error => ({ kind: 'diverged', reason: `${error.code} ${error.message}` }),
      )
      expect(read).toMatchObject({ kind: 'diverged', reason: expect.stringMatching(reason) })
    },
  )

  test('a stream of another program is left unchanged', async () => {
    await using redis = await engine('redis')
    await tell(redis, 'XADD', '{leasehold}:log', '*', 'temperature', '21')
    await using store = new RedisStore({ url: redis.url })
    await expect(store.open()).rejects.toMatchObject({ code: 'DIVERGED', message: expect.stringMatching(/not a log of Leasehold/) })
    expect(await tell(redis, 'XLEN', '{leasehold}:log')).toBe(1)
  })

  test('a lost snapshot, with the records before it trimmed, is an error for stores that need it', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    let after = START
    for (const word of 'abc') {
      after = await append(store, word, after)
      await store.snapshot(after, pieces(word))
    }
    const chunks = ((await tell(redis, 'KEYS', '{leasehold}:snapshot:*')) as string[]).sort()
    await tell(redis, 'DEL', ...chunks)
    await expect(store.newest()).rejects.toMatchObject({ code: 'DIVERGED', message: expect.stringMatching(/begins at 2.*evicted/) })
    await expect(new RedisStore({ url: redis.url }).open()).rejects.toMatchObject({ code: 'DIVERGED' })
    await append(store, 'd', after) // a store that does not need the snapshot continues
  })

  test('a lost log whose snapshot is left does not count as an empty log', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    const a = await append(store, 'a')
    await store.snapshot(a, pieces('s'))
    await tell(redis, 'DEL', '{leasehold}:log')
    await expect(new RedisStore({ url: redis.url }).open()).rejects.toMatchObject({
      code: 'DIVERGED',
      message: expect.stringMatching(/is gone/),
    })
    expect((await store.read(START)).kind).toBe('diverged')
  })

  test('a log evicted for lack of memory is DIVERGED', async () => {
    await using redis = await engine('redis')
    await using store = await opened(redis)
    const a = await append(store, 'a')
    await tell(redis, 'CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    await tell(redis, 'CONFIG', 'SET', 'maxmemory', '1')
    await tell(redis, 'SET', 'x', 'y').catch(() => {})
    await tell(redis, 'CONFIG', 'SET', 'maxmemory', '0')
    expect(await tell(redis, 'EXISTS', '{leasehold}:log')).toBe(0)
    expect(await store.read(a)).toMatchObject({ kind: 'diverged', reason: expect.stringMatching(/evicted it \(maxmemory-policy/) })
  })

  test('a log that lost its data in a restart and regrew to the same indexes is DIVERGED for earlier readers', async () => {
    await using redis = await engine('redis', { args: NOT_PERSISTENT })
    await using store = await opened(redis)
    const a = await append(store, 'a')
    const b = await append(store, 'b', a)
    await redis.kill9()
    await redis.restart()
    expect(await eventually(() => store.read(b))).toMatchObject({
      kind: 'diverged',
      reason: expect.stringMatching(/restarted without its data/),
    })
    await using other = await opened(redis)
    const first = await append(other, 'a')
    await append(other, 'b', first)
    for (const after of [a, b]) {
      expect(await store.append(bytes('c'), after)).toMatchObject({ kind: 'diverged', reason: expect.stringMatching(/another record/) })
      expect(await store.read(after, { wait: new AbortController().signal })).toMatchObject({ kind: 'diverged' })
    }
    expect(await words(other)).toEqual(['a', 'b'])
  })

  test('a promoted replica that was behind is DIVERGED for stores that had read the lost records, even after the log has regrown', async () => {
    await using primary = await engine('redis', { args: ['--repl-diskless-sync-delay', '0'] })
    await using follower = await engine('redis')
    await using replication = await Cable.to(primary.port)
    await tell(follower, 'REPLICAOF', '127.0.0.1', String(replication.port))
    await eventually(async () => expect(String(await tell(follower, 'INFO', 'replication'))).toMatch(/master_link_status:up/))
    await using address = await movable(primary.port)
    await using store = await opened({ url: `redis://127.0.0.1:${address.port}` })
    const a = await append(store, 'a')
    await eventually(async () => expect(await tell(follower, 'XLEN', '{leasehold}:log')).toBe(1))
    replication.refuse()
    const b = await append(store, 'b', a)
    await primary.kill9()
    await tell(follower, 'REPLICAOF', 'NO', 'ONE')
    address.leadTo(follower.port)
    expect(await eventually(() => store.read(b))).toMatchObject({
      kind: 'diverged',
      reason: expect.stringMatching(/ends at 1, before 2.*replica that was behind/),
    })
    await using other = await opened(follower)
    await append(other, 'two', a)
    expect(await store.append(bytes('c'), b)).toMatchObject({
      kind: 'diverged',
      reason: expect.stringMatching(/another record is at 2/),
    })
    expect(await words(other)).toEqual(['a', 'two'])
  })
})

async function opened(on: Engine | RedisStoreOptions, options: RedisStoreOptions = {}): Promise<RedisStore> {
  const store = new RedisStore({ timeout: EVENT_TIMEOUT, ...('kind' in on ? { url: on.url } : on), ...options })
  await store.open()
  return store
}

/** An address that leads to the current primary, as after a failover. */
async function movable(target: number): Promise<AsyncDisposable & { readonly port: number; leadTo(port: number): void }> {
  const sockets = new Set<Socket>()
  const server = createServer(near => {
    const far = connectTo({ host: '127.0.0.1', port: target })
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one)
      one.on('error', () => {})
      one.on('close', () => other.destroy())
    }
    near.pipe(far).pipe(near)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const cut = () => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: (server.address() as AddressInfo).port,
    leadTo(port) {
      target = port
      cut()
    },
    async [Symbol.asyncDispose]() {
      cut()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

async function rejects(call: Promise<unknown>, code: string, reason?: string): Promise<void> {
  await expect(call).rejects.toMatchObject({ code, ...(reason !== undefined && { reason }) })
}

/** Retries a failing call for a while: an engine needs time to start, and a lost connection is noticed late. */
async function eventually<T>(attempt: () => Promise<T>): Promise<T> {
  for (const until = systemClock.now() + EVENT_TIMEOUT; ; ) {
    try {
      return await attempt()
    } catch (error) {
      if (systemClock.now() > until) throw error
      await pause(systemClock, 20, undefined, { ref: true })
    }
  }
}

async function append(store: Store, word: string, after: Position = START): Promise<Position> {
  const answer = await store.append(bytes(word), after)
  if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
  return answer.position
}

async function all(store: Store) {
  const read = await store.read(START)
  if (read.kind !== 'records') throw new Error(JSON.stringify(read))
  return read.records
}

async function words(store: Store): Promise<string[]> {
  return (await all(store)).map(record => new TextDecoder().decode(record.bytes))
}

async function positions(store: Store): Promise<Position[]> {
  return (await all(store)).map(({ position }) => position)
}

/** The message of an error and of its cause. */
function chain(error: unknown): string {
  const { code = '', message = '', cause } = (error ?? {}) as { code?: string; message?: string; cause?: unknown }
  return `${code} ${message}${cause === undefined ? '' : ` < ${chain(cause)}`}`
}

function bytes(word: string): Uint8Array {
  return new TextEncoder().encode(word)
}

async function* pieces(...all: string[]): AsyncGenerator<Uint8Array> {
  for (const word of all) yield bytes(word)
}
