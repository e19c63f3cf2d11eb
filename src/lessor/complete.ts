/** Reports the outcome of a promise to a `Completion`, for lessors whose answers are promises. */
import type { Outcome } from '../kernel/outcome.ts'
import type { Completion } from '../lessor.ts'

export function complete(completion: Completion, answer: Promise<Outcome>): void {
  answer.then(
    outcome => completion.settle(outcome),
    error => completion.fail(error),
  )
}
