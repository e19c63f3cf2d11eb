/** In-memory leases for tests: the clock is manual, nothing sleeps, and the lessor can stop answering. */

import { LeaseError } from '../errors.ts'
import type { Command } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { Leases, type LeasesOptions } from '../leases.ts'
import { complete } from '../lessor/complete.ts'
import { propose } from '../lessor/propose.ts'
import type { Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import { Replica } from '../replica/replica.ts'
import { MemoryLog, MemoryStore } from '../store/memory.ts'
import type { Profile } from '../store.ts'
import { ManualClock } from './manual-clock.ts'

/**
 * A lessor in memory that fails as a network does. Silent, it executes nothing; losing answers, it executes commands and the caller does not
 * learn of it. Its own time passes meanwhile: leases that cannot be renewed lapse.
 */
export class SilentLessor implements Lessor {
  readonly profile: Profile
  readonly #replica: Promise<Replica>
  readonly #closing = new AbortController()
  #silent = false
  #losing = false
  #resumed: (() => void)[] = []
  /** The proposed commands, in order, answered or not. */
  readonly proposals: Command[] = []

  constructor(clock: ManualClock, log: MemoryLog = new MemoryLog({ clock })) {
    const store = new MemoryStore({ log, clock })
    this.profile = store.profile
    this.#replica = Replica.open(store, { clock })
  }

  get signal(): AbortSignal {
    return this.#closing.signal
  }

  /** Later requests are executed only after `answer`. */
  stopAnswering(): void {
    this.#silent = true
  }

  /** Later requests are executed, and their answers come after `answer`. */
  loseAnswers(): void {
    this.#losing = true
  }

  answer(): void {
    this.#silent = false
    this.#losing = false
    for (const resume of this.#resumed.splice(0)) resume()
  }

  /** Ends the lessor: it never answers again, for this reason. */
  end(reason: unknown): void {
    this.#closing.abort(reason)
  }

  submit(command: Command, options: ProposeOptions, completion: Completion): void {
    complete(completion, this.#answer(command, options))
  }

  async #answer(command: Command, options: ProposeOptions): Promise<Outcome> {
    this.#closing.signal.throwIfAborted()
    this.proposals.push(command)
    while (this.#silent) await this.#resume(options.signal)
    const outcome = await propose(await this.#replica, command, options)
    while (this.#losing) await this.#resume(options.signal)
    return outcome
  }

  async read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    this.#closing.signal.throwIfAborted()
    while (this.#silent || this.#losing) await this.#resume(options?.signal)
    return (await this.#replica).read(query, options)
  }

  async *watch(prefix: string, options: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    for await (const events of (await this.#replica).watch(prefix, options)) {
      while ((this.#silent || this.#losing) && !options.signal.aborted) await this.#resume()
      yield events
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.answer()
    await (await this.#replica)[Symbol.asyncDispose]()
    if (!this.#closing.signal.aborted) this.#closing.abort(new LeaseError('UNAVAILABLE', 'this lessor was closed'))
  }

  #resume(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = () => reject(signal!.reason)
      signal?.addEventListener('abort', abort)
      if (signal?.aborted) abort()
      this.#resumed.push(() => {
        signal?.removeEventListener('abort', abort)
        resolve()
      })
    })
  }
}

export interface SilentLessorOptions extends Omit<LeasesOptions, 'clock'> {
  readonly clock?: ManualClock
  /** A log to share with another lessor. */
  readonly log?: MemoryLog
}

/** Everything that a test of code with leases needs. */
export function silentLessor({ clock = new ManualClock(), log = new MemoryLog({ clock }), ...options }: SilentLessorOptions = {}): {
  readonly clock: ManualClock
  readonly log: MemoryLog
  readonly lessor: SilentLessor
  readonly leases: Leases
} {
  const lessor = new SilentLessor(clock, log)
  return { clock, log, lessor, leases: new Leases(lessor, { ...options, clock }) }
}
