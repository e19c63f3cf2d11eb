/** Health checks resolve names only where a rule could allow them, without the shared thread pool, and never for longer than a check. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, test } from 'vitest'
import { systemClock, turn } from '../../../src/clock.ts'
import { Catalog } from '../../../src/server/registry/catalog.ts'
import { HealthChecks } from '../../../src/server/registry/health-checks.ts'
import { createResolver } from '../../../src/server/registry/host-resolver.ts'
import { probe } from '../../../src/server/registry/probe.ts'
import { ProbeRules } from '../../../src/server/registry/probe-rules.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { eventually, Place } from '../../support/cli.ts'
import { world } from '../../support/http-world.ts'

const SILENT = { debug() {}, info() {}, warn() {}, error() {} }

interface NameServer extends AsyncDisposable {
  readonly address: string
  readonly asked: string[]
}

/** Answers A queries from `known`, has no records for other types and names, and does not answer names that begin with `silent`. */
async function nameServer(known: Readonly<Record<string, readonly string[]>> = {}): Promise<NameServer> {
  const socket = createSocket('udp4')
  const asked: string[] = []
  socket.on('message', (bytes, from) => {
    const labels: string[] = []
    let at = 12
    while (bytes[at]! > 0) {
      labels.push(bytes.toString('latin1', at + 1, at + 1 + bytes[at]!))
      at += bytes[at]! + 1
    }
    const name = labels.join('.').toLowerCase()
    const type = bytes.readUInt16BE(at + 1)
    asked.push(name)
    if (name.startsWith('silent') || (type === 28 && name.startsWith('half'))) return
    const records = type === 1 ? (known[name] ?? []) : []
    const head = Buffer.from(bytes.subarray(0, 12))
    head.writeUInt16BE(known[name] === undefined ? 0x8183 : 0x8180, 2)
    head.writeUInt16BE(records.length, 6)
    head.writeUInt32BE(0, 8)
    const answers = records.map(address => Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, ...address.split('.').map(Number)]))
    socket.send(Buffer.concat([head, bytes.subarray(12, at + 5), ...answers]), from.port, from.address)
  })
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  return {
    address: `127.0.0.1:${socket.address().port}`,
    asked,
    [Symbol.asyncDispose]: () => new Promise(resolve => socket.close(() => resolve())),
  }
}

describe('a host name', () => {
  test.each([
    ['that no rule names', ['other.test:80', '*.svc.test:80']],
    ['at a port that no rule has', ['a.test:81', '127.0.0.0/8:81']],
    ['without any rules', []],
  ])('%s is not resolved', async (_, rules) => {
    let asked = 0
    const resolve = async () => {
      asked++
      return ['127.0.0.1']
    }
    const result = await probe('http://a.test:80/', { rules: new ProbeRules(rules), timeout: EVENT_TIMEOUT, resolve })
    expect(result).toEqual({ status: 'critical', reason: 'not probed: no rule allows a.test port 80' })
    expect(asked).toBe(0)
  })

  test('is resolved by a DNS server; a name without an address is distinguished from a lookup without an answer', async () => {
    await using dns = await nameServer({ 'a.test': ['10.0.0.7', '10.0.0.8'], 'half.test': ['10.0.0.9'] })
    const resolve = createResolver({ servers: [dns.address], hosts: '/nonexistent' })
    const { signal } = new AbortController()
    expect(await resolve('a.test', signal)).toEqual(['10.0.0.7', '10.0.0.8'])
    expect(await resolve('none.test', signal)).toEqual([])
    expect(await resolve('half.test', signal), 'one family is enough').toEqual(['10.0.0.9'])
    await expect(resolve('silent.test', signal)).rejects.toMatchObject({ code: 'ETIMEOUT' })
  })

  test('at a silent DNS server: the lookup is cancelled when the probe ends', async () => {
    await using dns = await nameServer()
    let lookup: Promise<unknown> | undefined
    const ask = createResolver({ servers: [dns.address], hosts: '/nonexistent' })
    const resolve = (host: string, signal: AbortSignal) => {
      const asked = ask(host, signal)
      lookup = asked.catch((error: NodeJS.ErrnoException) => error.code)
      return asked
    }
    const rules = new ProbeRules(['silent.test:*'])
    expect(await probe('http://silent.test/', { rules, timeout: 100, resolve })).toEqual({
      status: 'critical',
      reason: 'no answer within 100 ms',
    })
    expect(await lookup, 'it is cancelled').toBe('ECANCELLED')
  })

  test('in the hosts file is resolved from there, and localhost is always this machine', async () => {
    await using dns = await nameServer({ localhost: ['10.6.6.6'], 'a.localhost': ['10.6.6.6'], 'db.test': ['10.6.6.6'] })
    const hosts = join(mkdtempSync(join(tmpdir(), 'leasehold-')), 'hosts')
    writeFileSync(hosts, '# a comment\n10.0.0.5\tDB.test db # here\n::5 db\nnonsense db.test\n')
    const resolve = createResolver({ servers: [dns.address], hosts })
    const { signal } = new AbortController()
    expect(await resolve('db.test', signal)).toEqual(['10.0.0.5'])
    expect(await resolve('db', signal)).toEqual(['10.0.0.5', '::5'])
    for (const name of ['localhost', 'a.localhost']) expect(await resolve(name, signal)).toEqual(['127.0.0.1', '::1'])
    expect(dns.asked).toEqual([])
  })

  test('that resolves to an address which no rule allows is not probed', async () => {
    await using dns = await nameServer({ 'a.test': ['93.184.216.34', '169.254.169.254'] })
    const resolve = createResolver({ servers: [dns.address], hosts: '/nonexistent' })
    const rules = new ProbeRules(['*.test:*'])
    const result = await probe('http://a.test/', { rules, timeout: EVENT_TIMEOUT, resolve })
    expect(result.reason).toMatch(/not probed: 169.254.169.254 is not a public address/)
  })
})

test('many names at a silent DNS server do not make the check of another name fail, and end when the checks stop', async () => {
  await using here = await world()
  await using dns = await nameServer({ 'well.test': ['127.0.0.1'] })
  const well = createServer(socket => socket.end())
  well.listen(0, '127.0.0.1')
  await once(well, 'listening')
  const { port } = well.address() as { port: number }
  const { lessor, clock } = here
  const catalog = Catalog.of({ lessor, clock, closing: lessor.signal })
  const resolve = createResolver({ servers: [dns.address], hosts: '/nonexistent' })
  const results = new Map<string, string>()
  const probeWithResolver: typeof probe = async (url, options) => {
    const result = await probe(url, { ...options, resolve })
    results.set(url, result.status)
    return result
  }
  const rules = new ProbeRules(['127.0.0.1:*'])
  await using checks = await HealthChecks.open({ rules, own: () => false, log: SILENT, lessor, clock, catalog, probe: probeWithResolver })
  const put = (instance: string, url: string) =>
    here.ask('PUT', `/v1/services/worker/${instance}`, { address: 'a:1', ttl: '1h', check: { url, interval: 100 } })
  for (let i = 0; i < 40; i++) await put(`silent-${i}`, `tcp://silent-${i}.test:80`)
  await put('well', `tcp://well.test:${port}`)
  const end = systemClock.now() + EVENT_TIMEOUT
  while (results.get(`tcp://well.test:${port}`) === undefined && systemClock.now() < end) {
    await clock.advance(20)
    for (let i = 0; i < 20; i++) await turn()
  }
  expect(results.get(`tcp://well.test:${port}`)).toBe('passing')
  await checks[Symbol.asyncDispose]()
  for (let i = 0; i < 50; i++) await turn()
  expect(checks.inFlight).toBe(0)
  well.close()
})

test('a server exits on SIGTERM while names of checks are being resolved by a silent DNS server', async () => {
  await using here = new Place()
  await using dns = await nameServer()
  // Send the queries of the built program to this name server: c-ares has no other setting than the machine's.
  const preload = here.file('preload.mjs')
  writeFileSync(
    preload,
    `import { promises } from 'node:dns'
     const ask = promises.Resolver.prototype.resolve4
     promises.Resolver.prototype.resolve4 = function (...words) { this.setServers(['${dns.address}']); return ask.apply(this, words) }`,
  )
  const env = { NODE_OPTIONS: `--import ${pathToFileURL(preload).href}` }
  const server = here.start(['serve', '--listen', '127.0.0.1:0', '--check-allow', '*.test:*'], { env })
  await server.printed(/health checks of/)
  const [url] = await server.printed(/http:\/\/127\.0\.0\.1:\d+/)
  for (let i = 0; i < 12; i++)
    await fetch(`${url}/v1/services/worker/${i}`, {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ address: 'a:1', ttl: '1h', check: { url: `http://silent-${i}.test:80/`, interval: 100 } }),
    })
  await eventually('names are looked up', async () => dns.asked.length > 0)
  server.process.kill('SIGTERM')
  // A lookup by getaddrinfo would keep the process alive for minutes.
  const late = setTimeout(() => server.process.kill('SIGKILL'), EVENT_TIMEOUT / 2)
  expect((await server.finished).code).toBe(0)
  clearTimeout(late)
})
