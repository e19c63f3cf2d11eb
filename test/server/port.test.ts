import { once } from 'node:events'
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'
import { afterAll, describe, expect, test } from 'vitest'
import { propose } from '../../src/lessor/propose.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { DEFAULT_LIMITS } from '../../src/server/limits.ts'
import { addressOf, serve } from '../../src/server/serve.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { RemoteLessor } from '../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../src/wire/resp/dial.ts'
import { describeWith, find } from '../support/engine.ts'
import { command, place, Raw } from '../support/resp-place.ts'

const folder = mkdtempSync(join(tmpdir(), 'leasehold-port-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** Everything that the server sends until it hangs up. */
async function whole(port: number, bytes: string | Uint8Array): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1' })
  socket.on('error', () => {})
  let said = ''
  socket.on('data', chunk => (said += chunk.toString('latin1')))
  socket.write(bytes)
  await closed(socket)
  return said
}

const closed = (socket: Socket) => new Promise<void>(resolve => (socket.destroyed ? resolve() : socket.once('close', () => resolve())))

describe('the first bytes', () => {
  test('one port serves HTTP and RESP, even if the bytes arrive one by one', async () => {
    await using here = await place({ http: () => createHttpServer((_, response) => response.end('hello\n')) })
    const answer = await fetch(`http://127.0.0.1:${here.port}/`, { headers: { connection: 'close' } })
    expect(await answer.text()).toBe('hello\n')
    const socket = connect({ port: here.port, host: '127.0.0.1', noDelay: true })
    for (const letter of 'GET / HTTP/1.0\r\n\r\n') {
      socket.write(letter)
      await new Promise(resolve => setImmediate(resolve))
    }
    let said = ''
    socket.on('data', chunk => (said += chunk))
    await closed(socket)
    expect(said).toContain('hello')
    using raw = new Raw(here.port)
    expect(await raw.ask('PING')).toBe('PONG')
  })

  const SMUGGLED = '\r\nLEASE.ACQUIRE smuggled TTL 60000 HOLDER evil\r\nLEASE.KEY CREATE evil ALLOW admin\r\nQUIT\r\n'

  test.each([
    'patch',
    'Patch',
    'x',
    'ping',
    'PING',
    'LEASE.LIST',
    'lease.list',
    'ABCDEFGHIJKLMNOPQRST',
    'ABCDEFGH×625',
    '~odd',
    '$1',
    '*1',
    '*0',
  ])('a request with the method %s runs none of the lines below it', async name => {
    await using here = await place({ http: httpListener() })
    const [word = '', times = 1] = name.split('×')
    const method = word.repeat(Number(times))
    const head = `Host: evil.example:${here.port}\r\nOrigin: http://evil.example:${here.port}\r\nContent-Length: ${SMUGGLED.length}\r\n\r\n`
    const said = await whole(here.port, `${method} /x HTTP/1.1\r\n${head}${SMUGGLED}`)
    // What looks like HTTP is refused as HTTP. Anything else gets one RESP error.
    expect(said).toMatch(/^HTTP\/1\.1 4\d\d |^-ERR [^\r\n]*\r\n$/)
    if (/^[A-Za-z.]{1,100}$/.test(method)) expect(said).toMatch(/^HTTP\/1\.1 4/)
    expect((await here.lessor.read({ kind: 'summary' })).value).toMatchObject({ leases: 0, keys: 0 })
  })

  test.each([
    ['a header', 'Host: evil.example\r\n'],
    ['an unknown word', 'nonsense\r\n'],
    ['a request after a command', 'PING\r\nPATCH /x HTTP/1.1\r\n'],
    ['a request that begins like a command', 'PING\r\nPING /x HTTP/1.1\r\n'],
    ['a request after an empty line', '\r\nPING /x HTTP/1.1\r\n'],
    ['a request with quotes', '\r\nPING /"x HTTP/1.1\r\n'],
    ['the beginning of a reply', '$4\r\nPING\r\n'],
    ['a TLS handshake', `\x16\x03\x01\x00\x50\x01\x00\x00\x4c\x03\x03${'\x07'.repeat(32)}\x20`],
    ['a TLS handshake without a line end', '\x16\x03\x01\x00\x50'],
    ['a STUN request', '\x00\x01\x00\x08\x21\x12\xa4\x42'],
  ])('%s gets one error, and nothing after it is executed', async (_, line) => {
    await using here = await place({ http: httpListener() })
    const said = await whole(here.port, Buffer.from(line + SMUGGLED, 'latin1'))
    expect(said).toMatch(/^(\+PONG\r\n)?-ERR [^\r\n]*\r\n$/)
    expect((await here.lessor.read({ kind: 'summary' })).value).toMatchObject({ leases: 0, keys: 0 })
  })

  test('a refused client that does not hang up is disconnected after a while', async () => {
    const clock = new ManualClock()
    await using here = await place({ clock })
    const stays = connect({ port: here.port, host: '127.0.0.1', allowHalfOpen: true })
    stays.on('error', () => {})
    stays.resume()
    stays.write('nonsense\r\n')
    await once(stays, 'end')
    expect(here.server.connections).toBe(1)
    await clock.advance(DEFAULT_LIMITS.bodyTime + 5_000)
    await expect.poll(() => here.server.connections).toBe(0)
    stays.destroy()
  })

  test('a client that sends nothing is disconnected, and so is an HTTP client that never completes its header', async () => {
    const clock = new ManualClock()
    await using here = await place({ clock })
    const silent = connect({ port: here.port, host: '127.0.0.1' })
    await once(silent, 'connect')
    await expect.poll(() => here.server.connections).toBe(1)
    await clock.advance(DEFAULT_LIMITS.headerTime - 1)
    expect(here.server.connections).toBe(1)
    await clock.advance(2)
    await closed(silent)
    expect(here.server.connections).toBe(0)
  })

  test('input that arrived during a stall of the server is read before timeouts are judged', async () => {
    const clock = new ManualClock()
    await using here = await place({ clock })
    using raw = new Raw(here.port)
    await once(raw.socket, 'connect')
    await expect.poll(() => here.server.connections).toBe(1)
    raw.send(command('PING'))
    clock.stall(DEFAULT_LIMITS.headerTime + 5_000)
    expect(await raw.next()).toBe('PONG')
  })

  test('a client that never completes a command is disconnected, an idle one is not', async () => {
    const clock = new ManualClock()
    await using here = await place({ clock })
    using slow = new Raw(here.port)
    using idle = new Raw(here.port)
    expect(await idle.ask('PING')).toBe('PONG')
    expect(await slow.ask('PING')).toBe('PONG')
    slow.send('*2\r\n$4\r\nECHO\r\n$10\r\nabc')
    await expect.poll(() => here.server.connections).toBe(2)
    for (let i = 0; i < 12; i++) {
      await clock.advance(2_000)
      slow.send('d') // a byte now and then is no progress worth waiting for
      await clock.settle()
    }
    await closed(slow.socket)
    expect(await idle.ask('PING')).toBe('PONG')
  })
})

describe('limits', () => {
  test('connections above the limit get LIMIT in their own protocol, and open ones are served', async () => {
    await using here = await place({ limits: { ...DEFAULT_LIMITS, connections: 2 } })
    using first = new Raw(here.port)
    using second = new Raw(here.port)
    expect(await first.ask('PING')).toBe('PONG')
    expect(await second.ask('PING')).toBe('PONG')
    using third = new Raw(here.port)
    expect(((await third.ask('PING')) as Error).message).toMatch(/^LIMIT 2 connections are open/)
    expect(await third.next()).toBe('closed')
    const refused = await fetch(`http://127.0.0.1:${here.port}/`)
    expect(refused.status).toBe(429)
    expect(await refused.json()).toMatchObject({ error: { code: 'LIMIT' } })
    expect(await first.ask('PING')).toBe('PONG')
    first[Symbol.dispose]()
    await expect.poll(() => here.server.connections).toBe(1)
    using fourth = new Raw(here.port)
    expect(await fourth.ask('PING')).toBe('PONG')
  })

  test('giant and endless frames are refused with a protocol error before they are buffered', async () => {
    await using here = await place({ limits: { ...DEFAULT_LIMITS, command: 10_000 } })
    for (const bytes of [
      '*1\r\n$10001\r\n',
      '*99999999\r\n',
      `*2\r\n$4\r\nECHO\r\n$9990\r\n${'x'.repeat(9_990)}\r\n`,
      `ECHO ${'x'.repeat(70_000)}`,
      '*1\r\n$-5\r\n',
      '*1\r\n:5\r\n',
      '*1\r\n$4\r\nPINGPONG\r\n',
    ]) {
      using raw = new Raw(here.port)
      raw.send(bytes)
      expect(((await raw.next()) as Error).message, bytes.slice(0, 20)).toMatch(/^ERR Protocol error/)
      expect(await raw.next()).toBe('closed')
    }
    using raw = new Raw(here.port)
    expect(await raw.ask('ECHO', 'x'.repeat(9_000))).toHaveLength(9_000)
  })

  test('a renewal of more leases than the limit is refused', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    expect(await raw.ask('LEASE.RENEW', ...Array<number>(10_000).fill(1))).toHaveLength(10_000)
    expect(((await raw.ask('LEASE.RENEW', ...Array<number>(10_001).fill(1))) as Error).message).toMatch(/^LIMIT /)
  })

  test('a client that sends requests and never reads is paused, and delays no other client', async () => {
    await using here = await place()
    using other = new Raw(here.port)
    const deaf = connect({ port: here.port, host: '127.0.0.1' })
    deaf.on('error', () => {})
    deaf.pause()
    const echo = command('ECHO', 'x'.repeat(60_000))
    let sent = 0
    const before = process.memoryUsage().rss
    for (; sent < 4_000; sent++)
      if (!deaf.write(echo))
        if (
          !(await Promise.race([
            once(deaf, 'drain').then(() => true),
            new Promise<false>(resolve => setTimeout(() => resolve(false), 500)),
          ]))
        )
          break
    // The client tries to send 240 MB. The server stops reading long before.
    expect(sent).toBeLessThan(1_000)
    expect(process.memoryUsage().rss - before).toBeLessThan(150 << 20)
    expect(await other.ask('PING')).toBe('PONG')
    deaf.destroy()
  })

  test('30 watchers that do not read 30,000 events use bounded memory and get a resync', async () => {
    await using here = await place({ events: 2_000, limits: { ...DEFAULT_LIMITS, watchBuffer: 64 << 10 } })
    const watchers = Array.from({ length: 30 }, () => new Raw(here.port))
    for (const watcher of watchers) {
      expect(await watcher.ask('LEASE.WATCH', '')).toBeTypeOf('number')
      watcher.socket.pause()
    }
    using busy = new Raw(here.port)
    const lease = ((await busy.ask('LEASE.ACQUIRE', 'busy', 'TTL', 600_000)) as number[])[1]!
    expect(await busy.ask('LEASE.RENEW', lease)).toEqual([600_000])
    const value = 'v'.repeat(200)
    const put = Buffer.concat(Array.from({ length: 500 }, (_, i) => command('LEASE.PUT', lease, `k/${i % 10}`, value)))
    const pour = async () => {
      busy.send(put)
      for (let i = 0; i < 500; i++) expect(await busy.next()).toBe('OK')
    }
    for (let i = 0; i < 30; i++) await pour()
    globalThis.gc?.()
    const before = process.memoryUsage().rss
    for (let i = 0; i < 30; i++) await pour()
    globalThis.gc?.()
    expect(process.memoryUsage().rss - before).toBeLessThan(100 << 20)
    expect(here.server.guarded.watches).toBe(30)
    const [late] = watchers
    late!.socket.resume()
    let resynced = false
    for (let i = 0; i < 40_000 && !resynced; i++) resynced = JSON.stringify(await late!.next()).includes('resync')
    expect(resynced).toBe(true)
    for (const watcher of watchers) watcher[Symbol.dispose]()
    await expect.poll(() => here.server.guarded.watches).toBe(0)
  })
})

describe('exposure', () => {
  test('a non-loopback address needs keys, and TLS unless a proxy does it', async () => {
    await using here = await place()
    const { lessor } = here
    await expect(serve({ lessor, listen: '0.0.0.0:0' })).rejects.toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('leasehold key create'),
    })
    await expect(serve({ lessor, listen: '[::]:0', behindProxy: true })).rejects.toMatchObject({ facts: { missing: 'keys' } })
    await propose(lessor, { kind: 'key', name: 'root', hash: 'a'.repeat(64), allow: [{ verb: 'admin', prefix: '' }] })
    await expect(serve({ lessor, listen: '0.0.0.0:0' })).rejects.toMatchObject({ message: expect.stringContaining('--tls-cert') })
    await using open = await serve({ lessor, listen: '0.0.0.0:0', behindProxy: true })
    expect(open.addresses[0]).toMatch(/^0\.0\.0\.0:\d+$/)
  })

  test('an address in use is named in the error, and a bad address is refused', async () => {
    await using here = await place()
    await expect(serve({ lessor: here.lessor, listen: `127.0.0.1:${here.port}` })).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      facts: { inUse: `127.0.0.1:${here.port}` },
    })
    expect(addressOf('7420')).toEqual({ host: '127.0.0.1', port: 7420 })
    expect(addressOf(':1')).toEqual({ host: '127.0.0.1', port: 1 })
    expect(addressOf('[::1]:1')).toEqual({ host: '::1', port: 1 })
    for (const wrong of ['', 'host', 'a:b', '1.2.3.4:70000', '::1:5'])
      expect(() => addressOf(wrong), wrong).toThrow(/not an address to listen on/)
  })

  test('a unix socket is accessible to its user only, and is taken over from a dead process but not from a live one', async () => {
    const path = join(folder, 'socket')
    {
      await using here = await place({ listen: [], socket: path })
      expect(here.server.addresses).toEqual([path])
      expect(statSync(path).mode & 0o777).toBe(0o600)
      await using lessor = await RemoteLessor.open(serverAddressOf(`leasehold://${path}`))
      expect((await lessor.read({ kind: 'summary' })).value.leases).toBe(0)
      await expect(place({ listen: [], socket: path })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    }
    writeFileSync(path, '')
    await expect(place({ listen: [], socket: path })).rejects.toMatchObject({ code: 'INVALID' })
    rmSync(path)
  })
})

describe('a graceful stop', () => {
  test('answers requests in progress, ends waits and watches, and closes idle connections', async () => {
    await using here = await place()
    using holder = new Raw(here.port)
    await holder.ask('LEASE.ACQUIRE', 'a', 'TTL', 60_000)
    using waiter = new Raw(here.port)
    waiter.send(command('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'WAIT', 60_000))
    using watcher = new Raw(here.port)
    await watcher.ask('LEASE.WATCH', '')
    using idle = new Raw(here.port)
    await idle.ask('PING')
    await expect.poll(() => here.server.guarded.waiting).toBe(1)
    using busy = new Raw(here.port)
    busy.send(Buffer.concat(Array.from({ length: 500 }, (_, i) => command('LEASE.ACQUIRE', `b/${i}`, 'TTL', 60_000))))
    const first = await busy.next()
    const closing = here.server.close()
    let answered = Array.isArray(first) ? 1 : 0
    for (let next = await busy.next(); next !== 'closed'; next = await busy.next()) if (Array.isArray(next)) answered++
    expect(((await waiter.next()) as Error).message).toMatch(/^UNAVAILABLE this server is stopping/)
    expect(await waiter.next()).toBe('closed')
    expect(await idle.next()).toBe('closed')
    await closing
    // Every accepted request was answered: each holder knows of its grant.
    const { value } = await here.lessor.read({ kind: 'resources', prefix: 'b' })
    expect(value).toHaveLength(answered)
    expect((await here.lessor.read({ kind: 'resource', resource: 'a' })).value.queue).toEqual([])
    await expect(once(connect({ port: here.port, host: '127.0.0.1' }), 'connect')).rejects.toThrow()
  })

  test('does not wait for clients that do not hang up', async () => {
    const clock = new ManualClock()
    await using here = await place({ clock })
    const stays = connect({ port: here.port, host: '127.0.0.1', allowHalfOpen: true })
    stays.on('error', () => {})
    stays.resume()
    stays.write(command('PING'))
    await once(stays, 'data')
    const closing = here.server.close()
    await once(stays, 'end')
    await clock.settle()
    expect(here.server.connections).toBe(1)
    await clock.advance(6_000)
    await closing
    expect(here.server.connections).toBe(0)
    stays.destroy()
  })
})

describeWith([{ program: 'chromium', packages: ['chromium'] }], 'a page in a browser', () => {
  test('whose DNS name resolves to this machine cannot run a command, with any HTTP method', async () => {
    const evil = createHttpServer((_, response) => {
      response.setHeader('content-type', 'text/html')
      response.setHeader('connection', 'close')
      response.end('<h1>evil</h1>')
    }).listen(0, '127.0.0.1')
    await once(evil, 'listening')
    const { port } = evil.address() as AddressInfo
    const browser = await chromium.launch({
      executablePath: find('chromium')!,
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--no-first-run',
        '--disable-background-networking',
        '--host-resolver-rules=MAP evil.example 127.0.0.1',
      ],
    })
    try {
      const page = await browser.newPage()
      await page.goto(`http://evil.example:${port}/`)
      evil.closeAllConnections()
      await new Promise(resolve => evil.close(resolve))
      await using here = await place({ listen: `127.0.0.1:${port}`, http: httpListener() })
      const answers = await page.evaluate(async methods => {
        const body = '\r\nLEASE.ACQUIRE smuggled TTL 60000 HOLDER evil\r\nLEASE.KEY CREATE evil ALLOW admin\r\nQUIT\r\n'
        const seen: number[] = []
        for (const method of methods)
          seen.push(
            await fetch('/x', { method, body }).then(
              ({ status }) => status,
              () => 0, // cut off while it was still sending
            ),
          )
        return seen
      }, METHODS)
      for (const [i, status] of answers.entries()) expect(status === 0 || (status >= 400 && status < 500), METHODS[i]).toBe(true)
      // One more request through the same port: all requests before it have been handled.
      expect((await fetch(`http://127.0.0.1:${here.port}/healthz`)).status).toBe(200)
      expect((await here.lessor.read({ kind: 'summary' })).value).toMatchObject({ leases: 0, keys: 0 })
    } finally {
      await browser.close()
    }
  })
})

const METHODS = ['patch', 'ping', 'LEASE.LIST', 'ABCDEFGHIJKLMNOPQRST', 'X']
