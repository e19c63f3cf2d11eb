/** Changes proposed under operation ids, so that asking again is safe when nobody knows what became of the first time. */
import { type Clock, pause } from '../clock.ts'
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Command } from '../kernel/command.ts'
import { copyOf } from '../kernel/copy.ts'
import type { Outcome, Refused } from '../kernel/outcome.ts'
import type { Lessor } from '../lessor.ts'
import { DeadlineTimer } from './deadline-timer.ts'

export const SHORTEST_RETRY = 20
export const LONGEST_RETRY = 1_000
/** No answer for so long, or for a ttl if that is longer: the truth is then that nobody knows. */
export const TIMEOUT = 10_000

export interface DecideOptions {
  readonly ttl?: number
  readonly timeout?: number
  /** Gets an answer that comes after timeout was over. */
  readonly late?: (outcome: Outcome) => void
  /** Asked at each outage whether it is to be asked on: then timeout is never over. */
  readonly waits?: (error: LeaseError) => boolean
}

/** An answer that is waited for. */
interface Waiting {
  readonly end: number
  readonly timeout: number
  readonly reject: (error: LeaseError) => void
}

export class Operations {
  readonly lessor: Lessor
  readonly clock: Clock
  readonly #session: string
  #last = 0
  /** The numbers of operations without an answer. */
  readonly #unanswered = new Set<number>()
  readonly #waiting = new Set<Waiting>()
  readonly #alarm: DeadlineTimer

  constructor(lessor: Lessor, clock: Clock) {
    this.lessor = lessor
    this.clock = clock
    this.#session = clock.bits().toString(36)
    this.#alarm = new DeadlineTimer(clock, () => this.#sweep())
  }

  /**
   * Proposes a change under an operation id. An outcome that nobody knows is asked for again under the same id, until `timeout` is over; then
   * `late` gets the answer, should it come after all.
   */
  async decide(asked: Command, { ttl = 0, timeout = Math.max(TIMEOUT, ttl), late, waits = never }: DecideOptions = {}): Promise<Outcome> {
    // It may be asked again under the same id, and the caller may have changed its own by then.
    const command = copyOf(asked)
    const seq = ++this.#last
    this.#unanswered.add(seq)
    let end = this.clock.now() + timeout
    let failed = false
    /** A copy may have been done. From here on no failure of another copy can say that it was not. */
    let uncertain = false
    let earlier: Outcome | undefined
    // Asked on, the answer to an earlier try is as good as that to the last: it is the same operation.
    const heardLate = (outcome: Outcome) => {
      if (failed) late?.(outcome)
      else if (outcome.kind !== 'void') earlier = outcome
    }
    try {
      for (let tries = 0; earlier === undefined; tries++) {
        const oldest = this.#unanswered.values().next().value!
        const op = { session: this.#session, seq, acked: oldest - 1 }
        try {
          const answer = this.lessor.propose(command, { op: tries === 0 ? op : { ...op, again: true } })
          const outcome = await this.until(end, timeout, answer, heardLate)
          if (outcome.kind !== 'void') return outcome
        } catch (error) {
          const dead = this.lessor.signal.aborted
          const passing = isUnavailable(error) || (uncertain && isLimit(error))
          uncertain ||= isUnknown(error)
          if (!dead && (isUnknown(error) || isUnavailable(error)) && waits(error as LeaseError)) end = this.clock.now() + timeout
          // Certainly not done, and never was: `again` would be another matter, since the first may have been.
          else if (!isUnknown(error) && (tries === 0 || !passing)) throw uncertain && isRefusal(error) ? asUnknown(error) : error
          else if (this.clock.now() >= end || dead) throw isUnknown(error) ? error : asUnknown(error as LeaseError)
        }
        await pause(this.clock, Math.min(LONGEST_RETRY, SHORTEST_RETRY * 2 ** tries), undefined, { ref: true })
      }
      return earlier
    } catch (error) {
      failed = true
      throw error
    } finally {
      this.#unanswered.delete(seq)
    }
  }

  /** As `decide`; a refusal is thrown. */
  async change(command: Command): Promise<Outcome> {
    this.lessor.signal.throwIfAborted()
    const outcome = await this.decide(command)
    if (outcome.kind === 'refused') throw refused(outcome)
    return outcome
  }

  /** Waits so long for an answer. */
  within<T>(ms: number, answer: Promise<T>): Promise<T> {
    return this.until(this.clock.now() + Math.max(0, ms), ms, answer)
  }

  /** Waits for an answer until `end`, which is when `timeout` is over. `late` gets one that comes afterwards. */
  until<T>(end: number, timeout: number, answer: Promise<T>, late?: (answer: T) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      const waiting: Waiting = { end, timeout, reject }
      this.#waiting.add(waiting)
      this.#alarm.set(end)
      answer.then(
        value => {
          if (this.#answered(waiting)) resolve(value)
          else late?.(value)
        },
        error => {
          this.#answered(waiting)
          reject(error)
        },
      )
    })
  }

  /** False: it was too late. */
  #answered(waiting: Waiting): boolean {
    const inTime = this.#waiting.delete(waiting)
    if (this.#waiting.size === 0) this.#alarm.rest()
    return inTime
  }

  #sweep(): void {
    const now = this.clock.now()
    let next = Number.POSITIVE_INFINITY
    for (const waiting of this.#waiting) {
      const { end, timeout, reject } = waiting
      if (end > now) {
        next = Math.min(next, end)
        continue
      }
      this.#waiting.delete(waiting)
      reject(new LeaseError('UNKNOWN', `no answer for ${inWords(timeout)}: what was asked may or may not have been done`))
    }
    if (next < Number.POSITIVE_INFINITY) this.#alarm.set(next)
  }
}

function never(): boolean {
  return false
}

export function refused(outcome: Outcome): LeaseError {
  if (outcome.kind !== 'refused') return new LeaseError('UNAVAILABLE', `the lessor answered ${outcome.kind}: nothing was done`)
  const { code, message, facts } = outcome satisfies Refused
  return new LeaseError(code, message, { facts })
}

function isUnknown(error: unknown): boolean {
  return error instanceof LeaseError && error.code === 'UNKNOWN'
}

function isUnavailable(error: unknown): boolean {
  return error instanceof LeaseError && error.code === 'UNAVAILABLE'
}

function isLimit(error: unknown): boolean {
  return error instanceof LeaseError && error.code === 'LIMIT'
}

/** Of the copy that was refused it is certain that it was not done. */
function isRefusal(error: unknown): error is LeaseError {
  return error instanceof LeaseError && (error.code === 'FORBIDDEN' || error.code === 'UNAUTHENTICATED' || error.code === 'LIMIT')
}

function asUnknown(cause: LeaseError): LeaseError {
  return new LeaseError('UNKNOWN', `${cause.message}: an earlier copy of what was asked may or may not have been done`, { cause })
}
