/** A primary is lost and its standby takes over, on two real servers: acknowledged records are there, or stores that had read them report DIVERGED. */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { LeaseError } from '../../../src/errors.ts'
import { PostgresStore } from '../../../src/store/postgres/postgres.ts'
import { type Position, START } from '../../../src/store.ts'
import { Cable } from '../../../src/testing/cuttable-connection.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { ask } from '../../support/postgres-query.ts'

const POLL = { interval: 50 }

/** The URL that an operator writes: the store finds the primary among the hosts. */
function either(...servers: readonly Engine[]): string {
  return `postgres://postgres@${servers.map(({ port }) => `127.0.0.1:${port}`).join(',')}/postgres`
}

async function appended(store: PostgresStore, word: string, after: Position = START): Promise<Position> {
  const answer = await store.append(Buffer.from(word), after)
  if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
  return answer.position
}

async function recordsOf(store: PostgresStore): Promise<Map<bigint, string>> {
  const read = await store.read(START)
  if (read.kind !== 'records') throw new Error(JSON.stringify(read))
  return new Map(read.records.map(({ position, bytes }) => [position.nonce, Buffer.from(bytes).toString()]))
}

async function promote(standby: Engine): Promise<void> {
  expect(await ask(standby, 'select pg_promote() done')).toEqual([{ done: true }])
}

describeEngine('postgres', 'a failover', () => {
  test('to a synchronous standby loses no acknowledged record, and every client continues with the same URL', async () => {
    await using primary = await engine('postgres')
    await using standby = await engine('postgres', { standbyOf: primary.port })
    await ask(primary, `alter system set synchronous_standby_names = '*'`)
    await ask(primary, 'select pg_reload_conf()')
    const state = async () => (await ask(primary, 'select sync_state from pg_stat_replication')).map(({ sync_state }) => sync_state)
    await expect.poll(state, POLL).toEqual(['sync'])

    const url = either(standby, primary) // the primary is not the first host
    await using store = new PostgresStore({ url, timeout: EVENT_TIMEOUT })
    await store.open()
    expect(store.profile).toMatchObject({ durable: true, failover: true })
    await using leases = await connect(`${url}?name=leases`, { holder: 'one' })
    await using lease = await leases.acquire('k', { ttl: '30s' })

    const acknowledged = new Map<bigint, string>()
    let after = START
    let stopping = false
    const unanswered: string[] = []
    const writing = (async () => {
      for (let i = 0; !stopping; i++) {
        const word = `record ${i}`
        try {
          const answer = await store.append(Buffer.from(word), after)
          if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
          after = answer.position
          acknowledged.set(after.nonce, word)
        } catch (error) {
          if (!(error instanceof LeaseError)) throw error
          unanswered.push(error.code)
          await sleep(20)
        }
      }
    })()
    await expect.poll(() => acknowledged.size, POLL).toBeGreaterThan(50)
    await primary.kill9()
    await expect.poll(() => unanswered.length, POLL).toBeGreaterThan(0)
    await promote(standby)
    const before = acknowledged.size
    await expect.poll(() => acknowledged.size, POLL).toBeGreaterThan(before + 50)
    stopping = true
    await writing

    const there = await recordsOf(store)
    for (const [nonce, word] of acknowledged) expect(there.get(nonce)).toBe(word)
    expect(there.size - acknowledged.size).toBeLessThanOrEqual(unanswered.filter(code => code === 'UNKNOWN').length)
    expect(lease.held).toBe(true)
    await lease.release()
    const next = await leases.acquire('k', { ttl: '30s' })
    expect(next.token).toBeGreaterThan(lease.token)
    await next.release()
  })

  test('to a standby that was behind makes stores that read lost records report DIVERGED, even after the log has regrown', async () => {
    await using primary = await engine('postgres')
    await using replication = await Cable.to(primary.port)
    await using standby = await engine('postgres', { standbyOf: replication.port })
    const url = either(primary, standby)
    await using store = new PostgresStore({ url, timeout: EVENT_TIMEOUT })
    await store.open()
    expect(store.profile.failover).toBe(false)
    await using leases = await connect(`${url}?name=leases`, { holder: 'one' })
    const a = await appended(store, 'a')
    const replayed = async () =>
      (await ask(standby, 'select max(idx)::int n from leasehold.entry e join leasehold.log l on l.id = e.log'))[0]!.n
    await expect.poll(replayed, POLL).toBeGreaterThanOrEqual(1)
    replication.refuse()
    const b = await appended(store, 'b', a)
    const lease = await leases.acquire('k', { ttl: '30s' })
    const lost = new Promise<LeaseError>(resolve => lease.signal.addEventListener('abort', () => resolve(lease.signal.reason)))
    await primary.kill9()
    await promote(standby)

    await expect
      .poll(() => store.read(b).catch(error => error), POLL)
      .toMatchObject({ kind: 'diverged', reason: expect.stringMatching(/ends at 1, before 2/) })
    await using other = new PostgresStore({ url: standby.url })
    await other.open()
    await appended(other, 'another', a)
    expect(await store.append(Buffer.from('c'), b)).toMatchObject({
      kind: 'diverged',
      reason: expect.stringMatching(/another record is at 2/),
    })
    expect(await lost).toMatchObject({ code: 'LOST' })
    expect(lease.held).toBe(false)
    expect([...(await recordsOf(other)).values()]).toEqual(['a', 'another'])
  })

  test('a standby is rejected, by its URL and through a pool that connects to it', async () => {
    await using primary = await engine('postgres')
    await using standby = await engine('postgres', { standbyOf: primary.port })
    await using store = new PostgresStore({ url: primary.url })
    await store.open()
    const a = await appended(store, 'a')
    await expect.poll(() => ask(standby, 'select from leasehold.entry').catch(() => []), POLL).toHaveLength(1)
    const refused = { code: 'UNAVAILABLE', reason: 'readonly' }
    await expect(new PostgresStore({ url: standby.url }).open()).rejects.toMatchObject(refused)

    // A pool of the application that is redirected while it is in use.
    const pool = new pg.Pool({ connectionString: primary.url, max: 4 })
    pool.on('error', () => {})
    try {
      await using led = new PostgresStore({ pool })
      await led.open()
      pool.options.connectionString = undefined
      pool.options.port = standby.port
      pool.options.host = '127.0.0.1'
      pool.options.user = 'postgres'
      pool.options.database = 'postgres'
      await ask(primary, 'select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname is not null')
      await expect.poll(() => led.read(a).catch(error => error), POLL).toMatchObject(refused)
      const standing = { code: 'UNAVAILABLE', reason: expect.stringMatching(/^(readonly|standby)$/) }
      await expect.poll(() => led.append(Buffer.from('b'), a).catch(error => error), POLL).toMatchObject(standing)
    } finally {
      await pool.end()
    }
  })
})
