/** A client with one address: its connection falls silent, or takes no more bytes, while the server would answer on a new connection. */
import { expect, test } from 'vitest'
import type { LeaseError } from '../../../src/errors.ts'
import { Operations } from '../../../src/holder/operations.ts'
import { Leases } from '../../../src/leases.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { GuardedLessor } from '../../../src/server/guarded-lessor.ts'
import { DEFAULT_LIMITS } from '../../../src/server/limits.ts'
import { RespListener } from '../../../src/server/resp/resp-listener.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { Cable } from '../../../src/testing/cuttable-connection.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { MESSAGES_VERSION } from '../../../src/wire/messages.ts'
import { RemoteLessor } from '../../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../../src/wire/resp/dial.ts'
import type { ByteLink, ByteLinkEnd } from '../../../src/wire/resp/link.ts'
import { Network } from '../../support/remote-network.ts'
import { place } from '../../support/resp-place.ts'

/** One server behind one address, in virtual time. */
async function oneServer(seed = 1) {
  const clock = new ManualClock({ seed })
  const dice = new ManualClock({ seed: seed + 1 })
  const network = new Network(clock, () => dice.random(), { delay: 1 })
  const replica = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  const guarded = await GuardedLessor.open({ lessor: replica, clock })
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const closing = new AbortController().signal
  network.listeners.set(
    'one',
    new RespListener({ guarded: guarded, clock, limits: DEFAULT_LIMITS, log, figures: () => ({}), closing, connections: () => 0 }),
  )
  /** Advances time until the promise has settled. */
  const until = async <T>(promise: Promise<T>, max = 60_000): Promise<T> => {
    let settled = false
    const done = () => {
      settled = true
    }
    promise.then(done, done)
    for (let ms = 0; ms < max && !settled; ms += 10) await clock.advance(10)
    if (!settled) throw new Error(`not settled after ${max} ms`)
    return promise
  }
  const lessor = await until(RemoteLessor.open({ dials: [network.dial('one')], clock }))
  return {
    clock,
    network,
    replica,
    lessor,
    until,
    async [Symbol.asyncDispose]() {
      await until(lessor[Symbol.asyncDispose]())
      await guarded[Symbol.asyncDispose]()
      await replica[Symbol.asyncDispose]()
    },
  }
}

const acquire = (resource: string, ttl = 5_000) => ({ kind: 'acquire', holder: 'me', ttl, wants: [{ resource }] }) as const

for (const ttl of [500, 3_000, 5_000, 10_000, 20_000])
  test(`a lease with a ttl of ${ttl} ms survives a connection that falls silent, if new connections work`, async () => {
    for (let seed = 1; seed <= 5; seed++) {
      await using world = await oneServer(seed)
      const { clock, network, lessor, until } = world
      const leases = new Leases(lessor, { holder: 'holder', clock })
      const lease = await until(leases.acquire('a', { ttl }))
      for (let round = 0; round < 3; round++) {
        // At a different moment of the term each time.
        for (let ms = 0; ms < (ttl * (seed + round)) / 7; ms += 10) await clock.advance(10)
        for (const cable of network.cables) cable.dead = true
        for (let ms = 0; ms < 2 * ttl; ms += 10) await clock.advance(10)
        expect(lease.signal.aborted, `seed ${seed}, round ${round}: ${String(lease.signal.reason)}`).toBe(false)
        expect(lease.held).toBe(true)
      }
      await until(leases[Symbol.asyncDispose]())
    }
  })

test('a lease survives a connection that loses what the client sends, while messages from the server arrive', async () => {
  await using world = await oneServer()
  const { clock, network, replica, lessor, until } = world
  const leases = new Leases(lessor, { holder: 'holder', clock })
  const lease = await until(leases.acquire('a', { ttl: 6_000 }))
  const stop = new AbortController()
  const watching = (async () => {
    for await (const _ of leases.watch('noise', { signal: stop.signal })) {
    }
  })()
  await clock.advance(100)
  for (const cable of network.cables) cable.mute = true
  for (let ms = 0; ms < 12_000; ms += 50) {
    if (ms % 500 === 0) await propose(replica, acquire(`noise/${ms}`))
    await clock.advance(50)
  }
  expect(lease.held).toBe(true)
  stop.abort()
  await until(watching)
  await until(leases[Symbol.asyncDispose]())
})

test('an operation on a connection that falls silent is sent again soon, on another one, and executed once', async () => {
  await using world = await oneServer()
  const { clock, network, lessor, until } = world
  await until(propose(lessor, acquire('known', 3_000)))
  for (const cable of network.cables) cable.dead = true
  const began = clock.now()
  const outcome = await until(new Operations(lessor, clock).decide(acquire('a', 3_000)))
  expect(outcome.kind).toBe('granted')
  expect(clock.now() - began).toBeLessThan(1_500)
})

test('on a connection that falls silent, a request is UNKNOWN soon with an operation id, and without one when it is closed', async () => {
  await using world = await oneServer()
  const { network, lessor, until } = world
  await until(propose(lessor, acquire('known', 3_000)))
  for (const cable of network.cables) cable.dead = true
  const settled: string[] = []
  const codeOf = (name: string, request: Promise<unknown>) =>
    request.catch(error => {
      settled.push(name)
      return (error as LeaseError).code
    })
  const withoutId = codeOf('without', propose(lessor, acquire('a', 3_000)))
  const withId = codeOf('with', propose(lessor, acquire('b', 3_000), { op: { session: 's', seq: 1, acked: 0 } }))
  expect(await until(Promise.all([withId, withoutId]))).toEqual(['UNKNOWN', 'UNKNOWN'])
  expect(settled).toEqual(['with', 'without'])
})

test('a watch continues without a gap when its connection falls silent', async () => {
  await using world = await oneServer()
  const { clock, network, replica, lessor, until } = world
  const leases = new Leases(lessor, { holder: 'holder', clock })
  const lease = await until(leases.acquire('kept', { ttl: 3_000 }))
  const resources: string[] = []
  const stop = new AbortController()
  const watching = (async () => {
    for await (const events of lessor.watch('seen', { signal: stop.signal })) for (const { resource } of events) resources.push(resource!)
  })()
  await clock.advance(100)
  for (let i = 0; i < 60; i++) {
    if (i === 20 || i === 40) for (const cable of network.cables) cable.dead = true
    await propose(replica, acquire(`seen/${i}`, 60_000))
    for (let ms = 0; ms < 100; ms += 10) await clock.advance(10)
  }
  for (let ms = 0; ms < 3_000; ms += 10) await clock.advance(10)
  expect(resources).toEqual(Array.from({ length: 60 }, (_, i) => `seen/${i}`))
  expect(lease.held).toBe(true)
  stop.abort()
  await until(watching)
  await until(leases[Symbol.asyncDispose]())
})

test('after a short stall of the server the client has one connection', async () => {
  await using world = await oneServer()
  const { clock, network, lessor, until } = world
  const leases = new Leases(lessor, { holder: 'holder', clock })
  const lease = await until(leases.acquire('a', { ttl: 3_000 }))
  for (let round = 0; round < 5; round++) {
    network.stalled.add('one')
    for (let ms = 0; ms < 1_200; ms += 10) await clock.advance(10)
    network.stalled.delete('one')
    for (let ms = 0; ms < 3_000; ms += 10) await clock.advance(10)
    expect(lease.held).toBe(true)
  }
  for (let ms = 0; ms < 15_000; ms += 10) await clock.advance(10)
  expect(network.cables.size).toBe(1)
  await until(leases[Symbol.asyncDispose]())
})

// Back-pressure

const PROFILE = JSON.stringify({ store: 'x', durable: true, failover: false, push: true, shared: false, ages: true, notes: [] })
const GREETING = `%3\r\n$8\r\nmessages\r\n:${MESSAGES_VERSION}\r\n$8\r\nrevision\r\n:5\r\n$7\r\nprofile\r\n$${PROFILE.length}\r\n${PROFILE}\r\n`

test('a request made while the connection is full is sent as soon as it has drained', async () => {
  const clock = new ManualClock()
  let backlog = 0
  let writes = 0
  let end: ByteLinkEnd | undefined
  const link: ByteLink = {
    write: () => void writes++,
    get backlog() {
      return backlog
    },
    pause() {},
    resume() {},
    end() {},
    destroy() {},
  }
  const dial = {
    name: 'one',
    open: (linkEnd: ByteLinkEnd) => {
      end = linkEnd
      return link
    },
  }
  const opening = RemoteLessor.open({ dials: [dial], clock })
  end!.data(Buffer.from(GREETING))
  const lessor = await opening
  backlog = 9 << 20
  const before = writes
  const asked = propose(lessor, { kind: 'renew', leases: [5] }).catch(() => {})
  await clock.advance(1)
  expect(writes).toBe(before)
  backlog = 0
  end!.drained()
  await clock.advance(0)
  expect(writes).toBe(before + 1)
  const closing = lessor[Symbol.asyncDispose]()
  await clock.advance(2_000)
  await Promise.all([closing, asked])
})

test('a request behind more than 8 MiB of others is answered when the server reads again, without another request', async () => {
  await using here = await place()
  await using cable = await Cable.to(here.port)
  await using lessor = await RemoteLessor.open({ ...serverAddressOf(`leasehold://127.0.0.1:${cable.port}`), timeout: 120_000 })
  cable.silence()
  const value = 'x'.repeat(4_000)
  const asked = Array.from({ length: 3_500 }, (_, i) =>
    propose(lessor, { ...acquire(`a/${i}`, 60_000), entries: [{ key: `entry/${i}`, value }] }),
  )
  await new Promise(resolve => setImmediate(resolve))
  const read = lessor.read({ kind: 'summary' }, { consistent: true })
  await new Promise(resolve => setImmediate(resolve))
  cable.heal()
  for (const outcome of await Promise.all(asked)) expect(outcome).toMatchObject({ kind: 'granted' })
  // It was sent before the proposals were answered, so it may see only some of them.
  expect((await read).value.leases).toBeLessThanOrEqual(3_500)
})
