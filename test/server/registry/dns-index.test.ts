/** DNS under hostile load: one registration or one client must not affect the replies to others. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { describe, expect, test, vi } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { propose } from '../../../src/lessor/propose.ts'
import type { Lessor } from '../../../src/lessor.ts'
import { Catalog } from '../../../src/server/registry/catalog.ts'
import { BUDGET } from '../../../src/server/registry/dns-budget.ts'
import { DnsServer } from '../../../src/server/registry/dns-server.ts'
import { type World, world } from '../../support/http-world.ts'

const SILENT = { debug() {}, info() {}, warn() {}, error() {} }
const A = 1
const AAAA = 28
const SRV = 33
const ANY = 255

function catalogOf({ lessor, clock }: World): Catalog {
  return Catalog.of({ lessor, clock, closing: lessor.signal })
}

async function dnsFor(here: World, lessor: Lessor = here.lessor, domain = 'leasehold'): Promise<DnsServer> {
  return DnsServer.open({ catalog: catalogOf(here), lessor, clock: here.clock, log: SILENT, host: '127.0.0.1', port: 0, domain })
}

/** Without the checks of the HTTP routes: a client that may write entries may write anything. */
async function write(here: World, entries: Readonly<Record<string, object>>): Promise<void> {
  const outcome = await propose(here.lessor, {
    kind: 'acquire',
    holder: Object.keys(entries)[0]!,
    ttl: 60_000,
    wants: [],
    entries: Object.entries(entries).map(([key, value]) => ({ key: `services/${key}`, value: JSON.stringify(value) })),
  })
  expect(outcome.kind).toBe('granted')
}

/** `payload`: the size that the client accepts, in an EDNS record. */
function queryFor(name: string, type = A, payload?: number): Buffer {
  const labels = name.split('.').map(label => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]))
  const opt = payload === undefined ? [] : [Buffer.from([0, 0, 41, payload >> 8, payload & 255, 0, 0, 0, 0, 0, 0])]
  const head = Buffer.from([7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, opt.length])
  return Buffer.concat([head, ...labels, Buffer.from([0, 0, type, 0, 1]), ...opt])
}

interface Answer {
  readonly rcode: number
  readonly truncated: boolean
  readonly bytes: number
  readonly answers: readonly string[]
  readonly additional: readonly string[]
}

/** Parses every byte by the rules of RFC 1035. Throws for a message that breaks them. */
function parsed(bytes: Buffer): Answer {
  let at = 12
  const nameAt = (from: number, jumps = 0): { readonly name: string; readonly end: number } => {
    const labels: string[] = []
    let length = 1
    for (let place = from; ; ) {
      const size = bytes.readUInt8(place)
      if (size === 0) return { name: labels.join('.'), end: place + 1 }
      if (size >= 0xc0) {
        if (jumps > 5) throw new Error('a loop of pointers')
        const { name } = nameAt(bytes.readUInt16BE(place) & 0x3fff, jumps + 1)
        return { name: [...labels, name].join('.'), end: place + 2 }
      }
      if (size > 63) throw new Error(`a label of ${size} bytes`)
      length += size + 1
      if (length > 255 || place + 1 + size > bytes.length) throw new Error('a name that is too long')
      labels.push(bytes.toString('latin1', place + 1, place + 1 + size))
      place += size + 1
    }
  }
  const counts = [4, 6, 8, 10].map(place => bytes.readUInt16BE(place))
  for (let i = 0; i < counts[0]!; i++) at = nameAt(at).end + 4
  const sections = [1, 2, 3].map(section =>
    Array.from({ length: counts[section]! }, () => {
      const { name, end } = nameAt(at)
      const [type, length] = [bytes.readUInt16BE(end), bytes.readUInt16BE(end + 8)]
      at = end + 10 + length
      if (at > bytes.length) throw new Error('a record that is cut off')
      if (type === A) return `${name} ${[...bytes.subarray(end + 10, at)].join('.')}`
      if (type === SRV) {
        const target = nameAt(end + 16)
        if (target.end !== at) throw new Error('a target that does not end with its record')
        return `${bytes.readUInt16BE(end + 14)} ${target.name}`
      }
      return `${name} type ${type}`
    }),
  )
  if (at !== bytes.length) throw new Error('bytes at the end')
  const [answers, , additional] = sections
  const flags = bytes.readUInt16BE(2)
  const more = additional!.filter(record => !record.endsWith('type 41'))
  return { rcode: flags & 15, truncated: (flags & 0x200) !== 0, bytes: bytes.length, answers: answers!, additional: more }
}

async function ask(dns: DnsServer, question: Buffer): Promise<Answer> {
  const socket = createSocket('udp4')
  try {
    socket.send(question, dns.port, '127.0.0.1')
    const [reply] = (await once(socket, 'message')) as [Buffer]
    return parsed(reply)
  } finally {
    socket.close()
  }
}

async function askTcp(dns: DnsServer, question: Buffer): Promise<Answer> {
  const socket = connect(dns.port, '127.0.0.1')
  const length = Buffer.alloc(2)
  length.writeUInt16BE(question.length)
  socket.write(Buffer.concat([length, question]))
  let held = Buffer.alloc(0)
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    held = Buffer.concat([held, chunk])
    if (held.length >= 2 && held.length >= 2 + held.readUInt16BE(0)) break
  }
  return parsed(held.subarray(2))
}

const LONG = 'x'.repeat(64)

describe('a registration that DNS cannot express does not break the replies for others:', () => {
  test.each([
    ['a host with a label of 64 bytes', 'bad/1', { addresses: [`http://${LONG}.test:80`] }],
    ['a host with an empty label', 'bad/1', { addresses: ['http://a..b:80'] }],
    ['a host that begins with a dot', 'bad/1', { addresses: ['http://.a:80'] }],
    ['a host of 300 bytes', 'bad/1', { addresses: [`http://${'a.'.repeat(150)}b:80`] }],
    ['a host that ends in a number and is no address', 'bad/1', { addresses: ['http://300.1.2.3:80'] }],
    ['a host with a character that is not allowed', 'bad/1', { addresses: ['http://a%00b:80'] }],
    ['no address', 'bad/1', { addresses: [] }],
  ])('%s is left out', async (_, key, value) => {
    await using here = await world()
    await write(here, { 'good/1': { addresses: ['http://10.0.0.7:80'], capabilities: ['c'] } })
    await write(here, { [key]: { ...value, capabilities: ['c'] } })
    await using dns = await dnsFor(here)
    for (const how of [ask, askTcp])
      expect(await how(dns, queryFor('c.capability.leasehold', SRV))).toMatchObject({
        rcode: 0,
        answers: ['80 1.good.service.leasehold'],
      })
  })

  test.each([
    ['a service name of 200 bytes', `${'s'.repeat(200)}/1`],
    ['a service name with a dot', 'a.b/1'],
    ['a service name in Greek', 'υπηρεσία/1'],
    ['a service name with a space', 'a b/1'],
    ['an instance name of 200 bytes', `bad/${'i'.repeat(200)}`],
    ['an instance name with dots', 'bad/..a..'],
  ])('an instance with %s is reached by its address', async (_, key) => {
    await using here = await world()
    await write(here, { 'good/1': { addresses: ['http://10.0.0.7:80'], capabilities: ['c'] } })
    await write(here, { [key]: { addresses: ['http://10.0.0.8:81'], capabilities: ['c'] } })
    await using dns = await dnsFor(here)
    const { answers, additional } = await askTcp(dns, queryFor('c.capability.leasehold', SRV))
    expect([...answers].sort()).toEqual(['80 1.good.service.leasehold', '81 0a000008.addr.leasehold'])
    expect(additional).toContain('0a000008.addr.leasehold 10.0.0.8')
    expect((await ask(dns, queryFor('0a000008.addr.leasehold'))).answers).toEqual(['0a000008.addr.leasehold 10.0.0.8'])
    expect((await ask(dns, queryFor('0a000009.addr.leasehold'))).rcode, 'only registered addresses').toBe(3)
  })

  test('an instance is named by its address if its name would be longer than 255 bytes, and an IDN host by its ASCII form', async () => {
    await using here = await world()
    await write(here, { [`${'s'.repeat(63)}/${'i'.repeat(63)}`]: { addresses: ['10.0.0.8:81'], capabilities: ['c'] } })
    await write(here, { 'idn/1': { addresses: ['http://bücher.example:80'], capabilities: ['c'] } })
    const domain = `${'d'.repeat(63)}.${'e'.repeat(63)}`
    await using dns = await dnsFor(here, here.lessor, domain)
    const { answers } = await askTcp(dns, queryFor(`c.capability.${domain}`, SRV))
    expect([...answers].sort()).toEqual([`80 xn--bcher-kva.example`, `81 0a000008.addr.${domain}`])
  })

  test('a service that differs only in case does not take the name of another', async () => {
    await using here = await world()
    await write(here, { 'WEB/1': { addresses: ['http://10.6.6.6:80'] } })
    await using dns = await dnsFor(here)
    expect((await ask(dns, queryFor('web.service.leasehold'))).answers).toEqual(['web.service.leasehold 10.6.6.6'])
    await write(here, { 'web/1': { addresses: ['http://10.0.0.7:80'] } })
    while (catalogOf(here).directory.get('web', '1') === undefined) await turn()
    expect((await ask(dns, queryFor('web.service.leasehold'))).answers).toEqual(['web.service.leasehold 10.0.0.7'])
    const { answers } = await ask(dns, queryFor('web.service.leasehold', SRV))
    expect(answers).toHaveLength(1)
    expect((await ask(dns, queryFor('1.web.service.leasehold'))).answers).toHaveLength(1)
  })

  test.each(['', '.', 'a..b', `${LONG}.test`, 'a b', `${'a.'.repeat(120)}b`])('%j is not accepted as the domain', async domain => {
    await using here = await world()
    await expect(dnsFor(here, here.lessor, domain)).rejects.toMatchObject({ code: 'INVALID' })
  })
})

test('the next query sees a change of status, address or capability, and a removal', async () => {
  await using here = await world()
  await using dns = await dnsFor(here)
  const put = (body: object) => here.ask('PUT', '/v1/services/web/a', { address: 'http://10.0.0.7:80', ttl: '1h', ...body })
  const applied = async (revision: number) => {
    while (catalogOf(here).directory.revision < revision) await turn()
  }
  const now = async (name = 'web.service.leasehold', type = A) => (await ask(dns, queryFor(name, type))).answers
  await applied((await put({ capabilities: ['x'] })).json.revision)
  expect(await now('x.capability.leasehold')).toEqual(['x.capability.leasehold 10.0.0.7'])
  await applied((await put({ capabilities: ['y'], address: 'http://10.0.0.8:80' })).json.revision)
  expect([await now(), await now('x.capability.leasehold'), await now('y.capability.leasehold')]).toEqual([
    ['web.service.leasehold 10.0.0.8'],
    [],
    ['y.capability.leasehold 10.0.0.8'],
  ])
  await applied((await put({ capabilities: ['Plan', 'plan'], address: 'http://10.0.0.8:80' })).json.revision)
  expect([await now('plan.capability.leasehold'), await now('y.capability.leasehold')]).toEqual([
    ['plan.capability.leasehold 10.0.0.8'],
    [],
  ])
  await applied((await here.ask('POST', '/v1/services/web/a/heartbeat', { status: 'critical' })).json.revision)
  expect([await now(), (await ask(dns, queryFor('web.service.leasehold'))).rcode]).toEqual([[], 0])
  await applied((await here.ask('POST', '/v1/services/web/a/heartbeat', { status: 'passing', load: 3 })).json.revision)
  expect(await now()).toEqual(['web.service.leasehold 10.0.0.8'])
  const left = await here.ask('DELETE', '/v1/services/web/a')
  await applied(Number(left.headers['leasehold-revision']))
  expect((await ask(dns, queryFor('web.service.leasehold'))).rcode).toBe(3)
  expect((await ask(dns, queryFor('0a000008.addr.leasehold'))).rcode).toBe(3)
})

test('a query costs as much work among twenty thousand instances as among twenty', async () => {
  const work: number[][] = []
  for (const size of [20, 20_000]) {
    await using here = await world()
    const each = (i: number) => ({ [`web/${i}`]: { addresses: [`10.1.${i >> 8}.${i & 255}:80`], capabilities: ['c'] } })
    await Promise.all(Array.from({ length: size }, (_, i) => write(here, each(i))))
    let reads = 0
    const counting = new Proxy(here.lessor, {
      get(lessor, name) {
        if (name === 'read') reads++
        const value = Reflect.get(lessor, name, lessor)
        return typeof value === 'function' ? value.bind(lessor) : value
      },
    })
    await using dns = await dnsFor(here, counting)
    const { directory } = catalogOf(here)
    expect(directory.size).toBe(size)
    const scans = (['list', 'search', 'services', 'view'] as const).map(name => vi.spyOn(directory, name))
    const found: number[] = []
    for (const name of ['web.service.leasehold', 'c.capability.leasehold', '7.web.service.leasehold', '_web._tcp.service.leasehold'])
      for (const type of [A, SRV]) found.push((await ask(dns, queryFor(name, type, 4_096))).answers.length)
    found.push((await askTcp(dns, queryFor('web.service.leasehold'))).answers.length)
    work.push([...found, reads, ...scans.map(scan => scan.mock.calls.length)])
  }
  expect(work[1]).toEqual(work[0])
  expect(work[0]!.slice(-4), 'no query scans all instances').toEqual([0, 0, 0, 0])
})

test('a reply over UDP is at most ten times as long as its query, and has no additional records', async () => {
  await using here = await world()
  for (let i = 0; i < 40; i++)
    await write(here, { [`worker/${'long'.repeat(i % 15)}-${i}`]: { addresses: [`http://10.0.0.${i}:80`], capabilities: ['c'] } })
  await using dns = await dnsFor(here)
  for (const name of ['c.capability.leasehold', 'worker.service.leasehold', 'leasehold', 'none.service.leasehold'])
    for (const type of [A, AAAA, SRV, ANY, 6])
      for (const payload of [undefined, 512, 1_232, 4_096, 65_535]) {
        const question = queryFor(name, type, payload)
        const answer = await ask(dns, question)
        expect(answer.bytes / question.length, `${name} ${type} ${payload}`).toBeLessThanOrEqual(10)
        expect(answer.additional).toEqual([])
        expect(answer.answers.length).toBeLessThanOrEqual(6)
        if (answer.truncated) expect(answer.bytes).toBeLessThanOrEqual(question.length)
      }
  const whole = await askTcp(dns, queryFor('c.capability.leasehold', SRV))
  expect([whole.answers.length, whole.additional.length, whole.truncated]).toEqual([16, 16, false])
})

test('a network that exceeds its budget gets truncated replies until a second has passed', async () => {
  await using here = await world()
  for (let i = 0; i < 10; i++) await write(here, { [`worker/${i}`]: { addresses: [`http://10.0.0.${i}:80`] } })
  await using dns = await dnsFor(here)
  const question = queryFor('worker.service.leasehold', A, 4_096)
  const { bytes, truncated } = await ask(dns, question)
  expect(truncated).toBe(false)
  const enough = Math.ceil(BUDGET / (bytes - question.length))
  const socket = createSocket('udp4')
  let answered = 0
  socket.on('message', () => answered++)
  for (let sent = 1; sent < enough; sent++) {
    socket.send(question, dns.port, '127.0.0.1')
    while (answered < sent) await turn()
  }
  socket.close()
  expect(await ask(dns, question)).toMatchObject({ truncated: true, answers: [], bytes: question.length })
  expect((await askTcp(dns, question)).answers).toHaveLength(10)
  await here.clock.advance(1_000)
  expect(await ask(dns, question)).toMatchObject({ truncated: false })
})

test('idle connections do not keep new clients out, and a query that arrives too slowly ends its connection', async () => {
  await using here = await world()
  await write(here, { 'web/1': { addresses: ['http://10.0.0.7:80'] } })
  await using dns = await dnsFor(here)
  const open: Socket[] = []
  try {
    for (let i = 0; i < 128; i++) {
      const socket = connect(dns.port, '127.0.0.1').on('error', () => {})
      open.push(socket)
      await once(socket, 'connect')
    }
    expect((await askTcp(dns, queryFor('web.service.leasehold'))).answers).toHaveLength(1)
    const slow = connect(dns.port, '127.0.0.1').on('error', () => {})
    const closed = once(slow, 'close')
    const message = Buffer.concat([Buffer.from([0, 43]), queryFor('web.service.leasehold')])
    for (const byte of message.subarray(0, 4)) {
      slow.write(Buffer.from([byte]))
      for (let i = 0; i < 20; i++) await turn()
      await here.clock.advance(4_000)
    }
    await closed
    const huge = connect(dns.port, '127.0.0.1').on('error', () => {})
    huge.write(Buffer.from([0xff, 0xff, 1]))
    await once(huge, 'close')
  } finally {
    for (const socket of open) socket.destroy()
  }
})
