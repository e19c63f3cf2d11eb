/**
 * The real client and the real server over a network that delays, splits, drops and stalls, on a manual clock. Checks that two clients never hold
 * one resource at the same time, that no operation is executed twice, and that a request which failed as UNAVAILABLE was not executed.
 */
import { describe, expect, test } from 'vitest'
import { pause } from '../../../src/clock.ts'
import { LeaseError } from '../../../src/errors.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'
import type { Lease } from '../../../src/lease.ts'
import { Leases } from '../../../src/leases.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { GuardedLessor } from '../../../src/server/guarded-lessor.ts'
import { DEFAULT_LIMITS } from '../../../src/server/limits.ts'
import { RespListener } from '../../../src/server/resp/resp-listener.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { RemoteLessor } from '../../../src/wire/resp/client.ts'
import { Network } from '../../support/remote-network.ts'

const SERVERS = ['one', 'two', 'three']
const CLIENTS = 6
const RESOURCES = ['r/0', 'r/1', 'r/2']

class World {
  readonly clock: ManualClock
  readonly log: MemoryLog
  readonly network: Network
  readonly replicas: Replica[] = []
  readonly #guarded: GuardedLessor[] = []
  readonly #dice: ManualClock

  constructor(seed: number) {
    this.clock = new ManualClock({ seed })
    this.#dice = new ManualClock({ seed: seed + 1_000 })
    this.log = new MemoryLog({ clock: this.clock })
    this.network = new Network(this.clock, () => this.#dice.random(), { delay: 2 })
  }

  random(): number {
    return this.#dice.random()
  }

  async start(): Promise<void> {
    const { clock } = this
    const log = { debug() {}, info() {}, warn() {}, error() {} }
    for (const name of SERVERS) {
      const lessor = await Replica.open(new MemoryStore({ log: this.log, clock }), { clock })
      const guarded = await GuardedLessor.open({ lessor, clock })
      this.replicas.push(lessor)
      this.#guarded.push(guarded)
      const context = {
        guarded: guarded,
        clock,
        limits: DEFAULT_LIMITS,
        log,
        figures: () => ({}),
        closing: new AbortController().signal,
        connections: () => 0,
      }
      this.network.listeners.set(name, new RespListener(context))
    }
  }

  /** Advances the clock until `promise` has settled. */
  async until<T>(promise: Promise<T>): Promise<T> {
    let settled = false
    const done = () => {
      settled = true
    }
    promise.then(done, done)
    for (let i = 0; i < 20_000 && !settled; i++) await this.clock.advance(10)
    return promise
  }

  connect(): Promise<RemoteLessor> {
    return this.until(RemoteLessor.open({ dials: SERVERS.map(name => this.network.dial(name)), clock: this.clock, timeout: 5_000 }))
  }

  /** Injects a random fault. */
  injectFault(): void {
    const { network, clock } = this
    const cables = [...network.cables]
    const cable = cables[Math.floor(this.random() * cables.length)]
    const server = SERVERS[Math.floor(this.random() * SERVERS.length)]!
    const kind = this.random()
    if (kind < 0.5) cable?.sever()
    else if (kind < 0.7) {
      if (cable !== undefined) cable.dead = true
    } else if (kind < 0.85) {
      network.stalled.add(server)
      clock.after(50 + this.random() * 1_500, () => network.stalled.delete(server))
    } else network.weather.delay = [0.5, 2, 10, 40][Math.floor(this.random() * 4)]!
  }

  heal(): void {
    this.network.stalled.clear()
    this.network.weather.delay = 1
    for (const cable of [...this.network.cables]) if (cable.dead) cable.sever()
  }

  async stop(): Promise<void> {
    for (const guarded of this.#guarded) await guarded[Symbol.asyncDispose]()
    for (const replica of this.replicas) await replica[Symbol.asyncDispose]()
  }
}

async function run(seed: number): Promise<{ grants: number; unknown: number; connections: number }> {
  const world = new World(seed)
  const { clock, network } = world
  await world.start()
  let going = true
  let grants = 0
  let unknown = 0
  const held = new Map<string, Set<Lease>>(RESOURCES.map(name => [name, new Set()]))
  const checkExclusion = () => {
    for (const [name, leases] of held) {
      const holders = [...leases].filter(lease => !lease.signal.aborted && lease.remaining() > 0)
      if (holders.length > 1)
        throw new Error(`seed ${seed}: ${holders.length} clients hold ${name}: tokens ${holders.map(({ token }) => token).join(', ')}`)
    }
  }
  const lessors: RemoteLessor[] = []
  const all: Leases[] = []
  const answers = new Map<string, Outcome | LeaseError>()
  const workers: Promise<void>[] = []
  const tokens = new Map<string, number>(RESOURCES.map(name => [name, 0]))
  for (let c = 0; c < CLIENTS; c++) {
    const lessor = await world.connect()
    const leases = new Leases(lessor, { clock, holder: `client-${c}` })
    lessors.push(lessor)
    all.push(leases)
    workers.push(
      (async () => {
        while (going) {
          const name = RESOURCES[Math.floor(world.random() * RESOURCES.length)]!
          try {
            const lease = await leases.acquire(name, { ttl: 1_500, wait: 1_000 })
            grants++
            held.get(name)!.add(lease)
            checkExclusion()
            expect(lease.token, `seed ${seed}: tokens of ${name} only grow`).toBeGreaterThan(tokens.get(name)!)
            tokens.set(name, lease.token)
            await pause(clock, 100 + world.random() * 2_000, lease.signal).catch(() => {})
            checkExclusion()
            await lease.release().catch(() => {})
            held.get(name)!.delete(lease)
          } catch (error) {
            if (!(error instanceof LeaseError)) throw error
          }
          await pause(clock, 20 + world.random() * 100)
        }
      })(),
      // Requests with an operation id, which the client repeats.
      (async () => {
        for (let seq = 1; going; seq++) {
          const name = `once/${c}/${seq}`
          try {
            const op = { session: `ops-${c}`, seq, acked: seq - 1 }
            const outcome = await propose(
              lessor,
              { kind: 'acquire', holder: `ops-${c}`, ttl: 3_600_000, wants: [{ resource: name }] },
              { op },
            )
            answers.set(name, outcome)
          } catch (error) {
            if (!(error instanceof LeaseError)) throw error
            answers.set(name, error)
            if (error.code === 'UNKNOWN') unknown++
          }
          await pause(clock, 10 + world.random() * 60)
        }
      })(),
      // Requests without one, which it must not repeat.
      (async () => {
        for (let n = 1; going; n++) {
          const name = `plain/${c}/${n}`
          answers.set(
            name,
            await propose(lessor, { kind: 'acquire', holder: `plain-${c}`, ttl: 3_600_000, wants: [{ resource: name }] }).catch(error => {
              if (!(error instanceof LeaseError)) throw error
              return error
            }),
          )
          await pause(clock, 10 + world.random() * 100)
        }
      })(),
    )
  }
  // A watch through the same network.
  const seen: number[] = []
  const stop = new AbortController()
  const { revision } = await world.until(lessors[0]!.read({ kind: 'summary' }))
  const watching = (async () => {
    for await (const events of lessors[0]!.watch('', { after: revision, signal: stop.signal }))
      seen.push(events[0]!.type === 'resync' ? -events[0]!.revision : events[0]!.revision)
  })()
  for (let step = 0; step < 400; step++) {
    await clock.advance(10 + world.random() * 50)
    checkExclusion()
    if (world.random() < 0.15) world.injectFault()
  }
  world.heal()
  going = false
  await world.until(Promise.all(workers))
  await clock.advance(500)
  const { value, revision: last } = await world.replicas[0]!.read({ kind: 'leases' }, { consistent: true })
  const granted = new Map<string, number[]>()
  for (const { grants } of value) for (const { resource, token } of grants) granted.set(resource, [...(granted.get(resource) ?? []), token])
  for (const [name, answer] of answers) {
    const found = granted.get(name) ?? []
    const what = answer instanceof LeaseError ? answer.code : answer.kind === 'refused' ? answer.code : answer.kind
    if (answer instanceof LeaseError) {
      expect(['UNKNOWN', 'UNAVAILABLE'], `seed ${seed}: ${name}: ${answer.message}`).toContain(answer.code)
      if (answer.code === 'UNAVAILABLE') expect(found, `seed ${seed}: ${name} failed as UNAVAILABLE`).toEqual([])
    } else {
      expect(what, `seed ${seed}: ${name}`).toBe('granted')
      expect(found, `seed ${seed}: ${name}`).toEqual('tokens' in answer ? answer.tokens : [])
    }
  }
  for (const [name, tokens] of granted) expect(tokens, `seed ${seed}: ${name} was granted twice`).toHaveLength(1)
  for (let i = 0; i < 200 && Math.abs(seen.at(-1) ?? 0) < last; i++) await clock.advance(50)
  expect(Math.abs(seen.at(-1)!)).toBe(last)
  for (const [i, at] of seen.entries())
    if (at > 0) expect(at, `seed ${seed}: a watch without a gap`).toBe(Math.abs(seen[i - 1] ?? revision) + 1)
  stop.abort()
  await world.until(watching)
  for (const leases of all) await world.until(Promise.resolve(leases[Symbol.asyncDispose]()))
  for (const lessor of lessors) await world.until(lessor[Symbol.asyncDispose]())
  await world.stop()
  return { grants, unknown, connections: network.connections }
}

describe('clients and servers over a bad network', () => {
  for (const seed of (process.env.LEASEHOLD_SEEDS ?? '1,2,3').split(',').map(Number))
    test(`seed ${seed}`, async () => {
      const { grants, connections } = await run(seed)
      // The run must have had grants and broken connections.
      expect(grants).toBeGreaterThan(20)
      expect(connections).toBeGreaterThan(CLIENTS + 5)
    })
})

test('the first lease of an idle client survives a stall of its server', async () => {
  for (const idle of [700, 1_500, 2_500, 4_000]) {
    const world = new World(1)
    const { clock, network } = world
    await world.start()
    const lessor = await world.connect()
    const leases = new Leases(lessor, { clock, holder: 'ann' })
    await clock.advance(idle)
    const lease = await world.until(leases.acquire('a', { ttl: 1_500 }))
    network.stalled.add(lessor.server!)
    for (let i = 0; i < 300; i++) await clock.advance(10)
    expect(lease.held, `after ${idle} ms`).toBe(true)
    world.heal()
    await world.until(Promise.resolve(leases[Symbol.asyncDispose]()))
    await world.stop()
  }
})
