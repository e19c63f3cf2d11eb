/** A lessor that can be made to fail for good. Its client then behaves like a program whose machine has crashed. */
import { LeaseError } from '../errors.ts'
import type { Lessor } from '../lessor.ts'

const CRASHED = 'this part of the demonstration has crashed'

export interface MortalLessor {
  readonly lessor: Lessor
  /** No call gets through any more. */
  kill(): void
}

export function mortalLessor(lessor: Lessor): MortalLessor {
  const gone = new AbortController()
  const reach = () => {
    if (gone.signal.aborted) throw new LeaseError('UNAVAILABLE', CRASHED)
  }
  return {
    lessor: {
      profile: lessor.profile,
      signal: lessor.signal,
      submit(command, options, completion) {
        if (gone.signal.aborted) completion.fail(gone.signal.reason)
        else lessor.submit(command, options, completion)
      },
      async read(query, options) {
        reach()
        return lessor.read(query, options)
      },
      async *watch(prefix, options) {
        reach()
        const signal = AbortSignal.any([options.signal, gone.signal])
        yield* lessor.watch(prefix, { ...options, signal })
        if (!options.signal.aborted) reach()
      },
      async [Symbol.asyncDispose]() {}, // it belongs to the server
    },
    kill: () => gone.abort(new LeaseError('UNAVAILABLE', CRASHED)),
  }
}
