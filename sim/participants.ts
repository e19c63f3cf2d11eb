/** Hosts with replicas, and the clients through which holders reach them. */

import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import type { Command, Operation } from '../src/kernel/command.ts'
import { copyOf } from '../src/kernel/copy.ts'
import type { Event } from '../src/kernel/event.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { complete } from '../src/lessor/complete.ts'
import { propose } from '../src/lessor/propose.ts'
import type { Completion, LeaseView, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../src/lessor.ts'
import type { Replica, Survivor } from '../src/replica/replica.ts'
import { operationName } from './answers.ts'
import { type Build, PRESENT } from './builds.ts'
import type { Referee } from './referee.ts'
import { type WatchedLog, type Wire, WiredStore } from './wire.ts'
import type { Machine, World } from './world.ts'

export interface Site {
  readonly world: World
  readonly referee: Referee
  /** The index of the record by which leases arrived in the present log; left out if it began by itself. */
  arrival?: number
  /** The log that hosts open. Another one, after the leases have moved or a backup was restored there. */
  log: WatchedLog
  readonly wire: Wire
  readonly ages: boolean
  /** The engine notifies readers of new records; otherwise they poll. */
  readonly push: boolean
  readonly snapshotRecords: number
  /** Replicas may read the log now and then, and after this many ms at the latest. */
  readonly readEvery?: number
  /** The incarnations of each holder so far: a process that was replaced may not know it yet. */
  readonly incarnations: Map<string, number[]>
}

/** A holder needs this of a lessor, local or remote. */
export interface LessorAccess {
  propose(command: Command, op?: Operation, key?: number): Promise<Outcome>
  lease(id: number): Promise<LeaseView | undefined>
}

/** A machine that runs a replica and restarts it. */
export class Host implements LessorAccess {
  readonly machine: Machine
  readonly #site: Site
  owned: boolean
  /** The build that its next process runs. */
  build: Build = PRESENT
  /** The build that the present process runs. */
  #running: Build = PRESENT
  replica: Replica | undefined
  readonly #stores = new Set<WiredStore>()
  #survivor: Survivor | undefined
  /** The process that is opening the store. */
  #starting: number | undefined
  #watchedUpTo: number | undefined
  #watchLosses = 0
  /** When renewals arrived at this machine while it was stalled, by lease. */
  readonly arrivedWhileStalled = new Map<number, number>()
  /** The last renewal that this machine acknowledged as an owner, by lease. */
  readonly renewals = new Map<number, { readonly at: number; readonly term: number; readonly life: number; readonly losses: number }>()
  /** Something in this process waits for news of the log. Set by `listen`. */
  listens = false
  #stopListening = () => {}
  /** Called with each replica that is opened. */
  begins: (replica: Replica) => void = () => {}

  constructor(site: Site, machine: Machine, owned: boolean) {
    this.#site = site
    this.machine = machine
    this.owned = owned
  }

  /** Starts a process. If it cannot open its store it is started again. */
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
      const { log } = site
      const store = new WiredStore(log, site.wire, machine, { own, ages: site.ages, push: site.push })
      this.#stores.add(store)
      try {
        const replica = await this.#running.Replica.open(store, {
          clock,
          owned: this.owned,
          timeout: 3_000,
          snapshotRecords: site.snapshotRecords,
          events: 5_000,
          ...(site.readEvery !== undefined && { readEvery: site.readEvery }),
          ...(this.#survivor !== undefined && { survivor: this.#survivor }),
        })
        if (log !== site.log) {
          // Another log took its place meanwhile: an operator ends what uses the old one before hosts use the new one.
          await replica[Symbol.asyncDispose]()
          continue
        }
        this.#survivor = undefined
        this.replica = replica
        site.referee.decided(machine.name, this.#running.rules, replica.index)
        site.referee.users.opened(machine.name, this.owned)
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
    // A replica that applied lost records must not write on top of the present log.
    if (error.reason === 'disagreement') world.violate('S24', error.message)
    // A replica stops if and only if it does not know the rules of the log.
    if (error.code === 'UNSUPPORTED' && this.#running.rules >= referee.state.rules) world.violate('S22', error.message)
  }

  #mind(replica: Replica, life: number): void {
    const { machine } = this
    replica.signal.addEventListener('abort', () => {
      if (machine.life !== life || this.replica !== replica) return
      this.#judgeFailure(replica.signal.reason)
      if ((replica.signal.reason as LeaseError).code === 'DIVERGED') this.#survivor = replica.survivor
      this.replica = undefined
      this.#site.referee.users.closed(machine.name)
      this.#letGo()
      void this.start()
    })
    void this.#watch(replica)
    if (this.listens) this.listen(true)
  }

  /** Its process begins or ceases to wait for news of the log: a replica that may read the log now and then follows it meanwhile. */
  listen(listens: boolean): void {
    this.listens = listens
    this.#stopListening()
    this.#stopListening = () => {}
    if (listens && this.replica !== undefined) void this.#follow(this.replica)
  }

  async #follow(replica: Replica): Promise<void> {
    const over = new AbortController()
    this.#stopListening = () => over.abort()
    try {
      for await (const _ of replica.watch('', { signal: over.signal })) if (over.signal.aborted) return
    } catch {
      // The replica failed or was closed.
    }
  }

  /** A watcher that continues where that of the last process ended. */
  async #watch(replica: Replica): Promise<void> {
    const { referee } = this.#site
    const losses = referee.losses
    if (losses !== this.#watchLosses) this.#watchedUpTo = undefined
    this.#watchLosses = losses
    const after = this.#watchedUpTo
    try {
      for await (const events of replica.watch('', { signal: replica.signal, lazy: true, ...(after !== undefined && { after }) })) {
        const { revision, type } = events[0]!
        if (type !== 'resync' && this.#watchedUpTo !== undefined) referee.revisions.watched(this.#watchedUpTo, events, losses)
        this.#watchedUpTo = revision
      }
    } catch {
      // The replica failed or was closed; the next process continues to watch.
    }
  }

  /** kill -9. */
  crash(): void {
    this.replica = undefined
    this.#site.referee.users.closed(this.machine.name)
    this.#letGo()
    this.#survivor = undefined
    this.machine.kill()
  }

  #letGo(): void {
    for (const store of this.#stores) store.abandon()
    this.#stores.clear()
  }

  /** A graceful stop: answers pending requests, writes its marks, closes the store. */
  async close(): Promise<void> {
    const { replica } = this
    this.replica = undefined
    this.#site.referee.users.closed(this.machine.name)
    await replica?.[Symbol.asyncDispose]()
  }

  async propose(command: Command, op?: Operation, key = 0, replica = this.replica): Promise<Outcome> {
    const { referee } = this.#site
    if (replica === undefined) throw new LeaseError('UNAVAILABLE', 'not ready')
    const asked = referee.revision
    const losses = referee.losses
    // An owner answers renewals from its own state; a replica of a shared log, from the log.
    const known = this.owned ? replica.index : referee.length
    // The caller's own object, which it reuses for something else at once.
    const own = copyOf(command)
    const answer = propose(replica, own, op === undefined ? { key } : { op, key })
    reuse(own)
    const outcome = await answer
    referee.answers.answered(outcome, op && operationName(key, op), asked, losses)
    if (command.kind === 'acquire' && outcome.kind === 'refused' && outcome.code === 'HELD') referee.pairs.refused(command)
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

/** One replica of a host, observed by the referee: for a program in the same process, or for a server. */
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

  submit(command: Command, { op, key = 0 }: ProposeOptions, completion: Completion): void {
    complete(completion, this.#host.propose(command, op, key, this.#replica))
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

  /** The host closes the replica. */
  async [Symbol.asyncDispose](): Promise<void> {}
}

/** A client of several servers: it tries another server when one does not answer, and never takes a missing answer for a refusal. */
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

  /** A request and its answer, or nothing for `timeout`. */
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
    if (key !== 0) return // the key may have been revoked, and then the renewal has no effect
    // A server whose log is not open yet answers UNAVAILABLE: such a renewal has no effect either.
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

/** Overwrites an object in place, as a caller may do with its own. */
function reuse(value: object): void {
  for (const [name, item] of Object.entries(value)) {
    if (typeof item === 'object' && item !== null) reuse(item)
    else if (typeof item === 'number') Reflect.set(value, name, item + 1)
    else if (typeof item === 'string' && name !== 'kind') Reflect.set(value, name, `${item}x`)
  }
}
