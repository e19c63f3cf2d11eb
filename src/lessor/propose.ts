/** Proposes a command and resolves with what was decided: the `submit` of a lessor as a promise. */
import { unlessAborted } from '../abort.ts'
import type { Command } from '../kernel/command.ts'
import { copyOf } from '../kernel/copy.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { Lessor, ProposeOptions } from '../lessor.ts'

/**
 * A refusal is an outcome of kind `refused`; it changed nothing. Safe to repeat with the same `op`. The command is copied: it is decided as it is now, even
 * if the caller changes the object afterwards.
 */
export function propose(lessor: Pick<Lessor, 'submit'>, command: Command, options: ProposeOptions = {}): Promise<Outcome> {
  const { op, signal } = options
  if (signal?.aborted) return Promise.reject(signal.reason)
  const own = op === undefined ? options : { ...options, op: { ...op } }
  return unlessAborted(new Promise((settle, fail) => lessor.submit(copyOf(command), own, { settle, fail })), signal)
}
