import { describe, expect, test } from 'vitest'
import { httpDoor } from '../src/server/http/http-door.ts'
import { DEFAULT_LIMITS } from '../src/server/limits.ts'
import { RemoteLessor } from '../src/wire/resp-client.ts'
import { placeOf } from '../src/wire/resp-dial.ts'
import { command, place, Raw } from './resp-place.ts'

test('is counted by command and answer, whoever asks: other clients and our own', async () => {
  await using here = await place({ http: httpDoor() })
  using raw = new Raw(here.port)
  await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', 5_000)
  await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', 5_000)
  await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', 'soon')
  await raw.ask('EVIL"}', 1)
  await raw.ask('PING')
  await using ours = await RemoteLessor.open(placeOf(`leasehold://127.0.0.1:${here.port}`))
  await ours.propose({ kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'a' }] })
  await ours.propose({ kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'b' }] })
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

test('unfinished commands of many connections do not add up without end', async () => {
  await using here = await place({ limits: { ...DEFAULT_LIMITS, unfinished: 200_000 } })
  const half = command('LEASE.ACQUIRE', 'x'.repeat(100_000)).subarray(0, 80_000)
  const raws = Array.from({ length: 4 }, () => new Raw(here.port))
  for (const raw of raws) raw.send(half)
  const cut = raws.map(async raw => ((await raw.next()) as Error).message)
  expect(await Promise.race(cut)).toMatch(/^LIMIT .*200000 bytes/)
  // Whoever asks for little is not concerned, also in two pieces; and what was cut off does not count any more.
  using small = new Raw(here.port)
  const ping = command('PING')
  small.send(ping.subarray(0, 5))
  small.send(ping.subarray(5))
  expect(await small.next()).toBe('PONG')
  for (const raw of raws) raw.socket.destroy()
  await expect.poll(() => here.server.connections, { timeout: 5_000 }).toBe(1)
  using later = new Raw(here.port)
  later.send(half)
  later.send(command('LEASE.ACQUIRE', 'x'.repeat(100_000)).subarray(80_000))
  expect(((await later.next()) as Error).message).toMatch(/^ERR wrong number of arguments|^INVALID/)
})

describe('a connection', () => {
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

  test('is answered in the order it asked, whatever a chunk holds', async () => {
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
