/**
 * The time of requests by operation and outcome, for metrics: from the turn of the caller to the outcome. What a client waits in a queue is no part of it: the
 * outcome of such a request is `queued`. It runs for every request, so one costs a small object and two looks at the clock.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Command } from '../kernel/command.ts'
import { COMMAND_TABLE } from '../kernel/command-table.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { Completion } from '../lessor.ts'

/**
 * `ok`: it was done. `queued`: the caller waits. `refused`: by the rules of leasing, a limit or a missing right, as it should be. `failed`: by the service, which could
 * not decide or does not know.
 */
const OUTCOMES = ['ok', 'queued', 'refused', 'failed'] as const
type TimedOutcome = (typeof OUTCOMES)[number]
type TimedOperation = Command['kind'] | 'read' | 'unknown'

/** Upper bounds of the buckets, in ms. */
export const REQUEST_BOUNDS = [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, Number.POSITIVE_INFINITY] as const

/** Codes of a service that could not do its work. */
const FAILURES: ReadonlySet<string> = new Set(['UNAVAILABLE', 'UNKNOWN', 'DIVERGED'])

class TimeHistogram {
  readonly counts: number[] = REQUEST_BOUNDS.map(() => 0)
  ms = 0
  isNew = true

  add(ms: number): void {
    this.isNew = false
    this.ms += ms
    let i = 0
    while (ms > REQUEST_BOUNDS[i]!) i++
    this.counts[i]!++
  }
}

export class RequestTimes {
  readonly #clock: Pick<Clock, 'now'>
  /** Created with the first request of their operation and outcome. Operations are ours, so their number is bounded. */
  readonly #histograms = new Map<TimedOperation, Map<TimedOutcome, TimeHistogram>>()

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock
  }

  /** Measures from now until the completion is called, which it passes on. `kind` may be any text: it comes from a client. */
  untilCompleted(kind: string | undefined, completion: Completion): Completion {
    const operation = kind !== undefined && Object.hasOwn(COMMAND_TABLE, kind) ? (kind as Command['kind']) : 'unknown'
    return new TimedCompletion(this, operation, this.#clock.now(), completion)
  }

  async read<T>(work: () => Promise<T>): Promise<T> {
    const began = this.#clock.now()
    try {
      const answer = await work()
      this.add('read', 'ok', this.#clock.now() - began)
      return answer
    } catch (error) {
      this.ended('read', began, outcomeOf(error))
      throw error
    }
  }

  ended(operation: TimedOperation, began: number, outcome: TimedOutcome): void {
    this.add(operation, outcome, this.#clock.now() - began)
  }

  add(operation: TimedOperation, outcome: TimedOutcome, ms: number): void {
    const outcomes = this.#histograms.get(operation) ?? new Map<TimedOutcome, TimeHistogram>()
    const histogram = outcomes.get(outcome) ?? new TimeHistogram()
    if (histogram.isNew) this.#histograms.set(operation, outcomes.set(outcome, histogram))
    histogram.add(ms)
  }

  *all(): Iterable<{ readonly operation: string; readonly outcome: string; readonly counts: readonly number[]; readonly ms: number }> {
    for (const [operation, outcomes] of this.#histograms)
      for (const [outcome, { counts, ms }] of outcomes) yield { operation, outcome, counts, ms }
  }
}

class TimedCompletion implements Completion {
  readonly #times: RequestTimes
  readonly #operation: TimedOperation
  readonly #began: number
  readonly #completion: Completion

  constructor(times: RequestTimes, operation: TimedOperation, began: number, completion: Completion) {
    this.#times = times
    this.#operation = operation
    this.#began = began
    this.#completion = completion
  }

  settle(outcome: Outcome): void {
    const refused = outcome.kind === 'refused' ? (FAILURES.has(outcome.code) ? 'failed' : 'refused') : undefined
    this.#times.ended(this.#operation, this.#began, refused ?? (outcome.kind === 'queued' ? 'queued' : 'ok'))
    this.#completion.settle(outcome)
  }

  fail(error: unknown): void {
    this.#times.ended(this.#operation, this.#began, outcomeOf(error))
    this.#completion.fail(error)
  }
}

/** A failure that has no code is our own. A caller that has disconnected made its own end. */
function outcomeOf(error: unknown): TimedOutcome {
  if (error instanceof LeaseError) return FAILURES.has(error.code) ? 'failed' : 'refused'
  return error instanceof Error && error.name === 'AbortError' ? 'refused' : 'failed'
}
