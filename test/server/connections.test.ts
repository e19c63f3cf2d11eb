/** What unauthenticated and idle clients can cost a server: memory, connections, and an orderly stop. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { describe, expect, test } from 'vitest'
import { systemClock, turn } from '../../src/clock.ts'
import { Writer } from '../../src/kernel/codec/bytes.ts'
import { propose } from '../../src/lessor/propose.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { DEFAULT_LIMITS } from '../../src/server/limits.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { MESSAGES_VERSION, writeClientMessage } from '../../src/wire/messages.ts'
import { Place as CliPlace, eventually } from '../support/cli.ts'
import { describeEngine, engine } from '../support/engine.ts'
import { ask } from '../support/http-world.ts'
import { command, type Place, place, Raw } from '../support/resp-place.ts'

class Peers implements Disposable {
  readonly #port: number
  readonly sockets: Socket[] = []

  constructor(port: number) {
    this.#port = port
  }

  /** A client that sends these bytes and reads nothing. */
  async deaf(bytes: string | Uint8Array): Promise<Socket> {
    const socket = connect({ port: this.#port, host: '127.0.0.1', allowHalfOpen: true })
    socket.on('error', () => {})
    socket.pause()
    this.sockets.push(socket)
    await once(socket, 'connect').catch(() => {})
    socket.write(bytes)
    return socket
  }

  [Symbol.dispose](): void {
    for (const socket of this.sockets) socket.destroy()
  }
}

async function served(here: CliPlace, env: Record<string, string> = {}, ...args: string[]) {
  const server = here.start(['serve', '--listen', '127.0.0.1:0', ...args], { env })
  const [, port] = await server.printed(/http:\/\/127\.0\.0\.1:(\d+)\//)
  return { server, port: Number(port) }
}

describe('a server with a small heap', () => {
  test.each([
    ['/openapi.json', 'GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['a page without a Host header', 'GET / HTTP/1.1\r\n\r\n'],
    ['the page', 'GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n'],
  ])('survives 250 connections that request %s thousands of times and read nothing', async (_, request) => {
    await using here = new CliPlace()
    const { server, port } = await served(here, { NODE_OPTIONS: '--max-old-space-size=96' })
    using peers = new Peers(port)
    const pipeline = request.repeat(Math.ceil(60_000 / request.length))
    for (let i = 0; i < 250; i++) {
      await peers.deaf(pipeline)
      if (i % 10 === 9) expect((await ask(port, undefined, 'GET', '/healthz')).status).toBe(200)
    }
    // The server reads as long as it can. A request after that shows that it is alive.
    for (let i = 0; i < 100; i++) expect((await ask(port, undefined, 'GET', '/healthz')).status).toBe(200)
    server.process.kill('SIGTERM')
    expect(await server.finished).toMatchObject({ code: 0, signal: null })
  })
})

function batchOfReads(): Uint8Array {
  const batch = new Writer()
  for (let id = 1; id <= 500; id++)
    writeClientMessage(batch, { kind: 'read', id, consistent: false, atLeast: 0, query: { kind: 'entries', prefix: 'k' } })
  return Buffer.concat([command('HELLO', 2, 'MESSAGES', MESSAGES_VERSION), command('LEASE.BATCH', batch.view())])
}

describe('a stopping server', () => {
  test.each([
    ['keeps its socket open after QUIT', command('QUIT')],
    ['requested much and reads nothing', Buffer.concat(Array.from({ length: 500 }, () => command('LEASE.ENTRIES', 'k')))],
    ['requested much in batches and reads nothing', batchOfReads()],
    ['requested much over HTTP and reads nothing', 'GET /v1/entries HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(500)],
    ['watches and reads nothing', 'GET /v1/watch?prefix=k&after=1 HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    [
      'never completes its body',
      'POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n{',
    ],
  ])('stops in order and in time, even if a client %s', async (_, bytes) => {
    await using here = new CliPlace()
    const { server, port } = await served(here)
    using raw = new Raw(port)
    const entry = 'v'.repeat(16_000)
    const lease = ((await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', 600_000)) as unknown[])[1] as number
    for (let i = 0; i < 64; i++) expect(await raw.ask('LEASE.PUT', lease, `k/${i}`, entry)).toBe('OK')
    using peers = new Peers(port)
    await peers.deaf(bytes)
    raw[Symbol.dispose]()
    // The server has accepted the one, and knows that the other has disconnected.
    for (let i = 0; i < 20; i++) expect((await ask(port, undefined, 'GET', '/healthz')).status).toBe(200)
    server.process.kill('SIGTERM')
    // The bound is ten seconds, and the machine may be busy. Without a bound some stops never end.
    expect(await server.finished).toMatchObject({ code: 0, signal: null })
  })
})

describeEngine('redis', 'a stopping server on an engine', () => {
  test('stops in time, even if its store has stopped answering', async () => {
    await using redis = await engine('redis')
    await using here = new CliPlace()
    const { server, port } = await served(here, {}, '--store', redis.url)
    using raw = new Raw(port)
    expect(await raw.ask('PING')).toBe('PONG')
    redis.pause()
    try {
      // In progress for as long as the store does not answer.
      raw.send(command('LEASE.ACQUIRE', 'a', 'TTL', 600_000))
      for (let i = 0; i < 5; i++) expect((await ask(port, undefined, 'GET', '/healthz')).status).toBe(200)
      server.process.kill('SIGTERM')
      const { signal, code } = await server.finished
      expect([signal, code === 0 || code === 69]).toEqual([null, true])
    } finally {
      redis.resume()
    }
  })
})

/** A server with keys: `ci` may do everything. */
async function locked(limits: Partial<typeof DEFAULT_LIMITS>, clock = systemClock): Promise<Place> {
  const here = await place({ clock, http: httpListener(), limits: { ...DEFAULT_LIMITS, ...limits } })
  await propose(here.lessor, { kind: 'key', name: 'ci', hash: hashSecret('ci'), allow: [{ verb: 'admin', prefix: '' }] })
  await here.server.guarded.access.reloadKeys()
  return here
}

describe('on a server with keys', () => {
  test('connections without a key cannot use up the slots of clients with a key', async () => {
    await using here = await locked({ connections: 20, reserved: 10, unauthenticatedPerAddress: 100 })
    const known: Raw[] = []
    for (let i = 0; i < 12; i++) {
      const raw = new Raw(here.port)
      expect(await raw.ask('AUTH', 'ci')).toBe('OK')
      known.push(raw)
    }
    const strangers: Raw[] = []
    for (let i = 0; i < 40; i++) {
      const raw = new Raw(here.port)
      expect(await raw.ask('PING')).toBe('PONG')
      strangers.push(raw)
    }
    expect(here.server.connections).toBeLessThanOrEqual(21)
    using late = new Raw(here.port)
    expect(await late.ask('AUTH', 'ci')).toBe('OK')
    expect((await ask(here.port, undefined, 'GET', '/v1/leases', undefined, { authorization: 'Bearer ci' })).status).toBe(200)
    // The oldest ones were closed, and were given the reason.
    expect(String(((await strangers[0]!.next()) as Error).message)).toMatch(/^LIMIT .*without a key/)
    expect(await strangers[0]!.next()).toBe('closed')
    for (const raw of known) expect(await raw.ask('PING')).toBe('PONG')
    for (const raw of [...known, ...strangers]) raw[Symbol.dispose]()
  })

  test('one address has its own limit on connections without a key', async () => {
    await using here = await locked({ connections: 100, reserved: 10, unauthenticatedPerAddress: 5 })
    const strangers = Array.from({ length: 8 }, () => new Raw(here.port))
    for (const raw of strangers) raw.send(command('PING'))
    await eventually('three of them are gone', () => strangers.filter(({ ended }) => ended).length === 3)
    for (const raw of strangers) raw[Symbol.dispose]()
  })

  test('a connection that sends no key is closed soon, and one that has sent a key may be idle', async () => {
    const clock = new ManualClock()
    await using here = await locked({ unauthenticatedTimeout: 5_000 }, clock)
    using unauthenticatedClient = new Raw(here.port)
    using known = new Raw(here.port)
    expect(await unauthenticatedClient.ask('PING')).toBe('PONG')
    expect(await known.ask('AUTH', 'ci')).toBe('OK')
    using peers = new Peers(here.port)
    const browser = await peers.deaf('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n')
    browser.resume()
    await once(browser, 'data')
    const closed = once(browser, 'end')
    await clock.advance(4_000)
    expect(await unauthenticatedClient.ask('PING')).toBe('PONG')
    await clock.advance(3_000)
    await turn()
    expect(String(((await unauthenticatedClient.next()) as Error).message)).toMatch(/^UNAUTHENTICATED this connection sent no key/)
    expect(await unauthenticatedClient.next()).toBe('closed')
    await closed
    expect(await known.ask('PING')).toBe('PONG')
  })

  test('connections of a revoked key count as unauthenticated', async () => {
    const clock = new ManualClock()
    await using here = await locked({ unauthenticatedTimeout: 5_000 }, clock)
    const key = await propose(here.lessor, { kind: 'key', name: 'x', hash: hashSecret('x'), allow: [] })
    await here.server.guarded.access.reloadKeys()
    using known = new Raw(here.port)
    expect(await known.ask('AUTH', 'x')).toBe('OK')
    await propose(here.lessor, { kind: 'unkey', id: (key as { id?: number }).id! })
    await here.server.guarded.access.reloadKeys()
    for (let i = 0; i < 10; i++) await clock.advance(1_000)
    expect(String(((await known.next()) as Error).message)).toMatch(/^UNAUTHENTICATED/)
    expect(await known.next()).toBe('closed')
  })
})

describe('unread responses', () => {
  test('are bounded in total: clients that do not read are closed, unauthenticated ones first, and clients that read stay', async () => {
    await using here = await place({ http: httpListener(), limits: { ...DEFAULT_LIMITS, unread: 8 << 20 } })
    using reader = new Raw(here.port)
    for (const half of ['a', 'b']) {
      const lease = ((await reader.ask('LEASE.ACQUIRE', half, 'TTL', 600_000)) as unknown[])[1] as number
      for (let i = 0; i < 100; i++) expect(await reader.ask('LEASE.PUT', lease, `k/${half}${i}`, 'v'.repeat(16_000))).toBe('OK')
    }
    using peers = new Peers(here.port)
    const closed = new Set<Socket>()
    for (let i = 0; i < 12; i++) {
      const socket = await peers.deaf(
        i % 2 === 0
          ? Buffer.concat(Array.from({ length: 4 }, () => command('LEASE.ENTRIES', 'k')))
          : 'GET /v1/entries HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(4),
      )
      socket.on('close', () => closed.add(socket))
      expect(((await reader.ask('LEASE.ENTRIES', 'k')) as unknown[]).length).toBe(200)
    }
    await eventually('some of them were closed', () => here.server.connections < 10)
    expect(await reader.ask('PING')).toBe('PONG')
  })
})
