/**
 * Moves all leases to another log.
 *
 * The leases are copied while the old log still decides, and what it decides meanwhile is carried after them. Replicas that have the old log open are told the
 * new place, and load the copy. Only then does the old log stop deciding: what is left to carry is short. It records, for good, where the leases are; only after
 * that are they in force in the new log. So whatever fails, and even if an operator cancels meanwhile, the leases are granted in one log at most. Before that
 * record, the leases stay; after it, the same call again completes the move.
 */
import { type Clock, pause, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Batch } from '../kernel/codec/batch.ts'
import type { Move } from '../kernel/command.ts'
import { LIVE, type State } from '../kernel/state.ts'
import { propose } from '../lessor/propose.ts'
import type { Lessor } from '../lessor.ts'
import { refusedError } from '../refused-error.ts'
import type { Store } from '../store.ts'
import { completeMove, Destination } from './destination.ts'
import { FollowedCopy } from './followed-copy.ts'
import type { LogContents } from './restore.ts'

/** The old log stops deciding for about this long, beside what depends on its size and on the two stores. */
const LEAST_STOP = 500
/** Ms to restart the term of one lease. Measured: 0.7 µs among 950,000, 1 µs among 60,000. */
const RESTART = 0.002
/** Round trips to each log while the old one does not decide: two records, and as many to spare. */
const ROUND_TRIPS = 4
/** Other replicas get this many times as long to load the copy as it took here, and at most MAX_WAIT. */
const LOADING_SHARE = 1.5
const MAX_WAIT = 60_000
/** The old log stops deciding when no more records than this are left to carry, or after so many rounds. */
const FEW = 200
const MAX_ROUNDS = 20

export interface MoveLeasesOptions {
  /** The URL that the old log reports from now on. */
  readonly place: string
  /** Opens the store at that place. */
  readonly open: () => Promise<Store>
  readonly clock?: Clock
  /** Called with what the move will cost, before anything is changed. An error that it throws stops the move. */
  readonly confirm?: (plan: MovePlan) => void | PromiseLike<void>
}

/** These numbers were measured before a move. */
export interface MovePlan {
  readonly leases: number
  /** For about how many ms no lease can be renewed. */
  readonly stop: number
  /** Holders renew at half of the ttl, so a lease with a shorter ttl may be lost. */
  readonly shortest: number
  /** The number of leases that are shorter. */
  readonly atRisk: number
}

export interface MovedContents extends LogContents {
  /** For how many ms the old log decided nothing before the leases were in force in the new one. */
  readonly stopped: number
}

/** Returns undefined if the leases had left already and only their arrival was missing. */
export async function moveLeases(old: Lessor, options: MoveLeasesOptions): Promise<MovedContents | undefined> {
  const { place, open, clock = systemClock } = options
  const { value, revision } = await old.read({ kind: 'summary' }, { consistent: true })
  if (value.moved === place) return arrive(place, open, clock)
  // Refused, since another move is under way or done.
  if (value.moved !== undefined) await order(old, { kind: 'move' })
  // A log takes its counters from its first record, which must come before the copy.
  if (revision === 0) await order(old, { kind: 'move', prepare: true })
  return new LeaseMove(old, { ...options, clock }).run()
}

/** Completes a move that was interrupted after the leases had left. */
async function arrive(place: string, open: () => Promise<Store>, clock: Clock): Promise<undefined> {
  const arrived = await open()
    .then(store => completeMove(store, clock))
    .catch(error => Promise.reject(notInForce(error, place)))
  if (!arrived)
    throw new LeaseError('INVALID', `the leases of this log have moved to ${place} already: there is nothing left to do`, {
      facts: { moved: place },
    })
}

class LeaseMove {
  readonly #old: Lessor
  readonly #options: MoveLeasesOptions & { readonly clock: Clock }

  constructor(old: Lessor, options: MoveLeasesOptions & { readonly clock: Clock }) {
    this.#old = old
    this.#options = options
  }

  async run(): Promise<MovedContents> {
    const { place, open, clock } = this.#options
    // Before the old log is changed: a missing driver, or a place that is unreachable or occupied, must not stop it even for a moment.
    await using there = await Destination.open(await open(), clock)
    await using copy = new FollowedCopy(this.#old, clock)
    const [state, loading] = await timed(clock, () => copy.state())
    const [, here] = await timed(clock, () => this.#old.read({ kind: 'summary' }, { consistent: true }))
    const [, across] = await timed(clock, () => there.read())
    await this.#options.confirm?.(planOf(state, LEAST_STOP + state.leases.size * RESTART + (here + across) * ROUND_TRIPS))
    try {
      await this.#copy(state, there, copy, Math.min(loading * LOADING_SHARE, MAX_WAIT))
    } catch (error) {
      void propose(this.#old, { kind: 'move', prepare: true }).catch(() => {}) // those that load the copy may forget it
      throw withMoveState(error, `the leases could not be copied to ${place}, and stay where they are`, 'called-off')
    }
    const since = clock.now()
    await this.#leave(there, copy)
    await there.complete().catch(error => Promise.reject(notInForce(error, place)))
    return { ...there.contents, stopped: Math.round(clock.now() - since) }
  }

  /** Copies the leases while the old log decides. Returns when little is left to carry. */
  async #copy(state: State, there: Destination, copy: FollowedCopy, wait: number): Promise<void> {
    const { place, clock } = this.#options
    await there.copy(state)
    await Promise.race([order(this.#old, { kind: 'move', to: place, prepare: true }), copy.broken])
    const until = clock.now() + wait
    for (let round = 0; ; ) {
      await there.carry(copy.take())
      const left = until - clock.now()
      if (left > 0) await Promise.race([pause(clock, Math.min(left, 100), undefined, { ref: true }), copy.broken])
      else if (copy.waiting <= FEW || ++round === MAX_ROUNDS) return
    }
  }

  /** From here on the old log decides nothing. */
  async #leave(there: Destination, copy: FollowedCopy): Promise<void> {
    const { place } = this.#options
    let since: number
    try {
      since = await Promise.race([order(this.#old, { kind: 'move' }), copy.broken])
    } catch (error) {
      if (LeaseError.is(error, 'UNKNOWN') || copy.isBroken) throw withMoveState(error, uncertain(place), 'not-complete')
      throw withMoveState(error, `the leases could not be copied to ${place}, and stay where they are`, 'called-off')
    }
    try {
      await carryRest(there, copy)
      // The record that began the move is a revision of its own.
      if (there.revision !== since - 1) throw new LeaseError('UNAVAILABLE', 'the old log was changed in another way than its records tell')
    } catch (error) {
      // What was written there is not in force, and never will be.
      await Promise.race([order(this.#old, { kind: 'move', stay: true, since }), copy.broken]).catch(cause => {
        throw withMoveState(cause, `the leases could not be copied to ${place} (${String(error)}), and ${uncertain(place)}`, 'not-complete')
      })
      throw withMoveState(error, `the leases could not be copied to ${place}, and stay where they are`, 'called-off')
    }
    try {
      // A replica that follows the leases closes the old log, and ends the copy with it: so the answer counts, if it comes.
      const leaving = order(this.#old, { kind: 'move', to: place, since })
      await Promise.race([leaving, copy.broken.catch(error => soonOr(leaving, this.#options.clock, error))])
    } catch (error) {
      throw withMoveState(error, uncertain(place), 'not-complete')
    }
  }
}

/** Carries everything up to the record that began the move. */
async function carryRest(there: Destination, copy: FollowedCopy): Promise<void> {
  for (;;) {
    const rest: Batch[] = []
    let last = false
    for (const batch of copy.take()) {
      const at = batch.proposals.findIndex(({ command }) => command.kind === 'move' && command.prepare !== true)
      last ||= at >= 0
      rest.push(at < 0 ? batch : { ...batch, proposals: batch.proposals.slice(0, at) })
      if (last) break
    }
    await there.carry(rest)
    if (last) return
    await copy.next()
  }
}

/** Waits a moment longer for an answer that may be on its way. */
async function soonOr<T>(answer: Promise<T>, clock: Clock, error: unknown): Promise<T> {
  return Promise.race([answer, pause(clock, 1_000, undefined, { ref: true }).then(() => Promise.reject(error))])
}

function planOf({ leases }: State, stop: number): MovePlan {
  const shortest = 2 * stop
  let atRisk = 0
  for (const { status, grants, ttl } of leases.values()) if (status === LIVE && grants.length > 0 && ttl < shortest) atRisk++
  return { leases: leases.size, stop: Math.round(stop), shortest: Math.round(shortest), atRisk }
}

async function timed<T>(clock: Clock, run: () => Promise<T>): Promise<readonly [T, number]> {
  const since = clock.now()
  return [await run(), clock.now() - since]
}

function uncertain(place: string): string {
  return `the leases may not have left for ${place}: if they have, run the same command again to complete the move; if not, cancel it`
}

function notInForce(error: unknown, place: string): unknown {
  const where = `the leases have left for ${place}, where they are not in force yet: run the same command again to complete the move`
  return withMoveState(error, where, 'not-complete')
}

/** Adds to an error what has become of the move. */
function withMoveState(error: unknown, what: string, move: 'called-off' | 'not-complete'): unknown {
  if (!(error instanceof LeaseError)) return error
  return new LeaseError(error.code, `${what} (${error.message})`, { cause: error, reason: error.reason, facts: { ...error.facts, move } })
}

async function order(lessor: Lessor, command: Move): Promise<number> {
  const outcome = await propose(lessor, command)
  if (outcome.kind === 'refused') throw refusedError(outcome)
  return outcome.revision
}
