/** Those who take part: replicas on machines, and the ways holders reach them. */
import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import type { Command, Operation } from '../src/kernel/command.ts'
import { copyOf } from '../src/kernel/copy.ts'
import type { Event } from '../src/kernel/event.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import type { LeaseView, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../src/lessor.ts'
import type { Replica, Survivor } from '../src/replica/replica.ts'
import { type Build, PRESENT } from './builds.ts'
import { operationName, type Referee } from './referee.ts'
import { type WatchedLog, type Wire, WiredStore } from './wire.ts'
import type { Machine, World } from './world.ts'

export interface Site {
  readonly world: World
  readonly referee: Referee
  readonly log: WatchedLog
  readonly wire: Wire
  readonly ages: boolean
  /** Readers are told of new entries; else they poll. */
  readonly push: boolean
  readonly snapshotRecords: number
  /** The numbers that each holder's lives were given so far: a life that was replaced may not know it yet. */
  readonly incarnations: Map<string, number[]>
}

/** What a holder needs of a lessor, near or far. */
export interface LessorAccess {
  propose(command: Command, op?: Operation, key?: number): Promise<Outcome>
  lease(id: number): Promise<LeaseView | undefined>
}

/** A machine that runs a replica, again and again. */
export class Host implements LessorAccess {
  readonly machine: Machine
  readonly #site: Site
  owned: boolean
  /** What its next process runs. */
  build: Build = PRESENT
  /** What the present one runs. */
  #running: Build = PRESENT
  replica: Replica | undefined
  readonly #stores = new Set<WiredStore>()
  #survivor: Survivor | undefined
  /** The life that tries to open the store. */
  #starting: number | undefined
  #watchedUpTo: number | undefined
  #watchLosses = 0
  /** Renewals that reached this machine while it stood still, by lease. */
  readonly arrivedWhileStalled = new Map<number, number>()
  /** The last renewal that this machine acknowledged as an owner, by lease. */
  readonly renewals = new Map<number, { readonly at: number; readonly term: number; readonly life: number; readonly losses: number }>()
  /** Told of each replica that is open from now on. */
  begins: (replica: Replica) => void = () => {}

  constructor(site: Site, machine: Machine, owned: boolean) {
    this.#site = site
    this.machine = machine
    this.owned = owned
  }

  /** Begins a life. Fails like a process that cannot open its store fails: it is tried again. */
  async start(): Promise<void> {
    const { machine } = this
    const { life } = machine
    if (this.#starting === life) return
    this.#starting = life
    const clock = machine.clock()
    const site = this.#site
    while (machine.alive && machine.life === life && this.replica === undefined) {
      const own = this.owned ? { name: machine.name } : undefined
      this.#running = this.build
      const store = new WiredStore(site.log, site.wire, machine, { own, ages: site.ages, push: site.push })
      this.#stores.add(store)
      try {
        const replica = await this.#running.Replica.open(store, {
          clock,
          owned: this.owned,
          timeout: 3_000,
          snapshotRecords: site.snapshotRecords,
          events: 5_000,
          ...(this.#survivor !== undefined && { survivor: this.#survivor }),
        })
        this.#survivor = undefined
        this.replica = replica
        site.referee.decided(machine.name, this.#running.rules, replica.index)
        site.referee.opened(machine.name, this.owned)
        this.#mind(replica, life)
        this.begins(replica)
      } catch (error) {
        this.#judgeFailure(error)
        store.abandon()
        await new Promise<void>(resolve => clock.after(100, resolve))
      }
    }
    if (this.#starting === life) this.#starting = undefined
  }

  #judgeFailure(error: unknown): void {
    const { world, referee } = this.#site
    if (!(error instanceof LeaseError)) throw error
    if (error.code === 'DIVERGED' && referee.losses === 0) world.violate('S22', error.message)
    // Whoever applied what was lost must not get as far as to write on what is there now.
    if (error.message.includes('decided otherwise')) world.violate('S24', error.message)
    // Whoever does not know the rules of the log stops, and only who does not know them.
    if (error.code === 'UNSUPPORTED' && this.#running.rules >= referee.state.rules) world.violate('S22', error.message)
  }

  #mind(replica: Replica, life: number): void {
    const { machine } = this
    replica.signal.addEventListener('abort', () => {
      if (machine.life !== life || this.replica !== replica) return
      this.#judgeFailure(replica.signal.reason)
      if ((replica.signal.reason as LeaseError).code === 'DIVERGED') this.#survivor = replica.survivor
      this.replica = undefined
      this.#site.referee.closed(machine.name)
      this.#letGo()
      void this.start()
    })
    void this.#watch(replica)
  }

  /** A watcher that goes on where the last life left it. */
  async #watch(replica: Replica): Promise<void> {
    const { referee } = this.#site
    const losses = referee.losses
    if (losses !== this.#watchLosses) this.#watchedUpTo = undefined
    this.#watchLosses = losses
    const after = this.#watchedUpTo
    try {
      for await (const events of replica.watch('', { signal: replica.signal, ...(after !== undefined && { after }) })) {
        const { revision, type } = events[0]!
        if (type !== 'resync' && this.#watchedUpTo !== undefined) referee.watched(this.#watchedUpTo, events, losses)
        this.#watchedUpTo = revision
      }
    } catch {
      // The replica failed or was closed; its next life goes on watching.
    }
  }

  /** kill -9. */
  crash(): void {
    this.replica = undefined
    this.#site.referee.closed(this.machine.name)
    this.#letGo()
    this.#survivor = undefined
    this.machine.kill()
  }

  #letGo(): void {
    for (const store of this.#stores) store.abandon()
    this.#stores.clear()
  }

  /** A graceful stop: answers what is under way, leaves its marks, lets go. */
  async close(): Promise<void> {
    const { replica } = this
    this.replica = undefined
    this.#site.referee.closed(this.machine.name)
    await replica?.[Symbol.asyncDispose]()
  }

  async propose(command: Command, op?: Operation, key = 0, replica = this.replica): Promise<Outcome> {
    const { referee } = this.#site
    if (replica === undefined) throw new LeaseError('UNAVAILABLE', 'not ready')
    const asked = referee.revision
    const losses = referee.losses
    // An owner answers renewals from what it has applied; whoever shares a log, from what the log says.
    const known = this.owned ? replica.index : referee.length
    // Its own object, which it goes on to use for something else at once.
    const own = copyOf(command)
    const answer = replica.propose(own, op === undefined ? { key } : { op, key })
    reuse(own)
    const outcome = await answer
    referee.answered(outcome, op && operationName(key, op), asked, losses)
    if (this.replica === replica) referee.decided(this.machine.name, this.#running.rules, replica.index)
    if (command.kind === 'renew' && outcome.kind === 'renewed')
      for (const [i, lease] of command.leases.entries())
        if (outcome.ttls[i]! > 0) {
          referee.renewed(lease, known, losses)
          this.#noteRenewal(lease, outcome.ttls[i]!, losses)
        }
    return outcome
  }

  #noteRenewal(lease: number, term: number, losses: number): void {
    const { machine } = this
    if (this.owned) this.renewals.set(lease, { at: this.#site.world.now, term, life: machine.life, losses })
  }

  async lease(id: number): Promise<LeaseView | undefined> {
    if (this.replica === undefined) throw new LeaseError('UNAVAILABLE', 'not ready')
    return (await this.replica.read({ kind: 'lease', lease: id })).value
  }
}

/** One replica of a host, under the eyes of the referee: for a program in the same process, or for a server that stands on it. */
export class HostLessor implements Lessor {
  readonly #host: Host
  readonly #replica: Replica

  constructor(host: Host, replica: Replica) {
    this.#host = host
    this.#replica = replica
  }

  get profile() {
    return this.#replica.profile
  }

  get signal() {
    return this.#replica.signal
  }

  propose(command: Command, { op, key = 0 }: ProposeOptions = {}): Promise<Outcome> {
    return this.#host.propose(command, op, key, this.#replica)
  }

  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.#replica.read(query, options)
  }

  watch(prefix: string, options: WatchOptions): AsyncIterable<readonly Event[]> {
    return this.#replica.watch(prefix, options)
  }

  get witness(): string {
    return this.#replica.witness
  }

  continues(witness: string): Promise<boolean> {
    return this.#replica.continues(witness)
  }

  /** The replica is its host's. */
  async [Symbol.asyncDispose](): Promise<void> {}
}

/** A client's way to servers: it asks another one when one is silent, and never takes silence for a no. */
export class Client implements LessorAccess {
  readonly #site: Site
  readonly #machine: Machine
  readonly #hosts: readonly Host[]
  readonly #life: number
  #at = 0

  constructor(site: Site, machine: Machine, hosts: readonly Host[]) {
    this.#site = site
    this.#machine = machine
    this.#hosts = hosts
    this.#life = machine.life
  }

  /** One message there, one back, or nothing for `timeout`. */
  #ask<T>(
    host: Host,
    what: () => Promise<T>,
    timeout: number,
    arrives?: () => void,
  ): Promise<{ readonly answer: T } | { readonly error: unknown } | undefined> {
    const { world, wire } = this.#site
    return new Promise(resolve => {
      const cancel = world.later(timeout, () => resolve(undefined), this.#machine, true, this.#life)
      const there = wire.out(this.#machine)
      if (there === undefined) return
      const reply = (result: { readonly answer: T } | { readonly error: unknown }) => {
        const back = wire.back(this.#machine)
        if (back === undefined) return
        world.later(
          back,
          () => {
            cancel()
            resolve(result)
          },
          this.#machine,
          false,
          this.#life,
        )
      }
      world.later(there, () => {
        arrives?.()
        world.later(
          0,
          () => {
            what().then(
              answer => reply({ answer }),
              error => reply({ error }),
            )
          },
          host.machine,
        )
      })
    })
  }

  async propose(command: Command, op?: Operation, key = 0): Promise<Outcome> {
    let unsure = false
    for (let attempt = 0; attempt < 5; attempt++) {
      const host = this.#hosts[this.#at % this.#hosts.length]!
      const again = op !== undefined && attempt > 0 ? { ...op, again: true } : op
      const result = await this.#ask(
        host,
        () => host.propose(command, again, key),
        300,
        () => this.#arrives(host, command, key),
      )
      if (result === undefined) {
        unsure = true
        this.#at++
        if (op === undefined && command.kind !== 'renew') break
        continue
      }
      if ('answer' in result) return result.answer
      const { error } = result
      if (!(error instanceof LeaseError)) throw error
      if (error.code === 'UNKNOWN' || error.code === 'DIVERGED') unsure = true
      this.#at++
      await new Promise<void>(resolve => this.#site.world.later(30, resolve, this.#machine, true, this.#life))
    }
    throw new LeaseError(unsure ? 'UNKNOWN' : 'UNAVAILABLE', 'no server answered')
  }

  #arrives(host: Host, command: Command, key: number): void {
    if (key !== 0) return // it may have been revoked, and then the renewal keeps nothing alive
    // A server whose log is not open yet answers UNAVAILABLE: such a renewal keeps nothing alive either.
    if (host.replica === undefined || host.machine.stalledSince === undefined) return
    if (command.kind !== 'renew' || command.waiting === true) return
    for (const lease of command.leases) host.arrivedWhileStalled.set(lease, this.#site.world.now)
  }

  async lease(id: number): Promise<LeaseView | undefined> {
    const host = this.#hosts[this.#at % this.#hosts.length]!
    const result = await this.#ask(host, () => host.lease(id), 300)
    if (result === undefined) this.#at++
    if (result === undefined || 'error' in result) throw new LeaseError('UNAVAILABLE', 'no answer')
    return result.answer
  }
}

export function pauseOn(clock: Clock, ms: number): Promise<void> {
  return new Promise(resolve => clock.after(ms, resolve))
}

/** Changes everything in an object that can be changed in place, as a caller may do with its own. */
function reuse(value: object): void {
  for (const [name, item] of Object.entries(value)) {
    if (typeof item === 'object' && item !== null) reuse(item)
    else if (typeof item === 'number') Reflect.set(value, name, item + 1)
    else if (typeof item === 'string' && name !== 'kind') Reflect.set(value, name, `${item}x`)
  }
}
