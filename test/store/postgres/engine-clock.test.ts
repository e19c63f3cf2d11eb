/** Ages by the clock of Postgres: as advice, and as known ages where that clock is trusted. */
import pg from 'pg'
import { afterAll, beforeAll } from 'vitest'
import { PostgresStore } from '../../../src/store/postgres/postgres.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { engineClockSuite } from '../../support/engine-clock.ts'
import { loseTail } from '../../support/postgres-tail.ts'

describeEngine('postgres', 'the clock of Postgres', () => {
  let server: Engine
  let admin: pg.Pool
  beforeAll(async () => {
    server = await engine('postgres')
    admin = new pg.Pool({ connectionString: server.url, max: 2 })
    admin.on('error', () => {})
  })
  afterAll(async () => {
    await admin?.end()
    await server?.[Symbol.asyncDispose]()
  })

  engineClockSuite({
    server: () => server,
    store: options => new PostgresStore(options),
    older: async (name, ms) => {
      for (const table of ['entry', 'snapshot'])
        await admin.query(
          `update leasehold.${table} t set made_at = made_at - $2 * interval '1 ms' from leasehold.log l where l.id = t.log and l.name = $1`,
          [name, ms],
        )
    },
    loseTail: (name, count) => loseTail(admin, name, count),
  })
})
