import { execFile } from 'node:child_process'
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { PostgresStore, type PostgresStoreOptions } from '../../../src/store/postgres/postgres.ts'
import { type Appended, type Position, START } from '../../../src/store.ts'
import { Cable } from '../../../src/testing/cuttable-connection.ts'
import { type LinkedStore, type StoreFixture, storeSuite } from '../../../src/testing/store-suite.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { passLeaseBetween } from '../../support/handed-in.ts'
import { loseTail } from '../../support/postgres-tail.ts'

describeEngine('postgres', 'a store in Postgres', () => {
  let server: Engine
  let shared: pg.Pool
  let sql: postgres.Sql
  let logs = 0
  beforeAll(async () => {
    server = await engine('postgres')
    shared = new pg.Pool({ connectionString: server.url, max: 8 })
    shared.on('error', () => {})
    sql = postgres(server.url, { max: 8, onnotice: () => {} })
  })
  afterAll(async () => {
    await shared?.end()
    await sql?.end()
    await server?.[Symbol.asyncDispose]()
  })

  type Way = (url: string) => PostgresStoreOptions & Partial<AsyncDisposable>

  /** A new log on the shared engine. `options` creates the connections, and `way` those over a link that breaks. */
  const fixture =
    (options: () => PostgresStoreOptions, way: Way = url => ({ url })) =>
    async (): Promise<StoreFixture> => {
      const name = `log ${++logs}`
      return {
        store: () => new PostgresStore({ timeout: EVENT_TIMEOUT, ...options(), name }),
        loseTail: count => loseTail(shared, name, count),
        linked: () => linked(name, way),
        [Symbol.asyncDispose]: async () => {},
      }
    }

  /** A store with its own role, whose rights can be revoked. */
  async function linked(name: string, way: Way): Promise<LinkedStore> {
    const role = `role_${++logs}`
    await using first = new PostgresStore({ url: server.url, name })
    await first.open() // creates the tables
    await shared.query(`create role ${role} login; grant usage on schema leasehold to ${role}`)
    await shared.query(`grant all on all tables in schema leasehold to ${role}; grant all on all sequences in schema leasehold to ${role}`)
    const cable = await Cable.to(server.port)
    const { [Symbol.asyncDispose]: close, ...options } = way(`postgres://${role}@127.0.0.1:${cable.port}/postgres`)
    let forbidden: Promise<unknown> | undefined
    const forbid = async () => {
      forbidden = shared.query(`revoke all on all tables in schema leasehold from ${role}`)
      await forbidden
    }
    return {
      store: new PostgresStore({ ...options, name, timeout: 400 }),
      fail: ({ end, ...failure }) => cable.breakDown({ ...failure, ...(end === 'forbidden' && { refuse: forbid }) }),
      async [Symbol.asyncDispose]() {
        await cable[Symbol.asyncDispose]()
        await close?.()
        await forbidden
        await shared.query(`drop owned by ${role}; drop role ${role}`)
        await shared.query('delete from leasehold.snapshot where not complete') // otherwise the next snapshot waits until it counts as abandoned
      },
    }
  }

  describe('by its URL', () => {
    for (const { name, run } of storeSuite(fixture(() => ({ url: server.url })))) test(name, run)
  })

  describe('on a pool of pg of the application', () => {
    const pooled: Way = connectionString => {
      const pool = new pg.Pool({ connectionString, max: 4 })
      pool.on('error', () => {})
      return { pool, [Symbol.asyncDispose]: () => pool.end() }
    }
    for (const { name, run } of storeSuite(fixture(() => ({ pool: shared }), pooled))) test(name, run)
  })

  describe('on an instance of postgres.js', () => {
    const viaPostgresJs: Way = url => {
      const own = postgres(url, { max: 1, onnotice: () => {}, connect_timeout: 1, fetch_types: false })
      return { sql: own, [Symbol.asyncDispose]: () => own.end({ timeout: 0 }) }
    }
    for (const { name, run } of storeSuite(fixture(() => ({ sql }), viaPostgresJs))) test(name, run)
  })

  describe('handed to connect', () => {
    const ways: readonly (readonly [string, () => PostgresStoreOptions])[] = [
      ['with a URL', () => ({ url: server.url })],
      ['on a pool of pg', () => ({ pool: shared })],
      ['on an instance of postgres.js', () => ({ sql })],
    ]
    test.each(ways)('it holds leases %s, and does not close what it was given', async (_, options) => {
      const name = `log ${++logs}`
      await passLeaseBetween(() => new PostgresStore({ ...options(), name }))
      expect((await shared.query('select 1 as one')).rows).toEqual([{ one: 1 }])
      expect([...(await sql`select 1 as one`)]).toEqual([{ one: 1 }])
    })
  })

  describe('in an application with type parsers of its own', () => {
    const INT8 = 20
    const others = [16, 17, 23, 25, 701] // bool, bytea, int4, text, float8
    const strange = (text: string) => ({ parsed: text })
    const parsers: readonly (readonly [name: string, set: () => void])[] = [
      ['pg.defaults.parseInt8', () => (pg.defaults.parseInt8 = true)],
      ['a parser of int8 as a number', () => pg.types.setTypeParser(INT8, Number)],
      ['a parser of int8 as a bigint', () => pg.types.setTypeParser(INT8, BigInt)],
      [
        'parsers of everything',
        () => {
          for (const type of [INT8, ...others]) pg.types.setTypeParser(type, strange)
        },
      ],
    ]
    afterEach(() => {
      pg.defaults.parseInt8 = false
      for (const [type, parser] of before) pg.types.setTypeParser(type, parser)
    })
    const before = [INT8, ...others].map(type => [type, pg.types.getTypeParser(type, 'text')] as const)

    const lives = async (options: PostgresStoreOptions, name: string) => {
      // A nonce above 2^53 would be rounded as a number, and nearly every nonce is above.
      await using first = new PostgresStore({ ...options, name })
      let after = (await first.open()).head
      for (let i = 0; i < 4; i++) after = positionOf(await first.append(Uint8Array.of(i), after))
      expect(await first.snapshot(after, once(Uint8Array.of(7, 0, 255)))).toBe('kept')
      await using second = new PostgresStore({ ...options, name })
      const { head, snapshot } = await second.open()
      expect(head).toEqual(after)
      expect(snapshot?.position).toEqual(after)
      for await (const bytes of snapshot!.bytes) expect([...bytes]).toEqual([7, 0, 255])
      const waiting = second.read(after, { wait: new AbortController().signal })
      after = positionOf(await first.append(Uint8Array.of(9), after))
      expect(await waiting).toMatchObject({ records: [{ position: after }] })
      await using leases = await connect(`${server.url}?name=${encodeURIComponent(`${name} leases`)}`)
      await using _lease = await leases.acquire('a')
    }

    test.each(parsers)('%s: positions and bytes are exact', async (name, set) => {
      set()
      await lives({ url: server.url }, `parsed ${name}`)
      await lives({ pool: shared }, `parsed in a pool ${name}`)
    })

    test('a pool with parsers of its own: positions and bytes are exact', async () => {
      const pool = new pg.Pool({ connectionString: server.url, types: { getTypeParser: () => strange } as never })
      pool.on('error', () => {})
      await lives({ pool }, 'types of a pool')
      await pool.end()
    })

    test('a pool that requests binary values: positions and bytes are exact', async () => {
      const pool = new pg.Pool({ connectionString: server.url, binary: true } as never)
      pool.on('error', () => {})
      await lives({ pool }, 'binary')
      await pool.end()
    })

    test('an instance of postgres.js with types of its own, or with a transform: positions and bytes are exact', async () => {
      const number = { to: INT8, from: [INT8], serialize: String, parse: Number }
      for (const [name, options] of [
        ['numbers', { types: { bigint: number } }],
        ['bigints', { types: { bigint: postgres.BigInt } }],
        ['transformed', { transform: { value: { from: strange } } }],
      ] as const) {
        const own = postgres(server.url, { max: 4, onnotice: () => {}, ...options } as never)
        await lives({ sql: own }, `postgres.js ${name}`)
        await own.end()
      }
    })
  })

  test('closing the store does not close the pool or instance it was given', async () => {
    for (const options of [{ pool: shared }, { sql }]) {
      const store = new PostgresStore({ ...options, name: 'handed in' })
      await store.open()
      await store[Symbol.asyncDispose]()
    }
    expect((await shared.query('select 1')).rowCount).toBe(1)
    expect((await sql`select 1`).count).toBe(1)
  })

  test('logs with different ?name= or ?schema= are independent of each other', async () => {
    await using one = new PostgresStore({ url: `${server.url}?name=one` })
    await using two = new PostgresStore({ url: `${server.url}?name=two` })
    await using elsewhere = new PostgresStore({ url: `${server.url}?name=one&schema=elsewhere` })
    for (const store of [one, two, elsewhere]) expect((await store.open()).head).toEqual(START)
    await one.append(Uint8Array.of(1), START)
    expect(await one.read(START)).toMatchObject({ records: [{ bytes: Buffer.of(1) }] })
    for (const store of [two, elsewhere]) expect(await store.read(START)).toEqual({ kind: 'records', records: [] })
  })

  test('a schema name that needs quoting is rejected, and so are a missing or second connection option and a malformed URL', () => {
    expect(() => new PostgresStore({ url: server.url, schema: 'a"; drop table x' })).toThrow(/lower-case/)
    expect(() => new PostgresStore({ url: server.url, sql })).toThrow(/exactly one of/)
    expect(() => new PostgresStore({})).toThrow(/exactly one of/)
    expect(() => new PostgresStore({ url: 'not a url' })).toThrow(/not a URL of Postgres/)
  })

  test('records for waiting readers are copies, even if the caller appended a Buffer', async () => {
    await using store = new PostgresStore({ url: server.url, name: 'own' })
    await store.open()
    const buffer = Buffer.of(1, 2, 3)
    await store.append(buffer, START)
    buffer.fill(9)
    const read = await store.read(START, { wait: new AbortController().signal })
    expect(read).toMatchObject({ records: [{ bytes: Uint8Array.of(1, 2, 3) }] })
  })

  test('one answer carries at most 1,000 records', async () => {
    await using store = new PostgresStore({ url: server.url, name: 'many' })
    await store.open()
    await shared.query(`insert into leasehold.entry select id, n, n, '' from leasehold.log, generate_series(1, 1001) n where name = 'many'`)
    await shared.query(`update leasehold.log set head = 1001, head_nonce = 1001 where name = 'many'`)
    expect(await store.read(START)).toMatchObject({ records: { length: 1_000 } })
    expect((await store.append(Uint8Array.of(0), START)).kind).toBe('behind')
  })

  test('trimming deletes the rows', async () => {
    await using store = new PostgresStore({ url: server.url, name: 'trimmed' })
    let after = (await store.open()).head
    for (let i = 1; i <= 90; i++) {
      const answer = await store.append(Uint8Array.of(i), after)
      if (answer.kind === 'appended') after = answer.position
      if (i % 30 === 0) expect(await store.snapshot(after, once(Uint8Array.of(i)))).toBe('kept')
    }
    const count = async (table: string, on: string) =>
      Number(
        (await shared.query(`select count(*) n from leasehold.${table} t join leasehold.log l on ${on} where l.name = 'trimmed'`)).rows[0]
          .n,
      )
    expect(await count('entry', 't.log = l.id')).toBe(30)
    expect(await count('snapshot', 't.log = l.id')).toBe(2)
    expect(
      Number(
        (await shared.query('select count(*) n from leasehold.chunk where snapshot not in (select id from leasehold.snapshot)')).rows[0].n,
      ),
    ).toBe(0)
  })

  test('an unfinished snapshot of a dead writer does not block the next one', async () => {
    await using store = new PostgresStore({ url: server.url, name: 'abandoned' })
    await store.open()
    const answer = await store.append(Uint8Array.of(1), START)
    if (answer.kind !== 'appended') throw new Error(answer.kind)
    await shared.query(
      `insert into leasehold.snapshot (id, log, idx, nonce) select 1000000, id, 0, 0 from leasehold.log where name = 'abandoned'`,
    )
    expect(await store.snapshot(answer.position, once(Uint8Array.of(1)))).toBe('kept')
  })

  test('an open store does not keep its process alive, and the process does not end while the store opens', async () => {
    const module = new URL('../../../dist/store/postgres/postgres.js', import.meta.url).href
    const script = `const { PostgresStore } = await import('${module}')
      const store = new PostgresStore({ url: '${server.url}', name: 'short' })
      await store.open()
      console.log('opened')`
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], { timeout: EVENT_TIMEOUT })
    expect(stdout).toBe('opened\n')
  })

  test('without the package pg the error says what to install', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'leasehold-no-pg-'))
    try {
      await cp(fileURLToPath(new URL('../../../dist', import.meta.url)), folder, { recursive: true })
      await writeFile(join(folder, 'package.json'), '{"type":"module"}')
      const script = `const { PostgresStore } = await import('${pathToFileURL(join(folder, 'store/postgres/postgres.js')).href}')
        await new PostgresStore({ url: '${server.url}' }).open().catch(error => console.log(error.code, error.message))`
      const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], { cwd: folder })
      expect(stdout).toMatch(/^UNSUPPORTED .*npm install pg/)
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}

function positionOf(answer: Appended): Position {
  if (answer.kind !== 'appended') throw new Error(answer.kind)
  return answer.position
}
