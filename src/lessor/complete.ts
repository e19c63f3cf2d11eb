/** Connects a promise with a `Completion`, for lessors that offer both `propose` and `submit`. */
import type { Outcome } from '../kernel/outcome.ts'
import type { Completion } from '../lessor.ts'

export function complete(completion: Completion, answer: Promise<Outcome>): void {
  answer.then(
    outcome => completion.settle(outcome),
    error => completion.fail(error),
  )
}
