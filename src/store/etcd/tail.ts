/**
 * Records that other processes append, from one watch for all waiting readers.
 *
 * The watch is not relied upon. Its stream may be half dead, on a member that was cut off, or compacted away. Waiting readers also poll, and
 * a record that a poll finds before the watch delivers it shows that the watch is dead.
 */
import type { Clock } from '../../clock.ts'
import type { Position } from '../../store.ts'
import type { Gateway, Stream } from './gateway.ts'
import type { EtcdLog } from './log.ts'
import type { KeyValue, WatchAnswer } from './message.ts'
import type { EtcdRecord } from './parts.ts'

/** Records and bytes that are kept for readers that ask a little later. */
const KEPT_RECORDS = 1_000
const KEPT_BYTES = 4 << 20
const KEPT_PARTS = 16
const AGAIN_FIRST = 20
const AGAIN_LAST = 1_000

export interface EtcdTailOptions {
  readonly gateway: Gateway
  readonly log: EtcdLog
  readonly clock: Clock
}

export class EtcdTail {
  readonly #options: EtcdTailOptions
  #stream: Stream | undefined
  /** Records without a gap, in order; the first follows `#base`. Without a base nothing is known. */
  #base: Position | undefined
  #chain: EtcdRecord[] = []
  #bytes = 0
  readonly #parts = new Map<string, Buffer>()
  /** A position known to be in the log, ahead of what the watch has delivered. */
  #ahead: Position | undefined
  #again = AGAIN_FIRST
  #notBefore = 0
  readonly #waiting = new Set<() => void>()

  constructor(options: EtcdTailOptions) {
    this.#options = options
  }

  /** The records after `after`. Empty: none yet. Undefined: the watch does not know, and the caller must read. */
  following(after: Position): readonly EtcdRecord[] | undefined {
    if (this.#stream === undefined || this.#base === undefined) return undefined
    const place = after.index - this.#base.index
    const found = place === 0 ? this.#base : this.#chain[place - 1]?.position
    if (found !== undefined) return found.nonce === after.nonce ? this.#chain.slice(place) : undefined
    return place > 0 && this.#ahead?.index === after.index && this.#ahead.nonce === after.nonce ? [] : undefined
  }

  /** This position was just seen in the log, or put there. */
  confirm(position: Position): void {
    if (position.index > (this.#ahead?.index ?? 0)) this.#ahead = position
  }

  /** Starts the watch, if there is none. The log ended at `end` at etcd's `revision`. */
  begin(end: Position, revision: bigint): void {
    if (this.#stream !== undefined) {
      const last = this.#chain.at(-1)?.position ?? this.#base
      this.#ahead = end
      if (last !== undefined && (last.index < end.index || (last.index === end.index && last.nonce === end.nonce))) return
    }
    const { gateway, log, clock } = this.#options
    if (clock.now() < this.#notBefore) return
    this.#forget()
    this.#base = end
    const request = { ...log.keys.tail, start_revision: String(revision + 1n), filters: ['NODELETE'], fragment: true }
    this.#stream = gateway.stream(
      '/watch',
      [{ create_request: request }],
      message => this.#received(message as WatchAnswer),
      () => this.restart(),
    )
  }

  /** The watch is dead or ended: waiting readers read for themselves, and a new watch starts from what they find. */
  restart(): void {
    this.#forget()
    this.#notBefore = this.#options.clock.now() + this.#again
    this.#again = Math.min(this.#again * 2, AGAIN_LAST)
    this.#wake()
  }

  /** Resolves when the watch delivers something, or after `ms`; rejects with the signal's reason. */
  next(ms: number, signal: AbortSignal): Promise<'news' | 'silence'> {
    return new Promise((resolve, reject) => {
      const done = () => {
        cancel()
        this.#waiting.delete(wake)
        signal.removeEventListener('abort', stop)
      }
      const wake = () => {
        done()
        resolve('news')
      }
      const stop = () => {
        done()
        reject(signal.reason)
      }
      const { clock } = this.#options
      // Without a watch the next read also starts one.
      const cancel = clock.after(this.#stream ? ms : Math.min(ms, Math.max(0, this.#notBefore - clock.now())), () => {
        done()
        resolve('silence')
      })
      this.#waiting.add(wake)
      signal.addEventListener('abort', stop)
      if (signal.aborted) stop()
    })
  }

  /** No reader waits: the next one that does starts a watch. */
  rest(): void {
    this.#forget()
  }

  close(): void {
    this.#forget()
    this.#notBefore = Number.POSITIVE_INFINITY
    this.#wake()
  }

  #received({ result, error }: WatchAnswer): void {
    // Compacted away, or the server is shutting down: a read helps in both cases.
    if (result === undefined || error !== undefined || result.canceled) return this.restart()
    if (result.events === undefined) return
    this.#again = AGAIN_FIRST
    for (const { kv } of result.events) this.#put(kv)
    this.#wake()
  }

  #put(kv: KeyValue): void {
    const { keys, parts } = this.#options.log
    const kind = keys.kindOf(kv.key)
    if (kind === 'record') this.#add(parts.whole(this.#options.log.stored(kv), this.#parts))
    if (kind !== 'part') return
    // Parts come before their record, usually right before it. Parts that are dropped here are fetched.
    this.#parts.set(kv.key, Buffer.from(kv.value ?? '', 'base64'))
    if (this.#parts.size > KEPT_PARTS) this.#parts.delete(this.#parts.keys().next().value!)
  }

  #add(record: EtcdRecord): void {
    if (this.#base === undefined) return
    const last = this.#chain.at(-1)?.position ?? this.#base
    if (record.position.index !== last.index + 1) {
      this.#base = undefined // the log lost its tail and grew again: readers must read it
      this.#chain = []
      return
    }
    this.#chain.push(record)
    this.#bytes += record.value.length
    while (this.#chain.length > KEPT_RECORDS || (this.#bytes > KEPT_BYTES && this.#chain.length > 1)) {
      const oldest = this.#chain.shift()!
      this.#base = oldest.position
      this.#bytes -= oldest.value.length
    }
  }

  #forget(): void {
    this.#stream?.close()
    this.#stream = undefined
    this.#base = undefined
    this.#ahead = undefined
    this.#chain = []
    this.#bytes = 0
    this.#parts.clear()
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake()
  }
}
