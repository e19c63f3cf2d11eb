import { createHash, createHmac } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { expect, test } from 'vitest'
import { turn } from '../src/clock.ts'
import { readBeat, UdpHeartbeats } from '../src/server/registry/udp.ts'
import { type World, world } from './http-world.ts'

const SILENT = { debug() {}, info() {}, warn() {}, error() {} }

async function opened(here: World): Promise<UdpHeartbeats> {
  const { server, clock } = here
  return UdpHeartbeats.open({ desk: server.desk, clock, log: SILENT, host: '127.0.0.1', port: 0 })
}

const signed = (secret: string, text: string) =>
  `${text} mac=${createHmac('sha256', createHash('sha256').update(secret).digest()).update(text).digest('hex')}`

/** Sends, and waits until it was looked at: counted one way or the other, and passed on. */
async function send(udp: UdpHeartbeats, ...messages: string[]): Promise<void> {
  const socket = createSocket('udp4')
  const before = udp.seen.beats + udp.seen.dropped
  for (const message of messages) socket.send(message, udp.port, '127.0.0.1')
  while (udp.seen.beats + udp.seen.dropped < before + messages.length) await turn()
  for (let i = 0; i < 20; i++) await turn()
  socket.close()
}

test('a datagram keeps a registration alive and tells its state; silence ends it', async () => {
  await using here = await world()
  await using udp = await opened(here)
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s', grace: 0 })
  for (let i = 0; i < 5; i++) {
    await here.clock.advance(8_000)
    await send(udp, `beat ${json.lease} status=warning load=${i}\n`)
  }
  expect((await here.ask('GET', '/v1/services/worker/a?consistent=true')).json).toMatchObject({ status: 'warning', load: 4 })
  expect(udp.seen).toMatchObject({ beats: 5, renewed: 5, dropped: 0 })
  await here.clock.advance(11_000)
  expect((await here.ask('GET', '/v1/services/worker/a?consistent=true')).status).toBe(404)
})

test('a lock is not renewed by what nobody acknowledges', async () => {
  await using here = await world()
  await using udp = await opened(here)
  const { json } = await here.ask('POST', '/v1/leases', { resources: ['a'], holder: 'me', ttl: '10s' })
  await here.clock.advance(8_000)
  await send(udp, `beat ${json.lease}`)
  expect(udp.seen.renewed).toBe(0)
  await here.clock.advance(3_000)
  expect((await here.ask('GET', `/v1/leases/${json.lease}`)).status).toBe(410)
})

test('once there are keys it must be signed, by the key that registered, and not be heard before', async () => {
  await using here = await world()
  await using udp = await opened(here)
  const secret = await here.key('workers', [{ verb: 'register', prefix: 'services/worker' }])
  await here.key('others', [{ verb: 'register', prefix: 'services/other' }])
  const headers = { Authorization: `Bearer ${secret}` }
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s' }, headers)
  const good = signed(secret, `beat ${json.lease} key=1 seq=2`)
  await send(udp, `beat ${json.lease}`, `beat ${json.lease} key=1 seq=1 mac=00`, signed('guess', `beat ${json.lease} key=1 seq=1`))
  expect(udp.seen).toMatchObject({ beats: 0, dropped: 3 })
  await send(udp, good)
  expect(udp.seen.renewed).toBe(1)
  await send(udp, good, signed(secret, `beat ${json.lease} key=1 seq=1`))
  expect(udp.seen).toMatchObject({ renewed: 1, dropped: 5 })
  await send(udp, signed('secret-of-others', `beat ${json.lease} key=2 seq=9`))
  expect(udp.seen.renewed, 'not its lease').toBe(1)
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
])('"%s" is no heartbeat', text => {
  expect(readBeat(text)).toBeUndefined()
})

test('one whose entry is nonsense keeps nobody else from being renewed', async () => {
  await using here = await world()
  await using udp = await opened(here)
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s', grace: 0 })
  const entries = [{ key: 'services/worker/junk', value: 'nonsense' }]
  const junk = await here.lessor.propose({ kind: 'acquire', holder: 'junk', ttl: 10_000, wants: [], entries })
  await send(udp, `beat ${(junk as { lease: number }).lease} load=1`, `beat ${json.lease} load=1`)
  expect(udp.seen.renewed).toBe(2)
  expect((await here.ask('GET', '/v1/services/worker/a?consistent=true')).json.load).toBe(1)
})

test('what another key signs for a lease does not silence the key that registered it', async () => {
  await using here = await world()
  await using udp = await opened(here)
  const secret = await here.key('workers', [{ verb: 'register', prefix: 'services/worker' }])
  const stranger = await here.key('others', [{ verb: 'register', prefix: 'services/other' }])
  const { json } = await here.ask('PUT', '/v1/services/worker/a', { address: 'a:1', ttl: '10s' }, { Authorization: `Bearer ${secret}` })
  await send(udp, signed(stranger, `beat ${json.lease} key=2 seq=${Number.MAX_SAFE_INTEGER}`))
  expect(udp.seen).toMatchObject({ beats: 1, renewed: 0 })
  await send(udp, signed(secret, `beat ${json.lease} key=1 seq=1`))
  expect(udp.seen).toMatchObject({ beats: 2, renewed: 1 })
})
