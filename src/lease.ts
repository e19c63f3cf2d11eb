/**
 * `Lease`: what a user has in hand after `acquire`.
 *
 * Promised, while clock rates are within ρ: `held` is never true when another holder may have the lease, whatever happened to timers, answers
 * and the wall clock. Not promised: that code which never looks at `signal` or `assertHeld` stops in time, or that work already sent
 * elsewhere is undone. Work that writes long after it asked needs a resource that checks tokens (recipe/fence).
 */
/// <reference lib="esnext.disposable" preserve="true" />
import { LeaseError } from './errors.ts'
import type { HeldLease, JeopardyCallback } from './holder/held-lease.ts'
import { checkOptionNames } from './options.ts'

export type { Jeopardy, JeopardyCallback, RenewalStrategy, Requirement } from './holder/held-lease.ts'

/** @internal The record behind a handle. */
export let heldLeaseOf: (lease: Lease) => HeldLease

export interface TransferOptions {
  /** The incarnation of the process that is meant, as a queue or a registration shows it. Left out: see `transfer`. */
  readonly incarnation?: number | undefined
}

/**
 * A lease in hand. End it with `release`, or let `await using` do so. It is renewed until it is released or lost, its `Leases` is closed or its process
 * ends, even if the program keeps no reference to it.
 *
 * @example
 * await using lease = await leases.acquire('jobs/nightly', { ttl: '30s' })
 * await db.write(rows, { fence: lease.token, signal: lease.signal })
 */
export class Lease implements AsyncDisposable {
  readonly #held: HeldLease

  static {
    heldLeaseOf = lease => lease.#held
  }

  /** @internal */
  constructor(held: HeldLease) {
    this.#held = held
  }

  /** The number of the lease, unique in its log. */
  get id(): number {
    return this.#held.id
  }

  /** The name of the holder. */
  get holder(): string {
    return this.#held.holder
  }

  /** The resources it holds; with `advanced.any`, those that were chosen. */
  get resources(): readonly string[] {
    return this.#held.resources
  }

  /** The fencing token of the (first) resource, greater than that of every earlier grant. 0 for a lease without resources. */
  get token(): number {
    return this.#held.tokens[0] ?? 0
  }

  /** The fencing token of each resource. */
  get tokens(): Readonly<Record<string, number>> {
    const { resources, tokens } = this.#held
    return Object.fromEntries(resources.map((resource, i) => [resource, tokens[i]!]))
  }

  /** The term in force, in ms. */
  get ttl(): number {
    return this.#held.term
  }

  /**
   * Fires when the lease is over. A local deadline fires it, not an answer, and before another holder can have the lease, unless this process
   * was kept from running for longer than the `lateness` of its clock. `held` is right even then. The reason is a LeaseError: `LOST` with the
   * cause, or `GONE` after its own holder released it.
   */
  get signal(): AbortSignal {
    return this.#held.signal
  }

  /**
   * True while the lease is held but may be lost soon: less than a quarter of its validity is left, no renewal can be answered any more, or the store
   * no longer promises what `advanced.require` names. Reads the clocks, so it is never out of date. False once the lease is over.
   */
  get atRisk(): boolean {
    return this.#held.atRisk
  }

  /**
   * Calls `callback` each time the lease comes into jeopardy, while there is still time to stop the work; at once if it already is. An
   * answered renewal ends the jeopardy; the next one calls again. Returns a function that removes the callback.
   *
   * It also calls when a renewal shows that the store no longer promises what the lease requires (`advanced.require`), with that in `broken`.
   *
   * @example
   * lease.onJeopardy(({ remaining }) => log.warn(`no renewal answered; lost in ${remaining} ms`))
   */
  onJeopardy(callback: JeopardyCallback): () => void {
    if (typeof callback !== 'function')
      throw new LeaseError('INVALID', 'onJeopardy takes a callback: write onJeopardy(({ remaining }) => …)')
    return this.#held.onJeopardy(callback)
  }

  /** Fires when a waiter asks the holders to release (`advanced.recall`, `leases.recall`). The lease stays held. */
  get recalled(): AbortSignal {
    return this.#held.recalled
  }

  /** Returns whether the lease is held. Reads the clocks: right even when timers are late. */
  get held(): boolean {
    const held = this.#held
    if (held.isHeld) return true
    if (held.stage !== 'held') held.lossReported = true // otherwise the clocks are in doubt, which may pass
    return false
  }

  /** Milliseconds of validity left unless renewed; 0 when lost. */
  remaining(): number {
    return this.held ? this.#held.remaining() : 0
  }

  /**
   * The wall time in ms at which the lease is over unless it is renewed, for display; undefined when lost. Wall clocks jump: decide by `held`,
   * `assertHeld` or `remaining`.
   *
   * @example
   * console.log(`held until ${new Date(lease.expiresAt ?? 0).toISOString()}`)
   */
  get expiresAt(): number | undefined {
    return this.held ? Math.round(this.#held.keeper.clock.wall() + this.#held.remaining()) : undefined
  }

  /** Returns if the lease is held; throws the reason if not. Reads the clocks. */
  assertHeld(): void {
    const held = this.#held
    if (this.held) return
    if (held.stage !== 'held') throw held.endReason
    throw new LeaseError('UNKNOWN', `the wall clock jumped for an unknown reason: ${held.name} is not held until a renewal is answered`, {
      facts: held.facts,
    })
  }

  /** Renews now, whatever the strategy. Resolves when the renewal is acknowledged. */
  renew(): Promise<void> {
    const held = this.#held
    if (held.strategy === 'never') return Promise.reject(new LeaseError('INVALID', `${held.name} was acquired with renew: 'never'`))
    return held.keeper.renew(held)
  }

  /** Reports activity, for `renew: 'on-activity'`. Cheap: call it as often as you like. */
  touch(): void {
    const held = this.#held
    held.touched = true
    // The next round would be too late.
    if (held.strategy === 'on-activity' && held.isHeld && held.remaining() < held.term / 4) held.keeper.renew(held).catch(() => {})
  }

  /** Reports progress of the work, for `advanced.maxStall`: without this call for that long, the lease is no longer renewed. */
  progress(): void {
    const held = this.#held
    held.lastProgress = held.keeper.clock.now()
    held.keeper.progressed(held)
  }

  /** Attaches an entry (a key with a value). It vanishes in the same revision as the lease. */
  put(key: string, value: string): Promise<void> {
    return this.#held.keeper.put(this.#held, key, value)
  }

  /** Deletes an entry of this lease. */
  delete(key: string): Promise<void> {
    return this.#held.keeper.delete(this.#held, key)
  }

  /**
   * Gives the grants to another holder, with new tokens. Resolves with the number of the new lease. Without `incarnation`, the process of that
   * name that waits for the resource gets it; if none waits, any process of that name may `adopt` it, with any key that may acquire it.
   *
   * The lease is not held from this call on; it is held again if the transfer is refused. So end the work first: no signal can warn it in time.
   */
  async transfer(to: string, options: TransferOptions = {}): Promise<number> {
    checkOptionNames('transfer', options, ['incarnation'])
    return this.#held.keeper.transfer(this.#held, to, options.incarnation)
  }

  /**
   * Ends the lease: first here, then at the lessor. Calling it again, or after a loss, does nothing; with `onLost` it then waits until the
   * lessor was informed.
   */
  release(): Promise<void> {
    return this.#held.keeper.release(this.#held)
  }

  /** The same as `release`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }
}
