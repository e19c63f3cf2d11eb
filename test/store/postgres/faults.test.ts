/** Faults of a log in Postgres, one at a time, and the errors they cause. All of them in one run: chaos.test.ts. */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { systemClock } from '../../../src/clock.ts'
import { connect } from '../../../src/connect/connect.ts'
import { LeaseError } from '../../../src/errors.ts'
import { PostgresStore, type PostgresStoreOptions } from '../../../src/store/postgres/postgres.ts'
import { VERSION } from '../../../src/store/postgres/schema.ts'
import { type Position, START } from '../../../src/store.ts'
import { Cable, through } from '../../../src/testing/cuttable-connection.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { whileTimePasses } from '../../support/virtual-time.ts'

/** For stores whose server falls silent: short, but longer than an ordinary answer takes on a busy machine. */
const TIMEOUT = 1_500
const record = (...bytes: number[]) => Uint8Array.from(bytes)

async function codeOf(call: Promise<unknown>): Promise<string> {
  try {
    return `done: ${JSON.stringify(await call, (_, value) => (typeof value === 'bigint' ? String(value) : value))}`
  } catch (error) {
    if (!(error instanceof LeaseError)) throw error
    return error.code
  }
}

async function appended(store: PostgresStore, bytes: Uint8Array, after: Position): Promise<Position> {
  const answer = await store.append(bytes, after)
  if (answer.kind !== 'appended') throw new Error(`not appended: ${JSON.stringify(answer)}`)
  return answer.position
}

async function lengthOf(store: PostgresStore): Promise<number> {
  const read = await store.read(START)
  return read.kind === 'records' ? read.records.length : -1
}

/** Retries until it succeeds: the engine is back, or a connection is. */
async function eventually<T>(call: () => Promise<T>, ms = EVENT_TIMEOUT): Promise<T> {
  for (const end = systemClock.now() + ms; ; ) {
    try {
      return await call()
    } catch (error) {
      if (systemClock.now() > end) throw error
      await new Promise(resolve => setTimeout(resolve, 20))
    }
  }
}

describeEngine('postgres', 'a log in Postgres', () => {
  let server: Engine
  let admin: pg.Pool
  let logs = 0
  beforeAll(async () => {
    server = await engine('postgres', { args: ['-c', 'max_connections=60'] })
    admin = new pg.Pool({ connectionString: server.url, max: 3 })
    admin.on('error', () => {})
    await (await opened())[Symbol.asyncDispose]() // creates the tables
  })
  afterAll(async () => {
    await admin?.end()
    await server?.[Symbol.asyncDispose]()
  })

  const newName = () => `log ${++logs}`
  const opened = async (options: Partial<PostgresStoreOptions> = {}): Promise<PostgresStore> => {
    const store = new PostgresStore({ url: server.url, timeout: EVENT_TIMEOUT, ...options })
    await store.open()
    return store
  }

  describe('whose connection is cut', () => {
    test('between request and answer: the append is UNKNOWN, and the record is in the log', async () => {
      const name = newName()
      await using cable = await Cable.to(server.port)
      await using store = await opened({ name, url: through(server.url, [server.port], [cable]) })
      const first = await appended(store, record(1), START)
      cable.cutAnswers()
      expect(await codeOf(store.append(record(2), first))).toBe('UNKNOWN')
      expect(cable.cut).toBe(1)
      expect(await lengthOf(store)).toBe(2)
    })

    test('before the request is sent: the append is UNAVAILABLE and has no effect', async () => {
      const name = newName()
      await using cable = await Cable.to(server.port)
      await using store = await opened({ name, url: through(server.url, [server.port], [cable]) })
      cable.refuse()
      await eventually(async () => expect(await codeOf(store.append(record(1), START))).toBe('UNAVAILABLE'))
      expect(await codeOf(store.read(START))).toBe('UNAVAILABLE')
      cable.heal()
      await using other = await opened({ name })
      expect(await lengthOf(other)).toBe(0)
      await eventually(() => appended(store, record(1), START))
    })

    test('silently: every call ends within its timeout, and calls succeed again when the connection is back', async () => {
      const name = newName()
      await using cable = await Cable.to(server.port)
      const clock = new ManualClock()
      await using store = await opened({ name, url: through(server.url, [server.port], [cable]), timeout: TIMEOUT, clock })
      await appended(store, record(1), START)
      cable.silence()
      const began = clock.now()
      expect(await whileTimePasses(clock, codeOf(store.append(record(2), START)))).toBe('UNKNOWN')
      expect(await whileTimePasses(clock, codeOf(store.read(START)))).toBe('UNAVAILABLE')
      expect(clock.now() - began).toBeLessThan(TIMEOUT * 8)
      cable.heal()
      await eventually(async () => expect(await lengthOf(store)).toBeGreaterThanOrEqual(1))
    })

    test('during a waiting read: the read continues and receives the next record', async () => {
      const name = newName()
      await using cable = await Cable.to(server.port)
      await using store = await opened({ name, url: through(server.url, [server.port], [cable]) })
      await using other = await opened({ name })
      const waiting = eventually(() => store.read(START, { wait: new AbortController().signal }))
      await store.read(START)
      cable.disconnect()
      await appended(other, record(7), START)
      expect(await waiting).toMatchObject({ records: [{ bytes: Buffer.of(7) }] })
    })
  })

  test('pg_terminate_backend during an append: the append is UNKNOWN and rolled back, and the next one succeeds', async () => {
    const name = newName()
    await using store = await opened({ name })
    const blocker = await admin.connect()
    try {
      await blocker.query('begin')
      await blocker.query('select from leasehold.log where name = $1 for update', [name])
      const appending = codeOf(store.append(record(1), START))
      await eventually(async () => {
        const { rowCount } = await admin.query(
          `select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and query like '%append%' and pid <> pg_backend_pid()`,
        )
        expect(rowCount).toBe(1)
      })
      expect(await appending).toBe('UNKNOWN')
    } finally {
      await blocker.query('rollback')
      blocker.release()
    }
    expect(await lengthOf(store)).toBe(0)
    await appended(store, record(1), START)
  })

  test('a process that stalls during its append does not block other processes', async () => {
    const name = newName()
    await using cable = await Cable.to(server.port)
    await using still = await opened({ name, url: through(server.url, [server.port], [cable]), timeout: EVENT_TIMEOUT })
    await using store = await opened({ name })
    let after = START
    for (let i = 0; i < 12; i++) after = await appended(store, new Uint8Array(1 << 20).fill(i), after)
    await still.read(after)
    // The request is sent and its answer never read. An answer with all missed records would not fit into the buffers on the way.
    cable.deafen()
    let ended = false
    const appending = codeOf(still.append(record(1), START)).finally(() => (ended = true))
    await eventually(async () => expect(await store.read(after)).toMatchObject({ records: { length: 1 } }))
    expect((await store.append(record(2), after)).kind).toBe('appended')
    expect(ended).toBe(false)
    cable.disconnect()
    expect(await appending).toBe('UNKNOWN')
  })

  test('a notification from any client only causes a read', async () => {
    const name = newName()
    await using store = await opened({ name })
    await using other = await opened({ name })
    const { rows } = await admin.query('select id from leasehold.log where name = $1', [name])
    const waiting = store.read(START, { wait: new AbortController().signal })
    for (const payload of ['', 'nonsense', '5 x', '1 1 1', '99999999999999999999 1', '1 99999999999999999999999', 'hello 1'])
      await admin.query('select pg_notify($1, $2)', [`leasehold_${rows[0].id}`, payload])
    await appended(other, record(1), START)
    expect(await waiting).toMatchObject({ kind: 'records', records: [{ bytes: Buffer.of(1) }] })
  })

  describe('that lost records', () => {
    const holdersLoseLeases = async (name: string, harm: () => Promise<unknown>) => {
      await using one = await connect(`${server.url}?name=${name}`, { holder: 'one' })
      await using two = await connect(`${server.url}?name=${name}`, { holder: 'two' })
      await using lease = await one.acquire('k', { ttl: '2s' })
      const lost = new Promise<LeaseError>(resolve => {
        if (lease.signal.aborted) resolve(lease.signal.reason)
        lease.signal.addEventListener('abort', () => resolve(lease.signal.reason))
      })
      await harm()
      await two.tryAcquire('other').catch(() => {}) // another process appends
      const { code } = await lost
      expect(code).toBe('LOST')
      expect(lease.held).toBe(false)
      await expect(one.acquire('k2')).rejects.toMatchObject({ code: 'DIVERGED' })
    }

    test('if its last records were deleted by hand, open stores and new ones report DIVERGED', async () => {
      const name = newName()
      await using store = await opened({ name })
      let after = START
      for (let i = 1; i <= 5; i++) after = await appended(store, record(i), after)
      const waiting = store.read(after, { wait: new AbortController().signal })
      await admin.query('delete from leasehold.entry e using leasehold.log l where l.id = e.log and l.name = $1 and e.idx > 3', [name])
      expect((await store.append(record(6), after)).kind).toBe('diverged')
      expect((await store.read(after)).kind).toBe('diverged')
      expect((await waiting).kind).toBe('diverged')
      await using late = new PostgresStore({ url: server.url, name })
      expect(await codeOf(late.open())).toBe('DIVERGED')
    })

    test('if records in the middle were deleted by hand, a read of them reports DIVERGED', async () => {
      const name = newName()
      await using store = await opened({ name })
      let after = START
      for (let i = 1; i <= 5; i++) after = await appended(store, record(i), after)
      await admin.query('delete from leasehold.entry e using leasehold.log l where l.id = e.log and l.name = $1 and e.idx in (1, 3)', [
        name,
      ])
      expect(await store.read(START)).toMatchObject({ kind: 'diverged', reason: 'record 1 is gone' })
    })

    test('if its tail was deleted, holders learn that their leases are LOST', () =>
      holdersLoseLeases('tail', () =>
        admin.query(`delete from leasehold.entry e using leasehold.log l where l.id = e.log and l.name = 'tail'`),
      ))

    test('if its table was truncated, holders learn that their leases are LOST, and the new log does not know them', () =>
      // With other processes at work, taking the lock may need a second attempt.
      holdersLoseLeases('truncated', () => eventually(() => admin.query('truncate leasehold.entry, leasehold.log'))))

    test('if its schema was dropped, holders learn that their leases are LOST', () =>
      holdersLoseLeases('dropped', () => admin.query('drop schema leasehold cascade')))
  })

  describe('and its tables', () => {
    test('are created once when ten stores open at the same time', async () => {
      const stores = Array.from({ length: 10 }, () => new PostgresStore({ url: `${server.url}?schema=crowd` }))
      const heads = await Promise.all(stores.map(store => store.open()))
      expect(heads.map(({ head }) => head)).toEqual(heads.map(() => START))
      for (const store of stores) await store[Symbol.asyncDispose]()
      expect((await admin.query('select * from crowd.version')).rows).toEqual([{ version: VERSION }])
    })

    test('of a newer version are rejected and left unchanged', async () => {
      await using store = await opened({ schema: 'future' })
      await appended(store, record(1), START)
      await admin.query('update future.version set version = 99')
      await using late = new PostgresStore({ url: server.url, schema: 'future' })
      expect(await codeOf(late.open())).toBe('UNSUPPORTED')
      expect((await admin.query('select count(*)::int n from future.entry')).rows).toEqual([{ n: 1 }])
    })

    test('need no right to create tables once they exist, and a role that lacks another right gets an error', async () => {
      await using _made = await opened({ schema: 'granted' })
      await admin.query(`create role app login; create role stranger login;
        grant usage on schema granted to app; grant select, insert, update, delete on all tables in schema granted to app`)
      await using store = await opened({ schema: 'granted', url: server.url.replace('postgres@', 'app@') })
      const position = await appended(store, record(1), START)
      expect(await store.snapshot(position, (async function* () {})())).toBe('kept')
      await using other = new PostgresStore({ schema: 'granted', url: server.url.replace('postgres@', 'stranger@') })
      await expect(other.open()).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'permission' })
    })
  })

  test('appends succeed in spite of conflicts under another isolation level', async () => {
    await admin.query('create database strict')
    await admin.query(`alter database strict set default_transaction_isolation = 'serializable'`)
    const url = server.url.replace(/postgres$/, 'strict')
    const stores = await Promise.all([1, 2, 3].map(() => opened({ url })))
    await Promise.all(
      stores.map(async store => {
        for (let i = 0; i < 20; i++) await eventually(() => store.append(record(i), START))
      }),
    )
    expect(await lengthOf(stores[0]!)).toBe(60)
    for (const store of stores) await store[Symbol.asyncDispose]()
  })

  test('the error of a read-only database says so', async () => {
    await admin.query('create database looked_at')
    await (await opened({ url: server.url.replace(/postgres$/, 'looked_at') }))[Symbol.asyncDispose]()
    await admin.query('alter database looked_at set default_transaction_read_only = on')
    await using store = new PostgresStore({ url: server.url.replace(/postgres$/, 'looked_at') })
    await expect(store.open()).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'readonly' })
  })

  test('wrong passwords, databases and ports give different errors, and no message contains a password', async () => {
    const secret = server.url.replace('postgres@', 'postgres:s3cret@')
    const failed = async (url: string) => {
      await using store = new PostgresStore({ url, timeout: 2_000 })
      return store.open().catch((error: LeaseError) => error) as Promise<LeaseError>
    }
    const nowhere = await failed(secret.replace(/postgres$/, 'nowhere'))
    expect([nowhere.code, nowhere.reason]).toEqual(['UNAVAILABLE', 'database'])
    const closed = await failed(secret.replace(`:${server.port}`, ':1'))
    expect(closed.code).toBe('UNAVAILABLE')
    for (const { message } of [nowhere, closed]) expect(message).not.toContain('s3cret')
  })
})

test('a server that closes together with its first message ends the connection, not the process', async () => {
  const message = (type: string, body: string) => {
    const head = Buffer.alloc(5)
    head.write(type)
    head.writeUInt32BE(body.length + 4, 1)
    return Buffer.concat([head, Buffer.from(body, 'latin1')])
  }
  const goodbye = message('E', 'SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0')
  const server = createServer(socket => {
    socket.on('error', () => {})
    socket.once('data', () => socket.end(Buffer.concat([message('R', '\0\0\0\0'), message('Z', 'I'), goodbye])))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  await using store = new PostgresStore({ url: `postgres://me@127.0.0.1:${(server.address() as AddressInfo).port}/x`, timeout: 1_000 })
  // An error event without a listener would be an uncaught exception.
  for (let i = 0; i < 3; i++) await expect(store.open()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  server.close()
})

describeEngine('postgres', 'the settings of Postgres', () => {
  test('appends override synchronous_commit = off: kill -9 right after an acknowledgement loses nothing', async () => {
    const args = ['-c', 'synchronous_commit=off', '-c', 'wal_writer_delay=10s']
    await using server = await engine('postgres', { args })
    await using store = new PostgresStore({ url: server.url })
    await store.open()
    expect(store.profile).toMatchObject({ durable: true })
    expect(store.profile.notes.join()).toMatch(/synchronous_commit is off/)
    const position = await appended(store, record(1), START)
    await server.kill9()
    await server.restart()
    expect(await eventually(() => store.read(position))).toEqual({ kind: 'records', records: [] })
  })

  test('with fsync off the profile is not durable and says why', async () => {
    await using server = await engine('postgres', { args: ['-c', 'fsync=off'] })
    await using store = new PostgresStore({ url: server.url })
    await store.open()
    expect(store.profile).toMatchObject({ durable: false, failover: false, shared: true, ages: false, push: true })
    expect(store.profile.notes.join()).toMatch(/fsync is off/)
    await using leases = await connect(server.url)
    await expect(leases.acquire('k', { advanced: { require: ['durable'] } })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
  })
})
