import { execFile } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { Catalog } from '../../../src/server/registry/catalog.ts'
import { readQuestion } from '../../../src/server/registry/dns-message.ts'
import { DnsServer } from '../../../src/server/registry/dns-server.ts'
import { describeWith } from '../../support/engine.ts'
import { type World, world } from '../../support/http-world.ts'

const run = promisify(execFile)
const SILENT = { debug() {}, info() {}, warn() {}, error() {} }

async function dnsFor(here: World): Promise<DnsServer> {
  const { lessor, clock } = here
  const catalog = Catalog.of({ lessor, clock, closing: lessor.signal })
  return DnsServer.open({ catalog, lessor, clock, log: SILENT, host: '127.0.0.1', port: 0 })
}

async function dig(dns: DnsServer, ...words: string[]): Promise<string[]> {
  const { stdout } = await run('dig', [
    '@127.0.0.1',
    '-p',
    String(dns.port),
    '+tries=1',
    '+time=5',
    '+noall',
    '+answer',
    '+comments',
    ...words,
  ])
  return stdout.split('\n').filter(line => line !== '')
}

const records = (lines: readonly string[]) => lines.filter(line => !line.startsWith(';')).map(line => line.split(/\s+/))
const status = (lines: readonly string[]) => /status: (\w+)/.exec(lines.join('\n'))?.[1]

describeWith([{ program: 'dig', packages: ['bind9-dnsutils'] }], 'DNS, queried with dig:', () => {
  test('a service resolves to the instances that may be picked, with a ttl no longer than their leases', async () => {
    await using here = await world()
    await here.ask('PUT', '/v1/services/planner/a', { address: 'http://10.0.0.7:8080', ttl: '20s' })
    await here.ask('PUT', '/v1/services/planner/b', { address: 'http://10.0.0.8:8080', ttl: '20s', weight: 7 })
    await here.ask('PUT', '/v1/services/planner/six', { address: 'http://[2001:db8::7]:9', ttl: '20s' })
    await here.ask('PUT', '/v1/services/planner/gone', { address: 'http://10.0.0.9:8080', ttl: '20s', status: 'draining' })
    await here.clock.advance(4_500)
    await using dns = await dnsFor(here)
    const found = records(await dig(dns, 'planner.service.leasehold', 'A'))
    expect(found.map(([, , , , address]) => address).sort()).toEqual(['10.0.0.7', '10.0.0.8'])
    expect(found.map(([, ttl]) => ttl)).toEqual(['15', '15'])
    expect(records(await dig(dns, 'planner.service.leasehold', 'AAAA')).map(row => row.slice(3))).toEqual([['AAAA', '2001:db8::7']])
    const srv = records(await dig(dns, '_planner._tcp.service.leasehold', 'SRV'))
    expect(srv.map(row => row.slice(3).join(' ')).sort()).toEqual([
      'SRV 1 1 8080 a.planner.service.leasehold.',
      'SRV 1 1 9 six.planner.service.leasehold.',
      'SRV 1 7 8080 b.planner.service.leasehold.',
    ])
    expect(records(await dig(dns, 'b.planner.service.leasehold', 'A')).map(row => row[4])).toEqual(['10.0.0.8'])
  })

  test('a capability resolves to all its instances, an unknown name is NXDOMAIN, and another domain is REFUSED', async () => {
    await using here = await world()
    await here.ask('PUT', '/v1/services/planner/a', { address: 'tcp://10.0.0.7:1', capabilities: ['review'] })
    await here.ask('PUT', '/v1/services/Critic/b', { address: 'tcp://10.0.0.8:1', capabilities: ['review'] })
    await using dns = await dnsFor(here)
    expect(
      records(await dig(dns, 'review.capability.leasehold'))
        .map(row => row[4])
        .sort(),
    ).toEqual(['10.0.0.7', '10.0.0.8'])
    expect(records(await dig(dns, 'CRITIC.Service.LeaseHold')).map(row => row[4])).toEqual(['10.0.0.8'])
    expect(status(await dig(dns, 'none.service.leasehold'))).toBe('NXDOMAIN')
    expect(status(await dig(dns, 'example.com'))).toBe('REFUSED')
    const nodata = await dig(dns, 'planner.service.leasehold', 'AAAA')
    expect([status(nodata), records(nodata)]).toEqual(['NOERROR', []])
  })

  test('a reply that is too long for UDP is complete over TCP', async () => {
    await using here = await world()
    for (let i = 0; i < 40; i++)
      await here.ask('PUT', `/v1/services/${'long'.repeat(12)}/${'i'.repeat(50)}${i}`, { address: `10.0.1.${i}:80` })
    await using dns = await dnsFor(here)
    const name = `${'long'.repeat(12)}.service.leasehold`
    expect((await dig(dns, name, 'SRV', '+notcp', '+ignore', '+noedns')).join('\n')).toMatch(/flags: qr aa tc/)
    expect(records(await dig(dns, name, 'SRV', '+noedns'))).toHaveLength(16)
    expect(records(await dig(dns, name, 'SRV', '+tcp'))).toHaveLength(16)
  })
})

test('an instance that lapsed is not resolved any more', async () => {
  await using here = await world()
  await here.ask('PUT', '/v1/services/planner/a', { address: 'http://10.0.0.7:8080', ttl: '10s', grace: '5s' })
  await using dns = await dnsFor(here)
  expect((await replyTo(dns, 'planner.service.leasehold')).length).toBeGreaterThan(50)
  await here.clock.advance(16_000)
  expect((await replyTo(dns, 'planner.service.leasehold'))[3]! & 15).toBe(3)
})

test('malformed queries are refused or ignored, and the next query is answered', async () => {
  await using here = await world()
  await here.ask('PUT', '/v1/services/planner/a', { address: 'http://10.0.0.7:8080' })
  await using dns = await dnsFor(here)
  const socket = createSocket('udp4')
  const good = queryFor('planner.service.leasehold')
  for (let i = 0; i < 20_000; i++) {
    const bytes = Buffer.from(good)
    for (let n = 0; n <= i % 4; n++) bytes[(i * 7 + n * 13) % bytes.length] = (i * 31 + n * 97) & 255
    readQuestion(bytes.subarray(0, i % (bytes.length + 1)))
    if (i % 50 === 0) socket.send(bytes.subarray(0, i % (bytes.length + 1)), dns.port, '127.0.0.1')
  }
  socket.close()
  const tcp = connect(dns.port, '127.0.0.1')
  tcp.end(Buffer.from([0, 3, 1, 2, 3]))
  tcp.resume()
  await once(tcp, 'close')
  expect((await replyTo(dns, 'planner.service.leasehold')).length).toBeGreaterThan(50)
})

function queryFor(name: string): Buffer {
  const labels = name.split('.').map(label => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]))
  return Buffer.concat([Buffer.from([7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]), ...labels, Buffer.from([0, 0, 1, 0, 1])])
}

async function replyTo(dns: DnsServer, name: string): Promise<Buffer> {
  const socket = createSocket('udp4')
  try {
    socket.send(queryFor(name), dns.port, '127.0.0.1')
    const [reply] = (await once(socket, 'message')) as [Buffer]
    return reply
  } finally {
    socket.close()
  }
}
