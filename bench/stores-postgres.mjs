// Part of the stores benchmark: Postgres. Compared with a table of locks, as many programs use, and with advisory locks, both with `pg` and the number of
// connections with the best result.
import { PostgresStore } from '../dist/store/postgres/postgres.js'
import { postgres as start } from './engine.mjs'

const CONNECTIONS = 32

export async function postgres() {
  const engine = await start()
  const pool = new engine.pg.Pool({ connectionString: engine.url, max: CONNECTIONS })
  await pool.query('create table lock (name text primary key, holder text, until timestamptz)')
  await pool.query('create table bare (n bigint generated always as identity, bytes bytea)')
  const writer = await pool.connect()
  const bytes = Buffer.alloc(100, 7)
  const known = new Set()
  let logs = 0
  return {
    store: ({ beside } = {}) => {
      const made = new PostgresStore({ url: engine.url, name: beside?.bench ?? `bench ${++logs}` })
      return Object.assign(made, { bench: beside?.bench ?? `bench ${logs}` })
    },
    loops: [
      {
        name: 'a lock in a row with pg',
        target: 10,
        async each(lane, i) {
          const name = `lane/${lane}/${i % 16}`
          if (!known.has(name)) {
            await pool.query('insert into lock (name) values ($1) on conflict do nothing', [name])
            known.add(name)
          }
          const taken = await pool.query(
            `update lock set holder = $2, until = now() + interval '30 s' where name = $1 and (holder is null or until < now())`,
            [name, 'bench'],
          )
          if (taken.rowCount !== 1) throw new Error(`${name} is held`)
          await pool.query('update lock set holder = null where name = $1 and holder = $2', [name, 'bench'])
        },
      },
      {
        name: 'an advisory lock with pg (nothing durable)',
        async each(lane, i) {
          const client = await pool.connect()
          try {
            await client.query('select pg_advisory_lock($1)', [lane * 16 + (i % 16)])
            await client.query('select pg_advisory_unlock($1)', [lane * 16 + (i % 16)])
          } finally {
            client.release()
          }
        },
      },
    ],
    // Prepared, on its own connection, into a table without an index: the smallest possible write.
    write: {
      name: 'a prepared insert of one row with pg',
      each: () => writer.query({ name: 'bare', text: 'insert into bare (bytes) values ($1)', values: [bytes] }),
    },
    push: 20,
    async [Symbol.asyncDispose]() {
      writer.release()
      await pool.end()
      await engine[Symbol.asyncDispose]()
    },
  }
}
