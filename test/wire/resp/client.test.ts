/** The client with servers that are gone, silent or broken, or are no Leasehold servers. */
import { once } from 'node:events'
import { createServer, type Server as NetServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { systemClock } from '../../../src/clock.ts'
import { connect, open } from '../../../src/connect/connect.ts'
import { LeaseError } from '../../../src/errors.ts'
import { Operations } from '../../../src/holder/operations.ts'
import { propose } from '../../../src/lessor/propose.ts'
import type { Completion, Lessor } from '../../../src/lessor.ts'
import { hashSecret } from '../../../src/server/key-secret.ts'
import { MESSAGES_VERSION } from '../../../src/wire/messages.ts'
import { RemoteLessor } from '../../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../../src/wire/resp/dial.ts'
import { place } from '../../support/resp-place.ts'

/** A server that calls `answer` for each chunk it receives. */
async function impostor(answer: (socket: Socket, chunk: Buffer) => void): Promise<NetServer & { readonly at: string } & AsyncDisposable> {
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('data', chunk => answer(socket, chunk))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  return Object.assign(server, {
    at: `127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  })
}

const PROFILE = JSON.stringify({ store: 'x', durable: true, failover: false, push: true, shared: false, ages: true, notes: [] })
const GREETING = `%3\r\n$8\r\nmessages\r\n:${MESSAGES_VERSION}\r\n$8\r\nrevision\r\n:5\r\n$7\r\nprofile\r\n$${PROFILE.length}\r\n${PROFILE}\r\n`
const acquire = (resource: string) => ({ kind: 'acquire', holder: 'me', ttl: 5_000, wants: [{ resource }] }) as const

test('leasehold:// opens leases on a server, with a key from the address', async () => {
  await using here = await place()
  await propose(here.lessor, { kind: 'key', name: 'root', hash: hashSecret('s3cret/+'), allow: [{ verb: 'admin', prefix: '' }] })
  await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
  await using leases = await connect(`leasehold://${encodeURIComponent('s3cret/+')}@127.0.0.1:${here.port}`)
  await using lease = await leases.acquire('a', { ttl: 5_000 })
  expect(lease.token).toBeGreaterThan(0)
  await expect(open(`leasehold://127.0.0.1:${here.port}`)).rejects.toMatchObject({ code: 'UNAUTHENTICATED' })
  await expect(open(`leasehold://wrong@127.0.0.1:${here.port}`)).rejects.toMatchObject({ code: 'UNAUTHENTICATED' })
  await using given = await open(`leasehold://127.0.0.1:${here.port}`, { apiKey: 's3cret/+' })
  expect(given.profile.store).toBe('memory')
})

test('a holder is told when the store of the server no longer promises what its lease requires', async () => {
  await using here = await place()
  const { profile } = here.lessor
  const promise = (failover: boolean) =>
    Object.defineProperty(here.lessor, 'profile', { configurable: true, value: { ...profile, failover } })
  promise(true)
  await using leases = await connect(`leasehold://127.0.0.1:${here.port}`)
  await using lease = await leases.acquire('a', { ttl: '60s', advanced: { require: ['failover'] } })
  const told: unknown[] = []
  lease.onJeopardy(({ broken }) => void told.push(broken))
  await lease.renew()
  expect([lease.atRisk, told]).toEqual([false, []])
  promise(false)
  await lease.renew()
  expect([lease.atRisk, told]).toEqual([true, [['failover']]])
  await expect(leases.acquire('b', { advanced: { require: ['failover'] } })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
})

test('a malformed address is INVALID, and the message does not contain its key', () => {
  for (const url of [
    'leasehold://',
    'leasehold://a:b',
    'leasehold://a:99999',
    'leasehold://a/b',
    'leasehold://a?x=1',
    'leasehold://%zz@a',
    'leasehold://[::1',
    'leasehold://a:0',
  ])
    expect(() => serverAddressOf(url), url).toThrow(expect.objectContaining({ code: 'INVALID' }))
  expect(() => serverAddressOf('leasehold://topsecret@a:b')).toThrow(
    expect.not.objectContaining({ message: expect.stringContaining('topsecret') }),
  )
  expect(serverAddressOf('leasehold://k@a,b:1,[::1]:2').dials.map(({ name }) => name)).toEqual(['a:7420', 'b:1', '[::1]:2'])
})

test('without a server, open throws UNAVAILABLE within the given time and names the addresses', async () => {
  await using silent = await impostor(() => {})
  await using rude = await impostor(socket => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'))
  const failed = RemoteLessor.open({ ...serverAddressOf(`leasehold://127.0.0.1:1,${silent.at},${rude.at}`), connectWithin: 400 })
  await expect(failed).rejects.toMatchObject({ code: 'UNAVAILABLE', message: expect.stringContaining(silent.at) })
})

test('bytes that no Leasehold server sends end the connection, and the client tries the next server', async () => {
  await using here = await place()
  const nonsense = [
    '+OK\r\n',
    '*1\r\n',
    ':x\r\n',
    '%1\r\n+a\r\n+b\r\n',
    '$99999999999\r\n',
    '\0\0\0',
    `${'*1\r\n'.repeat(50)}`,
    GREETING.replace(':5', ':-5'),
  ]
  for (const bytes of nonsense) {
    await using other = await impostor(socket => socket.write(bytes))
    await using lessor = await RemoteLessor.open(serverAddressOf(`leasehold://${other.at},127.0.0.1:${here.port}`))
    expect((await lessor.read({ kind: 'summary' })).value.leases, JSON.stringify(bytes)).toBe(0)
    expect(lessor.server).toBe(`127.0.0.1:${here.port}`)
  }
})

test('an answer that cannot be read, or answers no request, makes the pending request UNKNOWN', async () => {
  for (const bytes of ['\x09\x01', '\x00\x01\xff\xff', '\x04\x01\x02[]', '\x02\x01\x04null']) {
    const frame = Buffer.concat([
      Buffer.from(`>2\r\n$11\r\nlease.batch\r\n$${bytes.length}\r\n`),
      Buffer.from(bytes, 'latin1'),
      Buffer.from('\r\n'),
    ])
    let first = true
    await using other = await impostor(socket => {
      socket.write(first ? GREETING : frame)
      first = false
    })
    await using lessor = await RemoteLessor.open({ ...serverAddressOf(`leasehold://${other.at}`), timeout: 300 })
    const failed: unknown = await propose(lessor, acquire('a')).catch(error => error)
    expect(failed).toBeInstanceOf(LeaseError)
    expect((failed as LeaseError).code, JSON.stringify(bytes)).toBe('UNKNOWN')
  }
})

test('a request that was sent is UNKNOWN, one that was not sent is UNAVAILABLE, and an operation is sent again elsewhere', async () => {
  await using here = await place()
  let greet = true
  await using swallows = await impostor((socket, chunk) => {
    if (!greet) return socket.destroy()
    if (chunk.includes('HELLO')) socket.write(GREETING)
    else {
      greet = false
      socket.destroy()
    }
  })
  {
    await using lessor = await RemoteLessor.open({ ...serverAddressOf(`leasehold://${swallows.at}`), timeout: 500 })
    await expect(propose(lessor, acquire('a'))).rejects.toMatchObject({ code: 'UNKNOWN' })
    await expect(propose(lessor, acquire('a'))).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await expect(lessor.read({ kind: 'summary' })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  }
  greet = true
  const dials = serverAddressOf(`leasehold://${swallows.at},127.0.0.1:${here.port}`).dials
  // Start with the server that swallows requests.
  await using lessor = await RemoteLessor.open({ dials, clock: Object.assign(Object.create(systemClock), { random: () => 0 }) })
  const outcome = await new Operations(lessor, systemClock).decide(acquire('named'))
  expect(outcome.kind).toBe('granted')
  expect(lessor.server).toBe(`127.0.0.1:${here.port}`)
})

// How soon it leaves is shown in virtual time by silence.test.ts.
test('the client leaves a silent server for the next one, which answers what is sent again', async () => {
  await using here = await place()
  await using other = await place()
  const dials = [here, other].map(({ port }) => serverAddressOf(`leasehold://127.0.0.1:${port}`).dials[0]!)
  await using lessor = await RemoteLessor.open({ dials })
  const ttl = 18_000
  const outcome = await propose(lessor, { ...acquire('a'), ttl })
  expect(outcome.kind).toBe('granted')
  const first = lessor.server!
  const stalled = [here, other].find(({ port }) => first.endsWith(`:${port}`))!
  // It receives and does not answer, as a stopped process whose kernel still accepts bytes.
  const pending: Completion[] = []
  using _released = {
    [Symbol.dispose]() {
      for (const completion of pending) completion.fail(new LeaseError('UNKNOWN', 'no answer')) // a server that stops waits for its answers
    },
  }
  stalled.server.guarded.submit = (_caller, _command, _options, completion) => void pending.push(completion)
  const renewal = { kind: 'renew', leases: [5] } as const
  await expect(propose(lessor, renewal)).rejects.toMatchObject({ code: 'UNKNOWN' })
  expect((await propose(lessor, renewal)).kind).toBe('renewed')
  expect(lessor.server).not.toBe(first)
})

test('a backup over RESP is complete, and needs a key that administers everything', async () => {
  await using here = await place()
  for (let i = 0; i < 200; i++) await propose(here.lessor, acquire(`a/${i}`))
  const whole = async (lessor: Lessor) => {
    const chunks: Uint8Array[] = []
    for await (const chunk of lessor.backup!()) chunks.push(Uint8Array.from(chunk))
    return Buffer.concat(chunks)
  }
  await using lessor = await RemoteLessor.open(serverAddressOf(`leasehold://127.0.0.1:${here.port}`))
  const [near, far] = [await whole(here.lessor), await whole(lessor)]
  expect(far.length).toBe(near.length)
  const some = lessor.backup!()[Symbol.asyncIterator]()
  await some.next()
  await some.return!(undefined)
  const stop = new AbortController()
  stop.abort(new Error('enough'))
  await expect(lessor.backup!({ signal: stop.signal })[Symbol.asyncIterator]().next()).rejects.toThrow('enough')
  await propose(here.lessor, { kind: 'key', name: 'reader', hash: hashSecret('reader'), allow: [{ verb: 'read', prefix: '' }] })
  await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
  await using reader = await RemoteLessor.open({ ...serverAddressOf(`leasehold://127.0.0.1:${here.port}`), key: 'reader' })
  await expect(whole(reader)).rejects.toMatchObject({ code: 'FORBIDDEN' })
})
