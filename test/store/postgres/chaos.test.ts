import pg from 'pg'
import { expect, test } from 'vitest'
import { PostgresStore } from '../../../src/store/postgres/postgres.ts'
import { chaos, FAULTS, type Fault } from '../../support/chaos/chaos.ts'
import { describeEngine, engine } from '../../support/engine.ts'

const backendsTerminated: Fault = {
  name: 'pg_terminate_backend for every other session',
  async run({ engine: { url } }) {
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    try {
      await client.query('select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname is not null')
    } finally {
      await client.end()
    }
  },
}

describeEngine('postgres', 'chaos', () => {
  test('replicas on a Postgres that is killed, paused, restarted and cut off: S1 to S24 hold', { timeout: 400_000 }, async () => {
    await using server = await engine('postgres')
    const report = await chaos({
      engine: server,
      store: url => new PostgresStore({ url }),
      child: { module: 'store/postgres/postgres.js', name: 'PostgresStore' },
      faults: [...FAULTS.slice(0, 3), backendsTerminated, ...FAULTS.slice(3)],
    })
    expect(report.violations, JSON.stringify(report)).toEqual([])
    expect(report.beliefs).toBeGreaterThan(100)
    expect(report.snapshots).toBe(true)
  })
})
