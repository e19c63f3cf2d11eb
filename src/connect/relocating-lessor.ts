/**
 * A lessor that follows its leases when they move to another log. If it uses a server in place of a store, and that server has stopped, it continues on the
 * store itself.
 *
 * Guaranteed: a command is decided in one place only, and callers of this lessor cannot tell that there were two. Not guaranteed: that a
 * watch sees every event of a move. It gets a `resync` event, as after any gap.
 */

import { setMaxListeners } from 'node:events'
import { BACKOFF, jittered, pauseAfter } from '../backoff.ts'
import { type Clock, pause, systemClock, whenAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Acquire, Command } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import type { Refused } from '../kernel/outcome.ts'
import type { ListPart } from '../lessor/list-part.ts'
import type { Completion, Lessor, PageView, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import type { Profile } from '../store.ts'
import { NextLessor } from './next-lessor.ts'

export interface RelocatingLessorOptions {
  readonly clock?: Clock | undefined
  /** Opens the store or server that the leases have moved to. */
  readonly open: (url: string) => Promise<Lessor>
  /** Set if the lessor is a client of the store's server: opens the store again, or its present server. Throws while neither can be opened. */
  readonly home?: () => Promise<Lessor>
  /** Set if a server is to be used while there is one: opens a client of it, in place of the store. Undefined: there is none at present. */
  readonly server?: () => Promise<Lessor | undefined>
}

/** A lessor that is a client of a server. */
interface Remote extends Lessor {
  /** Undefined while the server cannot be reached. */
  readonly server: string | undefined
}

/** A request waits this long for leases that are being moved. A move is one write of a snapshot. */
const TIMEOUT = 30_000
/** The intervals of checking that the server can be reached, at least and at most, and of trying to open its store. */
const SERVER_CHECK = 100
const SERVER_CHECK_MAX = 1_000
const STORE_CHECK = 500
/** The interval of looking for a server, while the store itself is used instead. It varies, since many processes lose their server together. */
const SERVER_SEARCH = 30_000
/**
 * A server that restarts cannot own a store that its former clients already use. So clients wait for it as long as the shortest lease allows.
 * A lease is renewed at half of its ttl; waiting for a sixth of it leaves time to open the store and to renew.
 */
const MAX_ABSENCE = 10_000
const TTL_DIVISOR = 6

/** A command that was submitted, where it was sent, and until when it waits for leases that are being moved. */
interface Submitted {
  readonly command: Command
  readonly options: ProposeOptions
  readonly completion: Completion
  readonly from: Lessor
  readonly end: number | undefined
}

export class RelocatingLessor implements Lessor {
  readonly #clock: Clock
  readonly #ended = new AbortController()
  #here: Lessor
  /** Fires when `#here` is no longer where the leases are. */
  #left = controllerForWatches()
  #moving: Promise<void> | undefined
  /** Opened before the leases have left. */
  readonly #next: NextLessor
  readonly #home: RelocatingLessorOptions['home']
  readonly #server: RelocatingLessorOptions['server']
  /** The leases have moved to another place, which has no server of ours. */
  #isElsewhere = false
  readonly #onRewound = new Set<(why: LeaseError) => void>()
  readonly #onMoved = new Set<() => void>()
  #closed = false
  #shortestTtl = Number.POSITIVE_INFINITY
  /** Requests that wait for leases that are being moved. */
  #delayed = 0
  #cancelCheck: (() => void) | undefined
  /** Numbers the rounds of checking the server: only the last one continues. */
  #checks = 0
  #absentSince: number | undefined

  /** Takes over `here`, and closes it. */
  constructor(here: Lessor, { clock = systemClock, open, home, server }: RelocatingLessorOptions) {
    this.#clock = clock
    this.#next = new NextLessor(clock, open)
    this.#home = home
    this.#server = server
    this.#here = here
    this.#attach()
  }

  get profile(): Profile {
    return this.#here.profile
  }

  get signal(): AbortSignal {
    return this.#ended.signal
  }

  get delayReason(): string | undefined {
    return this.#delayed > 0 ? 'the leases are being moved to another store, and nothing is decided until that is complete' : undefined
  }

  /** Where the leases are now. */
  get here(): Lessor {
    return this.#here
  }

  /** Calls `listener` each time the leases are somewhere else from then on. */
  onMoved(listener: () => void): void {
    this.#onMoved.add(listener)
  }

  /** `end`: until when it waits for leases that are being moved, if that has begun. */
  submit(command: Command, options: ProposeOptions, completion: Completion, end?: number): void {
    const from = this.#here
    from.submit(command, options, {
      settle: outcome => {
        if ((outcome.kind === 'granted' || outcome.kind === 'queued') && outcome.ttl < this.#shortestTtl) this.#checkWithin(outcome.ttl)
        else if (outcome.kind === 'refused' && hasMoved(outcome)) {
          void this.#sendThere({ command, options, completion, from, end }, outcome)
          return
        }
        completion.settle(outcome)
      },
      fail: error => this.#failed({ command, options, completion, from, end }, error),
    })
  }

  renewAtOnce(lease: number, key: number): number | undefined {
    return this.#here.renewAtOnce?.(lease, key)
  }

  async confirm(command: Acquire, options: { readonly limit?: number; readonly signal: AbortSignal }): Promise<void> {
    await this.#here.confirm?.(command, options)
  }

  /** Sends a command to the place that the leases have moved to, or waits while they are being moved. */
  async #sendThere({ command, options, completion, from, end = this.#clock.now() + TIMEOUT }: Submitted, outcome: Refused): Promise<void> {
    const { moved } = outcome.facts
    try {
      if (typeof moved === 'string') await this.#moveToUrl(moved, from)
      else if (this.#clock.now() >= end) return completion.settle(outcome)
      else await this.#pause(options.signal)
      this.submit(command, options, completion, end)
    } catch (error) {
      completion.fail(error)
    }
  }

  /** A command that the stopped server certainly did not carry out goes to its store, if that has been opened meanwhile. */
  #failed({ command, options, completion, from, end }: Submitted, error: unknown): void {
    const isElsewhere = this.#home !== undefined && this.#here !== from
    if (isElsewhere && LeaseError.is(error, 'UNAVAILABLE')) this.submit(command, options, completion, end)
    else completion.fail(error)
  }

  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options: ReadOptions = {}): Promise<View<K>> {
    return this.#readThere(here => here.read<K>(query, options), options.signal)
  }

  page<K extends 'leases' | 'resources'>(
    query: Extract<Query, { readonly kind: K }>,
    page: ListPart,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<PageView<K>> {
    return this.#readThere(here => {
      if (here.page === undefined)
        throw new LeaseError('UNSUPPORTED', 'lists cannot be sorted there: read the whole list, and sort it yourself')
      return here.page<K>(query, page, options)
    }, options.signal)
  }

  async #readThere<T>(read: (here: Lessor) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const end = this.#clock.now() + TIMEOUT
    for (;;) {
      const here = this.#here
      try {
        return await read(here)
      } catch (error) {
        if (isMovedError(error)) await this.#follow(error, here, end, signal)
        else if (this.#home === undefined || this.#here === here || (error as LeaseError).code !== 'UNAVAILABLE') throw error
      }
    }
  }

  /** Handles the answer that the leases are not there: follows them, or waits until their new place is known. */
  async #follow(movedError: LeaseError, from: Lessor, end: number, signal: AbortSignal | undefined): Promise<void> {
    const { moved } = movedError.facts
    if (typeof moved === 'string') return this.#moveToUrl(moved, from)
    if (this.#clock.now() >= end) throw movedError
    await this.#pause(signal)
  }

  /** Waits a moment for leases that are being moved. */
  async #pause(signal: AbortSignal | undefined): Promise<void> {
    this.#delayed++
    try {
      await pause(this.#clock, BACKOFF.stream.first, signal, { ref: true })
    } finally {
      this.#delayed--
    }
  }

  async *watch(prefix: string, options: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    let { after } = options
    for (;;) {
      const here = this.#here
      const left = this.#left.signal
      // Not AbortSignal.any: it would leave a trace of every watch on a signal that lives as long as this lessor.
      const over = new AbortController()
      const end = () => over.abort()
      const { signal } = over
      for (const either of [options.signal, left]) either.addEventListener('abort', end)
      if (options.signal.aborted || left.aborted) end()
      try {
        for await (const events of here.watch(prefix, { ...options, ...(after !== undefined && { after }), signal })) {
          after = events.at(-1)!.revision
          yield events
        }
        if (!left.aborted || options.signal.aborted) return
      } catch (error) {
        if (!isMovedError(error)) throw error
        await this.#followWithRetry(error, here, options.signal)
        if (options.signal.aborted) return
      } finally {
        for (const either of [options.signal, left]) either.removeEventListener('abort', end)
      }
      const { revision } = await this.#here.read({ kind: 'summary' })
      after = revision
      yield [{ revision, type: 'resync', lease: 0, at: this.#clock.wall() }]
    }
  }

  /** Retries for a while, since the new place may not be open yet. Otherwise the caller would have to start its watch again. */
  async #followWithRetry(movedError: LeaseError, from: Lessor, signal: AbortSignal): Promise<void> {
    const end = this.#clock.now() + TIMEOUT
    for (let failures = 0; !signal.aborted; failures++)
      try {
        return await this.#follow(movedError, from, end, signal)
      } catch (error) {
        if (signal.aborted) return
        const wait = pauseAfter(BACKOFF.stream, failures)
        if (this.#closed || this.#clock.now() + wait > end) throw error
        await pause(this.#clock, wait, signal).catch(() => {})
      }
  }

  backup(options?: Parameters<NonNullable<Lessor['backup']>>[0]): ReturnType<NonNullable<Lessor['backup']>> {
    const { backup } = this.#here
    if (backup === undefined) throw new LeaseError('UNSUPPORTED', 'this lessor cannot make a backup')
    return backup.call(this.#here, options)
  }

  get witness(): string | undefined {
    return this.#here.witness
  }

  async continues(witness: string): Promise<boolean> {
    return (await this.#here.continues?.(witness)) ?? true
  }

  onRewound(listener: (why: LeaseError) => void): () => void {
    this.#onRewound.add(listener)
    return () => this.#onRewound.delete(listener)
  }

  // Following the leases

  #attach(): void {
    const here = this.#here
    this.#absentSince = undefined
    const ended = () => {
      if (this.#here === here) this.#ended.abort(here.signal.reason)
    }
    whenAborted(here.signal, ended)
    here.onRewound?.(why => {
      if (this.#here === here) for (const listener of [...this.#onRewound]) listener(why)
    })
    void this.#awaitMove(here)
    if (this.#home !== undefined && isRemote(here)) this.#checkServer(here, this.#home)
    else if (this.#server !== undefined && !this.#isElsewhere) this.#searchServer(here, this.#server)
  }

  /** A server is used again as soon as there is one: every process that uses the store itself costs all others. */
  #searchServer(here: Lessor, server: () => Promise<Lessor | undefined>): void {
    const search = async () => {
      if (this.#here !== here || this.#ended.signal.aborted) return
      const found = await server().catch(() => undefined)
      if (found !== undefined) return this.#moveTo(found, here)
      if (!this.#closed && this.#here === here) this.#searchServer(here, server)
    }
    this.#cancelCheck = this.#clock.after(jittered(this.#clock, SERVER_SEARCH), () => void search())
  }

  /** For how long a server may be absent, in ms. */
  get #maxAbsence(): number {
    return Math.min(MAX_ABSENCE, this.#shortestTtl / TTL_DIVISOR)
  }

  /** A lease with a shorter ttl than all before allows the server less time. */
  #checkWithin(ttl: number): void {
    this.#shortestTtl = ttl
    const here = this.#here
    if (this.#home === undefined || !isRemote(here) || this.#cancelCheck === undefined) return
    this.#cancelCheck()
    this.#checkServer(here, this.#home)
  }

  /** Assumes that a server has stopped for good if it cannot be reached and its store has no owner. */
  #checkServer(here: Remote, home: () => Promise<Lessor>): void {
    const round = ++this.#checks
    const check = async () => {
      if (this.#here !== here || this.#checks !== round || this.#ended.signal.aborted) return
      const now = this.#clock.now()
      this.#absentSince = here.server === undefined ? (this.#absentSince ?? now) : undefined
      const late = this.#absentSince !== undefined && now - this.#absentSince >= this.#maxAbsence
      if (late) await this.#returnToStore(home, here)
      if (this.#closed || this.#here !== here || this.#checks !== round) return
      this.#cancelCheck = this.#clock.after(late ? STORE_CHECK : interval(), check)
    }
    // A process that only holds leases should sleep. A tenth of what the server is allowed delays the move by no more than that.
    const interval = () =>
      this.#absentSince === undefined ? Math.min(SERVER_CHECK_MAX, Math.max(SERVER_CHECK, this.#maxAbsence / 10)) : SERVER_CHECK
    this.#cancelCheck = this.#clock.after(interval(), check)
  }

  async #returnToStore(home: () => Promise<Lessor>, from: Lessor): Promise<void> {
    try {
      await this.#moveTo(await home(), from)
    } catch {
      // The store is owned, so there is a server; or it cannot be opened at the moment.
    }
  }

  /** A lessor that sends no requests must follow too, because of its watches. Requests meanwhile try as well, and report the error. */
  async #awaitMove(here: Lessor): Promise<void> {
    const { signal } = this.#left
    for (let failures = 0; !signal.aborted && !here.signal.aborted; failures++)
      try {
        const { revision, value } = await here.read({ kind: 'summary' })
        const place = value.moved || (await this.#destination(here, revision, signal))
        if (place) return await this.#moveToUrl(place, here)
        failures = 0
      } catch (error) {
        if (signal.aborted || !(error instanceof LeaseError && (error.code === 'UNAVAILABLE' || error.code === 'UNKNOWN'))) return
        await pause(this.#clock, pauseAfter(BACKOFF.stream, failures), signal).catch(() => {})
      }
  }

  /** Resolves to the new place of the leases when they leave, or to undefined if a gap may have hidden that event. */
  async #destination(here: Lessor, after: number, signal: AbortSignal): Promise<string | undefined> {
    for await (const events of here.watch('', { after, types: ['moved'], lazy: true, signal }))
      for (const { type, key, cause } of events) {
        if (type === 'moved' && cause === 'left' && key) return key
        if (type === 'moved' && cause === 'preparing') this.#next.prepare(key ?? '')
        if (type === 'moved' && cause === 'staying') this.#next.drop()
        if (type === 'resync') return undefined
      }
    return undefined
  }

  #moveToUrl(url: string, from: Lessor): Promise<void> {
    if (this.#here !== from) return Promise.resolve()
    this.#moving ??= this.#openAndMove(url, from).finally(() => (this.#moving = undefined))
    return this.#moving
  }

  async #openAndMove(url: string, from: Lessor): Promise<void> {
    let there: Lessor
    try {
      there = await this.#next.open(url)
    } catch (cause) {
      throw new LeaseError('UNAVAILABLE', `the leases have moved to ${url}, which cannot be opened here: ${(cause as Error).message}`, {
        cause,
        reason: cause instanceof LeaseError ? cause.reason : undefined,
        facts: { moved: url },
      })
    }
    this.#isElsewhere = true
    await this.#moveTo(there, from)
  }

  async #moveTo(there: Lessor, from: Lessor): Promise<void> {
    if (this.#closed || this.#ended.signal.aborted || this.#here !== from) return there[Symbol.asyncDispose]()
    const left = this.#left
    this.#here = there
    this.#left = controllerForWatches()
    this.#attach()
    left.abort()
    for (const listener of this.#onMoved) listener()
    await from[Symbol.asyncDispose]()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true // a lessor that is still being opened is closed when it arrives
    this.#cancelCheck?.()
    this.#next.drop()
    this.#left.abort()
    await this.#here[Symbol.asyncDispose]()
    this.#ended.abort(new LeaseError('UNAVAILABLE', 'this lessor was closed'))
  }
}

/** Every watch listens to its signal, so Node must not warn of many listeners. */
function controllerForWatches(): AbortController {
  const controller = new AbortController()
  setMaxListeners(0, controller.signal)
  return controller
}

function isRemote(lessor: Lessor): lessor is Remote {
  return 'server' in lessor
}

/** The error of a log whose leases have moved or are being moved, or of a lessor that could not follow them. */
function isMovedError(error: unknown): error is LeaseError {
  if (!(error instanceof LeaseError) || error.code !== 'UNAVAILABLE') return false
  return error.facts.moved !== undefined || error.facts.moving !== undefined
}

function hasMoved({ code, facts }: Refused): boolean {
  return code === 'UNAVAILABLE' && (facts.moved !== undefined || facts.moving !== undefined)
}
