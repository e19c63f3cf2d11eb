/** A record that is visible on the primary and that its synchronous standby does not have: no store acknowledges it. Waits on the server are bounded. */
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { PostgresStore, type PostgresStoreOptions } from '../../../src/store/postgres/postgres.ts'
import { type Position, START } from '../../../src/store.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, type Engine, engine } from '../../support/engine.ts'
import { eventually } from '../../support/eventually.ts'
import { ask } from '../../support/postgres-query.ts'

const POLL = { interval: 50 }
/** For stores whose append is not answered: short, but longer than an ordinary answer takes on a busy machine. */
const TIMEOUT = 2_500

async function configure(server: Engine, settings: Record<string, string>): Promise<void> {
  for (const [name, value] of Object.entries(settings)) await ask(server, `alter system set ${name} = '${value}'`)
  await ask(server, 'select pg_reload_conf()')
}

async function withSynchronousStandby(): Promise<{ primary: Engine; standby: Engine } & AsyncDisposable> {
  const primary = await engine('postgres')
  const standby = await engine('postgres', { standbyOf: primary.port })
  await configure(primary, { synchronous_standby_names: '*' })
  await expect.poll(() => ask(primary, 'select sync_state from pg_stat_replication'), POLL).toEqual([{ sync_state: 'sync' }])
  return {
    ...{ primary, standby },
    async [Symbol.asyncDispose]() {
      await standby[Symbol.asyncDispose]()
      await primary[Symbol.asyncDispose]()
    },
  }
}

async function appended(store: PostgresStore, after: Position = START): Promise<Position> {
  const answer = await store.append(Uint8Array.of(1), after)
  if (answer.kind !== 'appended') throw new Error(JSON.stringify(answer))
  return answer.position
}

const waitingForStandby = `from pg_stat_activity where wait_event = 'SyncRep' and query like '%append%'`

describeEngine('postgres', 'a synchronous standby that is away', () => {
  const drivers: readonly (readonly [string, (url: string) => PostgresStoreOptions & { end?: () => Promise<void> }])[] = [
    ['pg', url => ({ url })],
    [
      'postgres.js',
      url => {
        const sql = postgres(url, { max: 4, onnotice: () => {} })
        return { sql, end: () => sql.end({ timeout: 1 }) }
      },
    ],
  ]
  const ways: readonly (readonly [string, (primary: Engine) => Promise<unknown>])[] = [
    ['its backend is terminated', primary => ask(primary, `select pg_terminate_backend(pid) ${waitingForStandby}`)],
    ['the primary restarts', primary => primary.restart()],
  ]

  test.each(drivers.flatMap(([name, options]) => ways.map(([way, end]) => ({ name, options, way, end }))))(
    'a record that became visible without it, because $way, is not shown to its writer until the standby has it ($name)',
    async ({ options, end }) => {
      await using servers = await withSynchronousStandby()
      const { primary, standby } = servers
      const { end: close, ...given } = options(primary.url)
      await using store = new PostgresStore({ ...given, timeout: TIMEOUT })
      await store.open()
      expect(store.profile).toMatchObject({ durable: true, failover: true })
      const a = await appended(store)
      await configure(primary, { statement_timeout: '1s' }) // it does not count while a commit waits
      await standby.stop()
      await expect(store.append(Uint8Array.of(2), a)).rejects.toMatchObject({ code: 'UNKNOWN' })
      await configure(primary, { statement_timeout: '0' })
      // The append was not cancelled: it waits, and no other process can see it.
      await expect.poll(() => ask(primary, `select count(*)::int n ${waitingForStandby}`), POLL).toEqual([{ n: 1 }])
      expect(await ask(primary, 'select count(*)::int n from leasehold.entry')).toEqual([{ n: 1 }])
      await end(primary)
      await eventually(async () => expect(await ask(primary, 'select count(*)::int n from leasehold.entry')).toEqual([{ n: 2 }]))
      const read = () => store.read(a).catch(error => error.code)
      expect(await read()).toBe('UNAVAILABLE')
      expect(await read()).toBe('UNAVAILABLE')
      await standby.restart()
      await expect.poll(read, POLL).toMatchObject({ kind: 'records', records: [{ bytes: Buffer.of(2) }] })
      await close?.()
    },
  )

  test('an append whose wait for it is cancelled is not acknowledged', async () => {
    await using servers = await withSynchronousStandby()
    const { primary, standby } = servers
    await using store = new PostgresStore({ url: primary.url, timeout: 20_000 })
    await store.open()
    const a = await appended(store)
    await standby.stop()
    const appending = store.append(Uint8Array.of(2), a).catch(error => error.code)
    const longWait = `${waitingForStandby} and clock_timestamp() - query_start > interval '1.5 s'`
    await expect.poll(() => ask(primary, `select pg_cancel_backend(pid) done ${longWait}`), POLL).toEqual([{ done: true }])
    expect(await appending).toBe('UNKNOWN')
  })

  test('a store that opens the log refuses to read it until the standby confirms what is visible', async () => {
    await using servers = await withSynchronousStandby()
    const { primary, standby } = servers
    await using store = new PostgresStore({ url: primary.url, timeout: TIMEOUT })
    await store.open()
    await appended(store)
    await standby.stop()
    await using other = new PostgresStore({ url: primary.url, timeout: TIMEOUT })
    await expect(other.open()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await expect(other.open()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    // One backend waits for the standby with the lock on the log, and the others have ended.
    const left = `select count(*)::int n from pg_stat_activity where wait_event_type in ('Lock', 'IPC') and query like '%leasehold.%' and pid <> pg_backend_pid()`
    await expect.poll(() => ask(primary, left), POLL).toEqual([{ n: 1 }])
    await standby.restart()
    await eventually(() => other.open())
  })

  test('a session that wants to listen does not wait for an append without a limit', async () => {
    await using servers = await withSynchronousStandby()
    const { primary, standby } = servers
    await using store = new PostgresStore({ url: primary.url, timeout: TIMEOUT })
    await store.open()
    const a = await appended(store)
    await using other = new PostgresStore({ url: primary.url, timeout: TIMEOUT })
    await other.open()
    await other.read(a) // confirmed by a commit, which is not possible later
    await standby.stop()
    await expect(store.append(Uint8Array.of(2), a)).rejects.toMatchObject({ code: 'UNKNOWN' })
    const over = new AbortController()
    const reading = other.read(a, { wait: over.signal }).catch(() => {})
    // The append holds the lock that shows who listens, and the store has given up its connection.
    const waiting = async () => (await ask(primary, `select pid from pg_stat_activity where wait_event = 'advisory'`)).map(({ pid }) => pid)
    await expect.poll(waiting, POLL).not.toEqual([])
    const [first] = await waiting()
    await expect.poll(waiting, POLL).not.toContain(first)
    over.abort()
    await reading
  })

  test('after a failover to a server without a standby, require: failover is refused, and a holder that required it is told', async () => {
    await using servers = await withSynchronousStandby()
    const { primary, standby } = servers
    const url = `postgres://postgres@127.0.0.1:${primary.port},127.0.0.1:${standby.port}/postgres`
    await using leases = await connect(url, { holder: 'one' })
    const options = { ttl: '60s', advanced: { require: ['failover'] } } as const
    await using lease = await leases.acquire('x', { ...options, ttl: '20s' })
    const told = new Promise(resolve => lease.onJeopardy(({ broken }) => (broken.length > 0 ? resolve(broken) : undefined)))
    // It takes the settings of the primary with it.
    await configure(standby, { synchronous_standby_names: '' })
    await primary.stop()
    await ask(standby, 'select pg_promote()')
    expect(await leases.acquire('y', { ...options, wait: '60s' }).catch(error => error.code)).toBe('UNSUPPORTED')
    expect(lease.atRisk).toBe(true)
    await lease.renew()
    expect(await told).toEqual(['failover'])
    expect(lease.held).toBe(true)
  })
})

describeEngine('postgres', 'a transaction that holds the row of the log', () => {
  let server: Engine
  let dba: pg.Client
  beforeAll(async () => {
    server = await engine('postgres')
    dba = new pg.Client({ connectionString: server.url })
    await dba.connect()
  })
  afterAll(async () => {
    await dba?.end()
    await server?.[Symbol.asyncDispose]()
  })

  test.each([
    ['appends end with UNAVAILABLE, and the error says what to look for', EVENT_TIMEOUT],
    ['appends that were given up leave no backend behind', 500],
  ])('%s', async (_, timeout) => {
    const name = `locked ${timeout}`
    await using ready = new PostgresStore({ url: server.url, name })
    await ready.open()
    await using store = new PostgresStore({ url: server.url, name, timeout })
    await store.open()
    const a = await appended(store)
    await dba.query('begin')
    await dba.query('select from leasehold.log where name = $1 for update', [name])
    const failures = []
    for (let i = 0; i < 3; i++) failures.push(await store.append(Uint8Array.of(2), a).catch(error => error))
    if (timeout === EVENT_TIMEOUT)
      for (const error of failures)
        expect(error).toMatchObject({
          code: 'UNAVAILABLE',
          reason: 'busy',
          message: expect.stringMatching(/another transaction has locked the log/),
        })
    const waiting = `select count(*)::int n from pg_stat_activity where wait_event_type = 'Lock'`
    await expect.poll(() => ask(server, waiting), POLL).toEqual([{ n: 0 }])
    await dba.query('rollback')
    await eventually(() => store.append(Uint8Array.of(3), a))
  })
})

describeEngine('postgres', 'a logical copy of the tables, or truncated ones', () => {
  test('a new log and a new snapshot get numbers that no row has', async () => {
    await using server = await engine('postgres')
    await using one = new PostgresStore({ url: server.url, name: 'one' })
    await one.open()
    const a = await appended(one)
    await one.snapshot(a, (async function* () {})())
    // A logical subscriber gets the rows, and sequences that begin anew.
    const sequences = await ask(server, `select schemaname || '.' || sequencename as name from pg_sequences where schemaname = 'leasehold'`)
    for (const { name } of sequences) await ask(server, `alter sequence ${name} restart with 1`)
    await using two = new PostgresStore({ url: server.url, name: 'two' })
    await two.open()
    const b = await appended(two)
    expect(await two.snapshot(b, (async function* () {})())).toBe('kept')
    await ask(server, 'truncate leasehold.log restart identity')
    await using again = new PostgresStore({ url: server.url, name: 'one' })
    expect((await again.open()).head).toEqual(START)
    await appended(again)
    expect(await one.read(a)).toMatchObject({ kind: 'diverged' })
  })
})
