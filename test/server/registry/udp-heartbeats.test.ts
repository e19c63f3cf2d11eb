import { createHash, createHmac } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { describe, expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { readBeat, UdpHeartbeats } from '../../../src/server/registry/udp-heartbeats.ts'
import { type World, world } from '../../support/http-world.ts'

const SILENT = { debug() {}, info() {}, warn() {}, error() {} }

async function udpFor(here: World): Promise<UdpHeartbeats> {
  const { server, clock } = here
  return UdpHeartbeats.open({ guarded: server.guarded, clock, log: SILENT, host: '127.0.0.1', port: 0 })
}

const signed = (secret: string, text: string) =>
  `${text} mac=${createHmac('sha256', createHash('sha256').update(secret).digest()).update(text).digest('hex')}`

/** Sends datagrams, and waits until each was accepted or dropped, and the leases were renewed. */
async function send(udp: UdpHeartbeats, ...messages: string[]): Promise<void> {
  const socket = createSocket('udp4')
  const before = udp.stats.beats + udp.stats.dropped
  for (const message of messages) socket.send(message, udp.port, '127.0.0.1')
  while (udp.stats.beats + udp.stats.dropped < before + messages.length) await turn()
  for (let i = 0; i < 20; i++) await turn()
  socket.close()
}

test('a datagram renews a registration and changes its state, and without datagrams the registration lapses', async () => {
  await using here = await world()
  await using udp = await udpFor(here)
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s', grace: 0 })
  for (let i = 0; i < 5; i++) {
    await here.clock.advance(8_000)
    await send(udp, `beat ${json.lease} status=warning load=${i}\n`)
  }
  expect((await here.ask('GET', '/v1/services/worker/a?consistent=true')).json).toMatchObject({ status: 'warning', load: 4 })
  expect(udp.stats).toMatchObject({ beats: 5, renewed: 5, dropped: 0 })
  await here.clock.advance(11_000)
  expect((await here.ask('GET', '/v1/services/worker/a?consistent=true')).status).toBe(404)
})

test('a lock is not renewed by a datagram', async () => {
  await using here = await world()
  await using udp = await udpFor(here)
  const { json } = await here.ask('POST', '/v1/leases', { resources: ['a'], holder: 'me', ttl: '10s' })
  await here.clock.advance(8_000)
  await send(udp, `beat ${json.lease}`)
  expect(udp.stats.renewed).toBe(0)
  await here.clock.advance(3_000)
  expect((await here.ask('GET', `/v1/leases/${json.lease}`)).status).toBe(410)
})

test('a lease with a lock and a registration is not renewed by a datagram', async () => {
  await using here = await world()
  await using udp = await udpFor(here)
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s', grace: 0 })
  const { value } = await here.lessor.read({ kind: 'lease', lease: json.lease })
  const entries = value!.entries.map(({ key, value }) => ({ key: key.replace('/a', '/b'), value: value.replaceAll('"a"', '"b"') }))
  const ask = { kind: 'acquire', holder: 'b', ttl: 10_000, entries } as const
  const both = (await propose(here.lessor, { ...ask, wants: [{ resource: 'lock' }] })) as { lease: number }
  await here.clock.advance(8_000)
  await send(udp, `beat ${both.lease}`, `beat ${json.lease}`)
  expect(udp.stats).toMatchObject({ beats: 2, renewed: 1 })
  await here.clock.advance(3_000)
  expect((await here.ask('GET', `/v1/leases/${both.lease}`)).status).toBe(410)
  expect((await here.ask('GET', '/v1/services/worker/a?consistent=true')).status).toBe(200)
})

test('once there are keys a datagram must be signed by the key that registered, and a replayed one is dropped', async () => {
  await using here = await world()
  await using udp = await udpFor(here)
  const secret = await here.key('workers', [{ verb: 'register', prefix: 'services/worker' }])
  await here.key('others', [{ verb: 'register', prefix: 'services/other' }])
  const headers = { Authorization: `Bearer ${secret}` }
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s' }, headers)
  const good = signed(secret, `beat ${json.lease} key=1 seq=2`)
  await send(udp, `beat ${json.lease}`, `beat ${json.lease} key=1 seq=1 mac=00`, signed('guess', `beat ${json.lease} key=1 seq=1`))
  expect(udp.stats).toMatchObject({ beats: 0, dropped: 3 })
  await send(udp, good)
  expect(udp.stats.renewed).toBe(1)
  await send(udp, good, signed(secret, `beat ${json.lease} key=1 seq=1`))
  expect(udp.stats).toMatchObject({ renewed: 1, dropped: 5 })
  await send(udp, signed('secret-of-others', `beat ${json.lease} key=2 seq=9`))
  expect(udp.stats.renewed, 'not its lease').toBe(1)
})

test.each([
  '',
  'beat',
  'beat x',
  'beat 1 load=-1',
  'beat 1 load=1e9',
  'beat 1 status=dead',
  'beat 1 a=b',
  'beat 1 load=1 load=2',
  'beat 9007199254740993',
  'beet 1',
  'beat 1 status=passing=critical',
  'beat 1 load=1 status=',
  `beat 1 key=1 seq=1 mac=${'a'.repeat(64)} status=critical`,
  `beat 1 key=1 seq=1 mac=${'a'.repeat(64)} load=7`,
  `beat 1 key=1 mac=${'a'.repeat(64)} seq=1`,
  `beat 1 key=1 seq=1 mac=${'a'.repeat(64)} mac=${'a'.repeat(64)}`,
  `beat 1 mac=${'a'.repeat(64)} key=1 seq=1`,
  `beat 1 key=1 seq=1 mac=${'a'.repeat(64)}zz`,
  `beat 1 key=1 key=2 seq=1 mac=${'a'.repeat(64)}`,
  `beat 1 key=1 seq=1 seq=2 mac=${'a'.repeat(64)}`,
  'beat 1 key=x seq=1',
  'beat 1 key=1 seq=-1',
  'beat 1  load=1',
])('"%s" is not a heartbeat', text => {
  expect(readBeat(text)).toBeUndefined()
})

test('a datagram with words after its signature is dropped', async () => {
  await using here = await world()
  await using udp = await udpFor(here)
  const secret = await here.key('workers', [{ verb: 'register', prefix: 'services/worker' }])
  const headers = { Authorization: `Bearer ${secret}` }
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s' }, headers)
  const good = signed(secret, `beat ${json.lease} key=1 seq=1`)
  for (const word of ['status=critical', 'load=9', `mac=${'0'.repeat(64)}`]) await send(udp, `${good} ${word}`)
  expect(udp.stats).toMatchObject({ beats: 0, dropped: 3, renewed: 0 })
  await send(udp, `${good}\n`)
  expect(udp.stats).toMatchObject({ beats: 1, renewed: 1 })
  const admin = await here.key('admin', [{ verb: 'admin', prefix: '' }])
  const shown = await here.ask('GET', '/v1/services/worker/a?consistent=true', undefined, { Authorization: `Bearer ${admin}` })
  expect(shown.json).toMatchObject({ status: 'passing', load: 0 })
})

test('a heartbeat for a malformed registration does not stop the renewal of others', async () => {
  await using here = await world()
  await using udp = await udpFor(here)
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s', grace: 0 })
  const entries = [{ key: 'services/worker/junk', value: 'nonsense' }]
  const junk = await propose(here.lessor, { kind: 'acquire', holder: 'junk', ttl: 10_000, wants: [], entries })
  await send(udp, `beat ${(junk as { lease: number }).lease} load=1`, `beat ${json.lease} load=1`)
  expect(udp.stats.renewed).toBe(2)
  expect((await here.ask('GET', '/v1/services/worker/a?consistent=true')).json.load).toBe(1)
})

test('a heartbeat signed by another key does not affect the numbers of the key that registered', async () => {
  await using here = await world()
  await using udp = await udpFor(here)
  const secret = await here.key('workers', [{ verb: 'register', prefix: 'services/worker' }])
  const stranger = await here.key('others', [{ verb: 'register', prefix: 'services/other' }])
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s' }, { Authorization: `Bearer ${secret}` })
  await send(udp, signed(stranger, `beat ${json.lease} key=2 seq=${Number.MAX_SAFE_INTEGER}`))
  expect(udp.stats).toMatchObject({ beats: 1, renewed: 0 })
  await send(udp, signed(secret, `beat ${json.lease} key=1 seq=1`))
  expect(udp.stats).toMatchObject({ beats: 2, renewed: 1 })
})

describe('against replayed datagrams:', () => {
  /** An instance with signed datagrams, and its entries in the log. */
  async function registered(here: World) {
    const secret = await here.key(
      'workers',
      (['register', 'read'] as const).map(verb => ({ verb, prefix: 'services/worker' })),
    )
    const headers = { Authorization: `Bearer ${secret}` }
    const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s', grace: 0 }, headers)
    return {
      beat: (seq: number, status: string) => signed(secret, `beat ${json.lease} status=${status} key=1 seq=${seq}`),
      report: (status: string) => here.ask('POST', '/v1/services/worker/a/heartbeat', { status }, headers),
      status: async () => (await here.ask('GET', '/v1/services/worker/a?consistent=true', undefined, headers)).json.status,
      storedNumber: async () =>
        (await here.lessor.read({ kind: 'lease', lease: json.lease })).value!.entries.find(({ key }) => key.endsWith('/beat')),
    }
  }

  test('one is ignored after a restart of the server, too', async () => {
    await using here = await world()
    const { beat, report, status } = await registered(here)
    {
      await using udp = await udpFor(here)
      await send(udp, beat(5, 'draining'))
      expect(await status()).toBe('draining')
      await report('passing')
      await send(udp, beat(5, 'draining'))
    }
    await using udp = await udpFor(here)
    await send(udp, beat(5, 'draining'), beat(4, 'draining'))
    expect([await status(), udp.stats.renewed]).toEqual(['passing', 0])
    await here.clock.advance(11_000)
    expect(await status(), 'and does not keep the instance alive').toBeUndefined()
  })

  test('one whose number was not stored renews once more, and changes nothing else', async () => {
    await using here = await world()
    const { beat, report, status, storedNumber } = await registered(here)
    {
      await using udp = await udpFor(here)
      for (const seq of [1, 2, 3, 4]) await send(udp, beat(seq, 'passing'))
      expect((await storedNumber())!.value).toBe('1')
      await report('draining')
    }
    {
      await using udp = await udpFor(here)
      await send(udp, beat(2, 'passing'))
      await send(udp, beat(3, 'passing'))
      await send(udp, beat(4, 'passing'))
      expect([await status(), udp.stats.renewed, (await storedNumber())!.value]).toEqual(['draining', 3, '4'])
    }
    await using udp = await udpFor(here)
    await send(udp, beat(2, 'passing'), beat(3, 'passing'), beat(4, 'passing'))
    expect([await status(), udp.stats.renewed], 'numbers that were used up').toEqual(['draining', 0])
    for (const seq of [5, 6, 7]) await send(udp, beat(seq, 'warning'))
    expect([await status(), udp.stats.renewed]).toEqual(['draining', 3])
    await send(udp, beat(8, 'warning'))
    expect(await status(), 'this number cannot have been seen before').toBe('warning')
  })

  test('one is ignored by another server on the same store', async () => {
    await using here = await world()
    const { beat, report, status } = await registered(here)
    await using one = await udpFor(here)
    await using other = await udpFor(here)
    await send(other, beat(1, 'passing'))
    for (const seq of [2, 3, 4, 5, 6, 7]) await send(one, beat(seq, seq === 2 ? 'warning' : 'passing'))
    await report('draining')
    await send(other, beat(2, 'warning'), beat(6, 'passing'), beat(7, 'passing'))
    expect(await status()).toBe('draining')
  })

  test('only every fourth number is stored, so that watchers do not see every heartbeat', async () => {
    await using here = await world()
    const { beat, storedNumber } = await registered(here)
    await using udp = await udpFor(here)
    const revisions = new Set<string>()
    for (let seq = 1; seq <= 40; seq++) {
      await send(udp, beat(seq, 'passing'))
      revisions.add((await storedNumber())!.value)
    }
    expect([udp.stats.renewed, revisions.size]).toEqual([40, 10])
  })
})
