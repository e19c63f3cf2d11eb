// Benchmark of the Redis face: a durable lock and unlock through redlock, beside Redis with its append-only file synced at every write.
import { execFile, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { folder, freePort, Missing, start } from './engine.mjs'
import { scratch, throughput } from './measure.mjs'

const PACKAGES = ['redlock@4.2.0', 'ioredis@5.8.2']
const LANES = 64

async function clients() {
  const place = join(scratch, 'redlock')
  mkdirSync(place, { recursive: true })
  writeFileSync(join(place, 'package.json'), '{"private":true}')
  try {
    await promisify(execFile)('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', ...PACKAGES], {
      cwd: place,
      timeout: 240_000,
    })
  } catch (error) {
    throw new Missing(`redlock cannot be installed: ${error.message}`)
  }
  return createRequire(join(place, 'package.json'))
}

/** A server over a file, synced at every write, in a process of its own. */
export async function faceServer(face) {
  const child = fork(fileURLToPath(new URL('./server-child.mjs', import.meta.url)), [join(folder(face), 'leases.db'), '0', face])
  const [{ port }] = await once(child, 'message')
  return { port, [Symbol.asyncDispose]: async () => void child.kill('SIGKILL') }
}

async function redisServer(Redis) {
  const port = await freePort()
  const cwd = folder('face-redis-peer')
  const settings = { bind: '127.0.0.1', port, dir: cwd, appendonly: 'yes', appendfsync: 'always', save: '' }
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
  const answers = async () => {
    const client = new Redis(port, { lazyConnect: true, retryStrategy: null })
    client.on('error', () => {}) // while Redis starts
    try {
      await client.connect()
      return true
    } finally {
      client.disconnect()
    }
  }
  const running = await start('redis-server', args, { cwd, answers })
  return { port, [Symbol.asyncDispose]: () => running[Symbol.asyncDispose]() }
}

export async function faceRedis(report) {
  const require = await clients()
  const [Redis, Redlock] = [require('ioredis'), require('redlock')]
  const pairs = async ({ port }, inFlight) => {
    const client = new Redis(port)
    try {
      const redlock = new Redlock([client], { retryCount: 0 })
      const each = async (lane, i) => (await redlock.lock(`bench/${lane}/${i % 16}`, 10_000)).unlock()
      return await throughput(each, { inFlight })
    } finally {
      client.disconnect()
    }
  }
  const what = { title: 'durable lock and unlock through redlock', target: 'at least 1 ×', against: 'Redis, appendfsync always' }
  await beside(report, await faceServer('redis'), await redisServer(Redis), pairs, what)
}

/** Measures the same work through a face and with the real peer, one at a time and with many in flight, and stops both servers. */
export async function beside(report, here, peer, pairs, { title, target, against }) {
  try {
    for (const inFlight of [1, LANES]) {
      const [ours, theirs] = [await pairs(here, inFlight), await pairs(peer, inFlight)]
      report(`${title}, ${inFlight} at a time`, ours, 'pairs/s', { target, ratio: ours / theirs, against })
    }
  } finally {
    await here[Symbol.asyncDispose]()
    await peer[Symbol.asyncDispose]()
  }
}
