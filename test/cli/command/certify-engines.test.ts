import pg from 'pg'
import { expect, test } from 'vitest'
import { certify, type Last, lastOf, SENTENCES } from '../../support/certify.ts'
import { Place } from '../../support/cli.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { asked } from '../../support/etcd.ts'

async function certified(on: Engine): Promise<Last> {
  await using place = new Place()
  const finished = await certify(place, on)
  const last = lastOf(finished)
  expect(last).toMatchObject({ objections: [], certified: true, profile: { durable: true } })
  // Owning is not for engines: eight sentences say nothing about it. Two need a user whose rights are taken away.
  expect(last.sentences).toEqual({ passed: SENTENCES - 10, failed: 0, notTried: 10 })
  expect(last.measured).toMatchObject({ durable: { says: true, measured: 'passed' }, order: { kept: true } })
  expect(last.faults.answersCut).toMatchObject({ result: 'passed', applied: 10 })
  expect(last.faults.writerKilled).toMatchObject({ result: 'passed', lost: 0 })
  expect(last.faults.restart).toMatchObject({ result: 'passed', lost: 0, noticed: true })
  expect(finished.code).toBe(0)
  return last
}

describeEngine('postgres', 'certifying', () => {
  test('a Postgres is certified, and only its empty tables are left', async () => {
    await using postgres = await engine('postgres')
    const last = await certified(postgres)
    expect(last.left).toEqual([expect.stringMatching(/^the tables of the schema leasehold/)])
    const client = new pg.Client({ connectionString: postgres.url })
    await client.connect()
    try {
      for (const table of ['log', 'entry', 'snapshot', 'chunk'])
        expect((await client.query(`select count(*)::int as n from leasehold.${table}`)).rows, table).toEqual([{ n: 0 }])
    } finally {
      await client.end()
    }
  })
})

describeEngine('etcd', 'certifying', () => {
  test('an etcd is certified, and no key is left', async () => {
    await using etcd = await engine('etcd')
    await certified(etcd)
    const all = { key: Buffer.of(0).toString('base64'), range_end: Buffer.of(0).toString('base64'), count_only: true }
    expect((await asked<{ count?: string }>(etcd.port, '/kv/range', all)).count ?? '0').toBe('0')
  })
})

describeEngine('redis', 'certifying', () => {
  test('a command that restarts nothing has shown nothing', async () => {
    await using redis = await engine('redis')
    await using place = new Place()
    const { stdout, code } = await place.run(['certify', redis.url, '--restart', 'true'])
    expect(stdout).toMatch(/^durable on acknowledgement +yes +not tried: the engine was never seen away/m)
    expect(stdout).toMatch(/^a restart loses +nothing +not tried/m)
    expect(stdout).toMatch(/^a restart takes +not tried$/m)
    expect(code).toBe(0)
  })
})
