// What holders cost that only hold: CPU of a process, transactions, rows and connections of an engine. Counts and CPU times, which are steady on a busy machine.
//
// A holder is a process of its own where its CPU is measured. Elsewhere up to 32 are in one process of the system, each with its own replica and its own connections: an
// engine cannot tell the difference.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { createClient } from 'redis'
import { connect } from '../dist/index.js'
import { engine } from './contenders.mjs'
import { cpuOf } from './cpu.mjs'
import { endsWithRun, folder } from './engine.mjs'
import { seconds } from './measure.mjs'
import { startPostgres } from './peers/postgres.mjs'
import { atMost, oneLine } from './row.mjs'

const program = fileURLToPath(new URL('./idle-child.mjs', import.meta.url))
const IN_ONE_PROCESS = 32
/** A holder is measured so many seconds after its start: before that it reads what it has missed, and its code is compiled. */
const SETTLE = { full: 45, quick: 5 }
/** The same where transactions are counted: a session of Postgres that idles reports its last ones after ten seconds. */
const SETTLE_COUNTS = 15
/** Transactions and rows are counted after so many renewals of each process: the first one reads how the others began, and after the second it is settled which process reads. */
const FIRST_RENEWALS = 2
/** A store that cannot carry so many holders takes for ever to open them: seconds for each. */
const OPEN_TIMEOUT = 3

const times = quick => (quick ? { ttl: 6_000, window: 12, settle: SETTLE.quick } : { ttl: 30_000, window: 60, settle: SETTLE.full })

/** Starts a process with `count` holders, and resolves when they hold. */
async function startHolders({ count = 1, ...options }) {
  const child = endsWithRun(fork(program, [JSON.stringify({ count, ...options })], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] }))
  let said = ''
  child.stderr.on('data', text => (said = (said + text).slice(-2_000)))
  const within = new AbortController()
  const late = sleep(1_000 * (30 + OPEN_TIMEOUT * count), 'late', { signal: within.signal, ref: false }).catch(() => 'ready')
  const first = await Promise.race([once(child, 'message').then(([message]) => message), once(child, 'exit').then(() => 'ended'), late])
  within.abort()
  if (first !== 'ready') {
    child.kill('SIGKILL')
    const why = /LeaseError.*|Error: .*/.exec(said)?.[0] ?? 'the processes did not get their leases in time'
    throw new Error(oneLine(why))
  }
  const ask = async message => {
    child.send(message)
    return (await once(child, 'message'))[0]
  }
  return {
    ask,
    kill: async () => {
      const gone = once(child, 'exit')
      child.kill('SIGKILL')
      await gone
    },
    [Symbol.asyncDispose]: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return
      const gone = once(child, 'exit')
      child.kill('SIGKILL')
      await gone
    },
  }
}

/** Hands `count` holders to `work`, in as few processes as the measure allows. */
async function withHolders({ count, first = 0, ...options }, work) {
  const started = []
  try {
    for (let from = 0; from < count; from += IN_ONE_PROCESS)
      started.push(await startHolders({ ...options, first: first + from, count: Math.min(IN_ONE_PROCESS, count - from) }))
    return await work(started)
  } finally {
    await Promise.all(started.map(each => each[Symbol.asyncDispose]()))
  }
}

async function allHeld(started, count) {
  const held = (await Promise.all(started.map(({ ask }) => ask('held')))).reduce((sum, each) => sum + each.held, 0)
  if (held !== count) throw new Error(`${count - held} of ${count} holders lost their leases`)
}

const places = {
  'a file': async () => `file:${join(folder('idle'), 'leases.db')}`,
  Postgres: async () => (await engine('postgres')).url,
  Redis: async () => (await engine('redis')).url,
  etcd: async () => `etcd://127.0.0.1:${(await engine('etcd')).ports[0]}`,
  'a server': async () => (await engine('leasehold')).url,
}

/** The part of a core that an idle holder takes, in percent. */
export async function cpu(report, { quick }) {
  const { ttl, window, settle } = times(quick)
  // All at the same time: they sleep.
  await Promise.all(
    Object.entries(places).map(async ([name, place]) =>
      report({
        name: `CPU of an idle holder on ${name}, ttl ${ttl / 1_000} s`,
        unit: '% of a core',
        want: atMost(0.3),
        ...(await share(place, { ttl, window, settle }).catch(error => ({ failed: oneLine(error.message) }))),
      }),
    ),
  )
}

async function share(place, { ttl, window, settle }) {
  const holder = await startHolders({ url: await place(), ttl })
  try {
    await sleep(settle * 1_000)
    const before = await holder.ask('cpu')
    await sleep(window * 1_000)
    const after = await holder.ask('cpu')
    await allHeld([holder], 1)
    const used = after.cpu.user + after.cpu.system - before.cpu.user - before.cpu.system
    return { value: used / 1e4 / (after.at - before.at) }
  } finally {
    await holder[Symbol.asyncDispose]()
  }
}

const MANY = { full: [8, 64], quick: [8] }

/** The part of a core that each of many idle holders takes, and what their engine takes for each of them. */
export async function many(report, { quick }) {
  const { ttl, window } = times(quick)
  const kinds = { Postgres: 'postgres', Redis: 'redis', etcd: 'etcd' }
  for (const name of ['a file', 'Redis', 'Postgres', 'etcd'])
    for (const count of quick ? MANY.quick : MANY.full) {
      const what = `${count} idle holders on ${name}, ttl ${ttl / 1_000} s`
      try {
        const pids = kinds[name] === undefined ? [] : (await engine(kinds[name])).pids
        const used = () => pids.reduce((sum, pid) => sum + cpuOf(pid), 0)
        await withHolders({ url: await places[name](), count, ttl, first: 100_000 }, async started => {
          await sleep(SETTLE_COUNTS * 1_000)
          const own = async () =>
            (await Promise.all(started.map(({ ask }) => ask('cpu')))).reduce((sum, each) => sum + each.cpu.user + each.cpu.system, 0)
          const [before, from, began] = [await own(), used(), seconds()]
          await sleep(window * 1_000)
          const [after, to, took] = [await own(), used(), seconds() - began]
          await allHeld(started, count)
          report({ name: `${what}: CPU of each`, unit: '% of a core', value: (after - before) / 1e4 / took / count, want: atMost(0.3) })
          if (pids.length > 0)
            report({ name: `${what}: CPU of the engine for each`, unit: '% of a core', value: (to - from) / 10 / took / count })
        })
      } catch (error) {
        report({ name: what, unit: '', failed: oneLine(error.message) })
      }
    }
}

/** A Postgres of its own, so that nothing else is counted, with room for as many connections as today's builds open. */
async function countedPostgres(work) {
  const running = await startPostgres({ settings: ['max_connections=1100', 'autovacuum=off'] })
  const query = new pg.Client({ connectionString: running.url })
  query.on('error', () => {})
  try {
    await query.connect()
    await query.query('create database counted')
    const url = running.url.replace(/\/postgres$/, '/counted')
    const connections = async () => {
      const { rows } = await query.query(
        `select count(*) as connections from pg_stat_activity where datname = 'counted' and backend_type = 'client backend'`,
      )
      return Number(rows[0].connections)
    }
    return await work({ url, connections })
  } finally {
    await query.end().catch(() => {})
    await running[Symbol.asyncDispose]()
  }
}

/**
 * Counts, in one transaction, what has happened in the database so far: transactions, records of the log, and rows that were read from tables, by scans and by indexes.
 * A session reports a transaction with its next one, a second later at the earliest, or after ten seconds.
 */
async function countsOf(client) {
  const { rows } = await client.query(`select
    (select xact_commit + xact_rollback from pg_stat_database where datname = current_database()) as transactions,
    (select coalesce(sum(head), 0) from leasehold.log) as records,
    (select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables) as read`)
  return { transactions: Number(rows[0].transactions), records: Number(rows[0].records), read: Number(rows[0].read), at: seconds() }
}

const SIZES = { full: [2, 32, 256], quick: [2, 8, 32] }

/** Transactions for each renewal, and rows, with more and more processes. */
export async function transactions(report, { quick }) {
  const { ttl, window } = times(quick)
  for (const count of quick ? SIZES.quick : SIZES.full) {
    const largest = count === (quick ? SIZES.quick : SIZES.full).at(-1)
    const rows = []
    try {
      await countedPostgres(async ({ url, connections }) => {
        const client = new pg.Client({ connectionString: url })
        client.on('error', () => {})
        await client.connect()
        try {
          await withHolders({ url, count, ttl }, async started => {
            await sleep(SETTLE_COUNTS * 1_000 + (FIRST_RENEWALS * ttl) / 2)
            const before = await countsOf(client)
            await sleep(window * 1_000)
            const after = await countsOf(client)
            const records = after.records - before.records
            rows.push({
              name: `Postgres, ${count} idle processes: transactions for each renewal`,
              unit: 'transactions',
              // One of them was the first count.
              value: (after.transactions - before.transactions - 1) / records,
              want: atMost(2),
            })
            rows.push({
              name: `Postgres, ${count} idle processes: rows read for each renewal`,
              unit: 'rows',
              value: (after.read - before.read) / records,
            })
            const read = (after.read - before.read) / (after.at - before.at)
            rows.push({
              name: `Postgres, ${count} idle processes: connections for each`,
              unit: 'connections',
              value: ((await connections()) - 1) / count,
              want: atMost(1),
            })
            await allHeld(started, count)
            if (largest) rows.push(await besideOwnRows({ url, client, count, ttl, window, read }))
          })
        } finally {
          await client.end().catch(() => {})
        }
      })
    } catch (error) {
      rows.push({ name: `Postgres, ${count} idle processes`, unit: '', failed: oneLine(error.message) })
    }
    for (const row of rows) report(row)
  }
}

/** As many processes that each renew a row of their own: what a store of rows without a log would do. */
async function besideOwnRows({ url, client, count, ttl, window, read }) {
  const pool = new pg.Pool({ connectionString: url, max: 16 })
  pool.on('error', () => {})
  try {
    await pool.query('create table own (id int primary key, until timestamptz)')
    await pool.query('insert into own select n, now() from generate_series(1, $1) n', [count])
    // Only this table: the holders go on meanwhile.
    const readHere = async () => {
      const { rows } = await client.query(
        `select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) as read from pg_stat_user_tables where relname = 'own'`,
      )
      return Number(rows[0]?.read ?? 0)
    }
    const before = await readHere()
    const end = seconds() + window
    const began = seconds()
    const interval = ttl / 2
    await Promise.all(
      Array.from({ length: count }, async (_, i) => {
        await sleep((interval * i) / count)
        for (; seconds() < end; await sleep(interval)) await pool.query('update own set until = now() where id = $1', [i + 1])
      }),
    )
    const took = seconds() - began
    await sleep(1_500) // sessions report within a second of their last transaction
    return {
      name: `Postgres, ${count} idle processes: rows read`,
      unit: 'rows/s',
      value: read,
      peers: [
        { name: `${count} processes that each renew one row of their own`, value: ((await readHere()) - before) / took, want: atMost(20) },
      ],
    }
  } finally {
    await pool.end()
  }
}

/** Connections that the store adds to those of the application. */
export async function connections(report, { quick }) {
  const { ttl } = times(quick)
  const count = 8
  await countedPostgres(async ({ url, connections: open }) => {
    await withHolders({ url, count, ttl, handIn: true }, async started => {
      await sleep(SETTLE.quick * 1_000)
      const { ofApplication } = await started[0].ask('held')
      const extra = ((await open()) - ofApplication) / count
      report({
        name: "Postgres: connections of an idle process, beyond the application's pool",
        unit: 'connections',
        value: extra,
        want: atMost(0),
      })
    })
  })
  const { url } = await engine('redis')
  const client = createClient({ url })
  client.on('error', () => {})
  await client.connect()
  try {
    const open = async () => (await client.sendCommand(['CLIENT', 'LIST'])).trim().split('\n').length
    for (const handIn of [false, true]) {
      const before = await open()
      await withHolders(
        { url: handIn ? url : `${url}?name=idle-connections`, count, ttl, handIn, name: 'idle-handed-in' },
        async started => {
          await sleep(SETTLE.quick * 1_000)
          const { ofApplication } = await started[0].ask('held')
          const name = handIn
            ? "Redis: connections of an idle process, beyond the application's client"
            : 'Redis: connections of an idle process'
          report({ name, unit: 'connections', value: ((await open()) - before - ofApplication) / count, want: atMost(handIn ? 0 : 1) })
        },
      )
    }
  } finally {
    client.destroy()
  }
}

/** Measures how late, beyond its ttl, a waiter gets the lease of a holder that died, while many others idle. */
export async function takeover(report, { quick }) {
  const count = quick ? 32 : 256
  const ttl = 3_000
  const late = []
  const name = `Postgres, ${count} idle holders and a waiter: the grant after the holder died, beyond its ttl of 3 s`
  try {
    await countedPostgres(({ url }) =>
      withHolders({ url, count, ttl: 30_000 }, async () => {
        const leases = await connect(url, { holder: 'waiter' })
        try {
          for (let round = 0; round < (quick ? 3 : 9); round++) {
            const first = 10_000 + round
            const victim = await startHolders({ url, ttl, first })
            const waiting = leases.acquire(`idle/${first}`, { ttl: 30_000, wait: '1m' })
            while ((await leases.query(`idle/${first}`)).pending.length === 0) await sleep(20)
            const { at } = await victim.ask('renew')
            await victim.kill()
            const lease = await waiting
            late.push((seconds() - at) * 1_000 - ttl)
            await lease.release()
          }
        } finally {
          await leases.close()
        }
      }),
    )
    report({ name, unit: 'ms', rounds: late, want: atMost(50) })
  } catch (error) {
    report({ name, unit: 'ms', failed: oneLine(error.message), want: atMost(50) })
  }
}
