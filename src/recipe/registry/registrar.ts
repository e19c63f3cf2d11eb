import { pause, unlessAborted } from '../../clock.ts'
import { inWords, milliseconds } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { CHECKERS } from '../../registry/entry.ts'
import {
  FIRST_RETRY,
  LAST_RETRY,
  Registered,
  type RegisterInput,
  type RegisterOptions,
  type RegistrationKeeper,
  type RegistrationRequest,
  refusalOf,
} from './registration.ts'

const UNCHECKED =
  'no server makes health checks: it is listed as unknown, and not picked, until one does. Start one with leasehold serve --check-allow, or register without a check'

/** Renewals in one command. */
const BATCH = 10_000
/** Those who lapsed together come back over so long, or a third of their ttl. */
const SPREAD = 10_000
/** Whoever is due within so many ms comes back in the same turn. */
const TOGETHER = 100
/** How often it is looked whether the machine slept: its timers stood still, and those who went by them may not be listed any more. */
const LOOK = 1_000
const FAREWELL = 5_000
const GOODBYE = 1_000

/** Renews all registrations of a process together, and brings back those that lapsed. */
export class Registrar implements AsyncDisposable, RegistrationKeeper {
  readonly #asking: RegistrationRequest
  readonly #registered = new Set<Registered>()
  #cancel: (() => void) | undefined
  #armedFor = Number.POSITIVE_INFINITY
  /** By how much the uptime was ahead of the monotonic clock. */
  #slept = Number.POSITIVE_INFINITY
  #closed = false
  /** Who is entering, and what is given back because nobody wants it any more. */
  readonly #underWay = new Set<Promise<unknown>>()
  /** For tests and metrics. */
  readonly stats = { messages: 0, renewals: 0, returns: 0 }

  constructor(asking: RegistrationRequest) {
    this.#asking = asking
  }

  get size(): number {
    return this.#registered.size
  }

  async register(inputs: readonly RegisterInput[], options: RegisterOptions): Promise<Registered> {
    const { signal } = options
    signal?.throwIfAborted()
    if (this.#closed) throw closed()
    const registered = new Registered(this.#asking, this, inputs, options)
    const { clock } = this.#asking
    const end = clock.now() + milliseconds(options.wait ?? 0, 'wait')
    for (let tries = 0; ; tries++) {
      try {
        await unlessAborted(this.#follow(registered.enter()), signal)
        break
      } catch (error) {
        if (signal?.aborted) break
        if (this.#closed) throw closed()
        if (!(error instanceof LeaseError && error.code === 'HELD') || clock.now() >= end) throw error
        const wait = Math.min(end - clock.now(), LAST_RETRY, FIRST_RETRY * 2 ** tries)
        await pause(clock, wait, signal, { ref: true })
      }
    }
    if (signal?.aborted || this.#closed) {
      // Whatever is answered from here on is given back.
      const left = this.#follow(registered.deregister())
      left.catch(() => {}) // it lapses by itself
      signal?.throwIfAborted()
      await left
      throw closed()
    }
    for (const before of [...this.#registered]) before.replacedBy(registered)
    this.#registered.add(registered)
    this.#arm(registered.next)
    if (registered.registrations.some(({ check }) => check !== undefined)) this.#tellUnchecked(registered).catch(() => {})
    return registered
  }

  async checkers(): Promise<readonly string[]> {
    const { value } = await this.#asking.lessor.read({ kind: 'entries', prefix: CHECKERS })
    return value.map(({ key }) => key.slice(CHECKERS.length + 1))
  }

  /** A check that nobody makes would keep it from being used, in silence. What cannot be read is not told. */
  async #tellUnchecked(registered: Registered): Promise<void> {
    if ((await this.checkers()).length > 0 || registered.signal.aborted) return
    registered.tell('unchecked', new LeaseError('UNAVAILABLE', UNCHECKED))
  }

  forget(registered: Registered): void {
    this.#registered.delete(registered)
  }

  #follow(way: Promise<void>): Promise<void> {
    this.#underWay.add(way)
    return way.finally(() => this.#underWay.delete(way))
  }

  #arm(at: number): void {
    if (this.#closed || at >= this.#armedFor) return
    this.#cancel?.()
    this.#armedFor = at
    this.#wait()
  }

  /** Never throws: it runs off a timer. */
  #wait(): void {
    const { clock } = this.#asking
    const now = clock.now()
    const slept = clock.uptime() - now
    const woken = slept - this.#slept > LOOK
    this.#slept = slept
    if (woken) for (const registered of this.#registered) registered.next = Math.min(registered.next, now)
    if (woken || this.#armedFor <= now) this.#cancel = clock.after(0, () => this.#beat())
    else this.#cancel = clock.after(Math.min(LOOK, this.#armedFor - now), () => this.#wait())
  }

  /** Whoever would be due soon comes along: one message instead of two. Never throws: it runs off a timer. */
  #beat(): void {
    this.#cancel = undefined
    this.#armedFor = Number.POSITIVE_INFINITY
    const now = this.#asking.clock.now()
    const renewing: Registered[] = []
    let next = Number.POSITIVE_INFINITY
    for (const registered of this.#registered) {
      if (registered.busy) continue
      // Those who come back stay apart, as they were told to.
      const soon = registered.lease === 0 ? TOGETHER : registered.ttl / 8
      if (registered.next - soon > now) {
        next = Math.min(next, registered.next)
        continue
      }
      registered.busy = true
      if (registered.lease === 0) void this.#bringBack(registered)
      else renewing.push(registered)
    }
    for (let i = 0; i < renewing.length; i += BATCH) void this.#renew(renewing.slice(i, i + BATCH))
    if (next < Number.POSITIVE_INFINITY) this.#arm(next)
  }

  async #renew(group: readonly Registered[]): Promise<void> {
    const { clock, lessor } = this.#asking
    const sent = clock.now()
    const leases = group.map(({ lease }) => lease)
    this.stats.messages++
    this.stats.renewals += leases.length
    let ttls: readonly number[] = []
    try {
      // Short enough for several more before the ttl has run: one message that is lost must not cost a registration.
      const timeout = group.reduce((least, { ttl }) => Math.min(least, ttl / 6), LAST_RETRY)
      const outcome = await this.#asking.within(timeout, lessor.propose({ kind: 'renew', leases }))
      if (outcome.kind === 'renewed') ttls = outcome.ttls
    } catch {
      // Unanswered: sent again below, and those concerned are told.
    }
    let next = Number.POSITIVE_INFINITY
    for (const [i, registered] of group.entries()) {
      registered.busy = false
      if (registered.signal.aborted) continue
      const term = ttls[i]
      if (registered.lease === leases[i]) {
        if (term === undefined) registered.missed()
        else if (term > 0) registered.answered(sent, term)
        else this.lost(registered)
      }
      next = Math.min(next, registered.next)
    }
    if (next < Number.POSITIVE_INFINITY) this.#arm(next)
  }

  /** Those who lapsed together must not come back in the same moment, or they would do it together again. */
  lost(registered: Registered): void {
    registered.lapsed()
    const { clock } = this.#asking
    registered.failures = 0
    registered.next = clock.now() + clock.random() * Math.min(SPREAD, registered.ttl / 3)
    if (!registered.busy) this.#arm(registered.next)
  }

  async #bringBack(registered: Registered): Promise<void> {
    this.stats.returns++
    try {
      await this.#follow(registered.enter())
      if (!registered.signal.aborted) registered.tell('registered')
    } catch (error) {
      const reason = error instanceof LeaseError ? error : new LeaseError('UNAVAILABLE', String(error), { cause: error })
      // Somebody else is there now, or may not come in: asking again would only quarrel.
      if (['HELD', 'STALE', 'FORBIDDEN', 'INVALID', 'UNAUTHENTICATED'].includes(reason.code)) registered.end(reason)
      else registered.missed()
    }
    registered.busy = false
    if (!registered.signal.aborted) this.#arm(registered.next)
  }

  /** An answer that came too late to be of use. */
  abandon(outcome: Outcome): void {
    if (outcome.kind === 'granted') this.#follow(this.release(outcome.lease, outcome.ttl)).catch(() => {})
  }

  /** Resolves when the lessor does not list it any more. */
  async release(lease: number, ttl: number): Promise<void> {
    const { clock, lessor } = this.#asking
    const end = clock.now() + Math.min(FAREWELL, ttl)
    for (let tries = 0; ; tries++) {
      try {
        const outcome = await this.#asking.within(end - clock.now(), lessor.propose({ kind: 'release', lease }))
        if (outcome.kind === 'done' || (outcome.kind === 'refused' && outcome.code === 'GONE')) return
        throw refusalOf(outcome)
      } catch (cause) {
        if (lessor.signal.aborted || clock.now() >= end)
          throw new LeaseError('UNKNOWN', `lease ${lease} may still be listed: it lapses in at most ${inWords(ttl)} and its grace`, {
            cause,
          })
        const wait = Math.min(LAST_RETRY, FIRST_RETRY * 2 ** tries)
        await pause(clock, wait, undefined, { ref: true })
      }
    }
  }

  /** All of them leave. What cannot be delivered lapses by itself. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#cancel?.()
    await Promise.allSettled([...[...this.#registered].map(registered => registered.deregister()), this.#settled()])
  }

  /** Whoever enters while we leave is to leave as well; its answer is waited for so long. */
  async #settled(): Promise<void> {
    const end = this.#asking.clock.now() + GOODBYE
    while (this.#underWay.size > 0) await this.#asking.within(end - this.#asking.clock.now(), Promise.allSettled(this.#underWay))
  }
}

function closed(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'these leases were closed')
}
