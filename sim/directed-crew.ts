/** The processes of the directed world: hosts, a program with a second thread, processes that live shorter than a tick, a client of a face, an operator. */
import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import type { WorkerHeartbeat } from '../src/holder/worker-heartbeat.ts'
import type { Command } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { heldLeaseOf, type Lease } from '../src/lease.ts'
import { Leases } from '../src/leases.ts'
import { Believed } from './believed.ts'
import { Elector, serveElectors } from './elector.ts'
import { MARKS_LABEL } from './features.ts'
import { startThread } from './heartbeat-thread.ts'
import { LogChanges } from './log-changes.ts'
import { FACE_NAME } from './mixed-wishes.ts'
import { Network } from './network.ts'
import { ObservedLessor } from './observed.ts'
import { Host, HostLessor, pauseOn, type Site } from './participants.ts'
import { POOL } from './pools.ts'
import type { WatchedLog } from './wire.ts'
import type { Dice, Machine } from './world.ts'

/** The term of the program's lease, and a stall that the lease outlives because the second thread renews it. */
const [TERM, STALL] = [1_000, 1_300]
const LATENESS = 100

/** A program with the real library, and its lease. */
interface Program {
  readonly leases: Leases
  readonly heartbeat: WorkerHeartbeat
  readonly lease: Lease
  readonly belief: Believed
}

export class Crew {
  readonly site: Site
  readonly dice: Dice
  readonly hosts: readonly Host[]
  readonly changes: LogChanges
  /** The clock of the holders that send commands. */
  readonly clock: Clock
  readonly #machine: Machine
  readonly #thread: Machine
  readonly #cron: Host
  readonly #network: Network
  #elector: Elector | undefined
  #program: Program | undefined

  constructor(site: Site, newLog: () => WatchedLog) {
    this.site = site
    const { world } = site
    this.dice = world.dice
    this.hosts = [0, 1].map(i => new Host(site, world.machine(`host${i}`, 1), false))
    this.clock = world.machine('holders', 1).clock()
    this.#machine = world.machine('program', 1)
    this.#thread = world.machine('program/thread', 1)
    this.#cron = new Host(site, world.machine('cron', 1), false)
    this.#network = new Network(site.wire)
    this.changes = new LogChanges({ site, hosts: this.hosts, operator: world.machine('operator', 1), newLog, cron: this.#cron })
  }

  async start(): Promise<void> {
    for (const host of this.hosts) {
      host.begins = replica => void serveElectors(this.#network, host, replica)
      await host.start()
    }
    const machine = this.site.world.machine('elector', 1)
    const host = this.hosts[0]!
    const options = { name: 'elector', machine, host, fetch: this.#network.fetch(machine, host), steady: true }
    this.#elector = new Elector(this.site, options)
    void this.#elector.live()
  }

  stop(): void {
    this.#elector?.stop()
  }

  /** The elector writes nothing while `work` is under way, which takes some seconds. */
  async withoutElector(work: () => Promise<void>): Promise<void> {
    this.#elector!.stop()
    await work()
    this.#elector!.stopped = false
    void this.#elector!.live()
  }

  pause(ms: number): Promise<void> {
    return pauseOn(this.clock, ms)
  }

  /** Waits until something is so, for a time that is far longer than it takes. */
  async until(what: string, isSo: () => boolean): Promise<void> {
    for (let i = 0; i < 3_000; i++) {
      if (isSo()) return
      await this.pause(20)
    }
    throw new Error(`the directed world waited too long for this: ${what}`)
  }

  /** Through any host, once there is one. */
  async propose(command: Command, key = 0): Promise<Outcome> {
    for (;;) {
      const running = this.hosts.filter(({ replica }) => replica !== undefined)
      if (running.length > 0)
        try {
          return await this.dice.pick(running).propose(command, undefined, key)
        } catch (error) {
          if (!(error instanceof LeaseError)) throw error
        }
      await this.pause(20)
    }
  }

  /** The lease that the face holds for its client. */
  async faceLease(): Promise<number> {
    const found = () => this.site.referee.state.entries.get(`${FACE_NAME}/holder`)?.lease.id
    await this.until('the client of the face is elected', () => found() !== undefined)
    return found()!
  }

  // The program

  /** The program takes a member of the pool, and its second thread minds the lease. */
  async startProgram(): Promise<number> {
    const { site } = this
    const machine = this.#machine
    await this.until('a host runs', () => this.hosts.some(({ replica }) => replica !== undefined))
    const host = this.hosts.find(({ replica }) => replica !== undefined)!
    const lessor = new ObservedLessor(site, machine, new HostLessor(host, host.replica!))
    const heartbeat = startThread(site, machine, this.#thread, this.hosts)
    const leases = new Leases(lessor, { holder: 'program', clock: machine.clock(), ttl: TERM }, heartbeat)
    const labels = { [MARKS_LABEL]: 'worker-renews' }
    const lease = await leases.pool(POOL).take(1, { account: 'c', wait: 10_000, maxLife: 20_000, labels })
    const belief = new Believed('program', lease, machine, false)
    site.referee.beliefs.begins(belief)
    this.#program = { leases, heartbeat, lease, belief }
    return lease.id
  }

  get programLease(): number | undefined {
    return this.#program?.lease.id
  }

  /** Its loop stalls, its second thread renews, and its loop goes on. */
  async stallProgram(): Promise<void> {
    this.#machine.stall(STALL)
    await this.pause(STALL - 20)
    // The program reads what its second thread has renewed while its clock has noticed that timers are late, and later its clock trusts them again.
    this.#machine.lateness = LATENESS
    this.#timeLeft()
    this.#machine.lateness = 0
    this.#judgeTerm()
    await this.pause(40)
    if (this.#program !== undefined) this.site.referee.beliefs.begins(this.#program.belief)
  }

  /** During a stall, the program's lease is valid for no longer than the last term that its second thread heard of. */
  #judgeTerm(): void {
    const { world, referee } = this.site
    const { lease } = this.#program!
    const until = referee.terms.believableUntil(lease.id)!
    const left = this.#timeLeft()
    if (left > 0 && world.now + left > until)
      world.violate('S1', `lease ${lease.id} is believed in for ${Math.round(world.now + left - until)} ms beyond its acknowledged term`)
  }

  #timeLeft(): number {
    return heldLeaseOf(this.#program!.lease).timeLeft(this.#machine.monotonic(), this.#machine.uptime())
  }

  async endProgram(): Promise<void> {
    const program = this.#program
    if (program === undefined) return
    this.#program = undefined
    await program.lease.release().catch(ignored)
    await program.leases[Symbol.asyncDispose]().catch(ignored)
    await program.heartbeat[Symbol.asyncDispose]()
  }

  // Processes that live shorter than a tick

  /** A process opens the log, takes a member and is killed. Undefined: it was refused. */
  async runShortLived(): Promise<number | undefined> {
    const host = this.#cron
    const { machine } = host
    machine.revive()
    void host.start()
    await this.until('a process that lives for less than a tick has opened the log', () => host.replica !== undefined)
    const lessor = new ObservedLessor(this.site, machine, new HostLessor(host, host.replica!))
    const leases = new Leases(lessor, { holder: 'cron', clock: machine.clock(), ttl: 1_000 })
    const labels = { [MARKS_LABEL]: 'short-lived' }
    const lease = await leases.pool(POOL).tryTake(1, { account: 'c', maxLife: 20_000, labels }).catch(ignored)
    await pauseOn(machine.clock(), this.dice.between(1, 30))
    host.crash()
    return lease?.id
  }
}

function ignored(error: unknown): undefined {
  if (!(error instanceof LeaseError)) throw error
  return undefined
}
