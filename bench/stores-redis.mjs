// Leasehold on Redis beside Redis itself, on the same server in the same run: append-only file, synced at every write.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createClient } from 'redis'
import { Replica } from '../dist/replica/replica.js'
import { RedisStore } from '../dist/store/redis.js'
import { START } from '../dist/store.js'
import { percentile, scratch, seconds, throughput, using } from './measure.mjs'

const IN_FLIGHT = 1_024
const RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

/** A server of our own, gone with this process or at the end of `work`. */
async function withRedis(work) {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address()
  await new Promise(resolve => probe.close(resolve))
  const settings = { port, bind: '127.0.0.1', dir: scratch, appendonly: 'yes', appendfsync: 'always', save: '', dbfilename: `${port}.rdb` }
  const args = Object.entries({ ...settings, appenddirname: `aof-${port}` }).flatMap(([name, value]) => [`--${name}`, String(value)])
  const server = spawn('redis-server', args, { cwd: join(scratch), stdio: 'ignore' })
  const end = () => server.kill('SIGKILL')
  process.once('exit', end)
  try {
    const client = createClient({ url: `redis://127.0.0.1:${port}`, socket: { reconnectStrategy: () => 20 } })
    client.on('error', () => {}) // until it is up
    await client.connect()
    await work(client, `redis://127.0.0.1:${port}`)
    client.destroy()
  } finally {
    process.off('exit', end)
    end()
    await once(server, 'exit')
  }
}

function middle(list) {
  return percentile(
    list.sort((a, b) => a - b),
    0.5,
  )
}

/** The usual lock: a key that expires, and a script that deletes only one's own. */
async function bareLocks(client, release) {
  let token = 0
  return throughput(
    async (lane, i) => {
      const key = `lock:${lane}:${i % 16}`
      const mine = String(++token)
      if ((await client.set(key, mine, { condition: 'NX', expiration: { type: 'PX', value: 30_000 } })) === null) throw new Error('held')
      if ((await client.evalSha(release, { keys: [key], arguments: [mine] })) !== 1) throw new Error('lost')
    },
    { inFlight: IN_FLIGHT, forSeconds: 2 },
  )
}

function leases(replica) {
  return throughput(
    async (lane, i) => {
      const granted = await replica.propose({
        kind: 'acquire',
        holder: 'bench',
        ttl: 30_000,
        wants: [{ resource: `lane/${lane}/${i % 16}` }],
      })
      await replica.propose({ kind: 'release', lease: granted.lease })
    },
    { inFlight: IN_FLIGHT, forSeconds: 2 },
  )
}

async function locks(report, client, url) {
  const release = await client.scriptLoad(RELEASE)
  const [bare, ours] = [[], []]
  await using(Replica.open(new RedisStore({ url, name: 'locks' })), async replica => {
    // In turns, since a disk may be ten times slower a minute later.
    for (let turn = 0; turn < 2; turn++) {
      bare.push(await bareLocks(client, release))
      ours.push(await leases(replica))
    }
  })
  report('npm redis: SET NX PX and the release script, 1,024 in flight', middle(bare), 'pairs/s')
  report('redis: acquire + release, 1,024 in flight', middle(ours), 'pairs/s', {
    target: 'at least 3',
    ratio: middle(ours) / middle(bare),
    against: 'npm redis',
  })
}

/** From the question at one replica to the event at another. */
async function push(report, url) {
  const open = () => Replica.open(new RedisStore({ url, name: 'push' }))
  await using(open(), one =>
    using(open(), async other => {
      const took = []
      const stop = new AbortController()
      let asked = 0
      let heard = () => {}
      const watching = (async () => {
        for await (const _ of other.watch('', { signal: stop.signal })) {
          took.push((seconds() - asked) * 1_000)
          heard()
        }
      })()
      await new Promise(setImmediate)
      for (let i = 0; i < 1_000; i++) {
        const told = new Promise(resolve => (heard = resolve))
        asked = seconds()
        await Promise.all([one.propose({ kind: 'acquire', holder: 'bench', ttl: 60_000, wants: [{ resource: `n/${i}` }] }), told])
      }
      stop.abort()
      await watching
      took.sort((a, b) => a - b)
      report('redis: from asking one replica to the news at another: p50', percentile(took, 0.5), 'ms')
      report('redis: from asking one replica to the news at another: p99', percentile(took, 0.99), 'ms', { target: 'under 20' })
    }),
  )
}

async function one(report, client, url) {
  const store = new RedisStore({ url, name: 'one' })
  await store.open()
  const bytes = Buffer.alloc(80, 'x')
  let after = START
  const rate = async each => {
    const began = seconds()
    let done = 0
    for (; seconds() - began < 0.5; done++) await each()
    return done / (seconds() - began)
  }
  const [bare, ours] = [[], []]
  for (let turn = 0; turn < 8; turn++) {
    bare.push(await rate(() => client.set('smallest', bytes)))
    ours.push(await rate(async () => (after = (await store.append(bytes, after)).position)))
  }
  await store[Symbol.asyncDispose]()
  report('npm redis: one SET at a time', middle(bare), 'writes/s')
  report('redis: one append at a time', middle(ours), 'appends/s', {
    target: 'at most 1.3',
    ratio: middle(bare) / middle(ours),
    against: 'the time of a SET',
  })
}

export async function redis(report) {
  await withRedis(async (client, url) => {
    await locks(report, client, url)
    await push(report, url)
    await one(report, client, url)
  })
}
