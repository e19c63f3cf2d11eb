/** Lessors whose `submit` a test decides. */
import { type MockInstance, vi } from 'vitest'
import type { Command } from '../../src/kernel/command.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { complete } from '../../src/lessor/complete.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { Lessor, ProposeOptions } from '../../src/lessor.ts'

type Answer = (command: Command, options: ProposeOptions) => Promise<Outcome>

/** A `submit` whose answers are promises. */
export function submitting(answer: Answer): Lessor['submit'] {
  return (command, options, completion) => complete(completion, answer(command, options))
}

/** A `submit` that fails. */
export function failingWith(error: unknown): Lessor['submit'] {
  return (_command, _options, completion) => completion.fail(error)
}

/** Answers in place of the lessor, until the spy is restored. `ask` proposes to the lessor as it was before. */
export function intercept(
  lessor: Pick<Lessor, 'submit'>,
  answer: (ask: Answer, command: Command, options: ProposeOptions) => Promise<Outcome>,
): MockInstance<Lessor['submit']> {
  const submit = lessor.submit.bind(lessor)
  const ask: Answer = (command, options) => propose({ submit }, command, options)
  return vi.spyOn(lessor, 'submit').mockImplementation(submitting((command, options) => answer(ask, command, options)))
}
