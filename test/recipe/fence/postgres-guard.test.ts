import pg from 'pg'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import { connect } from '../../../src/index.ts'
import { POSTGRES_FENCE, type PostgresClient, PostgresGuard, type PostgresPoolClient } from '../../../src/recipe/fence/fence.ts'
import { describeEngine, engine } from '../../support/engine.ts'

const REPORTS = { tokens: { reports: 1 } }

/** As `Pool` of `pg`: each query may run on another connection, and `connect` checks one out. */
class Pool implements PostgresClient {
  /** Which connection ran what. */
  readonly ran: { readonly connection: number; readonly text: string }[] = []
  readonly released: (Error | boolean | undefined)[] = []
  /** Texts of queries that fail. */
  readonly failing = new Map<string, Error>()
  #next = 0

  query(text: string): Promise<{ rows: readonly unknown[] }> {
    return this.#run(this.#next++, text)
  }

  connect(): Promise<PostgresPoolClient>
  connect(callback: (error: Error | undefined, client: PostgresPoolClient | undefined, done: () => void) => void): void
  connect(): Promise<PostgresPoolClient> {
    const connection = this.#next++
    return Promise.resolve({ query: text => this.#run(connection, text), release: error => void this.released.push(error) })
  }

  get texts(): readonly string[] {
    return this.ran.map(({ text }) => text)
  }

  async #run(connection: number, text: string): Promise<{ rows: readonly unknown[] }> {
    this.ran.push({ connection, text })
    const failure = this.failing.get(text)
    if (failure !== undefined) throw failure
    return { rows: text === POSTGRES_FENCE ? [{ token: 1 }] : [] }
  }
}

test('a guard on a pool runs the fence and the work of one write on one connection, and gives it back', async () => {
  const pool = new Pool()
  await new PostgresGuard(pool).write(REPORTS, client => client.query('update reports'))
  expect(pool.texts).toEqual(['begin', POSTGRES_FENCE, 'update reports', 'commit'])
  expect(new Set(pool.ran.map(({ connection }) => connection)).size).toBe(1)
  expect(pool.released).toEqual([undefined])
  await new PostgresGuard(pool).admit('reports', 2)
  expect(pool.released).toEqual([undefined, undefined])
})

test('a write whose rollback fails rejects with the error of the work, and its connection is not used again', async () => {
  const pool = new Pool()
  const [work, gone] = [new Error('the work failed'), new Error('the connection is gone')]
  pool.failing.set('rollback', gone)
  const failed = new PostgresGuard(pool).write(REPORTS, () => {
    throw work
  })
  expect(await failed.catch(error => error)).toBe(work)
  expect(pool.released).toEqual([gone])
  const client: PostgresClient = { query: async text => (text === 'rollback' ? Promise.reject(gone) : { rows: [{ token: 1 }] }) }
  expect(await new PostgresGuard(client).write(REPORTS, () => Promise.reject(work)).catch(error => error)).toBe(work)
})

test('a write whose commit fails rejects with that error', async () => {
  const pool = new Pool()
  const failure = new Error('serialization failure')
  pool.failing.set('commit', failure)
  expect(await new PostgresGuard(pool).write(REPORTS, () => 1).catch(error => error)).toBe(failure)
  expect(pool.texts.at(-1)).toBe('rollback')
})

test('a lease without a resource, a missing callback and what is neither a pool nor a client are refused', async () => {
  const guard = new PostgresGuard(new Pool())
  for (const [lease, work] of [
    [{ tokens: {} }, () => {}],
    ['reports', () => {}],
    [REPORTS, 1],
    [{ tokens: { a: 0 } }, () => {}],
  ])
    await expect(guard.write(lease as never, work as never)).rejects.toMatchObject({ code: 'INVALID' })
  for (const place of [undefined, {}, () => {}])
    expect(() => new PostgresGuard(place as never)).toThrow(expect.objectContaining({ code: 'INVALID' }))
  const noPool = { connect: async () => undefined, query: async () => ({ rows: [] }) }
  await expect(new PostgresGuard(noPool as never).write(REPORTS, () => {})).rejects.toThrow('takes a pool of pg')
})

describeEngine('postgres', 'in Postgres', () => {
  async function place(max = 10) {
    const running = await engine('postgres')
    const pool = new pg.Pool({ connectionString: running.url, max })
    await pool.query('create table report (name text primary key, token bigint, writes int not null)')
    return {
      running,
      pool,
      async [Symbol.asyncDispose]() {
        await pool.end()
        await running[Symbol.asyncDispose]()
      },
    }
  }

  const put = (name: string, token: number) => (client: Pick<pg.PoolClient, 'query'>) =>
    client.query(
      'insert into report values ($1, $2, 1) on conflict (name) do update set token = excluded.token, writes = report.writes + 1',
      [name, token],
    )

  test('of many writes at once on a pool, those that resolve are written and those that reject are not', async () => {
    await using here = await place(4)
    const guard = new PostgresGuard(here.pool, { create: true })
    const outcomes = await Promise.allSettled(
      Array.from({ length: 40 }, (_, i) =>
        guard.write({ tokens: { [`k/${i}`]: 1 } }, async client => {
          await put(`k/${i}`, 1)(client)
          if (i % 3 === 0) throw new Error('the work failed')
        }),
      ),
    )
    const { rows } = await here.pool.query<{ name: string }>('select name from report')
    const { rows: fences } = await here.pool.query<{ resource: string }>('select resource from leasehold_fence')
    const resolved = outcomes.flatMap(({ status }, i) => (status === 'fulfilled' ? [`k/${i}`] : []))
    expect(resolved).toHaveLength(26)
    expect(rows.map(({ name }) => name).sort()).toEqual(resolved.toSorted())
    expect(fences.map(({ resource }) => resource).sort()).toEqual(resolved.toSorted())
    expect(here.pool.totalCount - here.pool.idleCount).toBe(0)
  })

  test('a late holder is refused before its work begins, and nothing of it is written', async () => {
    await using here = await place()
    await using leases = await connect('memory:')
    const guard = new PostgresGuard(here.pool, { create: true })
    const late = await leases.acquire(['a', 'b'])
    await guard.write(late, put('a', late.tokens.a!))
    await late.release()
    const next = await leases.acquire('b')
    await guard.write(next, put('b', next.token))
    const ran: string[] = []
    const refused = guard.write(late, () => ran.push('late'))
    await expect(refused).rejects.toMatchObject({ code: 'STALE', facts: { resource: 'b', token: late.tokens.b } })
    expect(ran).toEqual([])
    await guard.write(next, put('b', next.token)) // the same token again
    expect((await here.pool.query('select name, writes from report order by name')).rows).toEqual([
      { name: 'a', writes: 1 },
      { name: 'b', writes: 2 },
    ])
  })

  test('processes that create the table at once all succeed, and writers of several resources do not deadlock', async () => {
    await using here = await place(8)
    const tokens = (names: readonly string[]) => ({ tokens: Object.fromEntries(names.map(name => [name, 1])) })
    const outcomes = await Promise.allSettled(
      Array.from({ length: 16 }, (_, i) =>
        new PostgresGuard(here.pool, { create: true }).write(tokens(i % 2 === 0 ? ['a', 'b'] : ['b', 'a']), put('x', 1)),
      ),
    )
    expect(outcomes.filter(({ status }) => status === 'rejected')).toEqual([])
    expect((await here.pool.query('select writes from report')).rows).toEqual([{ writes: 16 }])
  })

  test('a failed statement whose error the work keeps to itself is no success', async () => {
    await using here = await place()
    const guard = new PostgresGuard(here.pool, { create: true })
    const silent = guard.write(REPORTS, async client => {
      await put('x', 1)(client)
      await client.query('select nothing').catch(() => {})
    })
    await expect(silent).rejects.toThrow('nothing was written')
    expect((await here.pool.query('select * from report')).rows).toEqual([])
  })

  test('a connection that is lost during the work rejects with that error, and the pool goes on', async () => {
    await using here = await place(1)
    const guard = new PostgresGuard(here.pool, { create: true })
    here.pool.on('error', () => {}) // of the idle connection
    const lost = guard.write(REPORTS, client => client.query('select pg_terminate_backend(pg_backend_pid())'))
    await expect(lost).rejects.toThrow(/terminat/)
    await guard.write(REPORTS, put('x', 1))
    expect((await here.pool.query('select name from report')).rows).toEqual([{ name: 'x' }])
  })

  test('one client takes one write at a time, and none inside a transaction of its own', async () => {
    await using here = await place()
    const client = await here.pool.connect()
    const single = new pg.Client(here.running.url)
    await single.connect()
    try {
      for (const one of [client, single]) {
        const guard = new PostgresGuard<Pick<pg.PoolClient, 'query'> & PostgresClient>(one, { create: true })
        const [first, second] = await Promise.allSettled([guard.write(REPORTS, put('a', 1)), guard.write(REPORTS, put('b', 1))])
        expect([first.status, second]).toMatchObject([
          'fulfilled',
          { reason: { code: 'INVALID', message: expect.stringContaining('pool') } },
        ])
        await one.query('begin')
        await expect(guard.write(REPORTS, put('b', 1))).rejects.toThrow('inside a transaction')
        await guard.admit('reports', 2)
        await put('c', 2)(one)
        await one.query('rollback')
      }
      expect((await here.pool.query('select name from report')).rows).toEqual([{ name: 'a' }])
      expect((await here.pool.query('select token from leasehold_fence')).rows).toEqual([{ token: '1' }])
    } finally {
      client.release()
      await single.end()
    }
  })

  test('the fence is in a transaction that the application hands in', async () => {
    await using here = await place()
    const sql = postgres(here.running.url, { max: 2, onnotice: () => {} })
    try {
      const write = (token: number) =>
        sql.begin(async transaction => {
          const query = async (text: string, values: unknown[] = []) => ({ rows: await transaction.unsafe(text, values as never[]) })
          await new PostgresGuard({ query }, { create: true }).admit('reports', token)
          await transaction`insert into report values ('x', ${token}, 1) on conflict (name) do update set token = excluded.token`
        })
      await write(5)
      await write(7)
      const late = await write(6).catch(error => error)
      expect(LeaseError.is(late, 'STALE')).toBe(true)
      expect(await sql`select token from report`).toMatchObject([{ token: '7' }])
    } finally {
      await sql.end()
    }
  })

  describe('rows of the fence', () => {
    test('are deleted by the time of their last write', async () => {
      await using here = await place()
      const guard = new PostgresGuard(here.pool, { create: true })
      await guard.admit('old', 1)
      await guard.admit('used', 1)
      await here.pool.query("update leasehold_fence set updated = now() - interval '31 days'")
      await guard.admit('used', 1)
      await here.pool.query("delete from leasehold_fence where updated < now() - interval '30 days'")
      expect((await here.pool.query('select resource from leasehold_fence')).rows).toEqual([{ resource: 'used' }])
    })
  })
})
