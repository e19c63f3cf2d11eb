// The length of the path of a command: the files, functions and calls that one acquire, one renewal and one expiry run, counted by V8.
//
//   npm run path            prints the counts
//   npm run path -- --list  prints the functions of each, too
//
// Counts do not depend on the speed of the machine. Each is the smallest of several, because a timer may run at any moment. The store is in memory where the
// system offers that. A file or function that runs on both sides counts once.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROUNDS = 25
const child = fileURLToPath(new URL('path-child.mjs', import.meta.url))
const list = process.argv.includes('--list')

function start(...args) {
  const started = fork(child, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  const ask = async message => {
    const answer = once(started, 'message')
    started.send(message)
    return (await answer)[0].counted
  }
  return { started, ask, ready: once(started, 'message').then(([{ port }]) => port) }
}

/** A plain RESP client: sends a line, returns the reply. */
async function plain(port) {
  const socket = connect(port, '127.0.0.1').setNoDelay()
  await once(socket, 'connect')
  return {
    async send(...words) {
      socket.write(`*${words.length}\r\n${words.map(word => `$${word.length}\r\n${word}\r\n`).join('')}`)
      const [bytes] = await once(socket, 'data')
      return String(bytes)
    },
    close: () => socket.destroy(),
  }
}

const callsOf = counted => counted.reduce((sum, { calls }) => sum + calls, 0)

/** The smallest of several counts. */
async function smallest(rounds, count) {
  let least
  for (let i = 0; i < rounds; i++) {
    const counted = await count(i)
    if (least === undefined || callsOf(counted) < callsOf(least)) least = counted
  }
  return least
}

function report(name, counted) {
  const files = new Set(counted.map(({ file }) => file)).size
  const functions = new Set(counted.map(({ file, name: fn }) => `${file} ${fn}`)).size
  console.log(
    `${name.padEnd(50)} ${String(files).padStart(4)} files ${String(functions).padStart(5)} functions ${String(callsOf(counted)).padStart(5)} calls`,
  )
  if (!list) return
  for (const { file, name: fn, calls, side = '' } of counted.sort((a, b) => (a.file < b.file ? -1 : 1)))
    console.log(`    ${side} ${file} ${fn.split('@')[0] || '(anonymous)'} × ${calls}`)
}

const folder = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'leasehold-path-'))
const server = start('server', join(folder, 'leases'))
const port = await server.ready
const resp = await plain(port)
const idOf = reply => reply.match(/:(\d+)\r\n/)[1]
try {
  const acquire = i => resp.send('LEASE.ACQUIRE', `path/plain/${i}`, 'TTL', '600000')
  for (let i = 0; i < 20; i++) await acquire(`warm/${i}`)
  report(
    'acquire, plain RESP: server',
    await smallest(ROUNDS, async i => {
      await server.ask('take')
      await acquire(i)
      return server.ask('take')
    }),
  )
  const id = idOf(await acquire('renewed'))
  for (let i = 0; i < 5; i++) await resp.send('LEASE.RENEW', id)
  report(
    'renewal, plain RESP: server',
    await smallest(ROUNDS, async () => {
      await server.ask('take')
      await resp.send('LEASE.RENEW', id)
      return server.ask('take')
    }),
  )
  report(
    'expiry: server',
    await smallest(3, async i => {
      await resp.send('LEASE.ACQUIRE', `path/expired/${i}`, 'TTL', '200')
      await server.ask('take')
      await new Promise(resolve => setTimeout(resolve, 600))
      return server.ask('take')
    }),
  )
  const client = start('client', `leasehold://127.0.0.1:${port}`)
  await client.ready
  for (let i = 0; i < 10; i++) {
    await client.ask('acquire')
    await client.ask('release')
  }
  let both
  for (let i = 0; i < ROUNDS; i++) {
    await server.ask('take')
    const there = (await client.ask('acquire')).map(counted => ({ ...counted, side: 'client' }))
    const here = (await server.ask('take')).map(counted => ({ ...counted, side: 'server' }))
    await client.ask('release')
    if (both === undefined || callsOf(there) + callsOf(here) < callsOf(both)) both = [...there, ...here]
  }
  client.started.disconnect()
  report('acquire, our client: client and server', both)
} finally {
  resp.close()
  server.started.disconnect()
  await once(server.started, 'exit')
  rmSync(folder, { recursive: true, force: true })
}
