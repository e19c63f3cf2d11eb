/** One seed: a world is set up, lives through its faults under watch, heals, and must come to rest. */
import { LeaseError } from '../src/errors.ts'
import type { Command } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { Abandoner } from './abandoner.ts'
import { Application, ApplicationWorld, applicationOn } from './application.ts'
import { type Build, nextBuild, PRESENT } from './builds.ts'
import { Holder } from './holder.ts'
import { Client, Host, HostLessor, type Site } from './participants.ts'
import { Referee, RHO } from './referee.ts'
import type { RemoteAccess } from './remote.ts'
import { type Moment, WatchedLog, Wire } from './wire.ts'
import { type Dice, type Machine, Violation, World } from './world.ts'

export const PROFILES = [
  'embedded',
  'servers',
  'owned',
  'restless',
  'moving',
  'calm',
  'library',
  'resp',
  'http',
  'rolling',
  'rollback',
] as const
export type ProfileName = (typeof PROFILES)[number]

/**
 * Seeds take their profiles in turns. Worlds with whole servers or two builds in them cost twice what the others do, and come half as often.
 */
export const MIX: readonly ProfileName[] = [
  ...PROFILES,
  ...PROFILES.filter(name => name !== 'resp' && name !== 'http' && name !== 'rolling' && name !== 'rollback'),
]

export interface SeedResult {
  readonly seed: number
  readonly profile: ProfileName
  readonly commands: number
  readonly faults: number
  readonly events: number
  readonly simulatedMs: number
  readonly digest: number
  readonly violation?: { readonly invariant: string; readonly message: string }
  /** Its time was over before it had seen as much as it should: nothing was violated, and too little was tried. */
  readonly short?: true
}

export interface SeedOptions {
  readonly profile?: ProfileName | undefined
  readonly trace?: ((line: string) => void) | undefined
  readonly commands?: number
  readonly faults?: number
  /** How much virtual time it has for them, in seconds. */
  readonly within?: number
}

const LONGEST_TTL = 4_000
/** After the chaos: how much later than its term a lease may be gone. */
const AFTER_HEAL = 1_500
/** What holders with a key may do. */
const SCOPES = [
  { verb: 'acquire', prefix: 'x' },
  { verb: 'acquire', prefix: 'p' },
  { verb: 'register', prefix: 'e' },
] as const

export async function runSeed(
  seed: number,
  { profile, trace, commands = 2_000, faults = 20, within = 600 }: SeedOptions = {},
): Promise<SeedResult> {
  const world = new World(seed, trace)
  const chosen = profile ?? MIX[seed % MIX.length]!
  // Only here: it brings servers along.
  if (chosen === 'rollback') return (await import('./rollback.ts')).runRollback(world, seed, { commands, faults, within })
  const scene = new Scene(world, chosen, chosen === 'rolling' ? await nextBuild() : undefined)
  const enough = () => scene.referee.commands >= commands && world.faults >= faults
  let violation: SeedResult['violation']
  let short = false
  try {
    await scene.begin()
    for (let second = 1; second < within && !enough(); second++) await world.run(second * 1_000)
    short = !enough()
    await scene.heal()
  } catch (error) {
    if (!(error instanceof Violation)) throw error
    violation = { invariant: error.invariant, message: error.message }
  } finally {
    for (const machine of world.machines) machine.kill()
  }
  return {
    seed,
    profile: chosen,
    commands: scene.referee.commands,
    faults: world.faults,
    events: world.events,
    simulatedMs: Math.round(world.now),
    digest: world.digest,
    ...(violation !== undefined && { violation }),
    ...(short && { short }),
  }
}

class Scene {
  readonly referee: Referee
  readonly #world: World
  readonly #dice: Dice
  readonly #profile: ProfileName
  readonly #site: Site
  readonly #hosts: Host[] = []
  /** Machines of holders that reach a server over the wire. */
  readonly #clients: Machine[] = []
  #holders: Holder[] = []
  readonly #town: ApplicationWorld
  /** The build that knows more, where machines are upgraded one after another. */
  readonly #next: Build | undefined
  /** The wires between real clients and real servers, where there are some. */
  #far: RemoteAccess | undefined
  #applications: Application[] = []
  #abandoner: Abandoner | undefined
  /** The key that some of the holders share at the moment. */
  readonly #ring = { key: 0 }
  #keys = 0
  #begun = false
  #over = false
  #moving = false

  constructor(world: World, profile: ProfileName, next: Build | undefined) {
    this.#world = world
    this.#dice = world.dice
    this.#profile = profile
    this.#next = next
    // Who judges knows everything.
    this.referee = new Referee(world, next === undefined ? {} : { apply: next.applyBatch })
    this.#town = new ApplicationWorld(world)
    const engine = world.machine('engine', this.#rate())
    const log = new WatchedLog({ clock: engine.clock() })
    log.onAppend = (position, bytes, sentAt) => this.referee.observe(position, bytes, sentAt)
    const bad = profile !== 'calm'
    if (!bad) this.referee.lateness = 500
    const wire = new Wire(world, {
      delay: this.#dice.pick([0.3, 2, 8]),
      loss: bad ? this.#dice.pick([0, 0.01, 0.05]) : 0,
      doubled: bad ? 0.01 : 0,
    })
    this.#site = {
      world,
      referee: this.referee,
      log,
      wire,
      ages: this.#dice.chance(0.5),
      push: this.#dice.chance(0.6),
      // Whoever comes and goes would spend its lives reading.
      snapshotRecords: this.#dice.pick(profile === 'restless' || profile === 'moving' ? [25, 60, 150] : [40, 150, 500]),
      incarnations: new Map(),
    }
    wire.begins = (machine, moment) => this.#mayDie(machine, moment)
  }

  #rate(): number {
    return 1 + this.#dice.between(-RHO / 2, RHO / 2)
  }

  async begin(): Promise<void> {
    const names = {
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
    }[this.#profile]
    const alone = this.#profile === 'owned' || (this.#profile === 'http' && this.#dice.chance(0.5))
    for (let i = 0; i < names; i++) {
      const owned = alone || (this.#profile === 'moving' && i !== 1)
      this.#hosts.push(new Host(this.#site, this.#world.machine(`host${i}`, this.#rate()), owned))
    }
    // Only here: a server brings along what the other worlds need not load.
    if (this.#profile === 'resp' || this.#profile === 'http')
      this.#far = new (await import('./remote.ts')).RemoteAccess(this.#profile, this.#site, this.#hosts)
    if (this.#profile === 'owned') this.referee.server = this.#hosts[0]
    void this.#hosts[0]!.start()
    await this.#world.run(this.#world.now + 100)
    if (this.#profile === 'moving') this.#move()
    else for (const host of this.#hosts.slice(1)) void host.start()
    await this.#rules()
    if (this.#remote) for (let i = 0; i < 3; i++) this.#clients.push(this.#world.machine(`client${i}`, this.#rate()))
    for (const machine of this.#remote ? this.#clients : this.#hosts.map(host => host.machine)) this.#settleHolders(machine)
    if (this.#profile === 'owned') this.#abandoner = new Abandoner(this.#world, this.#hosts[0]!)
    this.#begun = true
    this.#operate()
    this.#break()
    if (this.#next !== undefined) this.#raise(this.#next)
  }

  /** Now and then before all of them are upgraded: whoever is not has to stop, and comes back as one that is. */
  #raise(next: Build): void {
    this.#world.later(this.#dice.between(2_000, 15_000), () => {
      if (this.#over || this.referee.state.rules === next.rules) return
      this.#raise(next)
      const host = this.#dice.pick(this.#hosts)
      if (host.replica === undefined || this.referee.mourning) return
      this.#world.fault(`the rules are raised through ${host.machine.name}`)
      void host.propose({ kind: 'upgrade', rules: next.rules }).catch(error => {
        if (!(error instanceof LeaseError)) throw error
      })
    })
  }

  /** One restart is an upgrade, another is not, and a third takes it back. */
  #choose(host: Host): void {
    if (this.#next === undefined) return
    const must = this.#over || (this.referee.state.rules === this.#next.rules && this.#dice.chance(0.7))
    host.build = must ? this.#next : this.#dice.pick([PRESENT, this.#next])
  }

  get #remote(): boolean {
    return this.#profile === 'servers' || this.#profile === 'owned' || this.#profile === 'moving' || this.#far !== undefined
  }

  /** Those who hold leases are programs with the real library. */
  get #library(): boolean {
    return this.#profile === 'library' || this.#far !== undefined
  }

  /** Through whoever is there; false while nobody is. */
  async #ask(command: Command): Promise<boolean> {
    return (await this.#outcome(command)) !== undefined
  }

  async #outcome(command: Command): Promise<Outcome | undefined> {
    const there = this.#hosts.filter(host => host.replica !== undefined)
    const host = this.#dice.pick(there.length > 0 ? there : this.#hosts)
    try {
      return await host.propose(command)
    } catch (error) {
      if (!(error instanceof LeaseError)) throw error
      return undefined
    }
  }

  async #rules(): Promise<void> {
    const policies: Command[] = [{ kind: 'policy', prefix: 'p', rules: { capacity: 3 } }]
    if (this.#dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 'x/1', rules: { lockDelay: 200 } })
    if (this.#dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 'x/2', rules: { maxLife: 1_500 } })
    if (this.#dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 'x/3', rules: { maxHold: 400 } })
    if (this.#dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 'e', rules: { grace: 300 } })
    if (this.#dice.chance(0.4)) policies.push({ kind: 'policy', prefix: 'x', rules: { aging: 700 } })
    if (this.#dice.chance(0.3)) policies.push({ kind: 'policy', prefix: 's', rules: { queue: 'fit' } })
    if (this.#dice.chance(0.5)) void this.#changeKey()
    for (const policy of policies) {
      void this.#hosts[0]!.propose(policy).catch(error => {
        if (!(error instanceof LeaseError)) throw error
      })
    }
  }

  /** Whoever has the old key may do nothing with it any more, wherever it stands in a queue. */
  async #changeKey(): Promise<void> {
    const old = this.#ring.key
    if (old !== 0 && !(await this.#ask({ kind: 'unkey', id: old }))) return
    const name = `key-${++this.#keys}`
    if (!(await this.#ask({ kind: 'key', name, hash: String(this.#keys).padStart(64, '0'), allow: SCOPES }))) return
    for (const { id, name: known } of this.referee.state.keys.values()) if (known === name) this.#ring.key = id
  }

  #settleHolders(machine: Machine): void {
    const host = this.#hosts.find(candidate => candidate.machine === machine)
    if (this.#library) return this.#settleApplication(machine, host)
    const door = host ?? new Client(this.#site, machine, this.#hosts)
    const ttls = this.#profile === 'restless' ? [900, 2_000] : [300, 900, 2_000, LONGEST_TTL]
    const holders = this.#profile === 'restless' || this.#profile === 'moving' ? 6 : 4
    for (let i = 0; i < holders; i++) {
      const blind = this.#profile === 'owned' && i === 3
      const ring = i === 1 ? this.#ring : undefined
      const habits = { ttls, blind, ring, forgetful: i === 0, long: this.#profile === 'calm' }
      const holder = new Holder(this.#site, machine, door, `${machine.name}/${i}`, habits)
      this.#holders.push(holder)
      holder.peers = this.#holders
      void holder.live()
    }
  }

  #settleApplication(machine: Machine, host: Host | undefined): void {
    const far = this.#far
    const connect = async () =>
      far !== undefined ? far.connect(machine) : host?.replica === undefined ? undefined : new HostLessor(host, host.replica)
    const peers = (far === undefined ? this.#hosts.map(({ machine: its }) => its) : this.#clients).map(applicationOn)
    const application = new Application(this.#site, this.#town, { machine, connect, peers, watches: machine === this.#clients[0] })
    this.#applications.push(application)
    void application.live()
  }

  /** Operators revoke, break and pass on; policies and keys change. */
  #operate(): void {
    this.#world.later(this.#dice.between(100, 700), () => {
      if (this.#over) return
      const dice = this.#dice
      const leases = [...this.referee.state.leases.values()]
      const act = dice.whole(0, 9)
      if (act < 3 && leases.length > 0) this.#revoke(dice.pick(leases).id)
      else if (act < 5) this.#breakHold(`x/${dice.whole(0, 3)}`)
      else if (act === 5 && this.#holders.length > 0)
        void this.#ask({ kind: 'revoke', target: { holder: dice.pick(this.#holders).name }, by: 'operator' })
      else if (act === 6) this.#changePolicy()
      else if (act === 7 && leases.length > 0 && this.#holders.length > 0) void this.#passOn(dice.pick(leases).id, dice.pick(this.#holders))
      else if (act === 8) void (dice.chance(0.3) ? this.#changeKey() : this.#ask({ kind: 'revoke', target: { prefix: 'x/2' } }))
      else void this.#ask({ kind: 'recall', resource: `x/${dice.whole(0, 3)}` })
      this.#operate()
    })
  }

  #revoke(lease: number): void {
    // What a program did under a lease that was taken by force is its own: nobody promised it anything.
    const force = this.#dice.chance(0.15) && !this.#library
    if (force) this.#force(lease)
    void this.#ask({ kind: 'revoke', target: { lease }, force, by: 'operator' })
  }

  /** Often twice: whichever is due first counts. */
  #breakHold(resource: string): void {
    const { dice } = this.#world
    for (const after of dice.chance(0.5) ? [dice.pick([0, 100, 500])] : [dice.pick([100, 300]), dice.pick([200, 1_200])])
      void this.#ask({ kind: 'break', resource, after, by: 'operator' })
  }

  #changePolicy(): void {
    const { dice } = this.#world
    if (dice.chance(0.6)) void this.#ask({ kind: 'policy', prefix: `x/${dice.whole(0, 3)}`, rules: { lockDelay: dice.pick([0, 150]) } })
    else void this.#ask({ kind: 'policy', prefix: 'p', rules: { capacity: dice.whole(1, 3), queue: dice.pick(['fifo', 'fit']) } })
  }

  /** Without asking the giver, who may believe for a while yet. */
  async #passOn(lease: number, to: Holder): Promise<void> {
    const outcome = await this.#outcome({ kind: 'transfer', lease, to: to.name })
    if (outcome?.kind === 'done' && outcome.id !== undefined) to.receive(outcome.id)
  }

  /** Whoever is overruled by force, and all that hangs on it, is excepted from S1. */
  #force(id: number): void {
    this.referee.forced.add(id)
    for (const lease of this.referee.state.leases.values())
      for (let above = lease.rare?.parent; above !== undefined; above = above.rare?.parent)
        if (above.id === id) this.referee.forced.add(lease.id)
  }

  #break(): void {
    // Where one server stands for all, hardly anything would happen between its faults.
    const pace = this.#profile === 'http' ? 2.5 : 1
    this.#world.later(this.#dice.between(80, 900) * pace, () => {
      if (this.#over) return
      this.#fault()
      this.#break()
    })
  }

  #fault(): void {
    const world = this.#world
    const dice = this.#dice
    const machines = [...this.#hosts.map(host => host.machine), ...this.#clients]
    const machine = dice.pick(machines)
    const gentle = [() => this.#stepWall(machine), () => this.#changeRate(machine)]
    const harsh = [
      () => this.#stall(machine, dice.pick([150, 400, 1_500, 5_000])),
      () => this.#stall(this.#hosts[0]!.machine, dice.pick([300, 2_500])),
      () => this.#suspend(machine),
      () => this.#cut(machine),
      () => this.#crash(machine),
      () => this.#crash(dice.pick(this.#hosts).machine),
      () => this.#slow(),
      () => this.#fillDisk(machine),
      () => this.#loseTail(),
      ...(this.#far === undefined ? [] : [() => this.#breakCable(), () => this.#breakCable(), () => this.#stopServer()]),
    ]
    if (this.#profile === 'calm') dice.pick(gentle)()
    else if (this.#profile === 'restless')
      (dice.chance(0.7) ? () => this.#crash(dice.pick(this.#hosts).machine) : dice.pick([...gentle, ...harsh]))()
    else dice.pick([...gentle, ...harsh, ...harsh])()
    world.note('')
  }

  #stepWall(machine: Machine): void {
    const step = this.#dice.pick([-3_600_000, -30_000, 30_000, 3_600_000])
    this.#world.fault(`the wall clock of ${machine.name} jumps by ${step}`)
    machine.wallOffset += step
  }

  #changeRate(machine: Machine): void {
    this.#world.fault(`the clock of ${machine.name} changes its rate`)
    machine.setRate(this.#rate())
  }

  #stall(machine: Machine, ms: number): void {
    this.#world.fault(`${machine.name} stands still for ${ms} ms`)
    machine.stall(ms)
  }

  #suspend(machine: Machine): void {
    const ms = this.#dice.pick([500, 3_000])
    this.#world.fault(`${machine.name} sleeps for ${ms} ms`)
    machine.suspend(ms)
  }

  #cut(machine: Machine): void {
    const ways = this.#dice.pick([[this.#site.wire.deaf], [this.#site.wire.mute], [this.#site.wire.deaf, this.#site.wire.mute]])
    const ms = this.#dice.pick([200, 1_000, 3_000])
    this.#world.fault(`${machine.name} is cut off for ${ms} ms`)
    for (const way of ways) way.add(machine)
    this.#world.later(ms, () => {
      for (const way of ways) way.delete(machine)
    })
  }

  #fillDisk(machine: Machine): void {
    const { full } = this.#site.wire
    this.#world.fault(`the disk of ${machine.name} is full`)
    full.add(machine)
    this.#world.later(this.#dice.pick([50, 400, 1_500]), () => full.delete(machine))
  }

  /** At any await a process may die; while it opens its store or writes a snapshot more often than elsewhere. */
  #mayDie(machine: Machine, moment: Moment): void {
    if (this.#profile === 'calm' || !this.#begun || this.#over) return
    const p = { opening: 0.03, snapshot: 0.02, appending: 0.0005, reading: 0.0002 }[moment]
    if (!this.#dice.chance(p)) return
    this.#world.later(this.#dice.between(0, this.#site.wire.weather.delay * 2), () => {
      if (machine.alive && !this.#over) this.#crash(machine)
    })
  }

  #breakCable(): void {
    const cables = [...this.#far!.network.cables]
    if (cables.length === 0) return
    this.#world.fault('a connection breaks')
    this.#dice.pick(cables).breaks()
  }

  /** Restarted by someone who asked it nicely, for as long as they had timeout. */
  #stopServer(): void {
    const host = this.#dice.pick(this.#hosts)
    const { life } = host.machine
    if (host.replica === undefined || this.referee.mourning) return
    this.#world.fault(`${host.machine.name} is asked to stop`)
    const over = () => {
      if (host.machine.life === life) this.#crash(host.machine)
    }
    void this.#far!.stop(host).then(over)
    this.#world.later(this.#dice.pick([200, 1_000]), over)
  }

  #slow(): void {
    const { weather } = this.#site.wire
    const usual = weather.delay
    this.#world.fault('every message is slow')
    weather.delay = 60
    this.#world.later(this.#dice.pick([300, 1_200]), () => {
      if (!this.#over) weather.delay = usual
    })
  }

  #crash(machine: Machine): void {
    const host = this.#hosts.find(candidate => candidate.machine === machine)
    if (!machine.alive || (host !== undefined && this.referee.mourning)) return
    this.#world.fault(`${machine.name} is killed`)
    this.#holders = this.#holders.filter(holder => !holder.name.startsWith(`${machine.name}/`))
    this.#applications = this.#applications.filter(({ name }) => name !== applicationOn(machine))
    this.#town.office.forget(applicationOn(machine))
    if (host === undefined) machine.kill()
    else host.crash()
    if (this.#profile === 'moving' && host !== undefined) return // it comes back when it is its turn, or when nobody is there
    const away = this.#dice.pick([10, 100, 800])
    this.#world.later(away, () => this.#revive(machine))
  }

  #revive(machine: Machine): void {
    if (machine.alive) return
    machine.revive()
    const host = this.#hosts.find(candidate => candidate.machine === machine)
    if (host !== undefined) {
      this.#choose(host)
      void host.start()
    }
    if ((host === undefined || !this.#remote) && !this.#over) this.#settleHolders(machine)
  }

  /** The engine forgets what it had acknowledged. Only where a survivor saw it all: what nobody saw cannot be promised. */
  #loseTail(): void {
    const { log } = this.#site
    const { length } = this.referee
    const all = this.#hosts.every(
      host => host.replica !== undefined && host.replica.index === length && host.machine.stalledSince === undefined,
    )
    const kept = log.snapshot?.position.index ?? 0
    const count = Math.min(this.#dice.whole(1, 8), length - kept - 1)
    if (!all || count < 1 || !this.#dice.chance(0.7)) return
    this.#world.fault(`the log loses its last ${count} entries`)
    log.loseTail(count)
    this.referee.lose(count)
    // Whoever finds the engine only later finds it grown again, and must not take it for what it knew.
    if (this.#hosts.length > 1 && this.#dice.chance(0.5)) this.#cut(this.#dice.pick(this.#hosts).machine)
  }

  /** One file, in turns: owned by a server, then shared by a library, then owned again. */
  #move(): void {
    this.#world.later(this.#dice.between(400, 4_000), () => {
      if (this.#over) return
      this.#move()
      if (this.#moving || this.referee.mourning) return
      const here = this.#hosts.findIndex(host => host.machine.alive && host.replica !== undefined)
      const next = this.#hosts[(here + 1) % this.#hosts.length]!
      const leaving = this.#hosts[here]
      this.#moving = true
      const come = () => {
        if (!next.machine.alive) next.machine.revive()
        if (next.replica === undefined) void next.start()
      }
      const go = () => {
        this.#moving = false
        come()
      }
      this.#world.fault(`the log moves to ${next.machine.name}`)
      // Impatient: it knocks while the other is still there, and must be kept out until that has gone.
      if (leaving !== undefined && this.#dice.chance(0.3)) come()
      if (leaving === undefined) go()
      else if (this.#dice.chance(0.5)) {
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
        this.#world.later(2_000, leave) // whoever does not go is made to
      }
    })
  }

  /** No more faults, no more renewals: everything must end by itself, however restless the replicas are. */
  async heal(): Promise<void> {
    const world = this.#world
    this.#over = true
    for (const holder of this.#holders) holder.stopped = true
    for (const application of this.#applications) application.stop()
    if (this.#abandoner !== undefined) this.#abandoner.stopped = true
    const { wire } = this.#site
    wire.deaf.clear()
    wire.mute.clear()
    wire.full.clear()
    Object.assign(wire.weather, { delay: 1, loss: 0, doubled: 0 })
    const shortLives = this.#profile === 'restless' || (this.#profile === 'owned' && this.#dice.chance(0.5))
    // What stands still or sleeps comes back; then nobody renews any more, and the dead come to life to see it.
    if (!shortLives) await world.run(world.now + 6_000)
    for (const machine of world.machines) if (!machine.alive && this.#profile !== 'moving') this.#revive(machine)
    for (const host of this.#hosts) host.build = this.#next ?? PRESENT
    if (shortLives) await this.#shortLives()
    else {
      if (this.#profile === 'moving') this.#bringBack(0)
      // Quiet after a loss lasts the longest term; whoever was queued then is granted, and lapses in its turn.
      const end = world.now + Math.max(LONGEST_TTL * 3, this.referee.state.longest) * (1 + RHO) + 8_000
      while (world.now < end && (this.referee.state.leases.size > 0 || this.referee.mourning)) await world.run(world.now + 500)
    }
    this.referee.checkWhole()
    this.referee.nothingIsLeft(`after ${shortLives ? 'a time of short lives' : 'a long calm'}`)
    if (!shortLives) await this.#abandonOne()
    for (const host of this.#hosts)
      if (host.replica !== undefined) this.referee.sameState(host.machine, host.replica.index, () => host.replica!.hash())
    await world.run(world.now)
  }

  /** Nobody comes back for it, and whoever waits has it in time. */
  async #abandonOne(): Promise<void> {
    const world = this.#world
    const ask = (holder: string) =>
      this.#outcome({ kind: 'acquire', holder, ttl: 700, wants: [{ resource: 'probe' }], wait: true }).then(outcome => outcome?.kind)
    const first = ask('abandoner')
    const since = world.now
    await world.run(world.now + 500)
    if ((await settledOr(first)) !== 'granted') return world.violate('L1', 'after the chaos, what is free is not granted within 500 ms')
    void ask('heir')
    const until = since + 700 * (1 + RHO) + AFTER_HEAL + 100
    const granted = () => this.referee.state.resources.get('probe')?.grants[0]?.lease.holder.name === 'heir'
    while (!granted() && world.now < until) await world.run(world.now + 20)
    this.referee.grantableAfter(world.now - since, 700, AFTER_HEAL)
    await world.run(world.now + 700 * (1 + RHO) + AFTER_HEAL)
    this.referee.nothingIsLeft('after the last holder has gone')
  }

  #bringBack(i: number): void {
    for (const host of this.#hosts) if (host.machine.alive && host.replica !== undefined) return
    const host = this.#hosts[i]!
    if (!host.machine.alive) host.machine.revive()
    void host.start()
  }

  /** No replica lives for a whole term, and what was abandoned ends all the same. */
  async #shortLives(): Promise<void> {
    const world = this.#world
    for (let i = 0; i < 24 && this.referee.state.leases.size > 0; i++) {
      await world.run(world.now + 1_300)
      for (const host of this.#hosts) {
        if (host.machine.alive) host.crash()
        host.machine.revive()
        void host.start()
      }
    }
    await world.run(world.now + 1_200)
  }
}

/** What it has come to by now, without waiting for it. */
function settledOr<T>(promise: Promise<T>): Promise<T | undefined> {
  return Promise.race([promise, Promise.resolve(undefined)])
}
