/**
 * Tells single processes that something became of their leases: a list for each name that a process listens to, `{NAME}:wake:PROCESS`, on which it blocks. A list and no
 * channel, so that what is told a moment before the process listens arrives. It ends after a minute if nothing takes it.
 *
 * The connection that blocks is the only one of a process that only holds leases: the store closes the others between its renewals. While a reader waits for records, the
 * process follows the log and need not be told. A client of the application is used between renewals for nothing, so such a process is told nothing.
 */
import { BACKOFF, pauseAfter } from '../../backoff.ts'
import { type Clock, pause } from '../../clock.ts'
import type { Waker } from '../../store.ts'
import { Wakeups } from '../wakeups.ts'
import type { RedisConnection } from './connection.ts'
import type { RedisArgument } from './driver.ts'
import { text } from './log.ts'

/** Redis answers after this many seconds at the latest, so that a dead connection is noticed. */
const BLOCK = 60
/** Keys of one script. */
const AT_ONCE = 500
const WAKE = `for _, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 0 then redis.call('LPUSH', key, '') end
  redis.call('PEXPIRE', key, 60000)
end`

export interface RedisWakerOptions {
  readonly clock: Clock
  /** The name of the log. */
  readonly name: string
  readonly connection: RedisConnection
  /** To block on. Undefined: this process is told nothing. */
  readonly listening: RedisConnection | undefined
  /** Returns whether the process follows the log. */
  readonly isFollowing: () => boolean
}

export class RedisWaker implements Waker {
  readonly listens: boolean
  readonly #options: RedisWakerOptions
  readonly #prefix: string
  readonly #woken = new Map<string, () => void>()
  readonly #changes = new Wakeups()
  readonly #closing = new AbortController()
  #isListening = false
  /** Counts the calls of `look`. */
  #looks = 0

  constructor(options: RedisWakerOptions) {
    this.#options = options
    this.listens = options.listening !== undefined
    this.#prefix = `{${options.name}}:wake:`
  }

  /** Returns whether this process is told something, now or as soon as no reader waits. */
  get isNeeded(): boolean {
    return this.#isListening
  }

  listen(name: string, woken: () => void): void {
    const { listening, clock } = this.#options
    if (listening === undefined || this.#woken.has(this.#prefix + name) || this.#closing.signal.aborted) return
    this.#woken.set(this.#prefix + name, woken)
    clock.soon(() => this.#closing.signal.aborted || woken())
    this.look()
    if (this.#isListening) return
    this.#isListening = true
    void this.#listen(listening)
  }

  wake(names: readonly string[]): void {
    for (let i = 0; i < names.length; i += AT_ONCE) {
      const keys = names.slice(i, i + AT_ONCE).map(name => this.#prefix + name)
      // A user who lacks the rights tells nothing: the other process learns of it with its next renewal.
      this.#options.connection.send(['EVAL', WAKE, String(keys.length), ...keys], { ifLost: 'UNAVAILABLE' }).catch(() => {})
    }
  }

  /** Readers have begun or ceased to wait, or there is another name: what blocks is not what should. */
  look(): void {
    this.#looks++
    this.#options.listening?.disconnect()
    this.#changes.wake()
  }

  close(): void {
    this.#closing.abort()
    this.#options.listening?.close()
  }

  async #listen(connection: RedisConnection): Promise<void> {
    const { clock, isFollowing } = this.#options
    const { signal } = this.#closing
    for (let failures = 0; !signal.aborted; ) {
      if (isFollowing()) {
        connection.disconnect() // it may have been made meanwhile
        await this.#changes.wait([signal]).catch(() => {})
        continue
      }
      const looks = this.#looks
      try {
        const told = await connection.send(() => this.#blocking(), { ifLost: 'UNAVAILABLE', waits: BLOCK * 1_000 })
        failures = 0
        if (told !== null && !signal.aborted) this.#woken.get(text((told as readonly Buffer[])[0]!))?.()
      } catch {
        if (looks === this.#looks) await pause(clock, pauseAfter(BACKOFF.notices, failures++), signal).catch(() => {})
      }
    }
  }

  /** Made when the connection is there: until then a reader may have begun to wait. */
  #blocking(): readonly RedisArgument[] {
    if (this.#options.isFollowing()) throw new Error('a reader waits')
    return ['BLPOP', ...this.#woken.keys(), String(BLOCK)]
  }
}
