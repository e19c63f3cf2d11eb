// Benchmark of HTTP: 64 connections to a server in its own process on an owned file, with every acknowledgement durable, compared with a bare Node server
// that parses the same JSON and sends an answer of the same size. The client writes requests as bytes, because `fetch` would measure the client.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { scratch, throughput } from './measure.mjs'

const CONNECTIONS = 64
const self = fileURLToPath(import.meta.url)

/** Sends requests over one connection and waits for each answer, which arrives in one piece. */
function lane(port) {
  const socket = connect(port, '127.0.0.1').setNoDelay()
  socket.setEncoding('latin1')
  let answered = () => {}
  socket.on('data', text => answered(text))
  return {
    ask(method, path, body = '') {
      const head = `${method} ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`
      socket.write(head + body)
      return new Promise(resolve => (answered = resolve))
    },
    close: () => socket.destroy(),
  }
}

async function measured(port, each) {
  const lanes = Array.from({ length: CONNECTIONS }, () => lane(port))
  const result = await throughput((i, n) => each(lanes[i], i, n), { inFlight: CONNECTIONS })
  for (const { close } of lanes) close()
  return result
}

async function acquire(from, i, n) {
  const answer = await from.ask(
    'POST',
    '/v1/leases',
    `{"resources":["bench/${process.hrtime.bigint()}/${i}/${n}"],"holder":"ann","ttl":30000}`,
  )
  if (!answer.startsWith('HTTP/1.1 201')) throw new Error(answer)
  return answer
}

async function child(program, ...args) {
  const running = fork(program, args)
  const [{ port }] = await once(running, 'message')
  return {
    port,
    async [Symbol.asyncDispose]() {
      const gone = once(running, 'exit')
      running.kill('SIGTERM')
      await gone
    },
  }
}

export async function http(report) {
  const bare = await child(self, 'bare')
  const listener = await measured(bare.port, acquire)
  await bare[Symbol.asyncDispose]()
  report('a bare Node listener, the same JSON both ways', listener, 'requests/s')
  const server = await child(fileURLToPath(new URL('./server-child.mjs', import.meta.url)), join(scratch, 'http.db'))
  try {
    const acquired = await measured(server.port, acquire)
    report(`acquire, ${CONNECTIONS} connections, durable`, acquired, 'leases/s', {
      target: 'at least 8,000',
      ratio: acquired / listener,
      against: 'bare',
    })
    const leases = []
    const renewed = await measured(server.port, async (from, i) => {
      leases[i] ??= /"lease":(\d+)/.exec(await acquire(from, i, 'renewed'))[1]
      await from.ask('POST', `/v1/leases/${leases[i]}/renew`)
    })
    report(`renew one, ${CONNECTIONS} connections`, renewed, 'renewals/s', { ratio: renewed / listener, against: 'bare' })
  } finally {
    await server[Symbol.asyncDispose]()
  }
}

if (process.argv[2] === 'bare') {
  const listener = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8')
    request.on('data', chunk => (text += chunk))
    request.on('end', () => {
      const body = JSON.stringify({ ...JSON.parse(text), lease: 1, tokens: {}, expiresAt: '', waited: false, revision: 1 })
      response.writeHead(201, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) }).end(body)
    })
  })
  listener.listen(0, '127.0.0.1', () => process.send({ port: listener.address().port }))
  process.on('SIGTERM', () => process.exit(0))
}
