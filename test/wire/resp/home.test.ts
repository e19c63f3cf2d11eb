/** Clients with several addresses after their servers were restarted one after another: each returns to the server that it drew at first. */
import { expect, test } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import { Leases } from '../../../src/leases.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { GuardedLessor } from '../../../src/server/guarded-lessor.ts'
import { DEFAULT_LIMITS } from '../../../src/server/limits.ts'
import { RespListener } from '../../../src/server/resp/resp-listener.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { RemoteLessor } from '../../../src/wire/resp/client.ts'
import { Network } from '../../support/remote-network.ts'

const SERVERS = ['one', 'two', 'three']
const MINUTE = 60_000

/** Three servers on one log, in virtual time. */
async function threeServers() {
  const clock = new ManualClock()
  const dice = new ManualClock({ seed: 2 })
  const network = new Network(clock, () => dice.random(), { delay: 1 })
  const log = new MemoryLog({ clock })
  const quiet = { debug() {}, info() {}, warn() {}, error() {} }
  const opened: AsyncDisposable[] = []
  const replicas = new Map<string, Replica>()
  const start = async (name: string) => {
    const replica = await Replica.open(new MemoryStore({ log, clock }), { clock })
    const guarded = await GuardedLessor.open({ lessor: replica, clock })
    opened.push(replica, guarded)
    replicas.set(name, replica)
    const closing = new AbortController().signal
    const context = { guarded, clock, limits: DEFAULT_LIMITS, log: quiet, figures: () => ({}), closing, connections: () => 0 }
    network.listeners.set(name, new RespListener(context))
  }
  for (const name of SERVERS) await start(name)
  const pass = async (ms: number, step = 100) => {
    for (let passed = 0; passed < ms; passed += step) await clock.advance(step)
  }
  const until = async <T>(promise: Promise<T>): Promise<T> => {
    let settled = false
    const done = () => {
      settled = true
    }
    promise.then(done, done)
    for (let i = 0; i < 20_000 && !settled; i++) await clock.advance(10)
    return promise
  }
  const stop = (name: string) => {
    network.listeners.delete(name)
    for (const cable of [...network.cables]) if (cable.server === name) cable.sever()
  }
  return {
    ...{ clock, network, replicas, pass, until, start, stop },
    client: () => until(RemoteLessor.open({ dials: SERVERS.map(name => network.dial(name)), clock })),
    async [Symbol.asyncDispose]() {
      for (const each of opened.reverse()) await each[Symbol.asyncDispose]()
    },
  }
}

test('after a rolling restart, clients spread over all servers again, and no lease or event is lost', async () => {
  await using world = await threeServers()
  const { clock, pass, until, start, stop } = world
  const clients = []
  for (let i = 0; i < 8; i++) clients.push(await world.client())
  const homes = clients.map(({ server }) => server)
  expect(new Set(homes).size).toBe(3)
  const held = []
  const events: string[] = []
  const done = new AbortController()
  for (const [i, lessor] of clients.entries()) {
    const leases = new Leases(lessor, { holder: `client ${i}`, clock })
    held.push(await until(leases.acquire(`r${i}`, { ttl: 30_000 })))
    if (i > 0) continue
    void (async () => {
      for await (const batch of lessor.watch('seen', { after: 0, signal: done.signal })) for (const { type } of batch) events.push(type)
    })().catch(() => {})
  }
  for (const name of SERVERS) {
    stop(name)
    await pass(2_000)
    await start(name)
    await pass(2_000)
  }
  expect(clients.map(({ server }) => server)).not.toContain('three') // it was restarted last
  await pass(11 * MINUTE, 500)
  expect(clients.map(({ server }) => server)).toEqual(homes)
  expect(held.filter(lease => !lease.held)).toEqual([])
  const other = new Leases(clients[5]!, { holder: 'other', clock })
  const seen = await until(other.acquire('seen', { ttl: 10_000 }))
  await until(seen.release())
  await pass(500)
  expect(events).toEqual(expect.arrayContaining(['granted', 'released']))
  done.abort()
  for (const lessor of clients) await until(lessor[Symbol.asyncDispose]())
})

test('a client does not return to a server that greets it and cannot read its log', async () => {
  await using world = await threeServers()
  const { network, replicas, pass, until, start, stop } = world
  const lessor = await world.client()
  const home = lessor.server!
  stop(home)
  await pass(2_000)
  const refuge = lessor.server!
  expect(refuge).not.toBe(home)
  await start(home)
  const replica = replicas.get(home)!
  const read = replica.read.bind(replica)
  let asked = 0
  replica.read = async (query, options) => {
    if (options?.consistent !== true) return read(query, options)
    asked++
    throw new LeaseError('UNAVAILABLE', 'the store does not answer')
  }
  await pass(11 * MINUTE, 500)
  expect([lessor.server, asked > 0]).toEqual([refuge, true])
  replica.read = read
  await pass(11 * MINUTE, 500)
  expect(lessor.server).toBe(home)
  expect([...network.cables].filter(({ cut }) => !cut)).toHaveLength(1)
  await until(lessor[Symbol.asyncDispose]())
})
