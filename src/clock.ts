/**
 * The only file that reads time, sets timers or draws random numbers. All other code takes a Clock, so that a test or the simulator can
 * replace the machine's. Also here: the shared functions for pausing and for keeping the process alive.
 *
 * Never compare a reading with one of another machine. Within one boot of one machine, `now` is common to all threads and processes
 * (`performance.now()` is not). So a store file can tell its next reader how old its records are.
 */
import { randomFillSync } from 'node:crypto'
import { readFileSync, readlinkSync } from 'node:fs'
import { uptime } from 'node:os'
import { clearTimeout as systemClearTimeout, setImmediate as systemSetImmediate, setTimeout as systemSetTimeout } from 'node:timers'

export { chainAbort, unlessAborted, whenAborted } from './abort.ts'

/** Where time, timers and random numbers come from. Pass one as `clock` to control them in tests. */
export interface Clock {
  /** Monotonic milliseconds, with a fraction. Stops while the machine is suspended. */
  now(): number
  /** Milliseconds since the machine booted, suspends included. Coarse (10 ms): use it only to notice that the machine slept. */
  uptime(): number
  /** The wall clock, for people and for the expiry of keys. No lease depends on it. */
  wall(): number
  /** Identifies the boot of the machine that `now` belongs to. Empty if unknown: then the ages of records are unknown too. */
  boot(): string
  /** A number in [0, 1), for jitter. */
  random(): number
  /** 64 random bits, for names that must be unique. */
  bits(): bigint
  /**
   * Runs `then` after `ms`; the returned function cancels it. A pending timer keeps the process alive only with `ref: true`. `aligned`: it may fire earlier, together
   * with the other aligned timers of as many ms, so that an idle process wakes once for all of them.
   */
  after(ms: number, then: () => void, options?: { readonly ref?: boolean; readonly aligned?: boolean }): () => void
  /** As `after`, for a timer that stays set while its owner is idle. It keeps the process alive until `keepAlive(false)`. Optional. */
  standing?(ms: number, then: () => void): RearmableTimer
  /** By how many ms a timer may fire late on a busy machine. Holders give up that much of a short term. Left out: timers are on time. */
  readonly lateness?: number
  /** Runs `then` after input that is already queued in sockets has been read. */
  soon(then: () => void): void
}

export interface RearmableTimer {
  cancel(): void
  keepAlive?(alive: boolean): void
}

/**
 * The functions of the system, captured when this module is loaded. Test runners replace them (`vi.useFakeTimers()`): leases would never be renewed, and
 * calls would wait for timers that do not fire. A test moves the time of leases with a clock of its own.
 */
const system = {
  setTimeout: systemSetTimeout,
  clearTimeout: systemClearTimeout,
  setImmediate: systemSetImmediate,
  hrtime: process.hrtime,
  wall: Date.now,
}
export const microtask: (then: () => void) => void = globalThis.queueMicrotask
export const nextTick: (then: () => void) => void = process.nextTick

/** A timer may fire so many ms early, by `now`: the event loop counts whole ones. */
const EARLY = 5
/** `setTimeout` above 2^31-1 ms fires at once. */
const LONGEST_TIMEOUT = 2_147_483_647

/**
 * Identifies the boot and the offset of our time namespace's monotonic clock from the machine's. Namespaces with equal offsets share a clock,
 * so ages can be compared between them. Empty if the offset is unknown.
 */
export function bootOfThisMachine(
  read = (file: string) => readFileSync(file, 'utf8'),
  link: (file: string) => string = readlinkSync,
): string {
  try {
    const boot = read('/proc/sys/kernel/random/boot_id').trim()
    const namespace = ifThere(() => link('/proc/self/ns/time'))
    if (namespace === undefined) return boot // this system has no time namespaces
    // timens_offsets describes the namespace of our future children.
    if (namespace !== link('/proc/self/ns/time_for_children')) return ''
    const [, seconds, nanos] = /^\s*(?:monotonic|1)\s+(-?\d+)\s+(\d+)/m.exec(read('/proc/self/timens_offsets')) ?? []
    if (seconds === undefined) return ''
    return Number(seconds) === 0 && Number(nanos) === 0 ? boot : `${boot} monotonic ${seconds}.${nanos!.padStart(9, '0')}`
  } catch {
    return ''
  }
}

function ifThere<T>(look: () => T): T | undefined {
  try {
    return look()
  } catch {
    return undefined
  }
}

/**
 * Deno and Bun tell the uptime in whole seconds: beside the other clocks it would seem to jump once a second, and holders would doubt their leases. Linux has it in
 * hundredths. Elsewhere it is taken from the monotonic clock until the two differ by more than their steps.
 */
export function uptimeReader({
  coarse = isCoarse(process.versions),
  seconds = uptime,
  read = () => readFileSync('/proc/uptime', 'latin1'),
  now = () => systemClock.now(),
}: {
  readonly coarse?: boolean
  readonly seconds?: () => number
  readonly read?: () => string
  readonly now?: () => number
} = {}): () => number {
  if (!coarse) return () => seconds() * 1_000
  if (ifThere(read) !== undefined) return () => Number.parseFloat(read()) * 1_000
  let ahead = Number.NaN
  return () => {
    const middle = seconds() * 1_000 + 500
    // The first reading was wrong by up to half a second, and each is coarse by as much.
    if (!(Math.abs(now() + ahead - middle) <= 1_001)) ahead = middle - now()
    return now() + ahead
  }
}

/** A bundle for a browser has no versions. */
function isCoarse(versions: NodeJS.ProcessVersions | undefined): boolean {
  return versions !== undefined && ('bun' in versions || 'deno' in versions)
}

/** Random numbers are drawn together: a call for each would take a tenth of the time of a record. */
const drawn = new BigUint64Array(64)
let bitsLeft = 0

class SystemClock implements Clock {
  /** Measured: of 1,600 timers on two cores at load 10, 99 % were less than 5 ms late, two more than 25 ms, one 140 ms. */
  readonly lateness = 50
  readonly uptime = uptimeReader()
  readonly wall = system.wall
  readonly soon: Clock['soon'] = system.setImmediate
  #boot: string | undefined

  now(): number {
    const [seconds, nanos] = system.hrtime()
    return seconds * 1_000 + nanos / 1e6
  }

  boot(): string {
    this.#boot ??= bootOfThisMachine()
    return this.#boot
  }

  random(): number {
    return Math.random()
  }

  bits(): bigint {
    if (bitsLeft === 0) bitsLeft = randomFillSync(drawn).length
    return drawn[--bitsLeft]!
  }

  after(
    ms: number,
    then: () => void,
    { ref = false, aligned = false }: { readonly ref?: boolean; readonly aligned?: boolean } = {},
  ): () => void {
    let timer: NodeJS.Timeout
    const set = (left: number) => {
      timer =
        left > LONGEST_TIMEOUT
          ? system.setTimeout(set, LONGEST_TIMEOUT, left - LONGEST_TIMEOUT)
          : system.setTimeout(then, Math.max(0, left))
      if (!ref) timer.unref()
    }
    set(aligned ? untilNext(ms, this.now()) : ms)
    return () => system.clearTimeout(timer)
  }

  standing(ms: number, then: () => void): RearmableTimer {
    return new StandingTimer(ms, then)
  }
}

/** The time until `now` is the next multiple of `ms`. A timer that fired a little early is not set for the same one again. */
export function untilNext(ms: number, now: number): number {
  const left = ms - (now % ms)
  return left < EARLY ? left + ms : left
}

class StandingTimer implements RearmableTimer {
  #timer: NodeJS.Timeout
  #alive = true

  constructor(ms: number, then: () => void) {
    this.#timer = this.#set(ms, then)
  }

  #set(left: number, then: () => void): NodeJS.Timeout {
    if (left <= LONGEST_TIMEOUT) return system.setTimeout(then, left)
    const rest = () => {
      this.#timer = this.#set(left - LONGEST_TIMEOUT, then)
      this.keepAlive(this.#alive)
    }
    return system.setTimeout(rest, LONGEST_TIMEOUT)
  }

  cancel(): void {
    system.clearTimeout(this.#timer)
  }

  keepAlive(alive: boolean): void {
    this.#alive = alive
    if (alive) this.#timer.ref()
    else this.#timer.unref()
  }
}

export const systemClock: Clock = new SystemClock()

/** Resolves after `ms`, or rejects with the signal's own reason. Removes its listener. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal, options?: { readonly ref?: boolean }): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const stop = () => {
      cancel()
      reject(signal?.reason)
    }
    const cancel = clock.after(
      ms,
      () => {
        signal?.removeEventListener('abort', stop)
        resolve()
      },
      options,
    )
    signal?.addEventListener('abort', stop, { once: true })
  })
}

const AN_HOUR = 3_600_000

/** Keeps the process alive until the returned function is called, although nothing else may be pending. */
export function keepAlive(clock: Clock): () => void {
  let cancel = () => {}
  const again = () => {
    cancel = clock.after(AN_HOUR, again, { ref: true })
  }
  again()
  return () => cancel()
}

/**
 * As `after`, for a timeout on an answer. After this process stood still, an overdue timer fires before the sockets are read. So the input is
 * read first, and an answer that has arrived counts.
 */
export function afterReading(clock: Clock, ms: number, then: () => void, options?: { readonly ref?: boolean }): () => void {
  let over = false
  const unlessOver = () => {
    if (!over) then()
  }
  const cancel = clock.after(ms, () => clock.soon(() => clock.soon(unlessOver)), options)
  return () => {
    over = true
    cancel()
  }
}

/** One turn of the real event loop, in which all promises that can settle do. For clocks that are moved by hand. */
export function turn(): Promise<void> {
  return new Promise(resolve => system.setImmediate(resolve))
}

/** A wall-clock reading as people write it. */
export function inUtc(wall: number): string {
  return new Date(Math.min(Math.max(wall, 0), 8.64e15)).toISOString()
}

/** The next time, after `wall`, at which local clocks show this time of day. */
export function nextTimeOfDay(wall: number, hours: number, minutes: number): number {
  const at = new Date(wall)
  at.setHours(hours, minutes, 0, 0)
  if (at.getTime() <= wall) at.setDate(at.getDate() + 1)
  return at.getTime()
}

/** The wall time that a date such as `2026-11-20T14:00` names, in local time unless it names a zone. NaN if it is none. */
export function timeOfText(text: string): number {
  return Date.parse(text)
}
