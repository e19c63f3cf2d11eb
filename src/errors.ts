import type { RefusalCode } from './kernel/outcome.ts'

/**
 * `UNAVAILABLE` promises that nothing was done; `UNKNOWN` promises nothing at all: it may or may not have been done, and only the same
 * operation id makes it safe to ask again. `LOST` is the reason of a lease's signal, never of a call.
 */
export type ErrorCode = RefusalCode | 'WAITED' | 'LOST' | 'UNKNOWN' | 'UNAUTHENTICATED' | 'UNSUPPORTED' | 'DIVERGED'

export type Facts = Readonly<Record<string, string | number | boolean | readonly string[] | readonly number[]>>

/** Code reads `code` and `facts`; people read the message, so it names the resource, what was expected, what was found and what to do next. */
export class LeaseError extends Error {
  override readonly name = 'LeaseError'
  readonly code: ErrorCode
  readonly facts: Facts

  constructor(code: ErrorCode, message: string, { cause, facts = {} }: { readonly cause?: unknown; readonly facts?: Facts } = {}) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
    this.facts = facts
  }
}
