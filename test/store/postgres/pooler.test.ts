import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { PostgresStore } from '../../../src/store/postgres/postgres.ts'
import { START } from '../../../src/store.ts'
import { storeSuite } from '../../../src/testing/store-suite.ts'
import { chaos, connectionsCut, enginePaused, replicaKilled, replicaPaused } from '../../support/chaos/chaos.ts'
import { describePrograms, type Engine, engine } from '../../support/engine.ts'
import { eventually } from '../../support/eventually.ts'
import { type Pooler, pgbouncer, pooler } from '../../support/pgbouncer.ts'
import { loseTail } from '../../support/postgres-tail.ts'

describePrograms('postgres', [pgbouncer], 'behind a pooler in transaction mode', () => {
  let server: Engine
  let bouncer: Pooler
  let admin: pg.Pool
  let url: string
  let logs = 0
  beforeAll(async () => {
    server = await engine('postgres')
    bouncer = await pooler(server.port)
    url = server.url.replace(`:${server.port}`, `:${bouncer.port}`)
    admin = new pg.Pool({ connectionString: server.url, max: 2 })
    admin.on('error', () => {})
  })
  afterAll(async () => {
    await admin?.end()
    await bouncer?.[Symbol.asyncDispose]()
    await server?.[Symbol.asyncDispose]()
  })

  const fixture = async () => {
    const name = `log ${++logs}`
    return {
      store: () => new PostgresStore({ url, name }),
      loseTail: (count: number) => loseTail(admin, name, count),
      [Symbol.asyncDispose]: async () => {},
    }
  }
  for (const { name, run } of storeSuite(fixture)) test(name, run)

  test('notifications do not arrive: the profile says so, and waiting readers poll', async () => {
    await using store = new PostgresStore({ url, name: 'asked' })
    await store.open()
    expect(store.profile.push).toBe(false)
    await using direct = new PostgresStore({ url: server.url, name: 'asked' })
    await direct.open()
    expect(direct.profile.push).toBe(true)
    expect(store.profile.push).toBe(false)
    const waiting = store.read(START, { wait: new AbortController().signal })
    await direct.append(Uint8Array.of(1), START)
    expect((await waiting).kind).toBe('records')
  })

  test('behind a pooler in session mode notifications arrive, and the store detects it', async () => {
    await using generous = await pooler(server.port, { mode: 'session', sessions: 20 })
    await using store = new PostgresStore({ url: server.url.replace(`:${server.port}`, `:${generous.port}`), name: 'heard' })
    await store.open()
    expect(store.profile.push).toBe(false)
    const over = new AbortController()
    const waiting = store.read(START, { wait: over.signal }).catch(() => {})
    await expect.poll(() => store.profile.push).toBe(true)
    over.abort()
    await waiting
  })

  test('behind a pooler in session mode that has no connection left, the error says so, and the store opens when there is one', async () => {
    await using small = await pooler(server.port, { mode: 'session', sessions: 1 })
    const own = server.url.replace(`:${server.port}`, `:${small.port}`)
    const other = new pg.Client({ connectionString: own })
    await other.connect()
    await other.query('select 1')
    await using store = new PostgresStore({ url: own, name: 'small', timeout: 1_000 })
    await expect(store.open()).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/a pooler has no connection left/),
    })
    await other.end()
    await eventually(() => store.open())
    // A connection of an attempt that was given up may still have the only session.
    const appended = await eventually(() => store.append(Uint8Array.of(1), START))
    expect(appended.kind).toBe('appended')
  })

  test('leases work: there is one holder at a time, and the next waiter is granted after a release', async () => {
    await using one = await connect(`${url}?name=leases`, { holder: 'one' })
    await using two = await connect(`${url}?name=leases`, { holder: 'two' })
    const lease = await one.acquire('k', { ttl: '30s' })
    expect(await two.tryAcquire('k')).toBeUndefined()
    const next = two.acquire('k', { ttl: '30s', wait: '2m' })
    await lease.release()
    expect((await next).token).toBeGreaterThan(lease.token)
  })

  test('faults violate no invariant', async () => {
    const report = await chaos({
      engine: server,
      ports: [bouncer.port],
      store: direct => new PostgresStore({ url: direct, name: 'chaos' }),
      child: { module: 'store/postgres/postgres.js', name: 'PostgresStore', options: pooled => ({ url: pooled, name: 'chaos' }) },
      faults: [replicaKilled, connectionsCut, enginePaused, replicaPaused],
      cycles: 8,
    })
    expect(report.violations).toEqual([])
    expect(report.beliefs).toBeGreaterThan(20)
  })
})
