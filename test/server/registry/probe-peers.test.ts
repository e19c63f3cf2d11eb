/** Targets that misbehave. Every probe must settle within its timeout, close its connection and release its slot. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync } from 'node:fs'
import { createServer as createHttp2, type Http2Server, type OutgoingHttpHeaders } from 'node:http2'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer as createTls } from 'node:tls'
import { describe, expect, test } from 'vitest'
import { systemClock, turn } from '../../../src/clock.ts'
import { Catalog } from '../../../src/server/registry/catalog.ts'
import { HealthChecks } from '../../../src/server/registry/health-checks.ts'
import { probe } from '../../../src/server/registry/probe.ts'
import { ProbeRules } from '../../../src/server/registry/probe-rules.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeWith, programs } from '../../support/engine.ts'
import { world } from '../../support/http-world.ts'

const LOCAL = new ProbeRules(['127.0.0.1:*'])
const SILENT = { debug() {}, info() {}, warn() {}, error() {} }
const TIMEOUT = 300

interface Peer extends AsyncDisposable {
  readonly port: number
  readonly open: ReadonlySet<Socket>
}

async function listening(server: Server | Http2Server): Promise<Peer> {
  const open = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    open.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => open.delete(socket))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    open,
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

/** Calls `write` again and again until the socket closes. */
function repeat(socket: Socket, write: () => void): void {
  const again = () => {
    if (socket.destroyed) return
    write()
    setTimeout(again, 5)
  }
  again()
}

/** Answers the first bytes of a request with `reply`. */
const after = (reply: (socket: Socket) => void) => createServer(socket => void socket.once('data', () => reply(socket)))

const SWITCH = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'

const PEERS: readonly (readonly [string, string, () => Server])[] = [
  ['answers 101 Switching Protocols', 'http', () => after(socket => socket.write(SWITCH))],
  ['answers 101 and closes the connection', 'http', () => after(socket => socket.end(SWITCH))],
  ['answers 101 and resets the connection', 'http', () => after(socket => socket.write(SWITCH, () => socket.resetAndDestroy()))],
  ['answers 101 without an Upgrade header', 'http', () => after(socket => socket.write('HTTP/1.1 101 X\r\n\r\n'))],
  [
    'announces an upgrade with 200 and never ends the body',
    'http',
    () => after(socket => socket.write('HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n')),
  ],
  [
    'sends informational responses without end',
    'http',
    () => after(socket => repeat(socket, () => socket.write('HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'.repeat(100)))),
  ],
  ['sends 100 Continue without end', 'http', () => after(socket => repeat(socket, () => socket.write('HTTP/1.1 100 Continue\r\n\r\n')))],
  ['sends headers byte by byte', 'http', () => after(socket => repeat(socket, () => socket.write('H')))],
  [
    'sends header lines without end',
    'http',
    () => after(socket => socket.write('HTTP/1.1 200 OK\r\n') && repeat(socket, () => socket.write('X: y\r\n'))),
  ],
  [
    'sends a body that never ends, slowly',
    'http',
    () => after(socket => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n') && repeat(socket, () => socket.write('x'))),
  ],
  [
    'sends a chunk that never ends',
    'http',
    () =>
      after(socket => socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;') && repeat(socket, () => socket.write('x'))),
  ],
  [
    'sends half of its body and closes the connection',
    'http',
    () => after(socket => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf')),
  ],
  ['accepts and sends nothing', 'http', () => createServer(socket => socket.resume())],
  ['accepts and ends its side', 'http', () => createServer({ allowHalfOpen: true }, socket => socket.resume().end())],
  ['resets the connection', 'http', () => after(socket => socket.resetAndDestroy())],
  ['answers with bytes that are not HTTP', 'http', () => after(socket => socket.write(Buffer.alloc(4_000, 0xff)))],
  ['stalls in the TLS handshake', 'https', () => createServer(socket => socket.resume())],
  ['closes the connection in the TLS handshake', 'https', () => after(socket => socket.end())],
  ['resets the TLS handshake', 'https', () => after(socket => socket.resetAndDestroy())],
  ['sends half a TLS record', 'https', () => after(socket => socket.write(Buffer.from([22, 3, 3, 64, 0, 2])))],
  ['sends nothing to gRPC', 'grpc', () => createServer(socket => socket.resume())],
  ['ends its side to gRPC', 'grpc', () => createServer({ allowHalfOpen: true }, socket => socket.resume().end())],
  ['resets gRPC', 'grpc', () => after(socket => socket.resetAndDestroy())],
  ['answers gRPC with HTTP/1.1', 'grpc', () => after(socket => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'))],
  [
    'sends SETTINGS to gRPC without end',
    'grpc',
    () => after(socket => repeat(socket, () => socket.write(Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])))),
  ],
]

describe('a probe settles within its timeout and closes its connection, when the peer', () => {
  test.each(PEERS)('%s (%s)', async (_, scheme, make) => {
    await using peer = await listening(make())
    const result = await probe(`${scheme}://127.0.0.1:${peer.port}/`, { rules: LOCAL, timeout: TIMEOUT })
    expect(result.status).toBe('critical')
    while (peer.open.size > 0) await turn()
  })

  describeWith([programs.openssl], 'speaks TLS and', () => {
    test('stalls after a TLS handshake that it completed', async () => {
      const { cert, key } = certificate()
      const server = createTls({ cert, key }, socket => void socket.on('error', () => {}).resume())
      await using peer = await listening(server)
      // The certificate is self-signed: that alone is critical, and must close the connection.
      expect((await probe(`https://127.0.0.1:${peer.port}/`, { rules: LOCAL, timeout: TIMEOUT })).status).toBe('critical')
      while (peer.open.size > 0) await turn()
    })
  })

  const OK = Buffer.from([0, 0, 0, 0, 2, 8, 1])
  test.each([
    ['answers gRPC without trailers', (stream: Stream) => stream.respond({ ':status': 200 }).end(OK)],
    ['answers gRPC with HTTP 500', (stream: Stream) => stream.respond({ ':status': 500, 'grpc-status': '0' }).end(OK)],
    ['answers gRPC with headers alone', (stream: Stream) => stream.respond({ ':status': 200 }, { endStream: true })],
    ['never ends its gRPC message', (stream: Stream) => stream.respond({ ':status': 200 }).write(OK)],
    ['sends a gRPC message without end', (stream: Stream) => stream.respond({ ':status': 200 }).write(Buffer.alloc(100_000))],
    ['refuses the gRPC stream', (stream: Stream) => stream.close(7)],
    ['ends the gRPC session', (stream: Stream) => stream.session?.destroy()],
    ['says goodbye to gRPC', (stream: Stream) => stream.session?.goaway(0)],
  ])('%s', async (_, answer) => {
    const server = createHttp2()
    server.on('session', session => session.on('error', () => {}))
    server.on('stream', stream => {
      stream.on('error', () => {})
      answer({
        ...{
          session: stream.session,
          write: bytes => stream.write(bytes),
          end: bytes => stream.end(bytes),
          close: code => stream.close(code),
        },
        respond(headers, options) {
          stream.respond(headers, options)
          return this
        },
      })
    })
    await using peer = await listening(server)
    const result = await probe(`grpc://127.0.0.1:${peer.port}`, { rules: LOCAL, timeout: TIMEOUT })
    expect(result.status).toBe('critical')
    while (peer.open.size > 0) await turn()
  })
})

interface Stream {
  readonly session: { destroy(): void; goaway(code: number): void } | undefined
  respond(headers: OutgoingHttpHeaders, options?: object): Stream
  write(bytes: Buffer): void
  end(bytes: Buffer): void
  close(code: number): void
}

function certificate(): { readonly cert: Buffer; readonly key: Buffer } {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-'))
  const at = (name: string) => join(folder, name)
  const words = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', at('key'), '-out', at('cert'), '-days', '2', '-subj', '/CN=a']
  execFileSync('openssl', words, { stdio: 'ignore' })
  return { cert: readFileSync(at('cert')), key: readFileSync(at('key')) }
}

test('more targets than there are slots answer 101, and other checks are still made', async () => {
  await using here = await world()
  await using hostile = await listening(after(socket => socket.write(SWITCH)))
  await using well = await listening(createServer(socket => socket.end()))
  const { lessor, clock } = here
  const catalog = Catalog.of({ lessor, clock, closing: lessor.signal })
  await using checks = await HealthChecks.open({ rules: LOCAL, own: () => false, log: SILENT, lessor, clock, catalog })
  const put = async (instance: string, url: string) => {
    await here.ask('PUT', `/v1/services/worker/${instance}`, { address: 'a:1', ttl: '1h', check: { url, interval: 1_000 } })
    await here.ask('POST', `/v1/services/worker/${instance}/heartbeat`)
  }
  for (let i = 0; i < 80; i++) await put(`hostile-${i}`, `http://127.0.0.1:${hostile.port}/`)
  const until = async (done: () => boolean) => {
    const end = systemClock.now() + EVENT_TIMEOUT
    while (!done() && systemClock.now() < end) {
      await clock.advance(250)
      for (let i = 0; i < 20; i++) await turn()
    }
    expect(done()).toBe(true)
  }
  await until(() => checks.stats.probes >= 160)
  await put('well', `tcp://127.0.0.1:${well.port}`)
  await until(() => catalog.directory.get('worker', 'well')?.revision !== undefined && checkOf(catalog, 'well') === 'passing')
  await checks[Symbol.asyncDispose]()
  for (let i = 0; i < 50; i++) await turn()
  expect(checks.inFlight).toBe(0)
  expect(hostile.open.size).toBe(0)
})

function checkOf(catalog: Catalog, instance: string): string | undefined {
  for (const known of catalog.directory.search({ service: 'worker', all: [], any: [], tags: [], zone: '', statuses: [] }))
    if (known.instance.instance === instance) return known.check?.value.status
  return undefined
}
