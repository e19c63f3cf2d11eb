// Part of the stores benchmark: Redis with its append-only file synced at every write. Compared with the usual lock with npm redis: a key that expires,
// and a script that deletes it only if it is the caller's.
import { createClient } from 'redis'
import { RedisStore } from '../dist/store/redis/redis.js'
import { folder, freePort, start } from './engine.mjs'

const RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

export async function redis() {
  const port = await freePort()
  const url = `redis://127.0.0.1:${port}`
  const cwd = folder('redis')
  const settings = { bind: '127.0.0.1', port, dir: cwd, appendonly: 'yes', appendfsync: 'always', save: '' }
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
  const connected = async () => {
    const client = createClient({ url, socket: { reconnectStrategy: false } })
    client.on('error', () => {}) // while Redis starts
    return client.connect()
  }
  const answers = async () => {
    const client = await connected()
    client.destroy()
    return true
  }
  const running = await start('redis-server', args, { cwd, answers })
  const client = await connected()
  const release = await client.scriptLoad(RELEASE)
  const bytes = Buffer.alloc(100, 7)
  let tokens = 0
  let logs = 0
  return {
    store: ({ beside } = {}) => {
      const name = beside?.bench ?? `bench-${++logs}`
      return Object.assign(new RedisStore({ url, name }), { bench: name })
    },
    loops: [
      {
        name: 'SET NX PX and the release script with npm redis',
        target: 3,
        async each(lane, i) {
          const key = `lock:${lane}:${i % 16}`
          const token = String(++tokens)
          if ((await client.set(key, token, { condition: 'NX', expiration: { type: 'PX', value: 30_000 } })) === null)
            throw new Error(`${key} is held`)
          if ((await client.evalSha(release, { keys: [key], arguments: [token] })) !== 1) throw new Error(`${key} was lost`)
        },
      },
    ],
    write: { name: 'a SET with npm redis', each: () => client.set('bare', bytes) },
    push: 20,
    async [Symbol.asyncDispose]() {
      client.destroy()
      await running[Symbol.asyncDispose]()
    },
  }
}
