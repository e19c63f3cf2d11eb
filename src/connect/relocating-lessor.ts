/**
 * A lessor that goes along when its leases move to another log, and that goes on over the place itself when the server it was led to, which
 * owned that place, has stopped.
 *
 * Not promised: that a watch sees every event of a move; it is told to begin anew (`resync`), as after any gap. Promised: what was asked is
 * decided in one place only, and one who asks on this lessor never learns that there were two.
 */
import { setMaxListeners } from 'node:events'
import { type Clock, pause, systemClock, whenAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Command } from '../kernel/command.ts'
import { copyOf } from '../kernel/copy.ts'
import type { Event } from '../kernel/event.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { complete } from '../lessor/complete.ts'
import type { Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import type { Profile } from '../store.ts'

export interface RelocatingLessorOptions {
  readonly clock?: Clock
  /** Opens the place that a log's leases have moved to. */
  readonly open: (url: string) => Promise<Lessor>
  /** For one who was led to the server that owns its place: opens the place anew, whoever has it now. Throws while it cannot be had. */
  readonly home?: () => Promise<Lessor>
}

/** Of a lessor that speaks to a server: which one, and undefined while there is none. */
interface Remote extends Lessor {
  readonly server: string | undefined
}

const RETRY = 50
/** How seldom it is tried to go along at last, where that place cannot be opened. */
const RETRY_LAST = 5_000
/** Leases on their way are waited for so long; a move is one write of a snapshot. */
const TIMEOUT = 30_000
/** How often it is looked whether the server is there, and whether its place can be had. */
const LOOK = 100
const LOOK_HOME = 500
/**
 * A server that is started again finds its place in use by those who went home, and cannot own it. So it is given as long as the shortest
 * lease allows: one is renewed at half of its ttl, and a sixth of it leaves time for the way and for a renewal.
 */
const LONGEST_ABSENCE = 10_000
const SHARE = 6

export class RelocatingLessor implements Lessor {
  readonly #clock: Clock
  readonly #open: RelocatingLessorOptions['open']
  readonly #ended = new AbortController()
  #here: Lessor
  /** Fires when `#here` is no longer where the leases are. */
  #left = manyHear()
  #going: Promise<void> | undefined
  readonly #home: RelocatingLessorOptions['home']
  readonly #onRewound = new Set<(why: LeaseError) => void>()
  #closed = false
  #shortest = Number.POSITIVE_INFINITY
  #cancelLook: (() => void) | undefined

  /** The lessor is this one's from here on. */
  constructor(here: Lessor, { clock = systemClock, open, home }: RelocatingLessorOptions) {
    this.#clock = clock
    this.#open = open
    this.#home = home
    this.#here = here
    this.#settle()
  }

  get profile(): Profile {
    return this.#here.profile
  }

  get signal(): AbortSignal {
    return this.#ended.signal
  }

  /** Where the leases are now. */
  get here(): Lessor {
    return this.#here
  }

  propose(asked: Command, options: ProposeOptions = {}): Promise<Outcome> {
    // It may be asked again elsewhere, and the caller may have changed its own by then.
    const command = copyOf(asked)
    const here = this.#here
    const answer = here
      .propose(command, options)
      .then(outcome => (isElsewhere(outcome) ? this.#again(here, outcome, command, options) : outcome))
    return this.#home === undefined ? answer : this.#atHome(here, answer, command, options)
  }

  /** What the server that has stopped left unanswered is asked again, where that is safe. */
  async #atHome(from: Lessor, answer: Promise<Outcome>, command: Command, options: ProposeOptions): Promise<Outcome> {
    try {
      const outcome = await answer
      this.#learn(outcome)
      return outcome
    } catch (error) {
      if (this.#here === from || !(error instanceof LeaseError)) throw error
      if (error.code === 'UNAVAILABLE' || command.kind === 'renew') return this.propose(command, options)
      if (error.code !== 'UNKNOWN' || options.op === undefined) throw error
      return this.propose(command, { ...options, op: { ...options.op, again: true } }).catch(next => {
        // The server may have done it before it stopped.
        throw next instanceof LeaseError && next.code === 'UNAVAILABLE' ? new LeaseError('UNKNOWN', error.message, { cause: next }) : next
      })
    }
  }

  #learn(outcome: Outcome): void {
    if (outcome.kind === 'granted' || outcome.kind === 'queued') this.#shortest = Math.min(this.#shortest, outcome.ttl)
  }

  submit(command: Command, options: ProposeOptions, told: Completion): void {
    const here = this.#here
    if (here.submit === undefined) return complete(told, this.propose(command, options))
    here.submit(command, options, new Unless(told, outcome => this.#again(here, outcome, command, options)))
  }

  async #again(from: Lessor, refused: Outcome, command: Command, options: ProposeOptions): Promise<Outcome> {
    const end = this.#clock.now() + TIMEOUT
    let outcome = refused
    while (isElsewhere(outcome)) {
      const { moved } = outcome.facts
      if (typeof moved === 'string') await this.#goTo(moved, from)
      else if (this.#clock.now() >= end) return outcome
      else await pause(this.#clock, RETRY, options.signal, { ref: true })
      from = this.#here
      outcome = await from.propose(command, options)
    }
    return outcome
  }

  async read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options: ReadOptions = {}): Promise<View<K>> {
    const end = this.#clock.now() + TIMEOUT
    for (;;) {
      const here = this.#here
      try {
        return await here.read<K>(query, options)
      } catch (error) {
        if (isAway(error)) await this.#along(error, here, end, options.signal)
        else if (this.#home === undefined || this.#here === here || (error as LeaseError).code !== 'UNAVAILABLE') throw error
      }
    }
  }

  /** What to do about one who says that the leases are not there: go along, or wait until it is known where they are. */
  async #along(away: LeaseError, from: Lessor, end: number, signal: AbortSignal | undefined): Promise<void> {
    const { moved } = away.facts
    if (typeof moved === 'string') return this.#goTo(moved, from)
    if (this.#clock.now() >= end) throw away
    await pause(this.#clock, RETRY, signal, { ref: true })
  }

  async *watch(prefix: string, options: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    let { after } = options
    for (;;) {
      const here = this.#here
      const left = this.#left.signal
      // By hand: AbortSignal.any would leave a trace of every watch on a signal that lives as long as this lessor.
      const over = new AbortController()
      const end = () => over.abort()
      const { signal } = over
      for (const either of [options.signal, left]) either.addEventListener('abort', end)
      if (options.signal.aborted || left.aborted) end()
      try {
        for await (const events of here.watch(prefix, { ...options, ...(after !== undefined && { after }), signal })) {
          after = events[0]!.revision
          yield events
        }
        if (!left.aborted || options.signal.aborted) return
      } catch (error) {
        if (!isAway(error)) throw error
        await this.#alongInTime(error, here, options.signal)
        if (options.signal.aborted) return
      } finally {
        for (const either of [options.signal, left]) either.removeEventListener('abort', end)
      }
      const { revision } = await this.#here.read({ kind: 'summary' })
      after = revision
      yield [{ revision, type: 'resync', lease: 0, at: this.#clock.wall() }]
    }
  }

  /** A place that is being opened by others, or by nobody yet, is tried for a while: who watches would have to begin anew. */
  async #alongInTime(away: LeaseError, from: Lessor, signal: AbortSignal): Promise<void> {
    const end = this.#clock.now() + TIMEOUT
    for (let wait = RETRY; !signal.aborted; wait = Math.min(wait * 2, RETRY_LAST))
      try {
        return await this.#along(away, from, end, signal)
      } catch (error) {
        if (signal.aborted) return
        if (this.#closed || this.#clock.now() + wait > end) throw error
        await pause(this.#clock, wait, signal).catch(() => {})
      }
  }

  backup(options?: Parameters<NonNullable<Lessor['backup']>>[0]): ReturnType<NonNullable<Lessor['backup']>> {
    const { backup } = this.#here
    if (backup === undefined) throw new LeaseError('UNSUPPORTED', 'this lessor has no way to make a backup')
    return backup.call(this.#here, options)
  }

  get witness(): string | undefined {
    return this.#here.witness
  }

  async continues(witness: string): Promise<boolean> {
    return (await this.#here.continues?.(witness)) ?? true
  }

  onRewound(tell: (why: LeaseError) => void): () => void {
    this.#onRewound.add(tell)
    return () => this.#onRewound.delete(tell)
  }

  // Moving

  #settle(): void {
    const here = this.#here
    const ended = () => {
      if (this.#here === here) this.#ended.abort(here.signal.reason)
    }
    whenAborted(here.signal, ended)
    here.onRewound?.(why => {
      if (this.#here === here) for (const tell of [...this.#onRewound]) tell(why)
    })
    void this.#listen(here)
    if (this.#home !== undefined && isRemote(here)) this.#mind(here, this.#home)
  }

  /** A server that cannot be reached, and whose place nobody owns any more, has stopped for good. */
  #mind(here: Remote, home: () => Promise<Lessor>): void {
    let away: number | undefined
    const look = async () => {
      if (this.#here !== here || this.#ended.signal.aborted) return
      const now = this.#clock.now()
      away = here.server === undefined ? (away ?? now) : undefined
      const late = away !== undefined && now - away >= Math.min(LONGEST_ABSENCE, this.#shortest / SHARE)
      if (late) await this.#goHome(home, here)
      if (this.#closed) return
      this.#cancelLook = this.#clock.after(late ? LOOK_HOME : LOOK, look)
    }
    this.#cancelLook = this.#clock.after(LOOK, look)
  }

  async #goHome(home: () => Promise<Lessor>, from: Lessor): Promise<void> {
    try {
      await this.#moveTo(await home(), from)
    } catch {
      // It is owned, so there is a server; or it cannot be had at the moment.
    }
  }

  /** Also those who ask nothing must go along: they watch. Whoever asks meanwhile tries as well, and is told why it cannot be. */
  async #listen(here: Lessor): Promise<void> {
    const { signal } = this.#left
    for (let wait = RETRY; !signal.aborted && !here.signal.aborted; wait = Math.min(wait * 2, RETRY_LAST))
      try {
        const { revision, value } = await here.read({ kind: 'summary' })
        const place = value.moved || (await this.#leaving(here, revision, signal))
        if (place) return await this.#goTo(place, here)
        wait = RETRY
      } catch (error) {
        if (signal.aborted || !(error instanceof LeaseError && (error.code === 'UNAVAILABLE' || error.code === 'UNKNOWN'))) return
        await pause(this.#clock, wait, signal).catch(() => {})
      }
  }

  /** Where the leases go, as soon as that is said; undefined when it may have been said in a gap. */
  async #leaving(here: Lessor, after: number, signal: AbortSignal): Promise<string | undefined> {
    for await (const events of here.watch('', { after, types: ['moved'], signal }))
      for (const { type, key, cause } of events) {
        if (type === 'moved' && cause === 'left' && key) return key
        if (type === 'resync') return undefined
      }
    return undefined
  }

  #goTo(url: string, from: Lessor): Promise<void> {
    if (this.#here !== from) return Promise.resolve()
    this.#going ??= this.#go(url, from).finally(() => (this.#going = undefined))
    return this.#going
  }

  async #go(url: string, from: Lessor): Promise<void> {
    let there: Lessor
    try {
      there = await this.#open(url)
    } catch (cause) {
      throw new LeaseError('UNAVAILABLE', `the leases have moved to ${url}, which cannot be opened here: ${(cause as Error).message}`, {
        cause,
        facts: { moved: url },
      })
    }
    await this.#moveTo(there, from)
  }

  async #moveTo(there: Lessor, from: Lessor): Promise<void> {
    if (this.#closed || this.#ended.signal.aborted || this.#here !== from) return there[Symbol.asyncDispose]()
    const left = this.#left
    this.#here = there
    this.#left = manyHear()
    this.#settle()
    left.abort()
    await from[Symbol.asyncDispose]()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true // what arrives while we say goodbye is not ours any more
    this.#cancelLook?.()
    this.#left.abort()
    await this.#here[Symbol.asyncDispose]()
    this.#ended.abort(new LeaseError('UNAVAILABLE', 'this lessor was closed'))
  }
}

/** Every watch listens to it. */
function manyHear(): AbortController {
  const controller = new AbortController()
  setMaxListeners(0, controller.signal)
  return controller
}

function isRemote(lessor: Lessor): lessor is Remote {
  return 'server' in lessor
}

/** Said by a log that has no leases to speak of, or by one who could not go along. */
function isAway(error: unknown): error is LeaseError {
  if (!(error instanceof LeaseError) || error.code !== 'UNAVAILABLE') return false
  return error.facts.moved !== undefined || error.facts.moving !== undefined
}

function isElsewhere(outcome: Outcome): outcome is Extract<Outcome, { readonly kind: 'refused' }> {
  return (
    outcome.kind === 'refused' &&
    outcome.code === 'UNAVAILABLE' &&
    (outcome.facts.moved !== undefined || outcome.facts.moving !== undefined)
  )
}

/** Passes on what it is told, unless the leases have moved: then they are asked where they are. */
class Unless implements Completion {
  readonly #told: Completion
  readonly #again: (outcome: Outcome) => Promise<Outcome>

  constructor(told: Completion, again: (outcome: Outcome) => Promise<Outcome>) {
    this.#told = told
    this.#again = again
  }

  settle(outcome: Outcome): void {
    if (isElsewhere(outcome)) complete(this.#told, this.#again(outcome))
    else this.#told.settle(outcome)
  }

  fail(error: unknown): void {
    this.#told.fail(error)
  }
}
