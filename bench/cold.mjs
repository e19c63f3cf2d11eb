// A command that comes alone, one every 100 ms: the caches of the processor hold other programs by then, and the core has slept. Counts what the loop of a server takes for
// each, beyond what it takes without commands: of ours, of Redis, and of a bare socket of Node that only answers, which no server on Node can go below.

import { once } from 'node:events'
import { connect as connectTo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { startEcho } from './echo-child.mjs'
import { startServer } from './leasehold.mjs'
import { loopTime } from './loop-time.mjs'
import { percentile, using } from './measure.mjs'
import { startRedis } from './peers/redis.mjs'
import { atMost, oneLine } from './row.mjs'

/** Commands before the first that counts: the server has compiled its code by then. */
const WARM_UP = 6_000

/** Acquires and releases in turn: a lease that is left alone would soon need marks, and lapse. */
async function ours() {
  const server = await startServer()
  let lease
  const command = async (ask, i) => {
    if (i % 2 === 0) lease = /:(\d+)\r\n/.exec(await ask('LEASE.ACQUIRE cold TTL 600000'))[1]
    else await ask(`LEASE.RELEASE ${lease}`)
  }
  return { pid: server.pid, port: server.port, command, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() }
}

async function redis() {
  const server = await startRedis()
  const command = (ask, i) => ask(i % 2 === 0 ? 'SET cold 1 NX PX 600000' : 'DEL cold')
  return { pid: server.pids[0], port: server.port, command, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() }
}

async function bareSocket() {
  const { child, port } = await startEcho()
  return { pid: child.pid, port, command: ask => ask('x'.repeat(60)), [Symbol.asyncDispose]: async () => void child.kill('SIGKILL') }
}

/** The loop's time for each command that comes alone, sorted, and for a pause of the same length without one; in µs. */
async function measured(opening, times) {
  return using(opening(), async ({ pid, port, command }) => {
    const socket = connectTo(port, '127.0.0.1').setNoDelay()
    await once(socket, 'connect')
    const ask = async line => {
      socket.write(`${line}\r\n`)
      return String((await once(socket, 'data'))[0])
    }
    for (let i = 0; i < WARM_UP; i++) await command(ask, i)
    const loopFor = async work => {
      const took = []
      for (let i = 0; i < times; i++) {
        await sleep(80)
        const before = loopTime(pid)
        await work(i)
        await sleep(20)
        took.push((loopTime(pid) - before) * 1_000)
      }
      return took.sort((a, b) => a - b)
    }
    const idle = await loopFor(() => {})
    const busy = await loopFor(i => command(ask, i))
    socket.destroy()
    return at => percentile(busy, at) - percentile(idle, at)
  })
}

const tried = work => work.catch(error => ({ failed: oneLine(error?.message ?? error) }))

export async function cold(report, { quick }) {
  if (loopTime(process.pid) === undefined) return
  const times = quick ? 50 : 200
  const own = await measured(ours, times)
  const peers = {
    'a bare socket of Node': await tried(measured(bareSocket, times)),
    'Redis, SET NX PX and DEL': await tried(measured(redis, times)),
  }
  const row = (name, at, want) =>
    report({
      ...{ name, unit: 'µs', value: own(at), want },
      peers: Object.entries(peers).map(([peer, theirs]) => ({
        name: peer,
        ...(theirs.failed === undefined ? { value: theirs(at) } : theirs),
      })),
    })
  const name = 'a command every 100 ms: time of the loop for each'
  // The median, so that a collection of garbage or a beat of a timer in between does not count.
  row(name, 0.5, atMost(50))
  // On a machine with other work, that work takes the caches and interrupts the loop.
  row(`${name}, of the least disturbed tenth`, 0.1)
}
