import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { PostgresStore, type PostgresStoreOptions } from '../src/store/postgres.ts'
import { type StoreFixture, storeSuite } from '../src/testing/store-suite.ts'
import { describeEngine, type Engine, engine } from './engine.ts'

describeEngine('postgres', 'a store in Postgres', () => {
  let server: Engine
  let pool: pg.Pool
  let logs = 0
  beforeAll(async () => {
    server = await engine('postgres')
    pool = new pg.Pool({ connectionString: server.url, max: 4 })
    pool.on('error', () => {})
  })
  afterAll(async () => {
    await pool?.end()
    await server?.[Symbol.asyncDispose]()
  })

  /** A log of its own on the one engine, and connections as `options` say. */
  const fixture = (options: () => PostgresStoreOptions) => async (): Promise<StoreFixture> => {
    const name = `log ${++logs}`
    return {
      store: () => new PostgresStore({ ...options(), name }),
      loseTail: count => loseTail(pool, name, count),
      [Symbol.asyncDispose]: async () => {},
    }
  }

  describe('by its URL', () => {
    for (const { name, run } of storeSuite(fixture(() => ({ url: server.url })))) test(name, run)
  })
})

/** As if it had failed over to a standby that was behind: everything fits together, only less of it. */
async function loseTail(pool: pg.Pool, name: string, count: number): Promise<void> {
  await pool.query(
    `with lost as (
       update leasehold.log l set head = greatest(l.floor, l.head - $2),
         head_nonce = coalesce((select e.nonce from leasehold.entry e where e.log = l.id and e.idx = l.head - $2), l.floor_nonce)
       where name = $1 returning id, head)
     delete from leasehold.entry e using lost where e.log = lost.id and e.idx > lost.head`,
    [name, count],
  )
}
