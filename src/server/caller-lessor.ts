/** The guarded lessor of a server as one caller sees it: agents and faces act with the key of their request. */
import type { Command } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import type { Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import type { Caller } from './access-control.ts'
import { type GuardedLessor, NO_REQUEST_OPTIONS } from './guarded-lessor.ts'

export function callerLessor(guarded: GuardedLessor, caller: Caller): Lessor {
  return new CallerLessor(guarded, caller)
}

/** A class and not an object of functions: one is made for every request of a face. */
class CallerLessor implements Lessor {
  readonly #guarded: GuardedLessor
  readonly #caller: Caller

  constructor(guarded: GuardedLessor, caller: Caller) {
    this.#guarded = guarded
    this.#caller = caller
  }

  get profile(): Lessor['profile'] {
    return this.#guarded.lessor.profile
  }

  get signal(): AbortSignal {
    return this.#guarded.lessor.signal
  }

  submit(command: Command, { op, signal }: ProposeOptions, completion: Completion): void {
    // Without the key of the options: the caller's own is used.
    const asked = op === undefined && signal === undefined ? NO_REQUEST_OPTIONS : { ...(op && { op }), ...(signal && { signal }) }
    this.#guarded.submit(this.#caller, command, asked, completion)
  }

  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.#guarded.read<K>(this.#caller, query, options)
  }

  watch(prefix: string, options: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    return this.#guarded.watch(this.#caller, prefix, options)
  }

  async [Symbol.asyncDispose]() {} // it belongs to the server
}
