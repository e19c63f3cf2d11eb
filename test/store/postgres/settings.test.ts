/** What a DBA sets, or leaves behind, on a Postgres that Leasehold shares with others. */
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { PostgresStore, type PostgresStoreOptions } from '../../../src/store/postgres/postgres.ts'
import { type Position, START } from '../../../src/store.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { eventually } from '../../support/eventually.ts'

const POLL = { interval: 50, timeout: EVENT_TIMEOUT }
const record = (...bytes: number[]) => Uint8Array.from(bytes)

async function appended(store: PostgresStore, after: Position): Promise<Position> {
  const answer = await store.append(record(1), after)
  if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
  return answer.position
}

describeEngine('postgres', 'a Postgres of a DBA', () => {
  let server: Engine
  let dba: pg.Client
  beforeAll(async () => {
    server = await engine('postgres', { args: ['-c', 'max_connections=16'] })
    dba = new pg.Client({ connectionString: server.url })
    await dba.connect()
  })
  afterAll(async () => {
    await dba?.end()
    await server?.[Symbol.asyncDispose]()
  })

  const as = (role: string) => server.url.replace('postgres@', `${role}@`)
  const opened = async (options: Partial<PostgresStoreOptions>) => {
    const store = new PostgresStore({ url: server.url, timeout: EVENT_TIMEOUT, ...options })
    const { head, snapshot } = await store.open()
    return { store, head, snapshot, [Symbol.asyncDispose]: () => store[Symbol.asyncDispose]() }
  }
  const count = async (condition: string) =>
    (await dba.query(`select count(*)::int n from pg_stat_activity where pid <> pg_backend_pid() and ${condition}`)).rows[0].n as number

  test('a role with another search_path, short timeouts and unusual formats can use a log', async () => {
    await dba.query('create role odd login; grant create on database postgres to odd')
    const settings = {
      ...{ search_path: '', lock_timeout: '1ms', statement_timeout: '3s', idle_in_transaction_session_timeout: '1ms' },
      ...{ bytea_output: 'escape', standard_conforming_strings: 'off', datestyle: 'German', intervalstyle: 'iso_8601' },
      ...{ timezone: 'Asia/Tokyo', default_transaction_isolation: 'serializable', client_min_messages: 'debug1' },
      ...{ 'plpgsql.extra_errors': 'all', 'plpgsql.variable_conflict': 'use_column' },
    }
    for (const [name, value] of Object.entries(settings)) await dba.query(`alter role odd set ${name} = '${value}'`)
    await using one = await opened({ url: as('odd'), schema: 'odd' })
    await using two = await opened({ url: as('odd'), schema: 'odd' })
    expect(one.store.profile.notes.join()).toMatch(/statement_timeout is 3000 ms/)
    const a = await appended(one.store, START)
    const b = await appended(one.store, a)
    expect(await two.store.append(record(2), START)).toMatchObject({ kind: 'appended', missed: [{ position: a }, { position: b }] })
    expect(await two.store.read(b)).toMatchObject({ records: [{ bytes: Buffer.of(2) }] })
    const bytes = record(0, 39, 92, 255)
    const kept = async function* () {
      yield bytes
    }
    expect(await one.store.snapshot(b, kept())).toBe('kept')
    await using three = await opened({ url: as('odd'), schema: 'odd' })
    expect(three.snapshot!.position).toEqual(b)
    for await (const chunk of three.snapshot!.bytes) expect(Uint8Array.from(chunk)).toEqual(bytes)
  })

  test('idle_session_timeout does not end the connection that listens', async () => {
    await dba.query(
      `create role idler login; grant create on database postgres to idler; alter role idler set idle_session_timeout = '300ms'`,
    )
    await using made = await opened({ url: as('idler'), schema: 'idler' })
    const listening = async () =>
      (await dba.query(`select pid from pg_stat_activity where usename = 'idler' and query like '%idle_session_timeout%'`)).rows
    const before = await listening()
    expect(before).toHaveLength(1)
    const other = new pg.Client({ connectionString: as('idler') })
    other.on('error', () => {})
    const ended = new Promise(resolve => other.once('end', resolve))
    await other.connect()
    await ended // it has been idle for less time than the connection that listens
    expect(await listening()).toEqual(before)
    expect(made.store.profile.push).toBe(true)
    await eventually(() => appended(made.store, START))
  })

  test('a role that may not create the tables gets an error that names the rights', async () => {
    await dba.query('create role poor login')
    await using store = new PostgresStore({ url: as('poor'), schema: 'nowhere' })
    await expect(store.open()).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'permission',
      message: expect.stringMatching(/permission denied for database postgres.*docs\/stores\/postgres.md/),
    })
  })

  test('a statement that is cancelled had no effect, and the error says what may have done that', async () => {
    await using made = await opened({ name: 'cancelled' })
    await dba.query('begin; lock table leasehold.log in access exclusive mode')
    const appending = made.store.append(record(1), START).catch(error => error)
    await expect
      .poll(() => dba.query(`select pg_cancel_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'`), POLL)
      .toMatchObject({ rowCount: 1 })
    expect(await appending).toMatchObject({ code: 'UNAVAILABLE', message: expect.stringMatching(/statement_timeout/) })
    await dba.query('rollback')
    expect(await made.store.read(START)).toMatchObject({ records: [] })
  })

  test('while a table is locked, by VACUUM FULL or by hand, calls fail with a sentence and leave no backend behind', async () => {
    await using patient = await opened({ name: 'locked' })
    await using hasty = await opened({ name: 'locked', timeout: 500 })
    const a = await appended(patient.store, START)
    expect(await patient.store.snapshot(a, (async function* () {})())).toBe('kept')
    for (const table of ['log', 'entry', 'snapshot']) {
      await dba.query(`begin; lock table leasehold.${table} in access exclusive mode`)
      const calls = (store: PostgresStore) =>
        table === 'snapshot' ? [store.newest(), store.open()] : [store.read(a), store.append(record(2), a), store.open()]
      const given = await Promise.allSettled(calls(hasty.store))
      expect(given.map(({ status }) => status)).not.toContain('fulfilled')
      for (const answer of await Promise.allSettled(calls(patient.store)))
        expect(answer).toMatchObject({ status: 'rejected', reason: { code: 'UNAVAILABLE', reason: 'busy' } })
      await expect.poll(() => count(`wait_event_type = 'Lock'`), POLL).toBe(0)
      await dba.query('rollback')
    }
    await eventually(() => appended(patient.store, a))
  })

  test('when max_connections is reached, calls fail with a sentence, and a store that is open continues on what it has', async () => {
    await dba.query(`create role app login; grant create on database postgres to app`)
    await using made = await opened({ url: as('app'), schema: 'app' })
    const others: pg.Client[] = []
    try {
      for (let full = false; !full; ) {
        const other = new pg.Client({ connectionString: as('app') })
        other.on('error', () => {})
        full = await other.connect().then(
          () => others.push(other) > 100,
          error => error.code === '53300',
        )
      }
      const a = await appended(made.store, START)
      await using late = new PostgresStore({ url: as('app'), schema: 'app' })
      const refused = { code: 'UNAVAILABLE', reason: 'connections', message: expect.stringMatching(/raise max_connections/) }
      await expect(late.open()).rejects.toMatchObject(refused)
      await others.pop()!.end()
      await eventually(() => made.store.read(a)) // has the connection that was given back, or one of its own
      await Promise.all(others.splice(0).map(other => other.end()))
      await eventually(() => late.open())
    } finally {
      await Promise.all(others.map(other => other.end()))
    }
  })

  test('while the queue of NOTIFY is full, appends succeed and readers poll', async () => {
    // The queue holds 8 GiB, which was filled by hand once. Here: stand-ins for the functions of the server, which an append finds by its search_path.
    await dba.query(`create role loud login; grant create on database postgres to loud; create schema full_queue;
      create function full_queue.pg_notification_queue_usage() returns double precision language sql as 'select 1.0::double precision';
      create function full_queue.pg_notify(text, text) returns void language plpgsql as
        $$ begin raise exception 'too many notifications in the NOTIFY queue' using errcode = 'program_limit_exceeded'; end $$;
      grant usage on schema full_queue to loud; alter role loud set search_path = full_queue, pg_catalog`)
    await using writer = await opened({ url: as('loud'), schema: 'loud' })
    await using reader = await opened({ url: as('loud'), schema: 'loud' })
    expect(writer.store.profile.notes.join()).toMatch(/NOTIFY queue is filling up/)
    const waiting = reader.store.read(START, { wait: new AbortController().signal })
    const a = await appended(writer.store, START)
    expect(await waiting).toMatchObject({ records: [{ position: a }] })
  })
})
