/** The `submit` of a lessor whose answers are promises. */
import type { Command } from '../../src/kernel/command.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { complete } from '../../src/lessor/complete.ts'
import type { Lessor, ProposeOptions } from '../../src/lessor.ts'

export function submitting(answer: (command: Command, options: ProposeOptions) => Promise<Outcome>): Lessor['submit'] {
  return (command, options, completion) => complete(completion, answer(command, options))
}
