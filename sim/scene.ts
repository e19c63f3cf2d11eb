/** One simulated world: its machines, replicas, holders and operators, from the first start to the check that no lease is left. */
import { LeaseError } from '../src/errors.ts'
import type { Command } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { Abandoner } from './abandoner.ts'
import { AgentProgram } from './agent-program.ts'
import { AgentReferee } from './agent-referee.ts'
import { Application, ApplicationWorld, applicationOn } from './application.ts'
import { Bookkeeper } from './bookkeeper.ts'
import { type Build, PRESENT } from './builds.ts'
import type { Combined, CombinedScene } from './combined.ts'
import { Faults, type FaultyScene } from './faults.ts'
import { Holder } from './holder.ts'
import { chooseListeners, idleLateness } from './listeners.ts'
import { mixedPolicies } from './mixed-wishes.ts'
import { type OperatedScene, Operators } from './operators.ts'
import { Client, Host, HostLessor, type Site } from './participants.ts'
import { poolPolicies } from './pools.ts'
import type { ProfileName } from './profiles.ts'
import { Referee } from './referee.ts'
import type { RemoteAccess } from './remote.ts'
import { ReplicatedLog } from './replicated-log.ts'
import { type Moment, WatchedLog, Wire } from './wire.ts'
import { type Dice, type Machine, RHO, type World } from './world.ts'

const LONGEST_TTL = 4_000
const ABANDONERS = [
  { name: 'abandoner', ttl: 600, pace: 150 },
  { name: 'latecomer', ttl: 300, pace: 240 },
]
/** After the faults: how long after its term a lease may still exist. */
const AFTER_HEAL = 1_500

/** Each world has this many hosts. */
const HOSTS: Readonly<Record<ProfileName, number>> = {
  rollback: 0,
  embedded: 3,
  servers: 2,
  owned: 1,
  restless: 2,
  moving: 3,
  calm: 2,
  library: 3,
  resp: 2,
  http: 1,
  rolling: 3,
  transactions: 2,
  pool: 3,
  agents: 3,
  combined: 2,
  directed: 0,
  failover: 3,
  cases: 0,
  idle: 4,
}

export class Scene implements FaultyScene, OperatedScene, CombinedScene {
  readonly referee: Referee
  readonly world: World
  readonly dice: Dice
  readonly profile: ProfileName
  readonly site: Site
  /** The log, where its engine has a standby. */
  readonly replicated: ReplicatedLog | undefined
  readonly hosts: Host[] = []
  /** Machines of holders that connect to a server. */
  readonly clients: Machine[] = []
  holders: Holder[] = []
  readonly applicationWorld: ApplicationWorld
  /** The newer build, where machines are upgraded one after another. */
  readonly nextBuild: Build | undefined
  /** Connections between real clients and real servers, in profiles that have them. */
  remote: RemoteAccess | undefined
  #applications: (Application | AgentProgram)[] = []
  readonly #agents: AgentReferee
  #abandoners: Abandoner[] = []
  #bookkeepers: Bookkeeper[] = []
  #combined: Combined | undefined
  isCalm = false
  readonly newLog: () => WatchedLog
  /** The key that some holders share at the moment. */
  readonly ring = { key: 0 }
  hasBegun = false
  isOver = false
  #moving = false
  readonly #operators = new Operators(this)
  readonly #faults = new Faults(this)

  constructor(world: World, profile: ProfileName, next: Build | undefined) {
    this.world = world
    this.dice = world.dice
    this.profile = profile
    this.nextBuild = next
    this.referee = new Referee(world, next === undefined ? {} : { apply: next.applyBatch })
    this.applicationWorld = new ApplicationWorld(world)
    const engine = world.machine('engine', this.randomRate())
    this.newLog = () => new WatchedLog({ clock: engine.clock() })
    const standby = profile === 'failover' ? new ReplicatedLog(world, { clock: engine.clock() }) : undefined
    const log = standby ?? this.newLog()
    this.replicated = standby
    if (standby !== undefined) standby.onFailover = undone => this.referee.undo(undone)
    this.#agents = new AgentReferee(world, this.referee)
    log.onAppend = (position, bytes, sentAt) => void [this.referee.observe(position, bytes, sentAt), this.#agents.look()]
    const bad = profile !== 'calm'
    if (!bad) this.referee.terms.lateness = 500
    const wire = new Wire(world, {
      delay: this.dice.pick([0.3, 2, 8]),
      loss: bad ? this.dice.pick([0, 0.01, 0.05]) : 0,
      doubled: bad && standby === undefined ? 0.01 : 0,
    })
    this.site = {
      world,
      referee: this.referee,
      log,
      wire,
      ages: this.dice.chance(0.5),
      push: this.dice.chance(0.6),
      // Replicas that restart often would otherwise spend their time reading the log.
      snapshotRecords: this.dice.pick(profile === 'restless' || profile === 'moving' ? [25, 60, 150] : [40, 150, 500]),
      incarnations: new Map(),
      ...(profile === 'idle' && { readEvery: this.dice.pick([1_500, 3_000]) }),
    }
    wire.begins = (machine, moment) => this.#mayDie(machine, moment)
  }

  calm(): () => void {
    this.isCalm = true
    return () => {
      this.isCalm = false
    }
  }

  randomRate(): number {
    return 1 + this.dice.between(-RHO / 2, RHO / 2)
  }

  async begin(): Promise<void> {
    const names = HOSTS[this.profile]
    const alone = this.profile === 'owned' || (this.profile === 'http' && this.dice.chance(0.5))
    for (let i = 0; i < names; i++) {
      const owned = alone || (this.profile === 'moving' && i !== 1)
      this.hosts.push(new Host(this.site, this.world.machine(`host${i}`, this.randomRate()), owned))
    }
    if (this.profile === 'resp' || this.profile === 'http')
      this.remote = new (await import('./remote.ts')).RemoteAccess(this.profile, this.site, this.hosts)
    if (this.profile === 'owned') this.referee.terms.server = this.hosts[0]
    void this.hosts[0]!.start()
    await this.world.run(this.world.now + 100)
    if (this.profile === 'moving') this.#move()
    else for (const host of this.hosts.slice(1)) void host.start()
    await this.#rules()
    if (this.profile === 'combined') this.#combined = new (await import('./combined.ts')).Combined(this)
    if (this.hasRemoteHolders) for (let i = 0; i < 3; i++) this.clients.push(this.world.machine(`client${i}`, this.randomRate()))
    for (const machine of this.hasRemoteHolders ? this.clients : this.hosts.map(host => host.machine)) this.#settleHolders(machine)
    if (this.profile === 'owned') this.#abandoners = ABANDONERS.map(options => new Abandoner(this.world, this.hosts[0]!, options))
    if (this.profile === 'transactions') this.#bookkeepers = [0, 1].map(i => new Bookkeeper(this.world, this.dice, this.hosts, i))
    if (this.profile === 'idle') chooseListeners(this)
    this.hasBegun = true
    if (this.#combined !== undefined) this.#combined.start()
    else if (this.profile !== 'agents') this.#operators.start()
    this.#faults.start()
    if (this.nextBuild !== undefined) this.#raise(this.nextBuild)
  }

  /** Raises the rules, sometimes before all replicas are upgraded: those that are not must stop, and restart upgraded. */
  #raise(next: Build): void {
    this.world.later(this.dice.between(2_000, 15_000), () => {
      if (this.isOver || this.referee.state.rules === next.rules) return
      this.#raise(next)
      const host = this.dice.pick(this.hosts)
      if (host.replica === undefined || this.referee.awaitsGeneration) return
      this.world.fault(`the rules are raised through ${host.machine.name}`)
      void host.propose({ kind: 'upgrade', rules: next.rules }).catch(error => {
        if (!(error instanceof LeaseError)) throw error
      })
    })
  }

  /** A restart may be an upgrade, or a downgrade, or neither. */
  #choose(host: Host): void {
    if (this.nextBuild === undefined) return
    const must = this.isOver || (this.referee.state.rules === this.nextBuild.rules && this.dice.chance(0.7))
    host.build = must ? this.nextBuild : this.dice.pick([PRESENT, this.nextBuild])
  }

  get hasRemoteHolders(): boolean {
    return ['servers', 'owned', 'moving', 'failover'].includes(this.profile) || this.remote !== undefined
  }

  /** Holders are programs with the real library. */
  get usesLibrary(): boolean {
    return this.profile === 'library' || this.remote !== undefined
  }

  /** Proposes through any running host; false if there is none. */
  async propose(command: Command): Promise<boolean> {
    return (await this.outcome(command)) !== undefined
  }

  async outcome(command: Command): Promise<Outcome | undefined> {
    const there = this.hosts.filter(host => host.replica !== undefined)
    const host = this.dice.pick(there.length > 0 ? there : this.hosts)
    try {
      return await host.propose(command)
    } catch (error) {
      if (!(error instanceof LeaseError)) throw error
      return undefined
    }
  }

  async #rules(): Promise<void> {
    const policies = policiesOf(this.profile, this.dice)
    if (this.profile !== 'combined' && this.dice.chance(0.5)) void this.#operators.changeKey()
    for (const policy of policies) {
      void this.hosts[0]!.propose(policy).catch(error => {
        if (!(error instanceof LeaseError)) throw error
      })
    }
  }

  #settleHolders(machine: Machine): void {
    const host = this.hosts.find(candidate => candidate.machine === machine)
    if (this.profile === 'agents') return this.#settleAgents(machine, host!)
    if (this.#combined !== undefined) return host && this.#combined.settle(machine, host)
    if (this.usesLibrary) return this.#settleApplication(machine, host)
    const door = host ?? new Client(this.site, machine, this.hosts)
    const ttls = this.profile === 'restless' ? [900, 2_000] : [300, 900, 2_000, LONGEST_TTL]
    const holders = this.profile === 'failover' ? 2 : this.profile === 'restless' || this.profile === 'moving' ? 6 : 4
    for (let i = 0; i < holders; i++) {
      const blind = this.profile === 'owned' && i === 3
      const ring = i === 1 ? this.ring : undefined
      const habits = { ttls, blind, ring, forgetful: i === 0, long: this.profile === 'calm', pools: this.profile === 'pool' }
      const holder = new Holder(this.site, machine, door, `${machine.name}/${i}`, habits)
      this.holders.push(holder)
      holder.peers = this.holders
      void holder.live()
    }
  }

  #settleApplication(machine: Machine, host: Host | undefined): void {
    const far = this.remote
    const connect = async () =>
      far !== undefined ? far.connect(machine) : host?.replica === undefined ? undefined : new HostLessor(host, host.replica)
    const peers = (far === undefined ? this.hosts.map(({ machine: its }) => its) : this.clients).map(applicationOn)
    const application = new Application(this.site, this.applicationWorld, { machine, connect, peers, watches: machine === this.clients[0] })
    this.#applications.push(application)
    void application.live()
  }

  #settleAgents(machine: Machine, host: Host): void {
    const connect = async () => (host.replica === undefined ? undefined : new HostLessor(host, host.replica))
    const programs = [0, 1].map(i => new AgentProgram(this.site, this.#agents, { name: `${machine.name}-${i}`, machine, connect }))
    this.#applications.push(...programs)
    for (const program of programs) void program.live()
  }

  /** A process may die at any await, most often while it opens its store or writes a snapshot. */
  #mayDie(machine: Machine, moment: Moment): void {
    if (this.profile === 'calm' || !this.hasBegun || this.isOver || this.isCalm) return
    const p = { opening: 0.03, snapshot: 0.02, appending: 0.0005, reading: 0.0002 }[moment]
    if (!this.dice.chance(p)) return
    this.world.later(this.dice.between(0, this.site.wire.weather.delay * 2), () => {
      if (machine.alive && !this.isOver) this.crash(machine)
    })
  }

  crash(machine: Machine): void {
    const host = this.hosts.find(candidate => candidate.machine === machine)
    if (!machine.alive || this.isCalm || (host !== undefined && this.referee.awaitsGeneration)) return
    this.world.fault(`${machine.name} is killed`)
    this.holders = this.holders.filter(holder => !holder.name.startsWith(`${machine.name}/`))
    this.#applications = this.#applications.filter(({ name }) => name !== applicationOn(machine) && !name.startsWith(`${machine.name}-`))
    this.applicationWorld.office.forget(applicationOn(machine))
    this.#combined?.forget(machine)
    if (host === undefined) machine.kill()
    else host.crash()
    if (this.profile === 'moving' && host !== undefined) return // it restarts in its turn, or when no other host runs
    const away = this.dice.pick([10, 100, 800])
    this.world.later(away, () => this.#revive(machine))
  }

  #revive(machine: Machine): void {
    if (machine.alive) return
    machine.revive()
    const host = this.hosts.find(candidate => candidate.machine === machine)
    if (host !== undefined) {
      this.#choose(host)
      void host.start()
    }
    if ((host === undefined || !this.hasRemoteHolders) && !this.isOver) this.#settleHolders(machine)
  }

  /** One log in turns: owned by a server, then shared by a library, then owned again. */
  #move(): void {
    this.world.later(this.dice.between(400, 4_000), () => {
      if (this.isOver) return
      this.#move()
      if (this.#moving || this.referee.awaitsGeneration) return
      const here = this.hosts.findIndex(host => host.machine.alive && host.replica !== undefined)
      const next = this.hosts[(here + 1) % this.hosts.length]!
      const leaving = this.hosts[here]
      this.#moving = true
      const come = () => {
        if (!next.machine.alive) next.machine.revive()
        if (next.replica === undefined) void next.start()
      }
      const go = () => {
        this.#moving = false
        come()
      }
      this.world.fault(`the log moves to ${next.machine.name}`)
      // The next host sometimes opens the log while the other still has it, and must be refused until that has closed.
      if (leaving !== undefined && this.dice.chance(0.3)) come()
      if (leaving === undefined) go()
      else if (this.dice.chance(0.5)) {
        leaving.crash()
        go()
      } else {
        let left = false
        const leave = () => {
          if (left) return
          left = true
          leaving.crash()
          go()
        }
        void leaving.close().then(leave)
        this.world.later(2_000, leave) // a host that does not close in time is killed
      }
    })
  }

  /** Ends faults and renewals: every lease must then end by itself, however often replicas restart. */
  async heal(): Promise<void> {
    const world = this.world
    this.isOver = true
    for (const holder of this.holders) holder.stopped = true
    for (const application of this.#applications) application.stop()
    this.#combined?.stop()
    for (const abandoner of this.#abandoners) abandoner.stopped = true
    for (const bookkeeper of this.#bookkeepers) bookkeeper.stopped = true
    const { wire } = this.site
    wire.deaf.clear()
    wire.mute.clear()
    wire.full.clear()
    this.replicated?.findsStandby()
    Object.assign(wire.weather, { delay: 1, loss: 0, doubled: 0 })
    const shortLives = this.profile === 'restless' || (this.profile === 'owned' && this.dice.chance(0.5))
    // Stalled and suspended machines continue. After that no holder renews any more, and machines that were killed restart.
    if (!shortLives) await world.run(world.now + 6_000)
    for (const machine of world.machines) if (!machine.alive && this.profile !== 'moving') this.#revive(machine)
    for (const host of this.hosts) host.build = this.nextBuild ?? PRESENT
    if (shortLives) await this.#shortLives()
    else {
      if (this.profile === 'moving') this.#bringBack(this.hosts[0]!)
      // The quiet time after a loss lasts the longest term, and so does every lease. Then queued waiters are granted, and lapse in turn.
      const end =
        world.now + Math.max(LONGEST_TTL * 3, longestTerm(this.referee.state)) * (1 + RHO) + 8_000 + 12 * (this.site.readEvery ?? 0)
      while (world.now < end && !(this.referee.isCalm && this.#applications.every(hasEnded))) await world.run(world.now + 500)
    }
    this.referee.checkWhole()
    this.referee.nothingIsLeft(`after ${shortLives ? 'frequent restarts' : 'a long calm'}`)
    if (!shortLives) await this.#abandonOne()
    for (const host of this.hosts)
      if (host.replica !== undefined) this.referee.sameState(host.machine, host.replica.index, () => host.replica!.hash())
    await world.run(world.now)
  }

  /** An abandoned lease lapses, and the waiter is granted in time. */
  async #abandonOne(): Promise<void> {
    const world = this.world
    const after = AFTER_HEAL + idleLateness(this)
    const ask = (holder: string) =>
      this.outcome({ kind: 'acquire', holder, ttl: 700, wants: [{ resource: 'probe' }], wait: true }).then(outcome => outcome?.kind)
    const first = ask('abandoner')
    const since = world.now
    await world.run(world.now + 500)
    if ((await settledOr(first)) !== 'granted') return world.violate('L1', 'after the faults, a free resource is not granted within 500 ms')
    void ask('waiter')
    const until = since + 700 * (1 + RHO) + after + 100
    const granted = () => this.referee.state.resources.get('probe')?.grants[0]?.lease.holder.name === 'waiter'
    while (!granted() && world.now < until) await world.run(world.now + 20)
    this.referee.grantableAfter(world.now - since, 700, after)
    await world.run(world.now + 700 * (1 + RHO) + after)
    this.referee.nothingIsLeft('after the last holder has gone')
  }

  #bringBack(host: Host): void {
    if (this.hosts.some(({ machine, replica }) => machine.alive && replica !== undefined)) return
    if (!host.machine.alive) host.machine.revive()
    void host.start()
  }

  /** No replica runs for a whole term, and abandoned leases end all the same. */
  async #shortLives(): Promise<void> {
    const world = this.world
    for (let i = 0; i < 24 && this.referee.state.leases.size > 0; i++) {
      await world.run(world.now + 1_300)
      for (const host of this.hosts) {
        if (host.machine.alive) host.crash()
        host.machine.revive()
        void host.start()
      }
    }
    await world.run(world.now + 1_200)
  }
}

/** The value of a promise if it is settled by now. */
function settledOr<T>(promise: Promise<T>): Promise<T | undefined> {
  return Promise.race([promise, Promise.resolve(undefined)])
}

function policiesOf(profile: ProfileName, dice: Dice): readonly Command[] {
  const policies: Command[] = [{ kind: 'policy', prefix: 'p', rules: { capacity: 3 } }]
  if (profile === 'transactions') policies.push({ kind: 'policy', prefix: 'kv', rules: { freeEntries: 10 } })
  if (dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 'x/1', rules: { lockDelay: 200 } })
  if (dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 'x/2', rules: { maxLife: 1_500 } })
  if (dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 'x/3', rules: { maxHold: 400 } })
  if (dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 'e', rules: { grace: 300 } })
  if (dice.chance(0.4)) policies.push({ kind: 'policy', prefix: 'x', rules: { aging: 700 } })
  if (dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 's', rules: { queue: 'fit' } })
  if (profile === 'pool') policies.push(...poolPolicies(dice))
  if (profile === 'combined') policies.splice(0, policies.length, ...mixedPolicies(dice))
  return policies
}

function longestTerm({ longest, leases }: Referee['state']): number {
  return Math.max(longest, ...[...leases.values()].map(({ term }) => term))
}

/** Agents are told to stop in the middle of what they do, and their leases end by themselves. */
function hasEnded(application: Application | AgentProgram): boolean {
  return !(application instanceof Application) || application.hasEnded
}
