// A process whose socket sends back what it gets: what no server on Node can go below. Started by `startEcho`.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import { endsWithRun } from './engine.mjs'

const self = fileURLToPath(import.meta.url)

export async function startEcho() {
  const child = endsWithRun(fork(self))
  const [{ port }] = await once(child, 'message')
  return { child, port }
}

if (process.argv[1] === self) {
  const server = createServer(socket => {
    socket.setNoDelay()
    socket.on('data', bytes => socket.write(bytes))
    socket.on('error', () => {})
  })
  server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }))
}
