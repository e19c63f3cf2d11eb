import { describe, expect, test } from 'vitest'
import { command, place, Raw } from './resp-place.ts'

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
