import { connect } from 'node:net'
import { describe, expect, test } from 'vitest'
import { type Clock, systemClock, turn } from '../../../src/clock.ts'
import { Writer } from '../../../src/kernel/codec/bytes.ts'
import { propose } from '../../../src/lessor/propose.ts'
import type { GuardedLessor } from '../../../src/server/guarded-lessor.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { hashSecret } from '../../../src/server/key-secret.ts'
import { DEFAULT_LIMITS } from '../../../src/server/limits.ts'
import { RespListener } from '../../../src/server/resp/resp-listener.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { MESSAGES_VERSION, writeClientMessage } from '../../../src/wire/messages.ts'
import { RemoteLessor } from '../../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../../src/wire/resp/dial.ts'
import { command, place, Raw } from '../../support/resp-place.ts'

test('requests are counted by command and result, for other clients and our own', async () => {
  await using here = await place({ http: httpListener() })
  using raw = new Raw(here.port)
  await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', 5_000)
  await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', 5_000)
  await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', 'soon')
  await raw.ask('EVIL"}', 1)
  await raw.ask('PING')
  await using ours = await RemoteLessor.open(serverAddressOf(`leasehold://127.0.0.1:${here.port}`))
  await propose(ours, { kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'a' }] })
  await propose(ours, { kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'b' }] })
  const text = await (await fetch(`http://127.0.0.1:${here.port}/metrics`)).text()
  for (const [asked, code, count] of [
    ['LEASE.ACQUIRE', 'OK', 1],
    ['LEASE.ACQUIRE', 'HELD', 1],
    ['LEASE.ACQUIRE', 'INVALID', 1],
    ['LEASE.BATCH acquire', 'OK', 1],
    ['LEASE.BATCH acquire', 'HELD', 1],
    ['PING', 'OK', 1],
  ])
    expect(text).toContain(`leasehold_requests_total{wire="resp",asked="${asked}",code="${code}"} ${count}\n`)
  expect(text).not.toContain('EVIL')
})

test('incomplete commands of many connections are bounded in total', async () => {
  await using here = await place({ limits: { ...DEFAULT_LIMITS, unfinished: 200_000 } })
  const half = command('LEASE.ACQUIRE', 'x'.repeat(100_000)).subarray(0, 80_000)
  const raws = Array.from({ length: 4 }, () => new Raw(here.port))
  for (const raw of raws) raw.send(half)
  const cut = raws.map(async raw => ((await raw.next()) as Error).message)
  expect(await Promise.race(cut)).toMatch(/^LIMIT .*200000 bytes/)
  // Small commands are not affected, even in two pieces. A refused command no longer counts.
  using small = new Raw(here.port)
  const ping = command('PING')
  small.send(ping.subarray(0, 5))
  small.send(ping.subarray(5))
  expect(await small.next()).toBe('PONG')
  for (const raw of raws) raw.socket.destroy()
  await expect.poll(() => here.server.connections).toBe(1)
  using later = new Raw(here.port)
  later.send(half)
  later.send(command('LEASE.ACQUIRE', 'x'.repeat(100_000)).subarray(80_000))
  expect(((await later.next()) as Error).message).toMatch(/^ERR wrong number of arguments|^INVALID/)
})

describe('a connection', () => {
  test('renews a single lease without a record at the owner of a log, from its second renewal on, and only with its own key', async () => {
    await using here = await place({ owned: true })
    for (const name of ['mine', 'theirs'])
      await propose(here.lessor, { kind: 'key', name, hash: hashSecret(name), allow: [{ verb: 'acquire', prefix: '' }] })
    await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
    using mine = new Raw(here.port)
    using theirs = new Raw(here.port)
    expect(await mine.ask('LEASE.RENEW', 1)).toMatchObject({ message: expect.stringMatching(/^UNAUTHENTICATED/) })
    await mine.ask('AUTH', 'mine')
    await theirs.ask('AUTH', 'theirs')
    const lease = ((await mine.ask('LEASE.ACQUIRE', 'jobs/a', 'TTL', 5_000)) as number[])[1]!
    const { index } = here.lessor.figures
    expect(await mine.ask('LEASE.RENEW', lease)).toEqual([5_000])
    expect(here.lessor.figures).toMatchObject({ index: index! + 1, memoryRenewals: 0 })
    expect(await mine.ask('LEASE.RENEW', lease)).toEqual([5_000])
    expect(here.lessor.figures).toMatchObject({ index: index! + 1, memoryRenewals: 1 })
    expect(await theirs.ask('LEASE.RENEW', lease)).toEqual([-1])
    expect(await mine.ask('LEASE.RENEW', lease + 1_000)).toEqual([-1])
    expect(here.lessor.figures).toMatchObject({ index: index! + 1 })
  })

  test('acquires, renews, is refused and releases', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    const granted = (await raw.ask('LEASE.ACQUIRE', 'jobs/a', 'TTL', 5_000)) as unknown[]
    expect(granted.filter((_, i) => i % 2 === 0)).toEqual(['lease', 'token', 'ttl', 'revision'])
    expect(granted[5]).toBe(5_000)
    const lease = granted[1] as number
    expect(await raw.ask('lease.renew', lease, lease + 1_000)).toEqual([5_000, -1])
    const held = (await raw.ask('LEASE.ACQUIRE', 'jobs/a', 'TTL', '5s', 'HOLDER', 'eve')) as Error
    expect(held.message).toMatch(/^HELD /)
    expect(JSON.parse(held.message.split('\t')[1]!)).toMatchObject({ resource: 'jobs/a', lease })
    expect(await raw.ask('LEASE.RELEASE', lease)).toBe('OK')
    expect(((await raw.ask('LEASE.RELEASE', lease)) as Error).message).toMatch(/^GONE /)
  })

  test('gets its replies in the order of its commands, wherever chunks are split', async () => {
    await using here = await place()
    const asked = Buffer.concat([
      command('PING'),
      command('LEASE.ACQUIRE', 'a', 'b', 'TTL', 1_000),
      Buffer.from('ping there\r\n'),
      command('ECHO', 'é\r\n'),
      command('NOPE', 'x'),
      command('LEASE.SHOW', 'a'),
      Buffer.from('\r\n*0\r\nPING\r\n'),
    ])
    for (const step of [1, 2, 3, 7, 64, asked.length]) {
      using raw = new Raw(here.port)
      for (let at = 0; at < asked.length; at += step) {
        raw.send(asked.subarray(at, at + step))
        await new Promise(resolve => setImmediate(resolve))
      }
      expect(await raw.next()).toBe('PONG')
      const granted = await raw.next()
      expect(await raw.next()).toBe('there')
      expect(await raw.next()).toBe('é\r\n')
      expect(await raw.next()).toMatchObject({ message: "ERR unknown command 'NOPE'" })
      expect(await raw.next()).toContain('grants')
      expect(await raw.next()).toBe('PONG')
      if (Array.isArray(granted)) expect(await raw.ask('LEASE.RELEASE', granted[1] as number)).toBe('OK')
    }
  })
})

const message = async (answer: Promise<unknown>) => ((await answer) as Error).message

/** A listener for sessions on links that are no sockets. */
function listenerOf(guarded: GuardedLessor): RespListener {
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const closing = new AbortController().signal
  return new RespListener({ guarded, clock: systemClock, limits: DEFAULT_LIMITS, log, figures: () => ({}), closing, connections: () => 1 })
}

test('replies are written before the loop looks at sockets again, and a long pipeline leaves turns to other connections', async () => {
  // Each reading of this clock takes a tenth of a millisecond, and it is read before each command.
  let read = 0
  const clock: Clock = Object.assign(Object.create(systemClock) as Clock, { now: () => systemClock.now() + read++ / 10 })
  await using here = await place({ clock })
  const listener = listenerOf(here.server.guarded)
  let replies = 0
  const session = listener.open('local', end => ({
    write: bytes => {
      replies += Buffer.from(bytes).toString().split('+PONG').length - 1
    },
    backlog: 0,
    pause() {},
    resume() {},
    end: () => end.closed(),
    destroy: () => end.closed(),
  }))
  session.data(Buffer.concat(Array.from({ length: 1_000 }, () => command('PING'))))
  const counts: number[] = []
  await new Promise<void>(resolve => process.nextTick(resolve))
  counts.push(replies)
  while (replies < 1_000) {
    await turn()
    counts.push(replies)
  }
  expect(counts[0]).toBeGreaterThan(0)
  for (const [i, count] of counts.entries()) expect(count - (counts[i - 1] ?? 0)).toBeLessThanOrEqual(51)
})

describe('before it has sent a required key, a connection', () => {
  async function locked() {
    const here = await place()
    await propose(here.lessor, { kind: 'key', name: 'root', hash: hashSecret('root'), allow: [{ verb: 'admin', prefix: '' }] })
    await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
    return here
  }

  test.each([
    ['a long argument', '*2\r\n$4\r\nAUTH\r\n$4194000\r\n'],
    ['many arguments', '*500\r\n$4\r\nAUTH\r\n'],
    ['many bytes in short ones', `*10\r\n${`$900\r\n${'x'.repeat(900)}\r\n`.repeat(5)}`],
    ['a long line', `AUTH ${'x'.repeat(5_000)}`],
  ])('cannot have %s kept for it', async (_, bytes) => {
    await using here = await locked()
    using raw = new Raw(here.port)
    expect(await raw.ask('PING')).toBe('PONG')
    raw.send(bytes)
    expect(await message(raw.next())).toMatch(/^ERR Protocol error: a (command|line) before AUTH has at most/)
    expect(await raw.next()).toBe('closed')
  })

  test('cannot make the server buffer unread replies or further commands', async () => {
    await using here = await locked()
    const listener = listenerOf(here.server.guarded)
    let kept = 0
    const session = listener.open('stranger', end => ({
      write: bytes => {
        kept += bytes.length
      },
      get backlog() {
        return kept
      },
      pause() {},
      resume() {},
      end: () => end.closed(),
      destroy: () => end.closed(),
    }))
    const ping = Buffer.concat(Array.from({ length: 200 }, () => command('PING', 'x'.repeat(3_000))))
    for (let at = 0; at < ping.length; at += 8_192) {
      session.data(ping.subarray(at, at + 8_192))
      await turn()
    }
    expect(kept).toBeGreaterThan(1_000)
    expect(kept).toBeLessThan(64 << 10)
    expect(listener.unfinishedBytes).toBeLessThan(20 << 10)
  })

  test('gets the full limits once it has sent one, even in the same chunk, and loses them when its key is revoked or it is reset', async () => {
    await using here = await locked()
    using raw = new Raw(here.port)
    const renew = command('LEASE.RENEW', ...Array<number>(2_000).fill(1))
    raw.send(Buffer.concat([command('HELLO', 2, 'AUTH', 'default', 'root', 'SETNAME', 'me'), renew]))
    expect(await raw.next()).toContain('leasehold')
    expect(await raw.next()).toHaveLength(2_000)
    raw.send(renew.subarray(0, 10_000))
    await new Promise(resolve => setImmediate(resolve))
    raw.send(renew.subarray(10_000))
    expect(await raw.next()).toHaveLength(2_000)
    raw.send(Buffer.concat([command('RESET'), renew]))
    expect(await raw.next()).toBe('RESET')
    expect(await message(raw.next())).toMatch(/before AUTH/)
    using other = new Raw(here.port)
    expect(await other.ask('AUTH', 'root')).toBe('OK')
    await propose(here.lessor, { kind: 'key', name: 'other', hash: hashSecret('other'), allow: [{ verb: 'admin', prefix: '' }] })
    const { value } = await here.lessor.read({ kind: 'keys' })
    await propose(here.lessor, { kind: 'unkey', id: value.find(({ name }) => name === 'root')!.id })
    expect(await message(other.ask('LEASE.LIST'))).toMatch(/^UNAUTHENTICATED /)
    other.send(renew)
    expect(await message(other.next())).toMatch(/before AUTH/)
  })

  test('may use PING, AUTH, RESET and QUIT, and HELLO only with a key', async () => {
    await using here = await locked()
    using raw = new Raw(here.port)
    expect(await raw.ask('PING')).toBe('PONG')
    expect(await message(raw.ask('HELLO'))).toMatch(/^UNAUTHENTICATED /)
    expect(await message(raw.ask('HELLO', 3))).toMatch(/^UNAUTHENTICATED /)
    expect(await raw.ask('RESET')).toBe('RESET')
    expect(await raw.ask('HELLO', 3, 'AUTH', 'default', 'root')).toBeInstanceOf(Map)
    expect(await raw.ask('QUIT')).toBe('OK')
  })

  test('no longer counts after it was refused, even if it does not hang up', async () => {
    await using here = await place({ limits: { ...DEFAULT_LIMITS, unfinished: 200_000 } })
    const half = command('LEASE.ACQUIRE', 'x'.repeat(190_000)).subarray(0, 150_000)
    const stays = Array.from({ length: 4 }, () => connect({ port: here.port, host: '127.0.0.1', allowHalfOpen: true }))
    let cut = 0
    for (const socket of stays) {
      socket.resume().on('end', () => cut++)
      socket.write(half)
    }
    // One command fits, and half of another does not.
    await expect.poll(() => cut).toBeGreaterThan(2)
    using later = new Raw(here.port)
    const echo = command('ECHO', 'x'.repeat(40_000))
    later.send(Buffer.concat([command('PING'), echo.subarray(0, 30_000)]))
    expect(await later.next()).toBe('PONG')
    later.send(echo.subarray(30_000))
    expect(await later.next()).toHaveLength(40_000)
    for (const socket of stays) socket.destroy()
  })
})

describe('a reply belongs to its command, even if other commands follow', () => {
  test('SELECT accepts 0 only', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    expect(await raw.ask('SELECT', 0)).toBe('OK')
    for (const other of [5, -1, 'x', '00x']) expect(await message(raw.ask('SELECT', other))).toBe('ERR DB index is out of range')
    raw.send(Buffer.concat([command('SELECT', 0), command('LEASE.SHOW', 'a'), command('SELECT', 5), command('PING', '0')]))
    expect(await raw.next()).toBe('OK')
    expect(await raw.next()).toContain('grants')
    expect(await message(raw.next())).toBe('ERR DB index is out of range')
    expect(await raw.next()).toBe('0')
    raw.send('SELECT 5\r\n')
    expect(await message(raw.next())).toBe('ERR DB index is out of range')
    raw.send('SELECT 0\r\nPING there\r\n')
    expect(await raw.next()).toBe('OK')
    expect(await raw.next()).toBe('there')
  })

  test('replies show the name and use the protocol of their command', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    raw.send(
      Buffer.concat([
        command('CLIENT', 'SETNAME', 'a'),
        command('CLIENT', 'GETNAME'),
        command('CLIENT', 'INFO'),
        command('CLIENT', 'SETNAME', 'b'),
      ]),
    )
    expect(await raw.next()).toBe('OK')
    expect(await raw.next()).toBe('a')
    expect(await raw.next()).toContain('name=a ')
    expect(await raw.next()).toBe('OK')
    raw.send(
      Buffer.concat([
        command('HELLO', 3),
        command('HELLO'),
        command('LEASE.ACQUIRE', 'a', 'TTL', 5_000),
        command('RESET'),
        command('HELLO'),
      ]),
    )
    expect(((await raw.next()) as Map<unknown, unknown>).get('proto')).toBe(3)
    expect(((await raw.next()) as Map<unknown, unknown>).get('proto')).toBe(3)
    expect(await raw.next()).toBeInstanceOf(Map)
    expect(await raw.next()).toBe('RESET')
    expect(await raw.next()).toContain('proto')
  })

  test('a watch belongs to the caller that started it', async () => {
    await using here = await place()
    for (const prefix of ['jobs', 'other'])
      await propose(here.lessor, { kind: 'key', name: prefix, hash: hashSecret(prefix), allow: [{ verb: 'watch', prefix }] })
    await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
    using raw = new Raw(here.port)
    expect(await raw.ask('AUTH', 'jobs')).toBe('OK')
    raw.send(Buffer.concat([command('LEASE.WATCH', 'jobs'), command('AUTH', 'other')]))
    expect(await raw.next()).toBeTypeOf('number')
    expect(await raw.next()).toBe('OK')
    await propose(here.lessor, { kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'jobs/a' }] })
    expect(await raw.next()).toContain('lease.events')
  })
})

describe('RESET', () => {
  test('gives up places in queues and watches, and pushes nothing to the next caller', async () => {
    await using here = await place()
    using holder = new Raw(here.port)
    const held = ((await holder.ask('LEASE.ACQUIRE', 'a', 'TTL', 60_000)) as number[])[1]!
    using raw = new Raw(here.port)
    await raw.ask('HELLO', 3)
    await raw.ask('LEASE.WATCH', '')
    await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'QUEUE')
    expect(here.server.guarded.waiting).toBe(1)
    while (raw.replies.length > 0) raw.replies.shift()
    // A place that is requested in the same chunk is given up as well.
    raw.send(Buffer.concat([command('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'QUEUE'), command('RESET')]))
    let answer = await raw.next()
    while (answer !== 'RESET') answer = await raw.next()
    await expect.poll(() => here.server.guarded.waiting).toBe(0)
    await expect.poll(async () => (await here.lessor.read({ kind: 'resource', resource: 'a' })).value.queue).toEqual([])
    expect(here.server.guarded.watches).toBe(0)
    expect(await holder.ask('LEASE.RELEASE', held)).toBe('OK')
    expect(await holder.ask('LEASE.ACQUIRE', 'a', 'TTL', 60_000)).toContain('lease')
    expect(await raw.ask('PING')).toBe('PONG')
    expect(raw.replies).toEqual([])
    // A new request gets its push.
    expect(await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'QUEUE')).toContain('position')
    expect(here.server.guarded.waiting).toBe(1)
  })

  test('ends the batch session of our own client', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    const writer = new Writer()
    writeClientMessage(writer, { kind: 'watch', id: 1, prefix: '' })
    await raw.ask('HELLO', 3, 'MESSAGES', MESSAGES_VERSION)
    raw.send(command('LEASE.BATCH', writer.view()))
    expect(await raw.next()).toBe(1)
    expect(await raw.next()).toMatchObject({ items: ['lease.batch', expect.anything()] })
    await expect.poll(() => here.server.guarded.watches).toBe(1)
    expect(await raw.ask('RESET')).toBe('RESET')
    await expect.poll(() => here.server.guarded.watches).toBe(0)
    await propose(here.lessor, { kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'a' }] })
    expect(await raw.ask('PING')).toBe('PONG')
    expect(raw.replies).toEqual([])
  })
})

describe('a client that closes its sending side', () => {
  test('gets all its replies, even after a wait and a read', async () => {
    await using here = await place()
    using holder = new Raw(here.port)
    await holder.ask('LEASE.ACQUIRE', 'a', 'TTL', 60_000)
    using raw = new Raw(here.port)
    raw.socket.allowHalfOpen = true
    raw.socket.end(
      Buffer.concat([
        command('LEASE.LIST'),
        command('LEASE.ACQUIRE', 'a', 'TTL', 60_000, 'WAIT', 60_000),
        command('LEASE.ACQUIRE', 'b', 'TTL', 60_000),
        command('LEASE.LIST', 'b'),
        command('PING'),
      ]),
    )
    expect(JSON.stringify(await raw.next())).toContain('"a"')
    expect(await message(raw.next())).toBe('UNAVAILABLE the connection was closed during the wait')
    expect(await raw.next()).toContain('token')
    expect(JSON.stringify(await raw.next())).toContain('"b"')
    expect(await raw.next()).toBe('PONG')
    expect(await raw.next()).toBe('closed')
    // A process that died looks the same: its place must not outlive it.
    expect((await here.lessor.read({ kind: 'resource', resource: 'a' })).value.queue).toEqual([])
  })

  test('gets all replies of a long pipeline', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    raw.socket.allowHalfOpen = true
    raw.socket.end(Buffer.concat(Array.from({ length: 20_000 }, (_, i) => command('PING', i))))
    for (let i = 0; i < 20_000; i++) expect(await raw.next()).toBe(String(i))
    expect(await raw.next()).toBe('closed')
  })
})

describe('input', () => {
  test.each([
    ['LEASE.ACQUIRE TTL 1000', /^INVALID a resource is missing/],
    ['LEASE.ACQUIRE TTL 1000 HOLDER me', /^INVALID a resource is missing/],
    ['LEASE.ACQUIRE a HOLDER me', /^INVALID TTL is missing/],
    ['LEASE.ACQUIRE a TTL', /^INVALID TTL is missing/],
    ['LEASE.ACQUIRE a TTL 1000 WAIT -5', /^INVALID WAIT must not be negative/],
    ['LEASE.SHOW /a', /^INVALID the resource .*slash/],
    ['LEASE.SHOW a//b', /^INVALID the resource .*empty segment/],
    ['LEASE.HISTORY ..', /^INVALID the resource .*segment/],
  ])('%s', async (line, expected) => {
    await using here = await place()
    using raw = new Raw(here.port)
    expect(await message(raw.ask(...line.split(' ')))).toMatch(expected)
    expect((await here.lessor.read({ kind: 'summary' })).value.leases).toBe(0)
  })

  test('accepts a resource named TTL, and WAIT 0 does not wait', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    expect(await raw.ask('LEASE.ACQUIRE', 'TTL', 'TTL', 60_000)).toContain('lease')
    expect((await here.lessor.read({ kind: 'resource', resource: 'TTL' })).value.grants).toHaveLength(1)
    expect(await message(raw.ask('LEASE.ACQUIRE', 'TTL', 'TTL', 60_000, 'WAIT', 0))).toMatch(/^HELD /)
  })

  test('may start a watch again that was refused', async () => {
    const clock = new ManualClock()
    await using here = await place({ clock, limits: { ...DEFAULT_LIMITS, rate: 1 } })
    await propose(here.lessor, { kind: 'key', name: 'root', hash: hashSecret('root'), allow: [{ verb: 'admin', prefix: '' }] })
    await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
    await clock.advance(5_000)
    using raw = new Raw(here.port)
    await raw.ask('AUTH', 'root')
    expect(await raw.ask('LEASE.WATCH', 'a')).toBeTypeOf('number')
    expect(await message(raw.ask('LEASE.WATCH', 'b'))).toMatch(/^LIMIT /)
    await clock.advance(1_000)
    expect(await raw.ask('LEASE.WATCH', 'b')).toBeTypeOf('number')
  })

  test('in a line has quotes as in redis-cli and Redis', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    raw.send('PING "a b"\r\nECHO \'a b\'\r\n')
    expect(await raw.next()).toBe('a b')
    expect(await raw.next()).toBe('a b')
    raw.send("LEASE.ACQUIRE 'a b' TTL 60000\r\n")
    expect(await raw.next()).toContain('lease')
    expect((await here.lessor.read({ kind: 'resource', resource: 'a b' })).value.grants).toHaveLength(1)
    raw.send('ECHO "a b\r\nPING\r\n')
    expect(await message(raw.next())).toBe('ERR Protocol error: unbalanced quotes in request')
    expect(await raw.next()).toBe('closed')
  })

  test('with an argument of negative length is refused', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    raw.send('*1\r\n$-1\r\n')
    expect(await message(raw.next())).toBe('ERR Protocol error: the length of an argument cannot be negative')
  })
})

describe('a list', () => {
  test('has at most LIMIT items', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    for (const name of ['a/1', 'a/2', 'a/3', 'LIMIT/1'])
      await raw.ask('LEASE.ACQUIRE', name, 'TTL', 60_000, 'HOLDER', name, 'ENTRY', `e/${name}`, 'v')
    expect(await raw.ask('LEASE.LIST')).toHaveLength(4)
    expect(await raw.ask('LEASE.LIST', 'LIMIT', 3)).toHaveLength(3)
    expect(await raw.ask('LEASE.LIST', 'a', 'LIMIT', 2)).toHaveLength(2)
    expect(await raw.ask('LEASE.LIST', 'LIMIT')).toHaveLength(1)
    expect(await raw.ask('LEASE.LIST', 'LIMIT', 'limit', 5)).toHaveLength(1)
    expect(await raw.ask('LEASE.LEASES', 'LIMIT', 3)).toHaveLength(3)
    expect(await raw.ask('LEASE.LEASES', 'PREFIX', 'a', 'LIMIT', 2)).toHaveLength(2)
    expect(await raw.ask('LEASE.LEASES', 'HOLDER', 'a/1', 'LIMIT', 2)).toHaveLength(1)
    expect(await raw.ask('LEASE.ENTRIES', 'e', 'LIMIT', 1)).toHaveLength(1)
    for (const wrong of [0, -1, 100_001, 'all']) expect(await message(raw.ask('LEASE.LIST', 'LIMIT', wrong))).toMatch(/^INVALID LIMIT/)
    expect(await message(raw.ask('LEASE.LIST', 'a', 'b'))).toMatch(/^INVALID /)
    expect(await message(raw.ask('LEASE.LIST', 'a', 'LIMIT'))).toMatch(/^INVALID /)
  })

  test('that is incomplete is refused without LIMIT', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    for (let i = 0; i <= 100; i++) await raw.ask('LEASE.ACQUIRE', ...Array.from({ length: 100 }, (_, j) => `a/${i}/${j}`), 'TTL', 60_000)
    expect(await message(raw.ask('LEASE.LIST'))).toMatch(/^LIMIT the list has more than 10000 resources: use LIMIT n/)
    expect(await raw.ask('LEASE.LIST', 'a', 'LIMIT', 5)).toHaveLength(5)
    expect(await raw.ask('LEASE.LIST', 'a/5')).toHaveLength(100)
  })
})
