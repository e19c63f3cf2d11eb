/** The lessor as one caller of a server sees it: with the rights and limits of the caller's key. For code that needs a whole Lessor, such as agents. */
import type { Command } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import type { Profile } from '../store.ts'
import type { Caller } from './access-control.ts'
import type { GuardedLessor } from './guarded-lessor.ts'

export class CallerLessor implements Lessor {
  readonly #guarded: GuardedLessor
  readonly #caller: Caller

  constructor(guarded: GuardedLessor, caller: Caller) {
    this.#guarded = guarded
    this.#caller = caller
  }

  get profile(): Profile {
    return this.#guarded.lessor.profile
  }

  get signal(): AbortSignal {
    return this.#guarded.lessor.signal
  }

  propose(command: Command, { op, signal }: ProposeOptions = {}): Promise<Outcome> {
    return this.#guarded.propose(this.#caller, command, { ...(op !== undefined && { op }), ...(signal !== undefined && { signal }) })
  }

  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.#guarded.read<K>(this.#caller, query, options)
  }

  watch(prefix: string, options: WatchOptions): AsyncIterable<readonly Event[]> {
    return this.#guarded.watch(this.#caller, prefix, options)
  }

  /** The server's lessor stays open. */
  async [Symbol.asyncDispose](): Promise<void> {}
}
