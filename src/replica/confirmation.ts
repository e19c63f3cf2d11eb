/**
 * Ends the leases of dead holders before a request that does not wait is decided.
 *
 * A process that lives for a second, such as a job of cron, opens the log and finds a lease whose holder may have died long ago. Where the store does not know
 * the ages of records, nothing proves that: this process has to count a whole term itself. It does so only if the holder seems to be dead: by the clock of the
 * engine, or by the wall clock, it was not heard of for its term. That clock may be wrong, so it decides only whether to stay and count, and nothing is granted
 * by it.
 */
import type { Clock } from '../clock.ts'
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Acquire } from '../kernel/command.ts'
import type { LeaseState, State } from '../kernel/state.ts'
import type { ChangeListener } from './change-listeners.ts'
import type { IdleMode } from './idle-mode.ts'
import type { Lifetime } from './lifetime.ts'
import type { Log } from './log.ts'
import type { Outbox } from './outbox.ts'
import type { Timekeeper } from './timekeeper.ts'

/** Unless the caller says how long: a shorter term of the holder counts, and a longer one is counted by several processes. */
const LONGEST = 30_000
/** Added to the term of the holder, for the record that ends its lease. */
const TO_END_IT = 1_000
/** A renewal causes no event, so the state is looked at this often. */
const LOOK = 250

export interface ConfirmationOptions {
  readonly clock: Clock
  readonly log: Pick<Log, 'state' | 'changes'>
  readonly outbox: Pick<Outbox, 'readToEnd'>
  readonly timekeeper: Pick<Timekeeper, 'silence' | 'isBeingEnded' | 'confirming'>
  readonly lifetime: Pick<Lifetime, 'assertOpen'>
  readonly idleMode: Pick<IdleMode, 'need'>
}

export class Confirmation {
  readonly #options: ConfirmationOptions

  constructor(options: ConfirmationOptions) {
    this.#options = options
  }

  /**
   * Returns when no silent holder stands in the way of the request, or a holder does that is alive. Throws `UNCONFIRMED` after `limit` ms, or after the
   * term of the holder.
   */
  async confirm(command: Acquire, limit: number | undefined, signal: AbortSignal): Promise<void> {
    const { log, idleMode } = this.#options
    if (this.#silentInTheWay(log.state, command).length === 0) return
    const followed = idleMode.need()
    const changes = log.changes(signal, '')
    try {
      await this.#stay(command, limit, signal, changes)
    } finally {
      changes[Symbol.dispose]()
      followed()
    }
  }

  async #stay(command: Acquire, limit: number | undefined, signal: AbortSignal, changes: ChangeListener): Promise<void> {
    const { clock, log, outbox, timekeeper, lifetime } = this.#options
    const began = clock.now()
    for (let read = false; ; ) {
      signal.throwIfAborted()
      lifetime.assertOpen()
      const silent = this.#silentInTheWay(log.state, command)
      if (silent.length === 0) return
      const term = Math.max(...silent.map(lease => lease.term))
      const left = began + (limit ?? Math.min(term + TO_END_IT, LONGEST)) - clock.now()
      if (left > 0 || silent.some(lease => timekeeper.isBeingEnded(lease))) {
        for (const lease of silent) timekeeper.confirming(lease)
        read = false
        await this.#changed(changes, Math.max(1, Math.min(LOOK, left)))
      } else if (read) throw unconfirmed(command, silent[0]!, timekeeper.silence(silent[0]!), clock.now() - began)
      else {
        await outbox.readToEnd() // a renewal may be in the log that was not read yet
        read = true
      }
    }
  }

  /** Resolves with the next change, after `ms`, or when the signal of `changes` fires. */
  #changed(changes: ChangeListener, ms: number): Promise<void> {
    return new Promise(resolve => {
      const cancel = this.#options.clock.after(ms, resolve, { ref: true })
      void changes.next().then(() => {
        cancel()
        resolve()
      })
    })
  }

  /** The leases that seem to be dead, if the request could be granted after their end. */
  #silentInTheWay(state: State, { wants, any, pool, steal }: Acquire): LeaseState[] {
    if (steal !== undefined) return [] // it ends the holders itself
    if (pool !== undefined) {
      const { holders, queue } = state.pools.get(pool.pool) ?? { holders: [], queue: [] }
      return [...holders, ...queue].filter(lease => this.#isSilent(lease))
    }
    const silent: LeaseState[] = []
    for (const { resource: name } of wants) {
      const resource = state.resources.get(name)
      if (resource === undefined) continue
      const inTheWay = [...resource.grants.map(grant => grant.lease), ...resource.queue]
      const silentHere = inTheWay.filter(lease => this.#isSilent(lease))
      if (silentHere.length > 0) silent.push(...silentHere)
      else if (any === undefined && inTheWay.length > 0) return [] // it is held by a holder that is alive
    }
    return silent
  }

  #isSilent(lease: LeaseState): boolean {
    return this.#options.timekeeper.silence(lease) >= lease.term
  }
}

function unconfirmed({ wants, pool }: Acquire, { holder, term }: LeaseState, silence: number, waited: number): LeaseError {
  const resource = pool?.pool ?? wants[0]!.resource
  const known = Number.isFinite(silence) ? `for ${inWords(Math.round(silence))}` : 'for an unknown time'
  return new LeaseError(
    'UNCONFIRMED',
    `${resource} is held by ${holder.name}, which was not heard of ${known}; its term is ${inWords(term)}. That it has ended was not confirmed within ${inWords(Math.round(waited))}`,
    {
      facts: {
        ...{ resource, holder: holder.name, ttl: term, waited: Math.round(waited) },
        ...(Number.isFinite(silence) && { silence: Math.round(silence) }),
      },
    },
  )
}
