/** The connection that listens also runs the appends: fewer notifications, prepared statements, and no change in behaviour. */
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { systemClock, turn } from '../../../src/clock.ts'
import { isAnswer } from '../../../src/store/postgres/driver.ts'
import { PgDriver } from '../../../src/store/postgres/driver-pg.ts'
import { PostgresStore, type PostgresStoreOptions } from '../../../src/store/postgres/postgres.ts'
import { type Position, START } from '../../../src/store.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'

const record = (...bytes: number[]) => Uint8Array.from(bytes)

async function appended(store: PostgresStore, after: Position = START): Promise<Position> {
  const answer = await store.append(record(7), after)
  if (answer.kind !== 'appended') throw new Error(`not appended: ${answer.kind}`)
  return answer.position
}

test('the error code of a broken connection does not count as an answer of the server', () => {
  for (const code of ['EPIPE', 'ECONNRESET', '57P01', '08006']) expect(isAnswer({ code }), code).toBe(false)
  for (const code of ['42501', '25006', '40001', 'P0001']) expect(isAnswer({ code }), code).toBe(true)
})

describeEngine('postgres', 'the listening connection to Postgres', () => {
  let server: Engine
  let admin: pg.Pool
  beforeAll(async () => {
    server = await engine('postgres')
    admin = new pg.Pool({ connectionString: server.url, max: 3 })
    admin.on('error', () => {})
  })
  afterAll(async () => {
    await admin?.end()
    await server?.[Symbol.asyncDispose]()
  })

  const opened = async (options: PostgresStoreOptions): Promise<PostgresStore> => {
    const store = new PostgresStore('sql' in options ? options : { url: server.url, ...options })
    await store.open()
    return store
  }

  const idOf = async (name: string): Promise<number> =>
    (await admin.query('select id from leasehold.log where name = $1', [name])).rows[0].id

  /** A client that listens without the lock by which stores see each other. */
  async function eavesdropper(name: string): Promise<AsyncDisposable & { readonly heard: string[] }> {
    const client = new pg.Client({ connectionString: server.url })
    await client.connect()
    const heard: string[] = []
    client.on('notification', ({ payload }) => heard.push(payload ?? ''))
    await client.query(`listen leasehold_${await idOf(name)}`)
    return { heard, [Symbol.asyncDispose]: () => client.end() }
  }

  test('an append sends a notification only while another store listens', async () => {
    await using store = await opened({ name: 'alone' })
    await using ear = await eavesdropper('alone')
    const lock = 'select from pg_locks where locktype = $1 and objid = $2 and mode = $3'
    const listening = async () => (await admin.query(lock, ['advisory', await idOf('alone'), 'ShareLock'])).rowCount
    let after = START
    for (let i = 0; i < 3; i++) after = await appended(store, after)
    {
      await using other = await opened({ name: 'alone' })
      expect(await listening()).toBe(0) // no reader waits
      const waiting = other.read(after, { wait: new AbortController().signal })
      await expect.poll(listening).toBe(1)
      after = await appended(store, after)
      expect(await waiting).toMatchObject({ records: { length: 1 } })
      await expect.poll(() => ear.heard).toHaveLength(1)
      expect(ear.heard[0]).toMatch(/^4 /)
      expect(other.profile.push).toBe(true)
    }
    await expect.poll(listening).toBe(0) // the session of the other store has ended
    after = await appended(store, after)
    await admin.query('select pg_notify($1, $2)', [`leasehold_${await idOf('alone')}`, 'the last'])
    await expect.poll(() => ear.heard.at(-1)).toBe('the last')
    expect(ear.heard).toHaveLength(2)
  })

  test('a store ceases to listen when no reader has waited for a while', async () => {
    await using store = await opened({ name: 'rests' })
    const lock = 'select from pg_locks where locktype = $1 and objid = $2 and mode = $3'
    const listening = async () => (await admin.query(lock, ['advisory', await idOf('rests'), 'ShareLock'])).rowCount
    for (let i = 0; i < 2; i++) {
      const over = new AbortController()
      const waiting = store.read(START, { wait: over.signal }).catch(() => {})
      await expect.poll(listening).toBe(1)
      over.abort()
      await waiting
      await expect.poll(listening).toBe(0)
    }
  })

  test('two stores receive notifications of each other, in whichever order they opened', async () => {
    await using one = await opened({ name: 'pair' })
    await using two = await opened({ name: 'pair' })
    let after = START
    for (const [writer, reader] of [
      [one, two],
      [two, one],
      [one, two],
    ] as const) {
      const waiting = reader.read(after, { wait: new AbortController().signal })
      after = await appended(writer, after)
      expect(await waiting).toMatchObject({ records: [{ position: after }] })
    }
  })

  test('a store that listens through a driver without the lock makes every append send a notification', async () => {
    const sql = postgres(server.url, { max: 4, onnotice: () => {} })
    try {
      await using store = await opened({ name: 'unseen' })
      // Its test notification may take as long as it needs.
      await using other = new PostgresStore({ sql, name: 'unseen', clock: new ManualClock() })
      await other.open()
      const waiting = other.read(START, { wait: new AbortController().signal })
      const marked = async () => (await admin.query('select from leasehold.log where name = $1 and loud', ['unseen'])).rowCount
      await expect.poll(marked).toBe(1)
      await using ear = await eavesdropper('unseen')
      await appended(store)
      expect(await waiting).toMatchObject({ records: { length: 1 } })
      await expect.poll(() => ear.heard).toHaveLength(1)
    } finally {
      await sql.end()
    }
  })

  test('an append succeeds in a session that has lost its prepared statements', async () => {
    const clients: pg.Client[] = []
    class Client extends pg.Client {
      constructor(options: pg.ClientConfig) {
        super(options)
        clients.push(this)
      }
    }
    const pool = new pg.Pool({ connectionString: server.url, max: 4, Client: Client as unknown as new () => pg.ClientBase })
    try {
      await using store = new PostgresStore({ pool, name: 'forgetful' })
      await store.open()
      let after = await appended(store)
      for (const client of clients) await client.query('deallocate all')
      for (let i = 0; i < 3; i++) after = await appended(store, after)
      expect(await store.read(START)).toMatchObject({ records: { length: 4 } })
    } finally {
      await pool.end()
    }
  })

  test('an answer that arrived while the process was stalled is read before the timeout applies', async () => {
    await using store = await opened({ name: 'still', timeout: 500 })
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const driver = new PgDriver(pool, { clock: systemClock, timeout: 500, own: true })
    await driver.run('select 1', [])
    const after = await appended(store)
    const answers = [store.append(record(8), after), driver.run('select 2', [])] as const
    await turn() // the requests are sent
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_500)
    const [append, rows] = await Promise.all(answers)
    expect(append).toMatchObject({ kind: 'appended' })
    expect(rows).toEqual([['2']])
    await driver[Symbol.asyncDispose]()
  })

  test('appends that overlap all succeed', async () => {
    await using store = await opened({ name: 'overlapping' })
    const answers = await Promise.all(Array.from({ length: 8 }, () => store.append(record(1), START)))
    expect(answers.map(answer => 'position' in answer && answer.position.index).sort()).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  })

  test('the cost of an append does not grow with the log, even if its plan was made while the log was empty', async () => {
    for (const way of ['line', 'pool']) {
      const schema = `grown_${way}`
      const sql = postgres(server.url, { max: 1, onnotice: () => {} })
      const blocks = async (): Promise<number> => {
        const text = `select sum(idx_blks_hit + idx_blks_read + heap_blks_hit + heap_blks_read) n from pg_statio_user_tables where schemaname = $1`
        return Number((await admin.query(text, [schema])).rows[0].n)
      }
      let before = 0
      {
        await using store = await opened(way === 'pool' ? { schema, sql } : { schema, url: server.url })
        let after = START
        for (let i = 0; i < 20; i++) after = await appended(store, after)
        const filler = new pg.Client({ connectionString: server.url })
        await filler.connect()
        await filler.query(`insert into ${schema}.entry select 1000, n, n, '' from generate_series(1, 30000) n`)
        await filler.end()
        await expect.poll(blocks).toBeGreaterThan(30_000) // the statistics of a session are published when it ends
        before = await blocks()
        for (let i = 0; i < 100; i++) after = await appended(store, after)
      }
      await sql.end()
      await expect.poll(blocks).toBeGreaterThan(before + 300)
      expect((await blocks()) - before).toBeLessThan(100 * 40)
    }
  })

  test.each([2, 99])('tables of version %i are refused with a sentence, and left as they are', async version => {
    const schema = `version_${version}`
    await using made = await opened({ schema })
    await appended(made)
    await admin.query(`update ${schema}.version set version = ${version}`)
    await using store = new PostgresStore({ url: server.url, schema })
    await expect(store.open()).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      reason: version === 2 ? 'older' : 'newer',
      message: expect.stringMatching(/use the version of leasehold that created them, or another \?schema=$/),
    })
    expect((await admin.query(`select version from ${schema}.version`)).rows).toEqual([{ version }])
  })
})
