import { connect, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { type Route, route } from '../../../src/server/http/route.ts'
import { DEFAULT_LIMITS } from '../../../src/server/limits.ts'
import { type World, world } from '../../support/http-world.ts'

/** More bytes than the socket buffers of both sides hold. */
const LONG = 48 << 20

const long: Route = route({
  method: 'GET',
  path: '/long',
  summary: 'A long answer.',
  handle: () => ({ status: 200, type: 'text/plain', body: 'x'.repeat(LONG) }),
})
let taken = 0
const flowing: Route = route({
  method: 'GET',
  path: '/flowing',
  summary: 'A long answer, made while it is read.',
  handle: () => ({
    status: 200,
    type: 'application/octet-stream',
    body: (async function* () {
      const piece = Buffer.alloc(1 << 20)
      for (taken = 0; taken < LONG; taken += piece.length) yield piece
    })(),
  }),
})

class Talk {
  readonly socket: Socket
  text = ''
  bytes = 0
  closed = false

  constructor(here: World) {
    this.socket = connect({ port: here.port, host: '127.0.0.1', allowHalfOpen: true })
    this.socket.on('error', () => {})
    this.socket.on('data', chunk => {
      this.bytes += chunk.length
      if (this.text.length < 10_000) this.text += chunk
    })
    this.socket.on('end', () => this.socket.end())
    this.socket.on('close', () => (this.closed = true))
  }

  /** Ends with the connection, too: after that nothing arrives, and a loop without an end would take a core from all tests that follow in this process. */
  async until(is: (talk: Talk) => boolean): Promise<string> {
    while (!is(this) && !this.closed) await turn()
    return this.text
  }
}

test('a backup is aborted when its client disconnects', async () => {
  await using inner = await world()
  let left = false
  const waiting = new Proxy(inner.lessor, {
    get(target, name) {
      if (name === 'backup')
        return async function* ({ signal }: { readonly signal: AbortSignal }): AsyncGenerator<Uint8Array, void, void> {
          await new Promise(resolve => signal.addEventListener('abort', resolve))
          left = true
        }
      const value = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  await using here = await world({ lessor: waiting })
  const talk = ask(here, 'GET /v1/backup HTTP/1.1\r\nHost: localhost\r\n\r\n')
  await talk.until(({ text }) => text.startsWith('HTTP/1.1 200 '))
  talk.socket.end()
  await expect.poll(() => left).toBe(true)
})

test('the unfinished bodies of all connections together are limited', async () => {
  await using here = await world({ limits: { ...DEFAULT_LIMITS, unfinished: 100_000 } })
  const head = (bytes: number) =>
    `POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\n\r\n`
  const halves = Array.from({ length: 4 }, () => ask(here, head(60_000) + ' '.repeat(40_000)))
  const refused = await Promise.race(halves.map(half => half.until(({ text }) => text !== '')))
  expect(refused).toMatch(/^HTTP\/1\.1 429 .*Connection: close.*"LIMIT".*100000 bytes/s)
  // Small requests are not affected, and bodies that were refused or cut off do not count any more.
  const body = JSON.stringify({ resources: ['a'], holder: 'ann' })
  const small = ask(here, head(body.length) + body)
  expect(await small.until(({ text }) => text.includes('}'))).toMatch(/^HTTP\/1\.1 201 /)
  for (const half of halves) half.socket.destroy()
  await expect.poll(() => here.server.connections).toBe(1)
  const later = ask(here, head(60_000) + ' '.repeat(60_000))
  expect(await later.until(({ text }) => text !== '')).toMatch(/^HTTP\/1\.1 400 /)
})

function ask(here: World, text: string): Talk {
  const talk = new Talk(here)
  talk.socket.write(text)
  return talk
}

/** Sends a request as `curl -d` does, and closes the sending half of the connection. */
function askHalf(here: World, method: string, path: string, body?: object, version = '1.1'): Talk {
  const text = body === undefined ? '' : JSON.stringify(body)
  const head = `${method} ${path} HTTP/${version}\r\nHost: localhost\r\n`
  const talk = new Talk(here)
  talk.socket.end(
    body === undefined ? `${head}\r\n` : `${head}Content-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`,
  )
  return talk
}

async function until(is: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await is())) await turn()
}

test.each(['/long', '/flowing'])('a client that does not read its response is disconnected: GET %s', async path => {
  await using here = await world({ httpOptions: { routes: [long, flowing] }, limits: { ...DEFAULT_LIMITS, drainTime: 1_000 } })
  const talks = Array.from({ length: 3 }, () => new Talk(here))
  for (const { socket } of talks) {
    socket.pause()
    socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
  }
  await until(() => here.server.connections === 3)
  // No client reads, so all are disconnected in time, however often the server checks.
  await until(async () => {
    await here.clock.advance(400)
    return here.server.connections === 0
  })
  for (const { socket } of talks) socket.resume()
  await until(() => talks.every(({ closed }) => closed))
  for (const { bytes } of talks) expect(bytes).toBeLessThan(LONG)
  expect((await here.ask('GET', '/healthz')).status).toBe(200)
})

test.each(['/long', '/flowing'])('a client that reads slowly gets the whole response: GET %s', async path => {
  await using here = await world({ httpOptions: { routes: [long, flowing] }, limits: { ...DEFAULT_LIMITS, drainTime: 1_000 } })
  const talk = ask(here, `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
  for (let seen = 0; talk.bytes < LONG; seen = talk.bytes) {
    expect(talk.closed).toBe(false)
    talk.socket.resume()
    await until(() => talk.closed || talk.bytes >= Math.min(LONG, seen + (6 << 20)))
    talk.socket.pause()
    // Reading is progress, and restarts the time limit.
    for (let i = 0; i < 20; i++) await turn()
    await here.clock.advance(900)
  }
  expect(talk.bytes).toBeGreaterThan(LONG)
  talk.socket.destroy()
})

test('a client that reads none of many small responses is disconnected', async () => {
  await using here = await world({ limits: { ...DEFAULT_LIMITS, drainTime: 1_000 } })
  const talk = new Talk(here)
  talk.socket.pause()
  const many = 'GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(1_000)
  talk.socket.write(many)
  await until(() => here.server.connections === 1)
  await until(async () => {
    await here.clock.advance(400)
    return here.server.connections === 0
  })
})

test('a response that waits for the one before it has its own time limit', async () => {
  await using here = await world({ limits: { ...DEFAULT_LIMITS, drainTime: 1_000 } })
  await here.ask('POST', '/v1/leases', { resources: ['a'], holder: 'ann', ttl: '10m' })
  const body = JSON.stringify({ resources: ['a'], holder: 'bob', wait: '20s' })
  const talk = ask(
    here,
    `POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n`,
  )
  await until(() => here.server.guarded.waiting === 1)
  for (let i = 0; i < 21; i++) await here.clock.advance(1_000)
  expect(await talk.until(({ text }) => text.includes('"ok"'))).toMatch(/^HTTP\/1\.1 408 .*TIMEOUT.*HTTP\/1\.1 200 /s)
  talk.socket.destroy()
})

test('a client that half-closes its connection is answered, at once and after a wait', async () => {
  await using here = await world()
  const first = askHalf(here, 'POST', '/v1/leases', { resources: ['a'], holder: 'ann', ttl: '10m', wait: '1s' })
  expect(await first.until(({ closed }) => closed)).toMatch(/HTTP\/1\.1 201 /)
  const { lease } = JSON.parse(first.text.slice(first.text.lastIndexOf('\r\n\r\n')))
  const timedOut = askHalf(here, 'POST', '/v1/leases', { resources: ['a'], holder: 'bob', wait: '10s' })
  await until(() => here.server.guarded.waiting === 1)
  for (let i = 0; i < 12; i++) await here.clock.advance(1_000)
  expect(await timedOut.until(({ closed }) => closed)).toMatch(/^(HTTP\/1\.1 100 Continue\r\n\r\n)*HTTP\/1\.1 408 .*"TIMEOUT"/s)
  const granted = askHalf(here, 'POST', '/v1/leases', { resources: ['a'], holder: 'bob', wait: '10s' })
  await until(() => here.server.guarded.waiting === 1)
  await here.ask('DELETE', `/v1/leases/${lease}`)
  expect(await granted.until(({ closed }) => closed)).toMatch(/^(HTTP\/1\.1 100 Continue\r\n\r\n)*HTTP\/1\.1 201 .*"waited":true/s)
  for (const path of ['/v1/leases', '/v1/backup', '/readyz'])
    expect(await askHalf(here, 'GET', path).until(({ closed }) => closed)).toMatch(/^HTTP\/1\.1 200 /)
  // HTTP/1.0 has no interim responses to detect a lost client with, so the wait ends.
  const old = askHalf(here, 'POST', '/v1/leases', { resources: ['a'], holder: 'eve', wait: '10s' }, '1.0')
  expect(await old.until(({ closed }) => closed)).toMatch(/^HTTP\/1\.1 503 /)
  expect(here.server.guarded.waiting).toBe(0)
  // A watch has no end of its own.
  expect(await askHalf(here, 'GET', '/v1/watch').until(({ closed }) => closed)).toMatch(/^HTTP\/1\.1 200 .*event-stream/s)
  expect(here.server.guarded.watches).toBe(0)
})

test('all waiters of a pipeline leave the queue when the connection is reset', async () => {
  await using here = await world()
  await here.ask('POST', '/v1/leases', { resources: ['a'], holder: 'ann', ttl: '10m' })
  const body = JSON.stringify({ resources: ['a'], holder: 'bob', wait: '5m' })
  const one = `POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  const talk = ask(here, one + one)
  await until(() => here.server.guarded.waiting === 2)
  talk.socket.resetAndDestroy()
  await until(() => here.server.guarded.waiting === 0)
})

test('ambiguous headers and unsupported encodings are refused', async () => {
  await using here = await world()
  const head = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n'
  const closed = (text: string) => ask(here, text).until(talk => talk.closed)
  for (const twice of ['Host: localhost', 'HOST: evil.example', 'Authorization: Bearer a\r\nauthorization: Bearer b'])
    expect(await closed(`${head}${twice}\r\n\r\n`)).toMatch(/^HTTP\/1\.1 400 .*"INVALID".*twice/s)
  const expected = await closed(`${head}Expect: 200-ok\r\n\r\n`)
  expect(expected).toMatch(/^HTTP\/1\.1 417 /)
  expect(expected).toContain('X-Content-Type-Options: nosniff\r\n')
  expect(expected).toContain('Content-Type: application/json\r\n')
  expect(expected).toContain('"INVALID"')
  const body = { resources: ['a'], holder: 'ann' }
  for (const encoding of ['gzip', 'br', 'gzip, identity', ''])
    expect((await here.ask('POST', '/v1/leases', body, { 'content-encoding': encoding })).status).toBe(415)
  expect((await here.ask('POST', '/v1/leases', body, { 'content-encoding': 'Identity' })).status).toBe(201)
})
