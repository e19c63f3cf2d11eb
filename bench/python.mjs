// Benchmark of the Python client: a free lease beside the usual lock with redis-py, the cost of renewing 10,000 leases, and the time to import it.
import { execFile, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { createClient } from 'redis'
import { environment, interpreters } from '../scripts/python.mjs'
import { folder, freePort, Missing, start } from './engine.mjs'
import { percentile } from './measure.mjs'

const execute = promisify(execFile)
const here = name => fileURLToPath(new URL(name, import.meta.url))
const source = here('../clients/python/src')
const LEASES = 10_000
/** Two intervals of renewal. */
const RENEWED_FOR = 30
const IMPORTS = 21

async function pythonHere() {
  const [version, program] = [...interpreters()].at(-1) ?? []
  const python = program === undefined ? undefined : await environment(version, program, 'requirements-tools.txt')
  if (python === undefined) throw new Missing('there is no Python with the packages of clients/python/requirements-tools.txt')
  return { version, python }
}

async function run(env, python, ...words) {
  const { stdout } = await execute(python, words, { env: { ...process.env, PYTHONPATH: source, ...env }, timeout: 600_000 })
  return stdout
}

/** A server over a file, synced at every write, in a process of its own. */
async function startServer() {
  const child = fork(here('./server-child.mjs'), [join(folder('python'), 'leases.db'), '0'])
  const [{ port }] = await once(child, 'message')
  return { url: `leasehold://127.0.0.1:${port}`, [Symbol.asyncDispose]: async () => void child.kill('SIGKILL') }
}

async function startRedis() {
  const port = await freePort()
  const cwd = folder('python-redis')
  const settings = { bind: '127.0.0.1', port, dir: cwd, appendonly: 'yes', appendfsync: 'always', save: '' }
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
  const answers = async () => {
    const client = createClient({ url: `redis://127.0.0.1:${port}`, socket: { reconnectStrategy: false } })
    client.on('error', () => {}) // while Redis starts
    await client.connect()
    client.destroy()
    return true
  }
  return { port, running: await start('redis-server', args, { cwd, answers }) }
}

async function pairs(report, python, url) {
  const redis = await startRedis()
  try {
    const { ours, bare, floor, asyncio } = JSON.parse(await run({}, python, here('./python.py'), 'pairs', url, String(redis.port)))
    report('acquire and release of a free lease', ours, 'µs', {
      target: 'at most 1.5 ×',
      ratio: ours / bare,
      against: 'SET NX PX and the release script with redis-py',
    })
    report('SET NX PX and the release script with redis-py', bare, 'µs')
    const against = 'SET NX PX and the release script with redis-py'
    report('the same two commands over a bare socket: what no client can be faster than', floor, 'µs', { ratio: floor / bare, against })
    report('acquire and release of a free lease with asyncio', asyncio, 'µs', { ratio: asyncio / bare, against })
  } finally {
    await redis.running[Symbol.asyncDispose]()
  }
}

async function importTime(report, python) {
  const taken = []
  // As it is when installed: compiled once, whatever the environment says.
  const env = { PYTHONDONTWRITEBYTECODE: '', PYTHONPYCACHEPREFIX: folder('python-compiled') }
  const script = 'import time; began = time.perf_counter(); import leasehold; print((time.perf_counter() - began) * 1000)'
  for (let i = 0; i <= IMPORTS; i++) taken.push(Number(await run(env, python, '-c', script)))
  taken.shift() // the first one compiles
  report(
    'import leasehold: median of fresh processes',
    percentile(
      taken.sort((a, b) => a - b),
      0.5,
    ),
    'ms',
    { target: 'under 80' },
  )
}

export async function python(report) {
  try {
    const { version, python } = await pythonHere()
    console.error(`Python ${version}`)
    await importTime(report, python)
    const server = await startServer()
    try {
      await pairs(report, python, server.url)
      const { percent, messages, renewals } = JSON.parse(
        await run({}, python, here('./python.py'), 'renew', server.url, String(LEASES), String(RENEWED_FOR)),
      )
      report('renewing 10,000 leases with a ttl of 30 s: CPU of the client', percent, '% of a core', { target: 'under 3' })
      report('renewing 10,000 leases: renewals', renewals, '/s')
      report('renewing 10,000 leases: messages', messages, '/s')
    } finally {
      await server[Symbol.asyncDispose]()
    }
  } catch (error) {
    if (!(error instanceof Missing)) throw error
    console.error(`left out: ${error.message}`)
  }
}
