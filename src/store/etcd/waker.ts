/**
 * Tells single processes that something became of their leases: a key for each name that a process listens to, `NAME:wake/PROCESS`, which it watches. A process that wakes it puts
 * the key with a lease of etcd, which removes it a minute later.
 *
 * While a reader waits for records, the process follows the log and need not be told: then this watch is closed. So a process that only holds leases has one connection
 * between its renewals, the one of this watch.
 */
import { BACKOFF, pauseAfter } from '../../backoff.ts'
import type { Clock } from '../../clock.ts'
import type { Waker } from '../../store.ts'
import type { Gateway, Stream } from './gateway.ts'
import type { EtcdKeys } from './keys.ts'
import type { WatchAnswer } from './message.ts'

/** Seconds until a key is removed. */
const KEPT = 60
/** etcd accepts 128 operations in a transaction, by default. */
const AT_ONCE = 100

export interface EtcdWakerOptions {
  readonly clock: Clock
  readonly keys: EtcdKeys
  /** Undefined before the store is open. */
  readonly gateway: () => Gateway | undefined
  /** Returns whether the process follows the log. */
  readonly isFollowing: () => boolean
}

export class EtcdWaker implements Waker {
  readonly listens = true
  readonly #options: EtcdWakerOptions
  /** By key. */
  readonly #woken = new Map<string, () => void>()
  #stream: Stream | undefined
  #cancelAgain: (() => void) | undefined
  #failures = 0
  #closed = false

  constructor(options: EtcdWakerOptions) {
    this.#options = options
  }

  /** Returns whether this process is told something, now or as soon as no reader waits. */
  get isNeeded(): boolean {
    return this.#woken.size > 0
  }

  listen(name: string, woken: () => void): void {
    const key = this.#options.keys.wake(name)
    if (this.#closed || this.#woken.has(key)) return
    this.#woken.set(key, woken)
    this.look()
  }

  wake(names: readonly string[]): void {
    // What gets lost is learned with the next renewal.
    this.#tell(names).catch(() => {})
  }

  /** Readers have begun or ceased to wait, or there is another name: watches what is to be watched now. */
  look(): void {
    this.#stop()
    const { gateway, isFollowing } = this.#options
    const open = gateway()
    if (this.#closed || open === undefined || this.#woken.size === 0 || isFollowing()) return
    let created = 0
    const keys = [...this.#woken.keys()]
    this.#stream = open.stream(
      '/watch',
      keys.map(key => ({ create_request: { key, filters: ['NODELETE'] } })),
      message => {
        const { result } = message as WatchAnswer
        if (result === undefined || result.canceled === true) return this.#again()
        if (result.created === true) created++
        // What was told before may have been lost.
        if (result.created === true && created === keys.length) {
          this.#failures = 0
          for (const woken of this.#woken.values()) woken()
        }
        for (const { kv } of result.events ?? []) this.#woken.get(kv.key)?.()
      },
      () => this.#again(),
    )
  }

  close(): void {
    this.#closed = true
    this.#stop()
  }

  async #tell(names: readonly string[]): Promise<void> {
    const { gateway, keys } = this.#options
    const open = gateway()
    if (open === undefined || this.#closed) return
    const { ID: lease } = await open.call<{ readonly ID: string }>('/lease/grant', { TTL: KEPT })
    for (let i = 0; i < names.length; i += AT_ONCE) {
      const success = names.slice(i, i + AT_ONCE).map(name => ({ request_put: { key: keys.wake(name), value: '', lease } }))
      await open.call('/kv/txn', { compare: [], success, failure: [] })
    }
  }

  #again(): void {
    this.#stop()
    if (this.#closed) return
    this.#cancelAgain = this.#options.clock.after(pauseAfter(BACKOFF.notices, this.#failures++), () => this.look())
  }

  #stop(): void {
    this.#cancelAgain?.()
    this.#cancelAgain = undefined
    this.#stream?.close()
    this.#stream = undefined
  }
}
