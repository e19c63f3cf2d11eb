/**
 * The time of requests by operation and outcome, for metrics: from the turn of the caller to the outcome. What a client waits in a queue is no part of it: the
 * outcome of such a request is `queued`. It runs for every request, so one costs a small object and two looks at the clock.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { COMMAND_TABLE } from '../kernel/command-table.ts'
import type { Outcome, Queued } from '../kernel/outcome.ts'
import { DurationHistogram } from '../lessor/duration-histogram.ts'
import type { Completion } from '../lessor.ts'

/**
 * `ok`: it was done. `queued`: the caller waits. `refused`: by the rules of leasing, a limit or a missing right, as it should be. `failed`: by the service, which could
 * not decide or does not know.
 */
const OUTCOMES = ['ok', 'queued', 'refused', 'failed'] as const
type TimedOutcome = (typeof OUTCOMES)[number]

/** Upper bounds of the buckets, in ms. */
export const REQUEST_BOUNDS = [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, Number.POSITIVE_INFINITY] as const

/** Codes of a service that could not do its work. */
const FAILURES: ReadonlySet<string> = new Set(['UNAVAILABLE', 'UNKNOWN', 'DIVERGED'])

/** The times of one operation, by outcome. */
class OperationTimes implements Readonly<Record<TimedOutcome, DurationHistogram>> {
  readonly ok = new DurationHistogram(REQUEST_BOUNDS)
  readonly queued = new DurationHistogram(REQUEST_BOUNDS)
  readonly refused = new DurationHistogram(REQUEST_BOUNDS)
  readonly failed = new DurationHistogram(REQUEST_BOUNDS)
}

export class RequestTimes {
  readonly clock: Pick<Clock, 'now'>
  /** By command. */
  readonly commands: ReadonlyMap<string, OperationTimes>
  readonly #reads = new OperationTimes()
  /** Of commands that do not exist. */
  readonly unknown = new OperationTimes()
  /** Of renewals that were done. */
  readonly renewals: DurationHistogram

  constructor(clock: Pick<Clock, 'now'>) {
    this.clock = clock
    this.commands = new Map(Object.keys(COMMAND_TABLE).map(command => [command, new OperationTimes()]))
    this.renewals = this.commands.get('renew')!.ok
  }

  async read<T>(work: () => Promise<T>): Promise<T> {
    const began = this.clock.now()
    try {
      const answer = await work()
      this.#reads.ok.add(this.clock.now() - began)
      return answer
    } catch (error) {
      this.#reads[outcomeOf(error)].add(this.clock.now() - began)
      throw error
    }
  }

  /** The operations that have happened. */
  *all(): Iterable<{ readonly operation: string; readonly outcome: string; readonly counts: readonly number[]; readonly ms: number }> {
    for (const [operation, times] of [...this.commands, ['read', this.#reads], ['unknown', this.unknown]] as const)
      for (const outcome of OUTCOMES) {
        const { counts, ms } = times[outcome]
        if (counts.some(count => count > 0)) yield { operation, outcome, counts, ms }
      }
  }
}

/** Passes the outcome on to a caller, and counts how long it took from now on. */
export class TimedCompletion implements Completion {
  readonly #times: OperationTimes
  readonly #clock: Pick<Clock, 'now'>
  readonly #began: number
  readonly #completion: Completion
  /** Called before the caller learns that it waits. */
  onQueued: ((outcome: Queued) => void) | undefined = undefined
  /** Hides what the caller may not read. */
  redact: ((outcome: Outcome) => Outcome) | undefined = undefined

  /** `kind` may be any text: it comes from a client. */
  constructor({ commands, unknown, clock }: RequestTimes, kind: string | undefined, completion: Completion) {
    this.#times = commands.get(kind ?? '') ?? unknown
    this.#clock = clock
    this.#began = clock.now()
    this.#completion = completion
  }

  settle(outcome: Outcome): void {
    const refused = outcome.kind === 'refused' ? (FAILURES.has(outcome.code) ? 'failed' : 'refused') : undefined
    this.#times[refused ?? (outcome.kind === 'queued' ? 'queued' : 'ok')].add(this.#clock.now() - this.#began)
    if (outcome.kind === 'queued') this.onQueued?.(outcome)
    this.#completion.settle(this.redact === undefined ? outcome : this.redact(outcome))
  }

  fail(error: unknown): void {
    this.#times[outcomeOf(error)].add(this.#clock.now() - this.#began)
    this.#completion.fail(error)
  }
}

/** A failure that has no code is our own. A caller that has disconnected made its own end. */
function outcomeOf(error: unknown): TimedOutcome {
  if (error instanceof LeaseError) return FAILURES.has(error.code) ? 'failed' : 'refused'
  return error instanceof Error && error.name === 'AbortError' ? 'refused' : 'failed'
}
