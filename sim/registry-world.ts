/**
 * A simulated world with thousands of registered processes and the servers that list them. The library's registration, the replica and the kernel
 * are the real ones; network, clocks and crashes are simulated.
 *
 * Checked at every record of the log: an instance whose renewal was acknowledged stays listed for at least its ttl and its grace (S17, S4); an
 * instance whose process died is gone when every delay that may keep it is over (S17, S5); a generation never decreases (S18). The first violation
 * ends the run.
 */

import { LeaseError } from '../src/errors.ts'
import { Operations } from '../src/holder/operations.ts'
import { applyBatch, decodeBatch } from '../src/kernel/codec/batch.ts'
import { stateHash } from '../src/kernel/codec/snapshot.ts'
import type { Command, PolicyRules } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { SWEEP } from '../src/kernel/rule/service.ts'
import { createState } from '../src/kernel/state.ts'
import { complete } from '../src/lessor/complete.ts'
import { propose } from '../src/lessor/propose.ts'
import type { Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../src/lessor.ts'
import { type Registration, Registry } from '../src/recipe/registry/registry.ts'
import { Directory } from '../src/registry/directory.ts'
import { Replica } from '../src/replica/replica.ts'
import type { Profile } from '../src/store.ts'
import { WatchedLog, Wire, WiredStore } from './wire.ts'
import { type Machine, World } from './world.ts'

/** ρ: the largest error of a clock rate in this world. */
const RATE_ERROR = 0.005
/** A client gives up a request after this time, as it would give up a real connection. */
const TIMEOUT = 2_000

export interface TownOptions {
  readonly seed: number
  readonly processes: number
  /** Registrations of each process. */
  readonly each?: number
  readonly services?: readonly string[]
  readonly ttl?: number
  readonly servers?: number
  /** One server owns the log and keeps renewals in memory. Otherwise the servers share the log. */
  readonly owned?: boolean
  readonly rules?: PolicyRules
  readonly loss?: number
  readonly delay?: number
}

/** A server: a replica that may be killed and restarted. */
class RegistryServer {
  readonly registryWorld: RegistryWorld
  readonly machine: Machine
  #store: WiredStore | undefined
  #killed = 0
  replica: Replica | undefined

  constructor(registryWorld: RegistryWorld, machine: Machine) {
    this.registryWorld = registryWorld
    this.machine = machine
  }

  /** Opens the replica as a supervisor would: again and again, until it runs or the machine is killed. */
  async open(): Promise<void> {
    const { owned, log, wire } = this.registryWorld
    const own = owned ? { name: this.machine.name } : undefined
    const { life } = this.machine
    while (life === this.machine.life) {
      try {
        this.#store = new WiredStore(log, wire, this.machine, { own, ages: true, push: true })
        const replica = await Replica.open(this.#store, { clock: this.machine.clock(), owned, snapshotRecords: 2_000 })
        if (life === this.machine.life) this.replica = replica
        return
      } catch {
        // The log did not answer: try again.
      }
    }
  }

  stall(ms: number): void {
    this.registryWorld.uncounted += ms
    this.machine.stall(ms)
  }

  kill(): void {
    this.#killed = this.registryWorld.world.now
    this.machine.kill()
    this.replica = undefined
    this.#store?.abandon()
  }

  async revive(): Promise<void> {
    // No server measured time while this one was down, and a new owner may not know the age of leases.
    this.registryWorld.uncounted += this.registryWorld.world.now - this.#killed + this.registryWorld.ttl
    this.machine.revive()
    await this.open()
  }
}

/** The connection of an agent to its server. */
class ServerLink implements Lessor {
  readonly #agent: Agent
  readonly #closing = new AbortController()
  readonly #life: number

  constructor(agent: Agent) {
    this.#agent = agent
    this.#life = agent.machine.life
  }

  get profile(): Profile {
    return { ...this.#agent.registryWorld.halls[0]!.replica!.profile }
  }

  get signal(): AbortSignal {
    return this.#closing.signal
  }

  submit(command: Command, options: ProposeOptions, completion: Completion): void {
    complete(completion, this.#answer(command, options))
  }

  async #answer(command: Command, { op }: ProposeOptions): Promise<Outcome> {
    const { registryWorld } = this.#agent
    const sent = registryWorld.world.now
    const outcome = await this.#call(replica => propose(replica, command, op === undefined ? {} : { op }))
    registryWorld.acknowledged(command, outcome, sent)
    return outcome
  }

  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.#call(replica => replica.read<K>(query, options))
  }

  /** Never yields: agents register, and do not look up others. */
  async *watch(_: string, { signal }: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    await new Promise(resolve => signal.addEventListener('abort', resolve))
  }

  #call<T>(ask: (replica: Replica) => Promise<T>): Promise<T> {
    const { registryWorld, machine, server } = this.#agent
    const { world, wire } = registryWorld
    return new Promise((resolve, reject) => {
      const life = this.#life
      const cancel = world.later(TIMEOUT, () => reject(new LeaseError('UNKNOWN', 'no answer')), machine, true, life)
      const back = (then: () => void) => {
        const ms = registryWorld.cut.has(this.#agent) ? undefined : wire.back(machine)
        const arrive = () => {
          cancel()
          then()
        }
        if (ms !== undefined) world.later(ms, arrive, machine, false, life)
      }
      const there = registryWorld.cut.has(this.#agent) ? undefined : wire.out(machine)
      if (there === undefined) return
      world.later(
        there,
        () => {
          if (server.replica === undefined) return
          ask(server.replica).then(
            answer => back(() => resolve(answer)),
            error => back(() => reject(error)),
          )
        },
        server.machine,
      )
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
  }
}

/** One process with its registrations. When it is killed it does not deregister. */
export class Agent {
  readonly registryWorld: RegistryWorld
  readonly machine: Machine
  readonly server: RegistryServer
  readonly names: readonly { readonly service: string; readonly instance: string }[]
  generation = 0
  registered: Registration[] = []

  constructor(registryWorld: RegistryWorld, machine: Machine, server: RegistryServer, names: Agent['names']) {
    this.registryWorld = registryWorld
    this.machine = machine
    this.server = server
    this.names = names
  }

  /** A new process takes the names of its predecessor, one generation later, as a supervisor would arrange it. */
  async start(): Promise<void> {
    this.generation++
    const { machine, registryWorld } = this
    const lessor = new ServerLink(this)
    const clock = machine.clock()
    const operations = new Operations(lessor, clock)
    const registry = new Registry({
      ...{ holder: `${machine.name}:${this.generation}`, clock, lessor },
      decide: (command, options) => operations.decide(command, options),
      within: (ms, answer) => operations.within(ms, answer),
    })
    const { generation } = this
    const mine: Registration[] = []
    this.registered = mine
    await Promise.all(
      this.names.map(async name => {
        while (machine.alive && this.generation === generation) {
          try {
            mine.push(await registry.register({ ...name, generation, address: 'a:1', ttl: registryWorld.ttl }))
            return
          } catch {
            // Try again, as a supervisor would.
          }
        }
      }),
    )
  }

  kill(): void {
    this.machine.kill()
    this.registryWorld.died(this)
  }

  async revive(): Promise<void> {
    this.machine.revive()
    await this.start()
  }
}

export class RegistryWorld {
  readonly world: World
  readonly wire: Wire
  readonly log: WatchedLog
  readonly owned: boolean
  readonly ttl: number
  readonly halls: RegistryServer[] = []
  readonly agents: Agent[] = []
  /** Agents that no message reaches or leaves. */
  readonly cut = new Set<Agent>()
  /** The listing according to the log itself, independent of all servers. */
  readonly directory = new Directory()
  /** True times of lapses. */
  readonly lapses: number[] = []
  /** Time in ms, in total, that servers may not have counted: because a server was stalled, was down, or did not know the age of leases. */
  uncounted = 0
  readonly #rules: PolicyRules
  /** For each lease: when its holder sent the last renewal that was acknowledged. */
  readonly #acknowledged = new Map<number, number>()
  readonly #generations = new Map<string, number>()
  readonly #state = createState()

  constructor({
    seed,
    processes,
    each = 1,
    services = ['s'],
    ttl = 30_000,
    servers = 1,
    owned = false,
    rules = {},
    loss = 0,
    delay = 5,
  }: TownOptions) {
    this.world = new World(seed)
    this.wire = new Wire(this.world, { delay, loss, doubled: 0 })
    const rate = () => 1 + this.world.dice.between(-RATE_ERROR, RATE_ERROR)
    this.log = new WatchedLog({ clock: this.world.machine('engine', rate()).clock() })
    this.log.onAppend = ({ index }, bytes) => this.#observe(index, bytes)
    this.owned = owned
    this.ttl = ttl
    this.#rules = rules
    for (let i = 0; i < servers; i++) this.halls.push(new RegistryServer(this, this.world.machine(`server-${i}`, rate())))
    for (let i = 0; i < processes; i++) {
      const names = Array.from({ length: each }, (_, n) => ({
        service: services[(i * each + n) % services.length]!,
        instance: `${i}-${n}`,
      }))
      this.agents.push(new Agent(this, this.world.machine(`agent-${i}`, rate()), this.halls[i % servers]!, names))
    }
  }

  /** Starts the servers, then all processes over a few seconds. */
  async open(): Promise<void> {
    const open = Promise.all(this.halls.map(server => server.open()))
    await this.run(1_000)
    await open
    const { replica } = this.halls[0]!
    void propose(replica!, { kind: 'policy', prefix: 'services', rules: this.#rules })
    for (const agent of this.agents) this.world.later(this.world.dice.between(0, 5_000), () => void agent.start())
  }

  get grace(): number {
    return Math.floor(this.ttl / 2)
  }

  async run(ms: number): Promise<void> {
    await this.world.run(this.world.now + ms)
  }

  /** The instances whose process is alive. */
  get living(): readonly string[] {
    const living = this.agents.filter(({ machine }) => machine.alive)
    return living.flatMap(({ names }) => names.map(({ service, instance }) => `${service}/${instance}`)).sort()
  }

  /** The instances that are listed as passing or suppressed. */
  get listed(): readonly string[] {
    const good = this.directory.list({ status: ['passing', 'suppressed'] })
    return good.map(({ service, instance }) => `${service}/${instance}`).sort()
  }

  acknowledged(command: Command, outcome: Outcome, sent: number): void {
    if (outcome.kind === 'granted') this.#note(outcome.lease, sent)
    if (outcome.kind !== 'renewed' || command.kind !== 'renew') return
    for (const [i, lease] of command.leases.entries()) if (outcome.ttls[i]! > 0) this.#note(lease, sent)
  }

  #note(lease: number, sent: number): void {
    this.#acknowledged.set(lease, Math.max(this.#acknowledged.get(lease) ?? 0, sent))
  }

  /** An observer at the engine: it applies every record in order, whatever happens to servers, and proposes nothing. */
  #observe(index: number, bytes: Uint8Array): void {
    const events: Event[] = []
    applyBatch(this.#state, index, decodeBatch(bytes), { events, timer: () => {} })
    for (let at = 0; at < events.length; ) {
      const { revision } = events[at]!
      const from = at
      while (events[at]?.revision === revision) at++
      this.directory.apply(events.slice(from, at))
    }
    for (const event of events) this.#judge(event)
  }

  /** The state hashes of the observer and of every server. They are equal when all servers have read to the end of the log. */
  async hashes(): Promise<readonly string[]> {
    // A tick or a mark may be in progress.
    for (let i = 0; i < 50 && this.halls.some(({ replica }) => replica?.index !== this.#state.index); i++) await this.run(100)
    return [stateHash(this.#state), ...this.halls.map(({ replica }) => replica?.hash() ?? 'down')]
  }

  #judge({ type, key = '', lease, value = '', cause }: Event): void {
    const { world } = this
    if (key.split('/').length !== 3) return
    if (type === 'put') {
      const { generation = 0 } = JSON.parse(value) as { generation?: number }
      const before = this.#generations.get(key) ?? 0
      if (generation < before) world.violate('S18', `${key} went back from generation ${before} to ${generation}`)
      this.#generations.set(key, generation)
    }
    if (type !== 'deleted' || cause !== 'lapsed') return
    this.lapses.push(world.now)
    const sent = this.#acknowledged.get(lease)
    const least = (this.ttl + this.grace) / (1 + RATE_ERROR)
    if (sent !== undefined && world.now < sent + least - 1)
      world.violate(
        'S17',
        `${key} lapsed ${Math.round(world.now - sent)} ms after a renewal that was acknowledged; the earliest is ${Math.round(least)} ms`,
      )
  }

  /** Checks later, when every delay that may keep it is over, that a dead process is not listed, unless it was restarted. */
  died(agent: Agent): void {
    const { preserveMost = 300_000, sweepShare = 15 } = this.#rules
    const kept = this.ttl + this.grace + preserveMost + SWEEP * (Math.ceil(100 / sweepShare) + 1)
    const late = kept * (1 + RATE_ERROR) + 5_000
    const { generation } = agent
    const check = (uncounted: number) => {
      if (this.uncounted > uncounted) {
        const more = this.uncounted
        this.world.later(more - uncounted, () => check(more))
        return
      }
      for (const { service, instance } of agent.names) {
        const there = this.directory.get(service, instance)
        if (there !== undefined && there.generation <= generation)
          this.world.violate('S17', `${service}/${instance} is still listed ${Math.round(late)} ms after its process died`)
      }
    }
    const { uncounted } = this
    this.world.later(late, () => check(uncounted))
  }
}
