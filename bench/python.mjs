// Benchmark of the Python client: a free lease beside the usual lock with redis-py, the cost of renewing 10,000 leases, and the time to import it.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { environment, interpreters } from '../scripts/python.mjs'
import { engine } from './contenders.mjs'
import { folder } from './engine.mjs'
import { startServer } from './leasehold.mjs'
import { using } from './measure.mjs'
import { Missing } from './peers/provide.mjs'
import { atMost, median } from './row.mjs'

const execute = promisify(execFile)
const here = name => fileURLToPath(new URL(name, import.meta.url))
const source = here('../clients/python/src')
const LEASES = 10_000

async function pythonHere() {
  const [version, program] = [...interpreters()].at(-1) ?? []
  const python = program === undefined ? undefined : await environment(version, program, 'requirements-tools.txt')
  if (python === undefined) throw new Missing('there is no Python with the packages of clients/python/requirements-tools.txt')
  return { python }
}

async function run(env, python, ...words) {
  const { stdout } = await execute(python, words, { env: { ...process.env, PYTHONPATH: source, ...env }, timeout: 600_000 })
  return stdout
}

async function pairs(report, python, url) {
  const redis = await engine('redis')
  const { ours, bare, floor, asyncio } = JSON.parse(await run({}, python, here('./python.py'), 'pairs', url, String(redis.port)))
  const locks = { name: 'SET NX PX and the release script with redis-py', about: `Redis ${redis.version}, fsync always`, value: bare }
  report({ name: 'Python: acquire and release of a free lease', unit: 'µs', value: ours, peers: [{ ...locks, want: atMost(1.5) }] })
  report({ name: 'Python: the same two commands over a bare socket', unit: 'µs', value: floor, peers: [locks] })
  report({ name: 'Python: acquire and release with asyncio', unit: 'µs', value: asyncio, peers: [locks] })
}

async function importTime(report, python, times) {
  const taken = []
  // As it is when installed: compiled once, whatever the environment says.
  const env = { PYTHONDONTWRITEBYTECODE: '', PYTHONPYCACHEPREFIX: folder('python-compiled') }
  const script = 'import time; began = time.perf_counter(); import leasehold; print((time.perf_counter() - began) * 1000)'
  for (let i = 0; i <= times; i++) taken.push(Number(await run(env, python, '-c', script)))
  taken.shift() // the first one compiles
  report({ name: 'Python: import leasehold, median of fresh processes', unit: 'ms', value: median(taken), want: atMost(80) })
}

export async function python(report, { quick }) {
  const { python } = await pythonHere()
  await importTime(report, python, quick ? 5 : 21)
  await using(startServer(), async server => {
    await pairs(report, python, server.url)
    // Two intervals of renewal, or a half of one.
    const forSeconds = quick ? 6 : 30
    const { percent, messages, renewals } = JSON.parse(
      await run({}, python, here('./python.py'), 'renew', server.url, String(LEASES), String(forSeconds)),
    )
    const name = 'Python: renewing 10,000 leases with a ttl of 30 s'
    report({ name: `${name}: of one core`, unit: '%', value: percent, want: atMost(3) })
    report({ name: `${name}: renewals`, unit: 'leases/s', value: renewals })
    report({ name: `${name}: messages`, unit: 'messages/s', value: messages })
  })
}
