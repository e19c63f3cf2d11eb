// Benchmark of the Python client: a free lease beside the usual lock with redis-py, the cost of renewing 10,000 leases, and the time to import it.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
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

async function pairs(report, python, url, turns) {
  const redis = await engine('redis')
  const { ours, bare, floor, asyncio } = JSON.parse(await run(turns, python, here('./python.py'), 'pairs', url, String(redis.port)))
  const locks = { name: 'SET NX PX and the release script with redis-py', about: `Redis ${redis.version}, fsync always`, value: bare }
  report({ name: 'Python: acquire and release of a free lease', unit: 'µs', value: ours, peers: [{ ...locks, want: atMost(2.2) }] })
  report({ name: 'Python: the same two commands over a bare socket', unit: 'µs', value: floor, peers: [locks] })
  report({ name: 'Python: acquire and release with asyncio', unit: 'µs', value: asyncio, peers: [locks] })
}

/** Measures what the clients take by themselves, beside redis-py, in wall-clock and CPU time. */
async function clients(report, python, turns) {
  const echo = spawn(process.execPath, [here('./python-echo.mjs')], { stdio: ['ignore', 'pipe', 'inherit'] })
  try {
    const [port] = await once(echo.stdout, 'data')
    const taken = JSON.parse(await run(turns, python, here('./python.py'), 'clients', String(port).trim()))
    for (const [ours, theirs, how] of [
      ['ours', 'bare', 'threads'],
      ['ours_asyncio', 'bare_asyncio', 'asyncio'],
    ]) {
      for (const [unit, time] of [
        ['wall', 'wall-clock'],
        ['cpu', 'CPU'],
      ]) {
        const peers = [{ name: `redis-py: SET NX PX and the release script, ${how}`, value: taken[theirs][unit] }]
        report({
          name: `Python: the client's part of an acquire and release, ${how}, ${time}`,
          unit: 'µs',
          value: taken[ours][unit],
          peers,
        })
      }
    }
  } finally {
    echo.kill()
  }
}

async function importTime(report, python, times) {
  const taken = []
  // As it is when installed: compiled once, whatever the environment says.
  const env = { PYTHONDONTWRITEBYTECODE: '', PYTHONPYCACHEPREFIX: folder('python-compiled') }
  const script = 'import time; began = time.perf_counter(); import leasehold_client; print((time.perf_counter() - began) * 1000)'
  const starts = []
  for (let i = 0; i <= times; i++) {
    taken.push(Number(await run(env, python, '-c', script)))
    const began = performance.now()
    await run(env, python, '-c', 'pass')
    starts.push(performance.now() - began)
  }
  taken.shift() // the first one compiles
  report({ name: 'Python: import leasehold_client, median of fresh processes', unit: 'ms', value: median(taken), want: atMost(80) })
  report({ name: 'Python: a process that imports nothing, from start to end', unit: 'ms', value: median(starts) })
}

export async function python(report, { quick }) {
  const { python } = await pythonHere()
  await importTime(report, python, quick ? 5 : 21)
  const turns = { TURNS: quick ? '12' : '60' }
  await clients(report, python, turns)
  await using(startServer(), async server => {
    await pairs(report, python, server.url, turns)
    // Two intervals of renewal, or a part of one.
    const forSeconds = quick ? 4 : 30
    const { percent, messages, renewals } = JSON.parse(
      await run({}, python, here('./python.py'), 'renew', server.url, String(LEASES), String(forSeconds)),
    )
    const name = 'Python: renewing 10,000 leases with a ttl of 30 s'
    report({ name: `${name}: of one core`, unit: '%', value: percent, want: atMost(3) })
    report({ name: `${name}: renewals`, unit: 'leases/s', value: renewals })
    report({ name: `${name}: messages`, unit: 'messages/s', value: messages })
  })
}
