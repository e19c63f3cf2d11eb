// Holders that do nothing but hold: COUNT processes as far as their store can tell, each with its own connections, its own replica and one lease, in one process
// of the system. `node bench/idle-child.mjs '{"url": …, "count": …, "ttl": …, "first": …, "pool": false}'`
import pg from 'pg'
import { createClient } from 'redis'
import { connect } from '../dist/index.js'
import { PostgresStore } from '../dist/store/postgres/postgres.js'
import { RedisStore } from '../dist/store/redis/redis.js'
import { seconds } from './measure.mjs'

const { url, count, ttl, first = 0, handIn = false, name } = JSON.parse(process.argv[2])

async function handedIn() {
  if (url.startsWith('redis:')) {
    const client = createClient({ url })
    client.on('error', () => {})
    await client.connect()
    return { store: new RedisStore({ client, name }), connections: () => 1 }
  }
  const pool = new pg.Pool({ connectionString: url, idleTimeoutMillis: 0 })
  pool.on('error', () => {})
  return { store: new PostgresStore({ pool, name }), connections: () => pool.totalCount }
}

const holders = []
const given = []
// One after the other: opening is not what is measured.
for (let i = first; i < first + count; i++) {
  const own = handIn ? await handedIn() : undefined
  if (own !== undefined) given.push(own)
  const leases = await connect(own?.store ?? url, { holder: `idle-${i}` })
  holders.push({ leases, lease: await leases.acquire(`idle/${i}`, { ttl }) })
}

process.on('message', async wanted => {
  if (wanted === 'cpu') process.send({ cpu: process.cpuUsage(), at: seconds() })
  // After the renewal nothing more is sent by this process: the term counts from here.
  if (wanted === 'renew') {
    await holders[0].lease.renew()
    process.send({ at: seconds() })
  }
  if (wanted === 'held')
    process.send({
      held: holders.filter(({ lease }) => lease.held).length,
      ofApplication: given.reduce((sum, { connections }) => sum + connections(), 0),
    })
})
process.on('disconnect', () => process.exit(0))
process.send('ready')
