// Benchmark of HTTP: 64 connections to a server in its own process on an owned file, with every acknowledgement durable, compared with a bare Node server
// that parses the same JSON and sends an answer of the same size. The client writes requests as bytes, because `fetch` would measure the client.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import { fileURLToPath } from 'node:url'
import { endsWithRun } from './engine.mjs'
import { startServer } from './leasehold.mjs'
import { throughput, using } from './measure.mjs'
import { inRounds, perSecond } from './rounds.mjs'
import { atLeast } from './row.mjs'

const CONNECTIONS = 64
const self = fileURLToPath(import.meta.url)

/** Sends requests over one connection and waits for each answer, which arrives in one piece. */
function lane(port) {
  const socket = connect(port, '127.0.0.1').setNoDelay()
  socket.setEncoding('latin1')
  let [answered, failed] = [() => {}, () => {}]
  socket.on('data', text => answered(text))
  socket.on('error', error => failed(error))
  return {
    ask(method, path, body = '') {
      const head = `${method} ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`
      socket.write(head + body)
      return new Promise((resolve, reject) => ([answered, failed] = [resolve, reject]))
    },
    close: () => socket.destroy(),
  }
}

async function measured(port, each, forSeconds) {
  const lanes = Array.from({ length: CONNECTIONS }, () => lane(port))
  try {
    return await perSecond(() => throughput((i, n) => each(lanes[i], i, n), { inFlight: CONNECTIONS, forSeconds, warmUp: 0 }))
  } finally {
    for (const { close } of lanes) close()
  }
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

async function bareListener() {
  const running = endsWithRun(fork(self, ['bare']))
  const [{ port }] = await once(running, 'message')
  return {
    port,
    pids: [running.pid],
    async [Symbol.asyncDispose]() {
      const gone = once(running, 'exit')
      running.kill('SIGTERM')
      await gone
    },
  }
}

export async function http(report, { rounds, forSeconds }) {
  await using(bareListener(), bare =>
    using(startServer(), async server => {
      const peer = { name: 'a bare node:http listener, the same JSON', port: bare.port, pids: bare.pids, each: acquire }
      const ours = { port: server.port, pids: server.pids }
      const measure = ({ port, each }) => measured(port, each, forSeconds)
      const acquired = await inRounds({ ...ours, each: acquire }, [{ ...peer, want: atLeast(0.55) }], { rounds, measure })
      report({ name: 'HTTP: acquire, 64 connections, each durable', unit: 'requests/s', ...acquired })
      const leases = []
      const renew = async (from, i) => {
        leases[i] ??= /"lease":(\d+)/.exec(await acquire(from, i, 'renewed'))[1]
        await from.ask('POST', `/v1/leases/${leases[i]}/renew`)
      }
      const renewed = await inRounds({ ...ours, each: renew }, [peer], { rounds, measure })
      report({ name: 'HTTP: renew one lease, 64 connections', unit: 'requests/s', ...renewed })
    }),
  )
}

if (process.argv[1] === self && process.argv[2] === 'bare') {
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
