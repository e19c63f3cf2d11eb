/** Unmodified Redis clients, used as their users do. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { Redis } from 'ioredis'
import { createClient, RESP_TYPES } from 'redis'
import { expect, test } from 'vitest'
import { propose } from '../../../src/lessor/propose.ts'
import { hashSecret } from '../../../src/server/key-secret.ts'
import { describeWith, programs } from '../../support/engine.ts'
import { type Place, place } from '../../support/resp-place.ts'

const run = promisify(execFile)

async function cli(here: Place, ...words: string[]): Promise<string> {
  const { stdout } = await run('redis-cli', ['-p', String(here.port), ...words])
  return stdout.trim()
}

/** A server whose key is `root`. */
async function locked(): Promise<Place> {
  const here = await place()
  await propose(here.lessor, { kind: 'key', name: 'root', hash: hashSecret('root'), allow: [{ verb: 'admin', prefix: '' }] })
  await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
  return here
}

describeWith([programs['redis-cli'], programs['redis-benchmark']], 'unmodified Redis clients', () => {
  test('redis-cli acquires, shows, renews and releases, in both protocols', async () => {
    await using here = await place()
    const granted = await cli(here, '-3', '--json', 'LEASE.ACQUIRE', 'jobs/nightly', 'TTL', '30s', 'HOLDER', 'me')
    const { lease, token, ttl } = JSON.parse(granted) as Record<string, number>
    expect(ttl).toBe(30_000)
    expect(token).toBeGreaterThan(0)
    expect(await cli(here, 'LEASE.RENEW', String(lease))).toBe('30000')
    expect(await cli(here, 'LEASE.ACQUIRE', 'jobs/nightly', 'TTL', '1000')).toMatch(/^HELD jobs\/nightly is held by me/)
    expect(JSON.parse(await cli(here, '-3', '--json', 'LEASE.SHOW', 'jobs/nightly'))).toMatchObject({
      resource: 'jobs/nightly',
      grants: [{ lease, holder: 'me' }],
    })
    expect((await cli(here, '-2', 'LEASE.INFO', String(lease))).split('\n')).toContain('jobs/nightly')
    expect(await cli(here, 'LEASE.LIST')).toContain('jobs/nightly')
    expect(await cli(here, 'LEASE.FENCE', 'jobs/nightly', String(token))).toBe(String(token))
    expect(await cli(here, 'LEASE.RELEASE', String(lease))).toBe('OK')
    expect(await cli(here, 'INFO')).toContain('server:leasehold')
    expect(await cli(here, 'COMMAND', 'COUNT')).toMatch(/^\d+$/)
    expect(await cli(here, 'COMMAND', 'DOCS', 'lease.acquire')).toContain('TTL ms')
  })

  test('a wait of redis-cli blocks its own connection only', async () => {
    await using here = await place()
    const first = JSON.parse(await cli(here, '-3', '--json', 'LEASE.ACQUIRE', 'a', 'TTL', '60000')) as { lease: number; token: number }
    const waiting = cli(here, '-3', '--json', 'LEASE.ACQUIRE', 'a', 'TTL', '5000', 'WAIT', '60000')
    await expect.poll(() => here.server.guarded.waiting).toBe(1)
    expect(await cli(here, 'LEASE.RELEASE', String(first.lease))).toBe('OK')
    const second = JSON.parse(await waiting) as { token: number; waited: number }
    expect(second.token).toBeGreaterThan(first.token)
    expect(second.waited).toBe(1)
    expect(await cli(here, 'LEASE.ACQUIRE', 'a', 'TTL', '5000', 'WAIT', '50')).toMatch(/^TIMEOUT /)
  })

  test('redis-cli authenticates with a key, and gets an error without one', async () => {
    await using here = await place()
    const { secret } = JSON.parse(await cli(here, '-3', '--json', 'LEASE.KEY', 'CREATE', 'root', 'ALLOW', 'admin')) as { secret: string }
    expect(await cli(here, 'LEASE.LIST')).toMatch(/^UNAUTHENTICATED /)
    expect(await cli(here, '--no-auth-warning', '-a', secret, 'LEASE.LIST')).toBe('')
    expect(await cli(here, '--no-auth-warning', '-3', '-a', secret, 'LEASE.KEY', 'LIST')).toContain('root')
  })

  test('redis-benchmark runs pipelines of acquires and renewals over many connections', async () => {
    await using here = await place()
    const benchmark = (...words: string[]) =>
      run('redis-benchmark', ['-p', String(here.port), '-q', '-c', '20', '-P', '16', '-r', '1000000000', ...words])
    const acquired = await benchmark('-n', '4000', 'LEASE.ACQUIRE', 'k/__rand_int__/__rand_int__', 'TTL', '600000')
    expect(acquired.stdout).toMatch(/requests per second/)
    expect((await here.lessor.read({ kind: 'summary' })).value.leases).toBe(4_000)
    const [lease] = (await here.lessor.read({ kind: 'leases' })).value
    const renewed = await benchmark('-n', '10000', 'LEASE.RENEW', String(lease!.lease))
    expect(renewed.stdout).toMatch(/requests per second/)
    expect(renewed.stderr + acquired.stderr).toBe('')
  })

  for (const RESP of [2, 3] as const)
    test(`npm redis over RESP ${RESP}: pipelines and errors`, async () => {
      await using here = await place()
      const client = createClient({ url: `redis://127.0.0.1:${here.port}`, RESP })
      client.on('error', () => {})
      await client.connect()
      try {
        expect(await client.ping()).toBe('PONG')
        const all = await Promise.all(Array.from({ length: 100 }, (_, i) => client.sendCommand(['LEASE.ACQUIRE', `a/${i}`, 'TTL', '5000'])))
        const leases = all.map(granted =>
          RESP === 3 ? (granted as unknown as { lease: number }).lease : (granted as unknown as number[])[1]!,
        )
        expect(new Set(leases).size).toBe(100)
        expect(await client.sendCommand(['LEASE.RENEW', ...leases.map(String)])).toEqual(leases.map(() => 5_000))
        await expect(client.sendCommand(['LEASE.ACQUIRE', 'a/1', 'TTL', '5000'])).rejects.toThrow(/^HELD a\/1 is held by/)
        await expect(client.sendCommand(['SET', 'a', 'b'])).rejects.toThrow(/unknown command/)
      } finally {
        client.destroy()
      }
    })

  test('npm redis receives a grant and events by push, between its replies', async () => {
    await using here = await place()
    const client = createClient({
      url: `redis://127.0.0.1:${here.port}`,
      RESP: 3,
      commandOptions: { typeMapping: { [RESP_TYPES.MAP]: Map } },
    })
    await client.connect()
    try {
      const first = (await client.sendCommand(['LEASE.ACQUIRE', 'a', 'TTL', '60000'])) as unknown as Map<string, number>
      await client.sendCommand(['LEASE.WATCH', 'a'])
      await client.sendCommand(['LEASE.ACQUIRE', 'a', 'TTL', '60000', 'QUEUE'])
      for (let i = 0; i < 10; i++) expect(await client.ping()).toBe('PONG')
      expect(await client.sendCommand(['LEASE.RELEASE', String(first.get('lease'))])).toBe('OK')
      for (let i = 0; i < 10; i++) expect(await client.ping()).toBe('PONG')
      expect(here.server.guarded.waiting).toBe(0)
    } finally {
      client.destroy()
    }
  })

  for (const RESP of [2, 3] as const)
    test(`npm redis over RESP ${RESP} sends a key as a password, with or without a user, and gets an error without one`, async () => {
      await using here = await locked()
      const url = `redis://127.0.0.1:${here.port}`
      for (const options of [{ password: 'root' }, { username: 'default', password: 'root' }, { password: 'root', name: 'worker-8' }]) {
        const client = createClient({ url, RESP, ...options })
        client.on('error', () => {})
        await client.connect()
        expect(await client.sendCommand(['LEASE.LIST'])).toEqual([])
        expect(await client.sendCommand(['CLIENT', 'GETNAME'])).toBe(options.name ?? null)
        client.destroy()
      }
      for (const options of [{}, { password: 'wrong' }]) {
        const client = createClient({ url, RESP, ...options, socket: { reconnectStrategy: false } })
        client.on('error', () => {})
        const refused = client.connect().then(() => client.sendCommand(['LEASE.LIST']))
        await expect(refused).rejects.toThrow(/^UNAUTHENTICATED /)
        client.destroy()
      }
    })

  test('ioredis sends a key as a password, with or without a user, and gets an error without one', async () => {
    await using here = await locked()
    const where = { port: here.port, host: '127.0.0.1', lazyConnect: true, retryStrategy: () => null }
    for (const options of [{ password: 'root' }, { username: 'default', password: 'root', db: 0 }]) {
      const client = new Redis({ ...where, ...options })
      client.on('error', () => {})
      await client.connect()
      expect(await client.call('LEASE.LIST')).toEqual([])
      client.disconnect()
    }
    for (const options of [{}, { password: 'wrong' }]) {
      const client = new Redis({ ...where, ...options, enableReadyCheck: false })
      client.on('error', () => {})
      await client.connect().catch(() => {})
      await expect(client.call('LEASE.LIST')).rejects.toThrow(/^UNAUTHENTICATED |Connection is closed/)
      client.disconnect()
    }
  })

  test('ioredis runs pipelines, sets its name and key, and reports errors', async () => {
    await using here = await locked()
    const client = new Redis({ port: here.port, host: '127.0.0.1', password: 'root', connectionName: 'worker-7', lazyConnect: true })
    await client.connect()
    try {
      const results = await client
        .pipeline()
        .call('lease.acquire', 'a', 'b', 'TTL', '5000')
        .call('lease.acquire', 'a', 'TTL', '5000')
        .call('lease.show', 'b')
        .exec()
      const [granted, held, described] = results!
      expect((granted![1] as string[]).filter((_, i) => i % 2 === 0)).toEqual(['lease', 'token', 'ttl', 'revision', 'tokens'])
      expect(held![0]?.message).toMatch(/^HELD a is held by worker-7/)
      expect(JSON.stringify(described![1])).toContain('worker-7')
    } finally {
      client.disconnect()
    }
  })
})
