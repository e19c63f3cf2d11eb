/** One process of a world: a machine with a clock of its own, a replica, the library, and a program that uses it. It can stand still, die and restart. */
import type { ObservedBelief } from '../sim/beliefs.ts'
import { Believed } from '../sim/believed.ts'
import type { Machine } from '../sim/world.ts'
import { pause, whenAborted } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import type { Lease } from '../src/lease.ts'
import { Leases } from '../src/leases.ts'
import { Replica, type Survivor } from '../src/replica/replica.ts'
import type { Bar } from './history.ts'
import { LinkedStore } from './linked-store.ts'
import { RESOURCE } from './links.ts'
import type { Surroundings } from './surroundings.ts'

/** Snapshots keep the log short, however long a world runs. */
const SNAPSHOT_RECORDS = 200
const EVENTS = 500
/** A process that could not open its store tries again after this, ms. */
const RETRY = 500

/** The programs of a process. */
export interface Programs {
  /** Works with leases until it has nothing to do, gives up or fails. It is called again. */
  readonly lease: (process: Process, leases: Leases, giveUp: AbortSignal) => Promise<void>
  /** Works with the plain lock until its process dies. */
  readonly plain: ((process: Process) => Promise<void>) | undefined
}

export class Process {
  readonly world: Surroundings
  readonly machine: Machine
  readonly number: number
  /** Its program is to acquire, and to keep what it gets. */
  wants = false
  /** The process that its lease goes to next. */
  successor: string | undefined
  replica: Replica | undefined
  leases: Leases | undefined
  readonly #programs: Programs
  readonly #changed = new Set<() => void>()
  /** Fires when the program is to give up what it has or waits for. */
  #giveUp = new AbortController()
  /** The bars of the present process. */
  readonly #bars = new Set<Bar>()

  constructor(world: Surroundings, machine: Machine, number: number, programs: Programs) {
    this.#programs = programs
    this.world = world
    this.machine = machine
    this.number = number
  }

  get name(): string {
    return this.machine.name
  }

  /** The true time at which its clock has moved by `ms`, and only if the process still lives. */
  pause(ms: number, signal?: AbortSignal): Promise<void> {
    return pause(this.machine.clock(), ms, signal)
  }

  // What a person does to it

  want(wants: boolean, successor?: string): void {
    this.successor = successor
    if (wants && !this.wants) this.#giveUp = new AbortController()
    this.wants = wants
    if (!wants) this.#giveUp.abort(new LeaseError('GONE', `${this.name} gives up`))
    for (const tell of [...this.#changed]) tell()
  }

  get giveUp(): AbortSignal {
    return this.#giveUp.signal
  }

  kill(): void {
    if (!this.machine.alive) return
    this.machine.kill()
    this.replica = undefined
    this.leases = undefined
    this.#changed.clear()
    for (const bar of [...this.#bars]) this.ends(bar, 'killed')
  }

  restart(): void {
    if (this.machine.alive) return
    this.machine.revive()
    this.start()
  }

  start(): void {
    void this.#live(this.machine.life)
    void this.#programs.plain?.(this)
  }

  /** Opens the log again whenever it has ended: a replica does not survive a log that lost records. */
  async #live(life: number): Promise<void> {
    const { machine, world } = this
    const clock = machine.clock()
    let survivor: Survivor | undefined
    while (machine.alive && machine.life === life) {
      const store = new LinkedStore(world.timeline, world.links, world.shared, machine)
      machine.mourners.add(() => store.abandon())
      try {
        const replica = await Replica.open(store, {
          ...{ clock, timeout: 5_000, snapshotRecords: SNAPSHOT_RECORDS, events: EVENTS },
          ...(survivor !== undefined && { survivor }),
        })
        survivor = undefined
        await this.#use(replica)
        if (LeaseError.is(replica.signal.reason, 'DIVERGED')) survivor = replica.survivor
      } catch (error) {
        if (!(error instanceof LeaseError)) throw error
        store.abandon()
      }
      await this.pause(RETRY)
    }
  }

  /** Runs the program until the replica has ended. */
  async #use(replica: Replica): Promise<void> {
    const leases = new Leases(replica, { holder: this.name, clock: this.machine.clock() })
    this.replica = replica
    this.leases = leases
    const ended = new AbortController()
    whenAborted(replica.signal, () => ended.abort(replica.signal.reason))
    const over = new Promise<void>(resolve => whenAborted(ended.signal, () => resolve()))
    void this.#repeat(leases, ended.signal)
    await over
    this.replica = undefined
    this.leases = undefined
    for (const bar of [...this.#bars]) if (bar.side === 'lease') this.ends(bar, 'the log lost records')
    void leases.close().catch(() => {})
  }

  async #repeat(leases: Leases, ended: AbortSignal): Promise<void> {
    while (!ended.aborted) {
      await this.until(() => this.wants, ended)
      if (ended.aborted) return
      try {
        await this.#programs.lease(this, leases, AbortSignal.any([this.giveUp, ended]))
      } catch (error) {
        if (!(error instanceof LeaseError)) throw error
      }
      await this.pause(100)
    }
  }

  /** Resolves when it is true, or when the signal fires. */
  until(isTrue: () => boolean, signal?: AbortSignal): Promise<void> {
    return new Promise(resolve => {
      const look = () => {
        if (!isTrue() && signal?.aborted !== true) return
        this.#changed.delete(look)
        signal?.removeEventListener('abort', look)
        resolve()
      }
      this.#changed.add(look)
      signal?.addEventListener('abort', look)
      look()
    })
  }

  // What its programs report

  /** A lease was granted: its bar runs down until it is renewed. */
  holds(lease: Lease, label: string): { readonly belief: Believed; readonly bar: Bar } {
    const belief = new Believed(this.machine.name, lease, this.machine, false)
    const bar = this.world.history.bar({
      ...{ lane: this.name, side: 'lease', state: 'held', label, from: this.world.now, lease: lease.id, token: lease.token },
      ...{ deadline: belief.deadline(), ended: undefined, how: '', look: () => belief.deadline() },
    })
    this.#bars.add(bar)
    this.world.uses('lease', belief)
    this.world.watches(belief)
    const over = () => this.ends(bar, reasonOf(lease))
    whenAborted(lease.signal, over)
    return { belief, bar }
  }

  waits(side: Bar['side'], label: string): Bar {
    const bar = this.world.history.bar({
      ...{ lane: this.name, side, state: 'waiting', label, from: this.world.now, lease: 0, token: 0 },
      ...{ deadline: Number.POSITIVE_INFINITY, ended: undefined, how: '', look: undefined },
    })
    this.#bars.add(bar)
    return bar
  }

  /** A bar of the plain lock: its process knows no end. */
  holdsPlain(turn: number): Bar {
    const bar = this.world.history.bar({
      ...{ lane: this.name, side: 'plain', state: 'held', label: 'plain lock', from: this.world.now, lease: 0, token: turn },
      ...{ deadline: Number.POSITIVE_INFINITY, ended: undefined, how: '', look: undefined },
    })
    this.#bars.add(bar)
    return bar
  }

  ends(bar: Bar, how: string): void {
    if (bar.ended !== undefined) return
    bar.look = undefined
    bar.ended = this.world.now
    bar.how = how
    this.#bars.delete(bar)
  }

  /** Sends a write to the resource. The process does not look at its lease again: the token alone protects the resource from here on. */
  write(side: Bar['side'], name: string, belief: ObservedBelief): void {
    const { world } = this
    const turn = belief.grants[0]?.token ?? 0
    const text = side === 'lease' ? `write, token ${turn}` : 'write'
    world.links.send({ from: this.machine, to: RESOURCE, side, text }, () => world.written(side, name, belief))
  }
}

function reasonOf(lease: Lease): string {
  const { reason } = lease.signal
  return reason instanceof Error ? reason.message : 'ended'
}
