// Postgres with `pg`: a lock in a row of a table, which is durable as a lease is, and an advisory lock, which a crash forgets.
import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { folder, freePort, start, unprivileged } from '../engine.mjs'
import { debianProgram, find, printedVersion, versionOf } from './provide.mjs'

/** With this number of connections both locks did best. */
const CONNECTIONS = 32

/** `settings`: of postgresql.conf, in place of its defaults. */
export async function startPostgres({ settings = [] } = {}) {
  const program = await debianProgram('postgres', ['postgresql'])
  const user = unprivileged()
  const cwd = folder('postgres', user)
  const data = join(cwd, 'data')
  await promisify(execFile)(find('initdb'), ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync'], {
    cwd,
    ...user,
  })
  const port = await freePort()
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`
  const answers = async () => {
    const client = new pg.Client({ connectionString: url })
    client.on('error', () => {})
    await client.connect()
    await client.end()
    return true
  }
  const args = [
    '-D',
    data,
    '-p',
    String(port),
    '-c',
    'listen_addresses=127.0.0.1',
    '-c',
    'unix_socket_directories=',
    ...settings.flatMap(setting => ['-c', setting]),
  ]
  const running = await start(program, args, { cwd, answers, signal: 'SIGQUIT', ...user })
  return { ...running, url, version: printedVersion(program, ['--version'], /\) (\d[\d.]*)/) }
}

function poolOf({ url, version }) {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
  pool.on('error', () => {}) // when the server ends first
  return { pool, about: `Postgres ${version}, npm pg ${versionOf(createRequire(import.meta.url), 'pg')}, ${CONNECTIONS} connections` }
}

export async function postgresRow(engine) {
  const { pool, about } = poolOf(engine)
  await pool.query('create table if not exists lock (name text primary key, holder text, until timestamptz)')
  const known = new Set()
  return {
    about: `${about}, its defaults: every commit is synced (synchronous_commit on)`,
    async acquire(name) {
      if (!known.has(name)) {
        await pool.query('insert into lock (name) values ($1) on conflict do nothing', [name])
        known.add(name)
      }
      const taken = await pool.query(
        `update lock set holder = $2, until = now() + interval '30 s' where name = $1 and (holder is null or until < now())`,
        [name, 'bench'],
      )
      if (taken.rowCount !== 1) throw new Error(`${name} is held`)
    },
    release: name => pool.query('update lock set holder = null where name = $1 and holder = $2', [name, 'bench']),
    [Symbol.asyncDispose]: () => pool.end(),
  }
}

export async function postgresAdvisory(engine) {
  const { pool, about } = poolOf(engine)
  return {
    about: `${about}, pg_advisory_lock: nothing is durable`,
    async acquire(name) {
      const client = await pool.connect()
      await client.query('select pg_advisory_lock(hashtextextended($1, 0))', [name])
      return client
    },
    async release(name, client) {
      try {
        await client.query('select pg_advisory_unlock(hashtextextended($1, 0))', [name])
      } finally {
        client.release()
      }
    },
    [Symbol.asyncDispose]: () => pool.end(),
  }
}
