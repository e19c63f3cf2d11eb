/**
 * The combined world: all features of leases meet on a few names. Holders with the kernel's commands, programs with the real library and a second thread,
 * clients of the Kubernetes face and processes that live shorter than a tick compete there, while operators break, revoke and pass on leases, the leases
 * move to another log, and backups are restored.
 */
import { LeaseError } from '../src/errors.ts'
import type { Command } from '../src/kernel/command.ts'
import { Leases } from '../src/leases.ts'
import { Elector, serveElectors } from './elector.ts'
import { MARKS_LABEL } from './features.ts'
import { LogChanges } from './log-changes.ts'
import { Board, MixedHolder } from './mixed-holder.ts'
import { MixedProgram } from './mixed-program.ts'
import { FACE_NAME, NAMES, UNITS } from './mixed-wishes.ts'
import { Network } from './network.ts'
import { ObservedLessor } from './observed.ts'
import { Host, HostLessor, pauseOn, type Site } from './participants.ts'
import type { Referee } from './referee.ts'
import type { WatchedLog } from './wire.ts'
import type { Dice, Machine, World } from './world.ts'

const HOLDERS = 3

/** The scene in which this world is played. */
export interface CombinedScene {
  readonly world: World
  readonly dice: Dice
  readonly site: Site
  readonly referee: Referee
  readonly hosts: readonly Host[]
  readonly isOver: boolean
  newLog(): WatchedLog
  propose(command: Command): Promise<boolean>
  /** No faults until the returned function is called. */
  calm(): () => void
}

export class Combined {
  readonly #scene: CombinedScene
  readonly #board = new Board()
  /** The machine of processes that live shorter than a tick. */
  readonly #cron: Host
  readonly #changes: LogChanges
  readonly #network: Network
  #programs: { readonly name: string; readonly machine: Machine; stop(): void }[] = []
  readonly #threads = new Map<Machine, Machine>()
  #backup: Uint8Array | undefined
  #busy = false

  constructor(scene: CombinedScene) {
    this.#scene = scene
    const operator = scene.world.machine('operator', 1)
    this.#cron = new Host(scene.site, scene.world.machine('cron', 1), false)
    this.#changes = new LogChanges({ site: scene.site, hosts: scene.hosts, operator, newLog: () => scene.newLog(), cron: this.#cron })
    this.#network = new Network(scene.site.wire)
  }

  /** All names to which leases are passed on. Some belong to two processes. */
  get #names(): string[] {
    return this.#scene.hosts.flatMap(({ machine }) => [...Array.from({ length: HOLDERS }, (_, i) => `mixed/${i}`), `${machine.name}/lib`])
  }

  /** The operators' policies apply before anything is held. */
  start(): void {
    for (const host of this.#scene.hosts) {
      host.begins = replica => void serveElectors(this.#network, host, replica)
      if (host.replica !== undefined) void serveElectors(this.#network, host, host.replica)
    }
    this.#operate()
    this.#shortLived(this.#cron)
    for (const i of [0, 1]) this.#elect(`elector${i}`, this.#scene.world.machine(`elector${i}`, 1))
  }

  /** The holders and programs of one host, which end with its process. */
  settle(machine: Machine, host: Host): void {
    const { site, world, hosts } = this.#scene
    for (let i = 0; i < HOLDERS; i++) {
      const session = `${machine.name}/${i}.${machine.life}`
      const holder = new MixedHolder(site, machine, host, { name: `mixed/${i}`, session, board: this.#board, peers: this.#names })
      this.#programs.push({ name: session, machine, stop: () => holder.stop() })
      void holder.live()
    }
    const thread = this.#threads.get(machine) ?? world.machine(`${machine.name}/thread`, 1)
    this.#threads.set(machine, thread)
    const connect = async () => (host.replica === undefined ? undefined : new HostLessor(host, host.replica))
    const options = { name: `${machine.name}/lib`, machine, connect, board: this.#board, peers: this.#names, thread, hosts }
    const program = new MixedProgram(site, options)
    this.#programs.push({ name: options.name, machine, stop: () => program.stop() })
    void program.live()
  }

  #elect(name: string, machine: Machine): void {
    const host = this.#scene.dice.pick(this.#scene.hosts)
    const elector = new Elector(this.#scene.site, { name, machine, host, fetch: this.#network.fetch(machine, host) })
    this.#programs.push({ name, machine, stop: () => elector.stop() })
    void elector.live()
  }

  forget(machine: Machine): void {
    this.#programs = this.#programs.filter(program => program.machine !== machine)
  }

  stop(): void {
    for (const program of this.#programs) program.stop()
  }

  /** A process that opens the store, asks without waiting and ends within a tick, as a cron job does: in order, or by kill -9 with its lease. */
  #shortLived(host: Host): void {
    const { world, dice, isOver } = this.#scene
    if (isOver) return
    const { machine } = host
    if (this.#busy) return void world.later(300, () => this.#shortLived(host))
    world.later(dice.between(100, 500), () => {
      host.crash() // if it was killed at another moment
      machine.revive()
      void this.#live(host)
        .catch(error => {
          if (!(error instanceof LeaseError)) throw error
        })
        .finally(() => this.#shortLived(host))
    })
  }

  async #live(host: Host): Promise<void> {
    const { dice } = this.#scene
    const clock = host.machine.clock()
    const { life } = host.machine
    void host.start()
    for (let i = 0; i < 20 && host.replica === undefined; i++) await pauseOn(clock, 20)
    const { replica } = host
    if (replica === undefined || host.machine.life !== life) return host.crash()
    const lessor = new ObservedLessor(this.#scene.site, host.machine, new HostLessor(host, replica))
    const leases = new Leases(lessor, { holder: 'cron', clock, ttl: 600 })
    const names = dice.pick([[dice.pick(NAMES)], [UNITS], [FACE_NAME]])
    const lease = await leases.tryAcquire(names, { labels: { [MARKS_LABEL]: 'short-lived' }, ...(dice.chance(0.3) && { mode: 'shared' }) })
    await pauseOn(clock, dice.between(1, 60))
    if (lease !== undefined && dice.chance(0.5)) return host.crash()
    await lease?.release()
    await host.close()
    host.crash()
  }

  // Operators

  #operate(): void {
    const { world, dice } = this.#scene
    world.later(dice.between(60, 350), () => {
      if (this.#scene.isOver) return
      this.#operate()
      const names = [...NAMES, UNITS, FACE_NAME]
      const leases = [...this.#scene.referee.state.leases.values()]
      const act = dice.whole(0, 19)
      if (act < 5) void this.#scene.propose({ kind: 'break', resource: dice.pick(names), after: dice.pick([0, 150, 600, 1_200]) })
      else if (act < 9 && leases.length > 0) void this.#scene.propose({ kind: 'revoke', target: { lease: dice.pick(leases).id } })
      else if (act < 12 && leases.length > 0) void this.#transfer(dice.pick(leases).id, dice.pick(this.#names))
      else if (act === 12) void this.#scene.propose({ kind: 'recall', resource: dice.pick(names) })
      else if (act === 13) void this.#takeBackup().catch(ignored)
      else if (act === 14 && this.#backup !== undefined && world.now > 4_000) void this.#alone(() => this.#restore()).catch(ignored)
      else if (act === 15 && world.now > 4_000) void this.#alone(() => this.#changes.migrate()).catch(ignored)
    })
  }

  /** Without asking the holder, which may use the lease for a while yet. */
  async #transfer(lease: number, to: string): Promise<void> {
    const host = this.#scene.hosts.find(({ replica }) => replica !== undefined)
    const outcome = await host?.propose({ kind: 'transfer', lease, to }).catch(ignored)
    if (outcome?.kind === 'done' && outcome.id !== undefined) this.#board.offer(to, outcome.id)
  }

  async #takeBackup(): Promise<void> {
    // Terms that are longer than those in a backup are not known to it.
    if (this.#busy || this.#scene.referee.awaitsGeneration || this.#scene.referee.state.longest < 4_000) return
    this.#backup = (await this.#changes.backup()) ?? this.#backup
  }

  /** One move or restore at a time, without other faults, and not while a loss is being made up for. */
  async #alone(work: () => Promise<void>): Promise<void> {
    const { referee } = this.#scene
    if (this.#busy || referee.awaitsGeneration || referee.state.quiet !== undefined) return
    this.#busy = true
    const resume = this.#scene.calm()
    try {
      await work()
    } finally {
      resume()
      this.#busy = false
    }
  }

  async #restore(): Promise<void> {
    const bytes = this.#backup!
    this.#backup = undefined
    await this.#changes.restore(bytes)
  }
}

function ignored(error: unknown): undefined {
  if (!(error instanceof LeaseError)) throw error
  return undefined
}
