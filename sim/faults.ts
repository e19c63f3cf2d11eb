/** The faults of a simulated world: clocks, machines, connections, disks and the log fail at random. */
import type { Host, Site } from './participants.ts'
import type { ProfileName } from './profiles.ts'
import type { Referee } from './referee.ts'
import type { RemoteAccess } from './remote.ts'
import type { ReplicatedLog } from './replicated-log.ts'
import type { Dice, Machine, World } from './world.ts'

/** The world in which faults happen. */
export interface FaultyScene {
  readonly world: World
  readonly dice: Dice
  readonly profile: ProfileName
  readonly site: Site
  readonly referee: Referee
  readonly hosts: readonly Host[]
  /** Machines of holders that connect to a server. */
  readonly clients: readonly Machine[]
  readonly remote: RemoteAccess | undefined
  /** The log, where its engine has a standby. */
  readonly replicated: ReplicatedLog | undefined
  readonly isOver: boolean
  /** No faults now. */
  readonly isCalm: boolean
  /** Begins a time without faults, until the returned function is called. */
  calm(): () => void
  randomRate(): number
  crash(machine: Machine): void
}

export class Faults {
  readonly #scene: FaultyScene

  constructor(scene: FaultyScene) {
    this.#scene = scene
  }

  start(): void {
    // With a single server, hardly anything would happen between faults at the usual rate; and claims of agents last for seconds.
    const pace = { http: 2.5, agents: 6 }[this.#scene.profile as string] ?? 1
    this.#scene.world.later(this.#scene.dice.between(80, 900) * pace, () => {
      if (this.#scene.isOver) return
      if (!this.#scene.isCalm) this.#fault()
      this.start()
    })
  }

  #fault(): void {
    const world = this.#scene.world
    const dice = this.#scene.dice
    const machines = [...this.#scene.hosts.map(host => host.machine), ...this.#scene.clients]
    const machine = dice.pick(machines)
    const gentle = [() => this.#stepWall(machine), () => this.#changeRate(machine)]
    const harsh = [
      () => this.#stall(machine, dice.pick([150, 400, 1_500, 5_000])),
      () => this.#stall(this.#scene.hosts[0]!.machine, dice.pick([300, 2_500])),
      () => this.#suspend(machine),
      () => this.#cut(machine),
      () => this.#scene.crash(machine),
      () => this.#scene.crash(dice.pick(this.#scene.hosts).machine),
      () => this.#slow(),
      () => this.#fillDisk(machine),
      ...(this.#scene.replicated === undefined ? [() => this.#loseTail()] : []),
      ...(this.#scene.remote === undefined ? [] : [() => this.#breakCable(), () => this.#breakCable(), () => this.#stopServer()]),
    ]
    const { replicated } = this.#scene
    if (replicated !== undefined && (replicated.standbyIsAway || dice.chance(0.4))) this.#engineFault(replicated)
    else if (this.#scene.profile === 'calm') dice.pick(gentle)()
    else if (this.#scene.profile === 'restless')
      (dice.chance(0.7) ? () => this.#scene.crash(dice.pick(this.#scene.hosts).machine) : dice.pick([...gentle, ...harsh]))()
    else dice.pick([...gentle, ...harsh, ...harsh])()
    world.note('')
  }

  #stepWall(machine: Machine): void {
    const step = this.#scene.dice.pick([-3_600_000, -30_000, 30_000, 3_600_000])
    this.#scene.world.fault(`the wall clock of ${machine.name} jumps by ${step}`)
    machine.wallOffset += step
  }

  #changeRate(machine: Machine): void {
    this.#scene.world.fault(`the clock of ${machine.name} changes its rate`)
    machine.setRate(this.#scene.randomRate())
  }

  #stall(machine: Machine, ms: number): void {
    this.#scene.world.fault(`${machine.name} is stalled for ${ms} ms`)
    machine.stall(ms)
  }

  #suspend(machine: Machine): void {
    const ms = this.#scene.dice.pick([500, 3_000])
    this.#scene.world.fault(`${machine.name} is suspended for ${ms} ms`)
    machine.suspend(ms)
  }

  #cut(machine: Machine): void {
    const ways = this.#scene.dice.pick([
      [this.#scene.site.wire.deaf],
      [this.#scene.site.wire.mute],
      [this.#scene.site.wire.deaf, this.#scene.site.wire.mute],
    ])
    const ms = this.#scene.dice.pick([200, 1_000, 3_000])
    this.#scene.world.fault(`${machine.name} is cut off for ${ms} ms`)
    for (const way of ways) way.add(machine)
    this.#scene.world.later(ms, () => {
      for (const way of ways) way.delete(machine)
    })
  }

  #fillDisk(machine: Machine): void {
    const { full } = this.#scene.site.wire
    this.#scene.world.fault(`the disk of ${machine.name} is full`)
    full.add(machine)
    this.#scene.world.later(this.#scene.dice.pick([50, 400, 1_500]), () => full.delete(machine))
  }

  #breakCable(): void {
    const cables = [...this.#scene.remote!.network.cables]
    if (cables.length === 0) return
    this.#scene.world.fault('a connection breaks')
    this.#scene.dice.pick(cables).breaks()
  }

  /** An operator restarts the server: asks it to stop, and kills it after a timeout. */
  #stopServer(): void {
    const host = this.#scene.dice.pick(this.#scene.hosts)
    const { life } = host.machine
    if (host.replica === undefined || this.#scene.referee.awaitsGeneration) return
    this.#scene.world.fault(`${host.machine.name} is asked to stop`)
    const over = () => {
      if (host.machine.life === life) this.#scene.crash(host.machine)
    }
    void this.#scene.remote!.stop(host).then(over)
    this.#scene.world.later(this.#scene.dice.pick([200, 1_000]), over)
  }

  /** The standby is away for a while. Meanwhile waits of commits for it are ended, and a failover may undo them. */
  #engineFault(log: ReplicatedLog): void {
    const { world, dice } = this.#scene
    if (!log.standbyIsAway) {
      world.fault('the standby is away')
      log.losesStandby()
      world.later(dice.pick([300, 1_500, 4_000]), () => log.findsStandby())
      return
    }
    const faults: readonly (readonly [string, () => unknown])[] = [
      ['the backend of an append is terminated', () => log.terminates()],
      ['the wait of an append is cancelled', () => log.cancels()],
      ['the engine restarts', () => log.restarts()],
      ['the standby becomes the server', () => log.failsOver()],
    ]
    const [what, happen] = log.undoable > 0 && dice.chance(0.5) ? faults.at(-1)! : dice.pick(faults)
    world.fault(what)
    happen()
  }

  #slow(): void {
    const { weather } = this.#scene.site.wire
    const usual = weather.delay
    this.#scene.world.fault('every message is slow')
    weather.delay = 60
    this.#scene.world.later(this.#scene.dice.pick([300, 1_200]), () => {
      if (!this.#scene.isOver) weather.delay = usual
    })
  }

  /** The engine loses acknowledged records. Only where a surviving replica saw all of them: nothing is guaranteed for records that no survivor saw. */
  #loseTail(): void {
    const { log, arrival = 0 } = this.#scene.site
    const { length } = this.#scene.referee
    const { readEvery } = this.#scene.site
    const runs = (host: Host) => host.replica !== undefined && host.machine.stalledSince === undefined
    if (readEvery !== undefined) return this.#loseUnread(readEvery, this.#scene.hosts.every(runs))
    const all = this.#scene.hosts.every(host => runs(host) && host.replica!.index === length)
    // Without the record that leases have arrived, no log decides anything until an operator repeats the move.
    const kept = Math.max(log.snapshot?.position.index ?? 0, arrival)
    const count = Math.min(this.#scene.dice.whole(1, 8), length - kept - 1)
    if (!all || count < 1 || !this.#scene.dice.chance(0.7)) return
    this.#scene.world.fault(`the log loses its last ${count} records`)
    log.loseTail(count)
    this.#scene.referee.lose(count)
    // A replica that is cut off meets the log only after it has grown again, and must not take it for the log that it knew.
    if (this.#scene.hosts.length > 1 && this.#scene.dice.chance(0.5)) this.#cut(this.#scene.dice.pick(this.#scene.hosts).machine)
  }

  /**
   * Records are lost that not every survivor has read, and that each of them has read at least one of. Those that read them all notice it within `readEvery`. Nothing
   * else fails meanwhile: what a process that is cut off believes then is not guaranteed.
   */
  #loseUnread(readEvery: number, all: boolean): void {
    const { log, wire } = this.#scene.site
    const { hosts, referee, dice, world } = this.#scene
    const { length } = referee
    const indexes = hosts.map(host => host.replica?.index ?? 0)
    const kept = Math.max(log.snapshot?.position.index ?? 0, Math.min(...indexes) - 1 - dice.whole(0, 3))
    const count = length - kept
    if (!all || wire.deaf.size + wire.mute.size + wire.full.size > 0 || count < 1 || kept < 1 || Math.min(...indexes) <= kept) return
    world.fault(
      `the log loses its last ${count} records, of which the processes have read ${indexes.map(index => index - kept).join(', ')}`,
    )
    log.loseTail(count)
    referee.lose(count)
    const { weather } = wire
    const usual = { ...weather }
    Object.assign(weather, { delay: 1, loss: 0, doubled: 0 })
    const end = this.#scene.calm()
    world.later(readEvery * 1.5 + 1_000, () => {
      end()
      if (!this.#scene.isOver) Object.assign(weather, usual)
    })
  }
}
