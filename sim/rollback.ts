/**
 * A world whose log is rolled back. One server owns the log, and clients with the real library hold leases through it. Sometimes, while the server is
 * down, the log is restored from an older copy, which may have been made while the server ran.
 *
 * Checked from outside the processes: no token and no id is given twice, whatever was lost (S3, S6). A client that saw records after the copy, and
 * that the server has answered since the rollback, no longer uses leases from before it (S1), and the log has begun a generation by then (S24). After
 * that generation, no resource is granted while a client still uses a lost lease of it (S1). A client that has not reached the server since the
 * rollback may go on using its leases until then: no process can inform it.
 */

import { LeaseError } from '../src/errors.ts'
import { applyBatch, decodeBatch } from '../src/kernel/codec/batch.ts'
import type { Command } from '../src/kernel/command.ts'
import { type Event, LOST } from '../src/kernel/event.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { createState } from '../src/kernel/state.ts'
import { Leases } from '../src/leases.ts'
import { complete } from '../src/lessor/complete.ts'
import { propose } from '../src/lessor/propose.ts'
import type { Completion, Lessor, ProposeOptions } from '../src/lessor.ts'
import { Replica } from '../src/replica/replica.ts'
import type { Position } from '../src/store.ts'
import { HttpLessor } from '../src/wire/http/client.ts'
import { RemoteLessor } from '../src/wire/resp/client.ts'
import { Believed } from './believed.ts'
import { Network } from './network.ts'
import { pauseOn } from './participants.ts'
import type { SeedResult } from './seed.ts'
import { SimulatedServer } from './server.ts'
import { WatchedLog, Wire, WiredStore } from './wire.ts'
import { type Dice, type Machine, RHO, Violation, type World } from './world.ts'

const OPERATOR = 'the-operators-own-secret'
const CLIENTS = 4
const NAMES = ['a', 'b', 'c', 'd', 'e']
const TTLS = [500, 1_500, 4_000]
/** The longest quiet time: nothing is granted meanwhile, and clients reconnect. */
const QUIET = 4_000

interface Copy {
  readonly restore: () => void
  readonly index: number
}

export async function runRollback(
  world: World,
  seed: number,
  { commands, faults, within }: { readonly commands: number; readonly faults: number; readonly within: number },
): Promise<SeedResult> {
  const scene = new Rollback(world)
  const enough = () => scene.commands >= commands && world.faults >= faults
  let violation: SeedResult['violation']
  let short = false
  try {
    scene.begin()
    for (let second = 1; second < within && !enough(); second++) await world.run(second * 1_000)
    short = !enough()
  } catch (error) {
    if (!(error instanceof Violation)) throw error
    violation = { invariant: error.invariant, message: error.message }
  } finally {
    for (const machine of world.machines) machine.kill()
  }
  const { faults: happened, events, digest } = world
  return {
    ...{ seed, profile: 'rollback', commands: scene.commands, faults: happened, events, simulatedMs: Math.round(world.now), digest },
    ...(violation !== undefined && { violation }),
    ...(short && { short }),
    met: Object.fromEntries(world.met),
    pairs: {},
  }
}

class Rollback {
  commands = 0
  readonly world: World
  readonly #dice: Dice
  readonly #log: WatchedLog
  readonly #wire: Wire
  readonly network: Network
  readonly host: { machine: Machine; replica: Replica | undefined }
  readonly clients: RollbackClient[] = []
  #store: WiredStore | undefined
  #copy: Copy | undefined
  #state = createState()
  #records: { readonly index: number; readonly bytes: Uint8Array }[] = []
  #lastToken = 0
  readonly #ids = new Set<number>()
  /** The log was rolled back this many times. */
  rollbacks = 0
  /** The records that the last rollback lost: those after `from`, up to `to`. */
  #lost = { from: 0, to: 0 }
  /** The first record since the last rollback that began a generation. */
  #healed: number | undefined
  /** The record that granted each lease, in the log as it is now. */
  readonly #grantedAt = new Map<number, number>()

  constructor(world: World) {
    this.world = world
    this.#dice = world.dice
    this.#log = new WatchedLog({ clock: world.machine('engine', this.#rate()).clock() })
    this.#log.onAppend = (position, bytes) => this.#observe(position, bytes)
    this.#wire = new Wire(world, { delay: this.#dice.pick([0.3, 2, 8]), loss: this.#dice.pick([0, 0.01]), doubled: 0 })
    this.network = new Network(this.#wire)
    this.host = { machine: world.machine('server', this.#rate()), replica: undefined }
  }

  #rate(): number {
    return 1 + this.#dice.between(-RHO / 2, RHO / 2)
  }

  get index(): number {
    return this.#state.index
  }

  begin(): void {
    void this.#serve()
    const resp = this.#dice.chance(0.5)
    for (let i = 0; i < CLIENTS; i++) {
      const client = new RollbackClient(this, this.world.machine(`client${i}`, this.#rate()), resp)
      this.clients.push(client)
      void client.live()
    }
    this.#fault()
  }

  // The server

  async #serve(): Promise<void> {
    const { machine } = this.host
    const { life } = machine
    const clock = machine.clock()
    while (machine.alive && machine.life === life) {
      const store = new WiredStore(this.#log, this.#wire, machine, { own: { name: 'server' }, ages: true, push: true })
      this.#store = store
      try {
        const replica = await Replica.open(store, { clock, owned: true, timeout: 3_000, snapshotRecords: 80, events: 5_000 })
        if (machine.life !== life) return
        this.host.replica = replica
        this.network.servers.set(this.host, await SimulatedServer.on(replica, replica, clock, OPERATOR))
        return
      } catch (error) {
        if (!(error instanceof LeaseError)) throw error
        store.abandon()
        await pauseOn(clock, 50)
      }
    }
  }

  // Faults

  #fault(): void {
    const { world } = this
    world.later(this.#dice.between(100, 1_200), () => {
      const dice = this.#dice
      const client = dice.pick(this.clients)
      const roll = dice.unit()
      if (roll < 0.25) this.#takeCopy()
      else if (roll < 0.45) this.#kill(dice.chance(0.6))
      else if (roll < 0.6) this.#breakCable()
      else if (roll < 0.7) this.#stall(client.machine, dice.pick([200, 1_500]))
      else if (roll < 0.8) this.#stall(this.host.machine, dice.pick([200, 800]))
      else if (roll < 0.9) this.#cut(client.machine, dice.pick([300, 2_000]))
      // The wall clock never steps backwards here: ids could then repeat, which the documented assumptions allow.
      else if (roll < 0.95) this.host.machine.wallOffset += dice.pick([1_000, 3_600_000])
      else client.restart()
      this.#fault()
    })
  }

  #takeCopy(): void {
    if (this.#state.index === 0) return
    this.world.note('the log is copied')
    this.#copy = { restore: this.#log.copy(), index: this.#state.index }
  }

  /** With `rollback`, the last copy is restored before the server restarts. */
  #kill(rollback: boolean): void {
    const { machine, replica } = this.host
    if (!machine.alive || replica === undefined) return
    this.world.fault('the server is killed')
    this.host.replica = undefined
    this.#store?.abandon()
    machine.kill()
    const copy = this.#copy
    // All clients must have met the last rollback before the next one: this scene tracks one loss at a time.
    const settled = this.rollbacks === 0 || this.clients.every(client => client.met === this.rollbacks)
    this.world.later(this.#dice.pick([20, 200, 900]), () => {
      if (rollback && copy !== undefined && settled && copy.index < this.#state.index) this.#restore(copy)
      machine.revive()
      void this.#serve()
    })
  }

  #restore({ restore, index }: Copy): void {
    this.world.fault(`the log is rolled back from ${this.#state.index} to ${index}`)
    restore()
    this.rollbacks++
    this.#lost = { from: index, to: this.#state.index }
    this.#healed = undefined
    this.#records = this.#records.filter(record => record.index <= index)
    this.#state = createState()
    this.#grantedAt.clear()
    for (const record of this.#records) this.#apply(record.index, record.bytes, false)
  }

  #breakCable(): void {
    const cables = [...this.network.cables]
    if (cables.length === 0) return
    this.world.fault('a connection breaks')
    this.#dice.pick(cables).breaks()
  }

  #stall(machine: Machine, ms: number): void {
    this.world.fault(`${machine.name} is stalled for ${ms} ms`)
    machine.stall(ms)
  }

  #cut(machine: Machine, ms: number): void {
    this.world.fault(`${machine.name} is cut off for ${ms} ms`)
    const { deaf, mute } = this.#wire
    for (const way of [deaf, mute]) way.add(machine)
    this.world.later(ms, () => {
      for (const way of [deaf, mute]) way.delete(machine)
    })
  }

  // Records of the log

  #observe({ index }: Position, bytes: Uint8Array): void {
    this.#records.push({ index, bytes })
    this.#apply(index, bytes, true)
  }

  #apply(index: number, bytes: Uint8Array, judge: boolean): void {
    const events: Event[] = []
    const batch = decodeBatch(bytes)
    const before = new Set(judge ? [...this.#state.leases.values()].map(({ id }) => id) : [])
    applyBatch(this.#state, index, batch, { events, timer() {} })
    if (judge) this.commands += batch.proposals.length
    for (const { type, lease, token = 0, cause } of events) {
      if (judge) this.world.note(`${type} ${lease} ${token} ${cause ?? ''}`)
      if (type === 'granted') {
        this.#grantedAt.set(lease, index)
        if (judge && token <= this.#lastToken) this.world.violate('S3', `token ${token} follows ${this.#lastToken}`)
        this.#lastToken = Math.max(this.#lastToken, token)
      }
      if (judge && type === 'generation' && cause === LOST) this.#healed ??= index
    }
    if (!judge) return
    for (const { id } of this.#state.leases.values()) {
      if (before.has(id)) continue
      if (this.#ids.has(id)) this.world.violate('S6', `lease ${id} has the id of an earlier lease`)
      this.#ids.add(id)
    }
  }

  // Leases that clients use

  /** A client received the answer to a request that it sent after the last rollback. `known`: the highest record that its earlier answers showed it. */
  met(client: RollbackClient, known: number): void {
    if (client.met === this.rollbacks) return
    client.met = this.rollbacks
    const { from, to } = this.#lost
    const stale = client.beliefs.find(({ belief, rollbacks }) => rollbacks < this.rollbacks && belief.holds())
    if (known > from && known <= to) {
      if (stale !== undefined)
        this.world.violate('S1', `${client.name} uses lease ${stale.belief.lease} from before the rollback, and was answered since`)
      if (this.#healed === undefined)
        this.world.violate('S24', `${client.name}, which saw records that are lost, was answered, and no generation has begun`)
    }
    if (client.rewound > this.rollbacks) this.world.violate('S24', `${client.name} was informed of more rollbacks than there were`)
  }

  believes(client: RollbackClient, belief: Believed): void {
    if (!belief.holds()) return
    const mine = { belief, rollbacks: this.rollbacks }
    client.beliefs = [...client.beliefs.filter(({ belief: other }) => other.holds()), mine]
    const grantedAt = this.#grantedAt.get(belief.lease)
    if (grantedAt === undefined || client.met !== this.rollbacks) return // a lost lease, and the client cannot know that yet
    const healed = this.#healed !== undefined && grantedAt > this.#healed
    for (const other of this.clients)
      for (const { belief: held } of other.beliefs) {
        if (held.lease === belief.lease || !held.holds()) continue
        // Before the generation, a client that has not met the rollback may still use its lease.
        if (other.met !== this.rollbacks && !healed) continue
        const both = belief.grants.find(({ resource }) => held.grants.some(grant => grant.resource === resource))
        if (both !== undefined)
          this.world.violate(
            'S1',
            `${client.name} (lease ${belief.lease}) and ${other.name} (lease ${held.lease}) both hold ${both.resource}`,
          )
      }
  }
}

class RollbackClient {
  readonly name: string
  readonly machine: Machine
  readonly #scene: Rollback
  readonly #resp: boolean
  beliefs: { readonly belief: Believed; readonly rollbacks: number }[] = []
  /** The number of the last rollback after which the server has answered this client. */
  met = 0
  rewound = 0
  /** The lowest record that the log can have reached when its last request was decided. */
  #known = 0

  constructor(scene: Rollback, machine: Machine, resp: boolean) {
    this.#scene = scene
    this.#resp = resp
    this.machine = machine
    this.name = machine.name
  }

  restart(): void {
    const { world } = this.#scene
    if (!this.machine.alive) return
    world.fault(`${this.name} is killed`)
    this.machine.kill()
    this.beliefs = []
    this.#known = 0
    world.later(100, () => {
      this.machine.revive()
      void this.live()
    })
  }

  async live(): Promise<void> {
    const { machine } = this
    const { life } = machine
    const clock = machine.clock()
    while (machine.life === life) {
      await pauseOn(clock, 20)
      try {
        const lessor = await this.#connect()
        if (machine.life !== life) return
        const leases = new Leases(new ReportingLessor(this, this.#scene, lessor, life), { holder: this.name, clock })
        await Promise.all([0, 1].map(() => this.#work(leases, life)))
        return
      } catch (error) {
        if (!(error instanceof LeaseError)) throw error
      }
    }
  }

  #connect(): Promise<Lessor> {
    const { network, host } = this.#scene
    const clock = this.machine.clock()
    if (this.#resp)
      return RemoteLessor.open({ dials: [network.dial(this.machine, host)], key: OPERATOR, clock, timeout: 5_000, connectWithin: 3_000 })
    return HttpLessor.open('http://127.0.0.1:7420', { key: OPERATOR, clock, fetch: network.fetch(this.machine, host) })
  }

  async #work(leases: Leases, life: number): Promise<void> {
    const { machine } = this
    const { dice } = machine
    const clock = machine.clock()
    while (machine.life === life) {
      try {
        await pauseOn(clock, dice.between(5, 60))
        const lease = await leases.acquire(dice.pick(NAMES), { ttl: dice.pick(TTLS), wait: dice.whole(50, QUIET) })
        const belief = new Believed(this.name, lease, machine, false)
        this.#scene.believes(this, belief)
        const end = clock.now() + dice.between(5, dice.chance(0.2) ? 4_000 : 300)
        while (lease.held && clock.now() < end) {
          await pauseOn(clock, dice.between(5, 100))
          this.#scene.believes(this, belief)
        }
        // Some leases are kept for a while, during later work.
        if (dice.chance(0.9)) await lease.release()
        else void pauseOn(clock, dice.between(500, 8_000)).then(() => lease.release().catch(() => {}))
      } catch (error) {
        if (!(error instanceof LeaseError)) throw error
      }
    }
  }

  /** `rollbacks` and `index` are from when the request was sent. `decided`: a record after `index` decided the outcome. */
  answered(rollbacks: number, index: number, decided: boolean): void {
    // A request from before a rollback may have been answered before or after it.
    if (rollbacks !== this.#scene.rollbacks) return
    this.#scene.met(this, this.#known)
    if (decided) this.#known = index
  }
}

/** The lessor of a client, which reports answers to the scene. */
class ReportingLessor implements Lessor {
  readonly #client: RollbackClient
  readonly #scene: Rollback
  readonly #inner: Lessor
  readonly #life: number

  constructor(client: RollbackClient, scene: Rollback, inner: Lessor, life: number) {
    this.#client = client
    this.#scene = scene
    this.#inner = inner
    this.#life = life
  }

  get profile(): Lessor['profile'] {
    return this.#inner.profile
  }

  get signal(): AbortSignal {
    return this.#inner.signal
  }

  submit(command: Command, options: ProposeOptions, completion: Completion): void {
    complete(completion, this.#answer(command, options))
  }

  async #answer(command: Command, options: ProposeOptions): Promise<Outcome> {
    // A process that was killed may still have calls under way.
    if (this.#client.machine.life !== this.#life) return new Promise(() => {})
    const { rollbacks, index } = this.#scene
    const outcome = await propose(this.#inner, command, options)
    const decided = outcome.kind === 'granted' || outcome.kind === 'queued'
    if (this.#client.machine.life === this.#life) this.#client.answered(rollbacks, index, decided)
    return outcome
  }

  read: Lessor['read'] = (query, options) => this.#inner.read(query, options)

  watch(...args: Parameters<Lessor['watch']>): ReturnType<Lessor['watch']> {
    return this.#inner.watch(...args)
  }

  onRewound(tell: (why: LeaseError) => void): () => void {
    return this.#inner.onRewound!(why => {
      this.#client.rewound++
      tell(why)
    })
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#inner[Symbol.asyncDispose]() as Promise<void>
  }
}
