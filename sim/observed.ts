/** A lessor that reports the requests of a program and their answers to the referee. */

import { LeaseError } from '../src/errors.ts'
import type { Command } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { complete } from '../src/lessor/complete.ts'
import { propose } from '../src/lessor/propose.ts'
import type { Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../src/lessor.ts'
import { operationName } from './answers.ts'
import { pauseOn, type Site } from './participants.ts'
import type { Machine } from './world.ts'

/** A renewal that confirms a grant is not repeated for longer. */
const CONFIRMED = 1_000

export class ObservedLessor implements Lessor {
  readonly #site: Site
  readonly #machine: Machine
  readonly #inner: Lessor
  readonly #life: number
  readonly #firstSent = new Map<string, number>()

  constructor(site: Site, machine: Machine, inner: Lessor) {
    this.#site = site
    this.#machine = machine
    this.#inner = inner
    this.#life = machine.life
  }

  get profile() {
    return this.#inner.profile
  }

  get signal() {
    return this.#inner.signal
  }

  /** A process that was killed may still have calls under way. */
  get #dead(): boolean {
    return this.#machine.life !== this.#life
  }

  submit(command: Command, options: ProposeOptions, completion: Completion): void {
    complete(completion, this.#answer(command, options))
  }

  async #answer(command: Command, options: ProposeOptions): Promise<Outcome> {
    if (this.#dead) return never()
    const { referee, world } = this.#site
    const { op, key = 0 } = options
    const name = op && operationName(key, op)
    // A repeated request may get the answer to the first one, and counts from then.
    const sent = (name === undefined ? undefined : this.#firstSent.get(name)) ?? world.now
    if (name !== undefined) {
      this.#firstSent.set(name, sent)
      referee.answers.sentAgain(name)
    }
    if (command.kind === 'release' || command.kind === 'transfer') referee.givenUp.add(command.lease)
    if (command.kind === 'release') for (const lease of command.stopped ?? []) referee.givenUp.add(lease)
    if (command.kind === 'renew')
      // The renewal that confirmed the grant of a waiter may be sent again.
      for (const lease of command.leases)
        if (world.now - (referee.neverRenewed.get(lease) ?? world.now) > CONFIRMED)
          world.violate('S5', `lease ${lease} is renewed, although its program never renews it`)
    const { revision, losses } = referee
    try {
      const outcome = await propose(this.#inner, command, options)
      if (this.#dead) return never()
      referee.answers.received(outcome, name, revision, losses)
      if (outcome.kind === 'granted') referee.terms.acknowledged(outcome.lease, sent, outcome.ttl)
      if (outcome.kind === 'renewed' && command.kind === 'renew' && command.waiting !== true)
        for (const [i, lease] of command.leases.entries())
          if (outcome.ttls[i]! > 0) referee.terms.acknowledged(lease, sent, outcome.ttls[i]!)
      return outcome
    } catch (error) {
      if (name !== undefined && op?.again !== true && error instanceof LeaseError && error.code === 'UNAVAILABLE')
        referee.answers.failed(name)
      throw error
    }
  }

  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.#dead ? never() : this.#inner.read(query, options)
  }

  watch(prefix: string, options: WatchOptions): AsyncIterable<readonly Event[]> {
    return this.#inner.watch(prefix, options)
  }

  onRewound(tell: (why: LeaseError) => void): () => void {
    const { referee, world } = this.#site
    const heard = (why: LeaseError) => {
      if (referee.losses === 0) world.violate('S24', `a client was told that the log went back, and it never did: ${why.message}`)
      tell(why)
    }
    return this.#inner.onRewound?.(heard) ?? (() => {})
  }

  /** Watches everything, across failures, and reports the events to the referee. */
  async observe(signal: AbortSignal): Promise<void> {
    const { referee } = this.#site
    while (!signal.aborted && !this.#dead) {
      const { losses } = referee
      let last: number | undefined
      try {
        for await (const events of this.#inner.watch('', { signal })) {
          // Restarts after a loss: later events need not continue those that were lost.
          if (losses !== referee.losses) break
          const { revision, type } = events[0]!
          if (type !== 'resync' && last !== undefined) referee.revisions.watched(last, events, losses)
          last = revision
        }
      } catch (error) {
        if (!(error instanceof LeaseError)) throw error
      }
      do await pauseOn(this.#machine.clock(), 100)
      while (referee.awaitsGeneration && !signal.aborted && !this.#dead)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

function never<T>(): Promise<T> {
  return new Promise(() => {})
}
