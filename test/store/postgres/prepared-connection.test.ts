/** The connection that listens is also the one that appends: what it saves, and that nobody is worse off for it. */
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { systemClock, turn } from '../../../src/clock.ts'
import { isAnswer } from '../../../src/store/postgres/driver.ts'
import { PgDriver } from '../../../src/store/postgres/driver-pg.ts'
import { PostgresStore, type PostgresStoreOptions } from '../../../src/store/postgres/postgres.ts'
import { type Position, START } from '../../../src/store.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'

const entry = (...bytes: number[]) => Uint8Array.from(bytes)

async function appended(store: PostgresStore, after: Position = START): Promise<Position> {
  const answer = await store.append(entry(7), after)
  if (answer.kind !== 'appended') throw new Error(`not appended: ${answer.kind}`)
  return answer.position
}

test('a connection that broke while it was written to is no answer of the engine', () => {
  for (const code of ['EPIPE', 'ECONNRESET', '57P01', '08006']) expect(isAnswer({ code }), code).toBe(false)
  for (const code of ['42501', '25006', '40001', 'P0001']) expect(isAnswer({ code }), code).toBe(true)
})

describeEngine('postgres', 'a line to Postgres', () => {
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

  /** Someone who hears what is called, and is not seen: it holds no lock. */
  async function eavesdropper(name: string): Promise<AsyncDisposable & { readonly heard: string[] }> {
    const client = new pg.Client({ connectionString: server.url })
    await client.connect()
    const heard: string[] = []
    client.on('notification', ({ payload }) => heard.push(payload ?? ''))
    await client.query(`listen leasehold_${await idOf(name)}`)
    return { heard, [Symbol.asyncDispose]: () => client.end() }
  }

  test('nobody is notified while nobody else listens, and everybody as soon as somebody does', async () => {
    await using store = await opened({ name: 'alone' })
    await using ear = await eavesdropper('alone')
    let after = START
    for (let i = 0; i < 3; i++) after = await appended(store, after)
    {
      await using other = await opened({ name: 'alone' })
      const waiting = other.read(after, { wait: new AbortController().signal })
      after = await appended(store, after)
      expect(await waiting).toMatchObject({ records: { length: 1 } })
      await expect.poll(() => ear.heard).toHaveLength(1)
      expect(ear.heard[0]).toMatch(/^4 /)
      expect(other.profile.push).toBe(true)
    }
    const lock = 'select from pg_locks where locktype = $1 and objid = $2 and mode = $3'
    const listening = async () => (await admin.query(lock, ['advisory', await idOf('alone'), 'ShareLock'])).rowCount
    await expect.poll(listening).toBe(1) // the other one's session has ended
    after = await appended(store, after)
    await admin.query('select pg_notify($1, $2)', [`leasehold_${await idOf('alone')}`, 'the last'])
    await expect.poll(() => ear.heard.at(-1)).toBe('the last')
    expect(ear.heard).toHaveLength(2)
  })

  test('two replicas hear of each other, whoever came first', async () => {
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

  test('whoever listens through a driver that cannot be seen has everyone call', async () => {
    const sql = postgres(server.url, { max: 4, onnotice: () => {} })
    try {
      await using store = await opened({ name: 'unseen' })
      await using other = new PostgresStore({ sql, name: 'unseen' })
      await other.open()
      await expect.poll(() => other.profile.push, { timeout: 5_000 }).toBe(true)
      await using ear = await eavesdropper('unseen')
      const waiting = other.read(START, { wait: new AbortController().signal })
      await appended(store)
      expect(await waiting).toMatchObject({ records: { length: 1 } })
      await expect.poll(() => ear.heard).toHaveLength(1)
    } finally {
      await sql.end()
    }
  })

  test('a session that has forgotten what was prepared is told in full', async () => {
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

  test('an answer that came while this process stood still is read before it is given up', async () => {
    await using store = await opened({ name: 'still', timeout: 500 })
    const pool = new pg.Pool({ connectionString: server.url, max: 1 })
    const driver = new PgDriver(pool, { clock: systemClock, timeout: 500, own: true })
    await driver.run('select 1', [])
    const after = await appended(store)
    const answers = [store.append(entry(8), after), driver.run('select 2', [])] as const
    await turn() // sent
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_500)
    const [stood, rows] = await Promise.all(answers)
    expect(stood).toMatchObject({ kind: 'appended' })
    expect(rows).toEqual([['2']])
    await driver[Symbol.asyncDispose]()
  })

  test('appends that overlap all get in', async () => {
    await using store = await opened({ name: 'overlapping' })
    const answers = await Promise.all(Array.from({ length: 8 }, () => store.append(entry(1), START)))
    expect(answers.map(answer => 'position' in answer && answer.position.index).sort()).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  })

  test('an append costs the same however many entries have come, also where its plan was made while there were none', async () => {
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
        await expect.poll(blocks, { timeout: 15_000 }).toBeGreaterThan(30_000) // what a session did is told when it ends
        before = await blocks()
        for (let i = 0; i < 100; i++) after = await appended(store, after)
      }
      await sql.end()
      await expect.poll(blocks, { timeout: 15_000 }).toBeGreaterThan(before + 300)
      expect((await blocks()) - before).toBeLessThan(100 * 40)
    }
  })

  test('tables of the version before are taken on as they are', async () => {
    const schema = 'before'
    await using made = await opened({ schema })
    const after = await appended(made)
    await admin.query(`alter table ${schema}.log drop column loud; update ${schema}.version set version = 1`)
    await using store = await opened({ schema })
    expect((await admin.query(`select version from ${schema}.version`)).rows).toEqual([{ version: 2 }])
    expect((await admin.query(`select loud from ${schema}.log`)).rows).toEqual([{ loud: true }])
    expect((await store.append(entry(2), after)).kind).toBe('appended')
    expect(await made.read(after)).toMatchObject({ records: { length: 1 } })
  })
})
