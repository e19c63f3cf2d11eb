/**
 * The pushes of one RESP connection: messages that are not replies, such as events and grants. They are kept until the end of a turn of the event loop.
 * Producers that push more than the client reads have to wait.
 */
import type { RespWriter } from '../../wire/resp/writer.ts'

/** Maximum bytes of pushes within one turn. */
const MAX_BYTES = 64 << 10

export class PushQueue {
  readonly #canSend: (maxUnwritten: number) => boolean
  readonly #pushes: ((to: RespWriter) => void)[] = []
  readonly #waiting: (() => void)[] = []
  /** True if there is nothing to write, and no producer to wake. */
  isIdle = true
  #bytes = 0

  /** `canSend`: the client keeps up, and other unwritten data of the connection has at most this many bytes. */
  constructor(canSend: (maxUnwritten: number) => boolean) {
    this.#canSend = canSend
  }

  /** `size` is the approximate number of bytes. */
  add(write: (to: RespWriter) => void, size: number): void {
    this.isIdle = false
    this.#pushes.push(write)
    this.#bytes += size
  }

  write(to: RespWriter): void {
    for (const write of this.#pushes.splice(0)) write(to)
    this.#bytes = 0
  }

  discard(): void {
    this.#pushes.length = 0
    this.#bytes = 0
    this.wake()
  }

  /** Undefined if there is room for more pushes. Otherwise resolves when there is, or when the connection is closed. */
  room(): Promise<void> | undefined {
    if (this.#canSend(MAX_BYTES - this.#bytes)) return undefined
    this.isIdle = false
    return new Promise(resolve => this.#waiting.push(resolve))
  }

  /** Wakes the waiting producers if there is room. */
  wake(): void {
    if (this.#waiting.length > 0 && this.#canSend(MAX_BYTES - this.#bytes)) for (const wake of this.#waiting.splice(0)) wake()
    this.isIdle = this.#waiting.length + this.#pushes.length === 0
  }
}
