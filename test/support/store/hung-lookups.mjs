// Appends to a file while look-ups of names hang, for a test that gives this process a network and a resolver of its own. No look-up is ever answered.
import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns'
import { writeSync } from 'node:fs'
import { FileStore } from '../../../dist/store/file/file.js'

const LOOKUPS = 8
const server = createSocket('udp4')
await new Promise(resolve => server.bind(53, '127.0.0.1', resolve))
const store = new FileStore({ path: process.argv[2] })
let { head } = await store.open()
let ended = 0
const asked = new Set()
const hanging = new Promise(resolve =>
  server.on('message', message => {
    asked.add(/name(\d)/.exec(message.toString('latin1'))?.[1])
    if (asked.size === 2) resolve() // libuv lets look-ups use two of its four threads
  }),
)
for (let i = 0; i < LOOKUPS; i++) lookup(`name${i}.test`, () => ended++)
await hanging
// Enough for several segments, each of which is made, filled and renamed.
for (let i = 0; i < 20; i++) {
  const answer = await store.append(new Uint8Array(100_000), head)
  head = answer.position
}
writeSync(1, JSON.stringify({ appended: head.index, ended }))
process.kill(process.pid, 'SIGKILL') // an orderly exit waits for the look-ups
