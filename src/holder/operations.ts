/**
 * Proposes changes under operation ids: the only place where a change is sent again whose outcome is unknown.
 *
 * Why no change is made twice. A wire, and a lessor that follows moved leases, send a change once. They report `UNAVAILABLE` if it was certainly not made, and
 * `UNKNOWN` if it may have been. Here a change with an unknown outcome is sent again under the same id, and the kernel answers an id that it has seen with
 * its first outcome. An id is forgotten only after this client has said that it needs no answer to it (`acked`), and a copy that comes later than that is
 * refused (`STALE`). Renewals and releases carry no id: they name a lease, and a second one changes nothing. Below, a replica appends the same bytes at the
 * same position until it knows their fate, so that a record is in the log once (replica/outbox.ts).
 *
 * Why no acquire leaves a lease behind. The caller of an acquire is told `UNKNOWN` when its time is over. The acquire is sent again all the same until the lessor
 * answers, and what it was granted goes to `late`, which releases it: otherwise the next request of this client for the same names would wait for its own
 * lease. The answer is final even if an earlier copy arrives later, because that copy has the same id, which stays unacknowledged until then.
 */
import { BACKOFF, pauseAfter } from '../backoff.ts'
import { type Clock, pause } from '../clock.ts'
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Command } from '../kernel/command.ts'
import { copyOf } from '../kernel/copy.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { Completion, Lessor } from '../lessor.ts'
import { refusedError } from '../refused-error.ts'
import { DeadlineTimer } from './deadline-timer.ts'

/** Without an answer for this long, or for a ttl if that is longer, the outcome is `UNKNOWN`. */
export const TIMEOUT = 10_000
/** Acquires that are sent again without a caller. With more, the oldest is given up: a lease of it lapses by itself. */
const MAX_UNRESOLVED = 1_000

export interface DecideOptions {
  readonly ttl?: number | undefined
  readonly timeout?: number | undefined
  /** Gets the answer after the caller was told `UNKNOWN`. The change is sent again until there is one. */
  readonly late?: ((outcome: Outcome) => void) | undefined
  /** Called after `late`, or instead if there is no answer to pass on: this change cannot be carried out any more. Needs `late`. */
  readonly settled?: (() => void) | undefined
  /** Called at each outage. If it returns true, the timeout starts anew and the change is retried. */
  readonly retryOutage?: ((error: LeaseError) => boolean) | undefined
}

/** A change whose caller was told that its outcome is unknown. */
interface Unresolved {
  readonly command: Command
  readonly late: (outcome: Outcome) => void
  readonly settled: (() => void) | undefined
}

/** An answer that has not come yet. */
interface PendingAnswer<T> {
  readonly end: number
  readonly timeout: number
  readonly settle: (answer: T) => void
  readonly fail: (error: unknown) => void
  /** Gets an answer that comes after `end`. */
  readonly late?: (answer: T) => void
}

export class Operations {
  readonly lessor: Lessor
  readonly clock: Clock
  readonly #session: string
  #last = 0
  /** The numbers of operations without an answer. */
  readonly #unanswered = new Set<number>()
  /** All operations before this one are answered. */
  #oldest = 1
  readonly #unresolved = new Map<number, Unresolved>()
  #resolving = false
  readonly #pending = new Set<PendingAnswer<never>>()
  readonly #timer: DeadlineTimer

  constructor(lessor: Lessor, clock: Clock) {
    this.lessor = lessor
    this.clock = clock
    this.#session = clock.bits().toString(36)
    this.#timer = new DeadlineTimer(clock, () => this.#sweep())
  }

  /**
   * Proposes a change under an operation id. While the outcome is unknown, it is proposed again under the same id, until `timeout` is over. If an
   * answer comes after that, `late` gets it.
   */
  async decide(
    request: Command,
    { ttl = 0, timeout = Math.max(TIMEOUT, ttl), late, settled, retryOutage = never }: DecideOptions = {},
  ): Promise<Outcome> {
    // It may be proposed again under the same id, and the caller may have changed its object by then.
    const command = copyOf(request)
    const seq = ++this.#last
    this.#unanswered.add(seq)
    let end = this.clock.now() + timeout
    let failed = false
    /** One copy may have been carried out. From here on, the failure of another copy does not prove that the change was not made. */
    let uncertain = false
    let earlier: Outcome | undefined
    // The answer to an earlier try is as good as the answer to the last: it is the same operation.
    const answeredLate = (outcome: Outcome) => {
      if (outcome.kind === 'void') return
      if (failed) this.#resolved(seq, outcome)
      else earlier = outcome
    }
    try {
      for (let tries = 0; earlier === undefined; tries++) {
        try {
          const outcome = await new Promise<Outcome>((settle, fail) =>
            this.#send(command, seq, tries > 0, this.#expect({ end, timeout, settle, fail, late: answeredLate })),
          )
          if (outcome.kind !== 'void') return outcome
        } catch (error) {
          const dead = this.lessor.signal.aborted
          const passing = isUnavailable(error) || (uncertain && isLimit(error))
          uncertain ||= isUnknown(error)
          if (!dead && (isUnknown(error) || isUnavailable(error)) && retryOutage(error as LeaseError)) end = this.clock.now() + timeout
          // Certainly not done, as this was the first copy. A later copy proves nothing about the first.
          else if (!isUnknown(error) && (tries === 0 || !passing)) throw uncertain && isCertainlyNotDone(error) ? asUnknown(error) : error
          else if (this.clock.now() >= end || dead) throw isUnknown(error) ? error : asUnknown(error as LeaseError)
        }
        await pause(this.clock, pauseAfter(BACKOFF.request, tries), undefined, { ref: true })
      }
      return earlier
    } catch (error) {
      failed = true
      if (late !== undefined && (uncertain || isUnknown(error))) this.#unresolved.set(seq, { command, late, settled })
      throw error
    } finally {
      if (this.#unresolved.has(seq)) this.#resolveAll()
      else this.#unanswered.delete(seq)
    }
  }

  #send(command: Command, seq: number, again: boolean, completion: Completion): void {
    while (this.#oldest < seq && !this.#unanswered.has(this.#oldest)) this.#oldest++
    const op = { session: this.#session, seq, acked: this.#oldest - 1 }
    // Not `propose`, which would copy the command once more.
    this.lessor.submit(command, { op: again ? { ...op, again } : op }, completion)
  }

  /** Sends what is unresolved again, one after another, until each is answered. It keeps no process alive. */
  async #resolveAll(): Promise<void> {
    const [oldest] = this.#unresolved.keys()
    if (this.#unresolved.size > MAX_UNRESOLVED) this.#resolved(oldest!)
    if (this.#resolving) return
    this.#resolving = true
    for (let failures = 0; this.#unresolved.size > 0 && !this.lessor.signal.aborted; ) {
      await pause(this.clock, pauseAfter(BACKOFF.request, failures))
      const [next] = this.#unresolved
      if (next !== undefined) failures = (await this.#resolve(...next)) ? 0 : failures + 1
    }
    this.#resolving = false
  }

  /** Returns whether it is resolved now. */
  #resolve(seq: number, { command }: Unresolved): Promise<boolean> {
    return new Promise(resolve => {
      const cancel = this.clock.after(TIMEOUT, () => resolve(false))
      const settle = (answered: boolean, outcome?: Outcome) => {
        cancel()
        if (answered) this.#resolved(seq, outcome)
        resolve(answered)
      }
      this.#send(command, seq, true, {
        settle: outcome => settle(outcome.kind !== 'void', outcome),
        fail: error => settle(!isUnknown(error) && !isUnavailable(error) && !isLimit(error)),
      })
    })
  }

  #resolved(seq: number, outcome?: Outcome): void {
    const { late, settled } = this.#unresolved.get(seq) ?? {}
    this.#unresolved.delete(seq)
    this.#unanswered.delete(seq)
    if (outcome !== undefined) late?.(outcome)
    settled?.()
  }

  /** As `decide`, but throws a refusal. */
  async change(command: Command): Promise<Outcome> {
    this.lessor.signal.throwIfAborted()
    const outcome = await this.decide(command)
    if (outcome.kind === 'refused') throw refused(outcome)
    return outcome
  }

  /** The answer, or `UNKNOWN` after `ms`. */
  within<T>(ms: number, answer: Promise<T>): Promise<T> {
    return this.until(this.clock.now() + Math.max(0, ms), ms, answer)
  }

  /** The answer, or `UNKNOWN` at `end`, when `timeout` is over. */
  until<T>(end: number, timeout: number, answer: Promise<T>): Promise<T> {
    return new Promise<T>((settle, fail) => {
      const expected = this.#expect<T>({ end, timeout, settle, fail })
      answer.then(expected.settle, expected.fail)
    })
  }

  /** Where to report an answer that is expected: it is passed on to `pending` before its end, and to `late` afterwards. */
  #expect<T>(pending: PendingAnswer<T>): { readonly settle: (answer: T) => void; readonly fail: (error: unknown) => void } {
    this.#pending.add(pending)
    this.#timer.set(pending.end)
    return {
      settle: answer => {
        const inTime = this.#pending.delete(pending)
        if (this.#pending.size === 0) this.#timer.rest()
        if (inTime) pending.settle(answer)
        else pending.late?.(answer)
      },
      fail: error => {
        this.#pending.delete(pending)
        if (this.#pending.size === 0) this.#timer.rest()
        pending.fail(error)
      },
    }
  }

  #sweep(): void {
    const now = this.clock.now()
    let next = Number.POSITIVE_INFINITY
    for (const pending of this.#pending) {
      const { end, timeout, fail } = pending
      if (end > now) {
        next = Math.min(next, end)
        continue
      }
      this.#pending.delete(pending)
      fail(new LeaseError('UNKNOWN', `no answer for ${inWords(timeout)}: the change may or may not have been made`))
    }
    if (next < Number.POSITIVE_INFINITY) this.#timer.set(next)
  }
}

function never(): boolean {
  return false
}

/** A refusal as an error. */
export function refused(outcome: Outcome): LeaseError {
  if (outcome.kind !== 'refused') return new LeaseError('UNAVAILABLE', `the lessor answered ${outcome.kind}: nothing was done`)
  return refusedError(outcome)
}

function isUnknown(error: unknown): boolean {
  return LeaseError.is(error, 'UNKNOWN')
}

function isUnavailable(error: unknown): boolean {
  return LeaseError.is(error, 'UNAVAILABLE')
}

function isLimit(error: unknown): boolean {
  return LeaseError.is(error, 'LIMIT')
}

/** The copy that was refused was certainly not carried out. */
function isCertainlyNotDone(error: unknown): error is LeaseError {
  return LeaseError.is(error, 'FORBIDDEN', 'UNAUTHENTICATED', 'LIMIT')
}

function asUnknown(cause: LeaseError): LeaseError {
  return new LeaseError('UNKNOWN', `${cause.message}: an earlier copy of this request may or may not have been carried out`, {
    cause,
    reason: cause.reason,
    facts: cause.facts,
  })
}
