/** Reads and proposes for one agent. Every answer comes within a bound, because a model waits for it. */
import { LeaseError } from '../errors.ts'
import { Operations, refused } from '../holder/operations.ts'
import type { Acquire, Command } from '../kernel/command.ts'
import type { Granted, Outcome, Queued } from '../kernel/outcome.ts'
import type { Leases } from '../leases.ts'
import type { EntryView, LeaseView, PastGrant, Query, ResourceView, View } from '../lessor.ts'

/** The longest wait for one answer. */
const TIMEOUT = 10_000

export class AgentLog {
  readonly leases: Leases
  readonly #operations: Operations

  constructor(leases: Leases) {
    this.leases = leases
    this.#operations = new Operations(leases.lessor, leases.clock)
  }

  async #read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>): Promise<View<K>> {
    const { lessor } = this.leases
    lessor.signal.throwIfAborted()
    try {
      return await this.#operations.within(TIMEOUT, lessor.read<K>(query, { consistent: true }))
    } catch (error) {
      // A read that was not answered has changed nothing.
      if (LeaseError.is(error, 'UNKNOWN')) throw new LeaseError('UNAVAILABLE', 'the server did not answer in time', { cause: error })
      throw error
    }
  }

  /** Undefined: the lease has ended, or belongs to another key. */
  async lease(lease: number): Promise<LeaseView | undefined> {
    return (await this.#read({ kind: 'lease', lease })).value
  }

  async leasesOf(ids: readonly number[]): Promise<readonly LeaseView[]> {
    const views = await Promise.all(ids.map(id => this.lease(id)))
    return views.filter(view => view !== undefined)
  }

  async resource(resource: string): Promise<ResourceView> {
    return (await this.#read({ kind: 'resource', resource })).value
  }

  async history(resource: string): Promise<readonly PastGrant[]> {
    // Kept runs prove nothing: keys that may register entries can write them.
    return (await this.#read({ kind: 'history', resource })).value.filter(({ revision }) => revision > 0)
  }

  /** The grants of names below this one that ended after a revision, each with its name. */
  async historyBelow(resource: string, after: number): Promise<readonly PastGrant[]> {
    return (await this.#read({ kind: 'history', resource, below: after })).value
  }

  async entries(prefix: string, limit: number): Promise<readonly EntryView[]> {
    return (await this.#read({ kind: 'entries', prefix, limit })).value
  }

  resourcesUnder(prefix: string, limit: number): Promise<View<'resources'>> {
    return this.#read({ kind: 'resources', prefix, limit })
  }

  decide(command: Command): Promise<Outcome> {
    this.leases.lessor.signal.throwIfAborted()
    // A lease that is granted after the timeout stays: the agent's next call finds it under its session, and uses it.
    return this.#operations.decide(command, { timeout: TIMEOUT })
  }

  /** Throws a refusal. */
  async change(command: Command): Promise<Outcome> {
    const outcome = await this.decide(command)
    if (outcome.kind === 'refused') throw refused(outcome)
    return outcome
  }

  async acquire(command: Acquire): Promise<Granted | Queued> {
    return (await this.change(command)) as Granted | Queued
  }

  /** Renews leases. Returns those that are gone, or that no holder may rely on until the quiet period after a loss is over. */
  async renew(leases: readonly number[]): Promise<ReadonlySet<number>> {
    if (leases.length === 0) return new Set()
    const outcome = await this.decide({ kind: 'renew', leases })
    if (outcome.kind !== 'renewed') throw refused(outcome)
    return new Set(leases.filter((_, i) => outcome.ttls[i]! <= 0))
  }

  /** Renews leases that still wait. One that was granted meanwhile is not confirmed. */
  async renewWaiting(leases: readonly number[]): Promise<void> {
    const outcome = await this.decide({ kind: 'renew', leases, waiting: true })
    if (outcome.kind !== 'renewed') throw refused(outcome)
  }

  /** Ends a lease, with descendants that have stopped as well. It is no failure if the lease has ended already. */
  async release(lease: number, stopped: readonly number[] = []): Promise<void> {
    const outcome = await this.decide({ kind: 'release', lease, ...(stopped.length > 0 && { stopped }) })
    if (outcome.kind === 'refused' && outcome.code !== 'GONE') throw refused(outcome)
  }
}
