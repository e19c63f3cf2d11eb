/** What processes that only hold leases cost their Postgres. */
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import type { Leases } from '../../../src/leases.ts'
import { PostgresStore } from '../../../src/store/postgres/postgres.ts'
import { type Position, START } from '../../../src/store.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'

/** A renewal comes after half of it. */
const TTL = 4_000
/** Renewals of each process that are counted. */
const RENEWALS = 4

describeEngine('postgres', 'processes that only hold leases on Postgres', () => {
  let server: Engine
  let admin: pg.Pool
  beforeAll(async () => {
    server = await engine('postgres')
    admin = new pg.Pool({ connectionString: server.url, max: 1 })
    admin.on('error', () => {})
  })
  afterAll(async () => {
    await admin?.end()
    await server?.[Symbol.asyncDispose]()
  })

  const number = async (text: string): Promise<number> => Number(Object.values((await admin.query(text)).rows[0])[0])
  const connections = () => number("select count(*) from pg_stat_activity where application_name = 'leasehold'")
  const records = (name: string) => number(`select head from leasehold.log where name = '${name}'`)
  const transactions = () => number('select xact_commit + xact_rollback from pg_stat_database where datname = current_database()')

  const places = (name: string) => `${server.url}${server.url.includes('?') ? '&' : '?'}name=${name}`

  async function holders(name: string, count: number): Promise<AsyncDisposable & { readonly all: readonly Leases[] }> {
    const all: Leases[] = []
    for (let i = 0; i < count; i++) {
      const leases = await connect(places(name), { holder: `${name}-${i}` })
      all.push(leases)
      await leases.acquire(`job/${i}`, { ttl: TTL, ifAvailable: true })
    }
    return { all, [Symbol.asyncDispose]: async () => void (await Promise.all(all.map(leases => leases[Symbol.asyncDispose]()))) }
  }

  test.each([2, 8])('%i processes: at most two transactions for each record, and one connection each', async count => {
    const name = `idle${count}`
    await using _holders = await holders(name, count)
    await expect.poll(connections).toBe(count)
    let own = 0
    const renewed = async (times: number) => {
      const from = await records(name)
      const many = async () => {
        own++
        return await records(name)
      }
      await expect.poll(many, { interval: 500 }).toBeGreaterThanOrEqual(from + count * times)
    }
    // A session reports its statistics with a transaction, at most once a second: after two renewals, the start of each process is reported.
    await renewed(2)
    own = 0
    const sample = async () => {
      own += 2
      return [await records(name), await transactions()] as const
    }
    const [began, from] = await sample()
    await renewed(RENEWALS)
    const [ended, to] = await sample()
    expect(await connections()).toBe(count)
    // The read before each renewal, and the renewal; and what was under way, or not reported yet, at both ends.
    expect(to - from - own).toBeLessThanOrEqual(2 * (ended - began) + 8 * count)
  })

  test('appends that wait for each other send no notification while no session shows that it listens', async () => {
    const stores = Array.from({ length: 6 }, () => new PostgresStore({ url: server.url, name: 'crowd' }))
    for (const store of stores) await store.open()
    const listener = new pg.Client({ connectionString: server.url })
    const heard: pg.Notification[] = []
    listener.on('notification', notification => heard.push(notification))
    await listener.connect()
    try {
      const log = await number("select id from leasehold.log where name = 'crowd'")
      // Without the lock that shows its presence: no append has to notify it.
      await listener.query(`listen leasehold_${log}`)
      await Promise.all(
        stores.map(async store => {
          let end: Position = START
          for (let i = 0; i < 150; i++) {
            const appended = await store.append(new Uint8Array([i]), end)
            if ('position' in appended) end = appended.position
          }
        }),
      )
      expect(await records('crowd')).toBe(900)
      // An answer comes after the notifications before it.
      await listener.query('select 1')
      expect(heard).toEqual([])
    } finally {
      await listener.end()
      await Promise.all(stores.map(store => store[Symbol.asyncDispose]()))
    }
  })

  test('a process is told at once that its lease was revoked', async () => {
    await using two = await holders('told', 2)
    await using operator = await connect(places('told'), { holder: 'operator' })
    const lease = await two.all[0]!.acquire('mine', { ttl: 120_000, ifAvailable: true })
    const ended = new Promise<void>(resolve => lease!.signal.addEventListener('abort', () => resolve()))
    await operator.revoke({ lease: lease!.id })
    await ended // long before its next renewal, which is due after a minute
    expect(lease!.held).toBe(false)
  })

  test('a process with a pool of its application keeps no connection of its own', async () => {
    const pool = new pg.Pool({ connectionString: server.url, max: 2, application_name: 'application' })
    pool.on('error', () => {})
    try {
      await using leases = await connect(new PostgresStore({ pool, name: 'pooled' }))
      await leases.acquire('job', { ttl: TTL, ifAvailable: true })
      const all = () => number("select count(*) from pg_stat_activity where application_name = 'application'")
      await expect.poll(all).toBeLessThanOrEqual(pool.totalCount)
      expect(await connections()).toBe(0)
    } finally {
      await pool.end()
    }
  })

  test('a request that waits among processes that hold is granted when an abandoned lease ends', async () => {
    await using _idle = await holders('dead', 3)
    await using dead = await connect(places('dead'), { holder: 'dead' })
    expect(await dead.acquire('wanted', { ttl: 1_000, ifAvailable: true, renew: 'never' })).toBeDefined()
    await using waiter = await connect(places('dead'), { holder: 'waiter' })
    expect(await waiter.acquire('wanted', { ttl: TTL })).toBeDefined()
  })
})
