/** Where answers stand until those before them have been written. */
import type { Outcome, Refused } from '../../kernel/outcome.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { RequestCount } from '../request-counts.ts'
import { asLeaseError } from './batch-session.ts'
import { writeError } from './replies.ts'

export type Encode<T = never> = (to: RespWriter, value: T) => void

/** The place of an answer among those before and after it. Used again and again: most connections ask the same all day. */
export class ReplySlot {
  ready = false
  value: unknown = undefined
  error: unknown = undefined
  failed = false
  encode: Encode<unknown> = none
  tally: RequestCount = NOBODY
  readonly settle: (value: unknown) => void
  readonly fail: (error: unknown) => void

  constructor(session: { dirty(): void }) {
    this.settle = value => {
      this.value = value
      this.ready = true
      session.dirty()
    }
    this.fail = error => {
      this.error = error
      this.failed = true
      this.ready = true
      session.dirty()
    }
  }

  write(to: RespWriter): void {
    if (this.failed) {
      this.tally.count(asLeaseError(this.error).code)
      writeError(to, this.error)
    } else {
      this.tally.count(isRefused(this.value) ? this.value.code : undefined)
      this.encode(to, this.value)
    }
    this.value = undefined
    this.error = undefined
    this.failed = false
    this.ready = false
  }
}

/** What a connection is owed, in the order it asked. */
export class ReplyQueue {
  owed = 0
  readonly #session: { dirty(): void }
  readonly #slots: ReplySlot[] = []
  #head = 0

  constructor(session: { dirty(): void }) {
    this.#session = session
  }

  /** The place of the answer to what was asked just now. */
  next(encode: Encode<unknown>, tally: RequestCount): ReplySlot {
    if (this.owed === this.#slots.length) {
      // Full: what is owed is laid out from the beginning, and new places come after it.
      this.#slots.push(...this.#slots.splice(0, this.#head))
      this.#head = 0
      for (let more = Math.max(4, this.#slots.length); more > 0; more--) this.#slots.push(new ReplySlot(this.#session))
    }
    const slot = this.#slots[(this.#head + this.owed) % this.#slots.length]!
    this.owed++
    slot.encode = encode
    slot.tally = tally
    return slot
  }

  /** All that are known, up to the first that is not. */
  write(to: RespWriter): void {
    while (this.owed > 0) {
      const slot = this.#slots[this.#head]!
      if (!slot.ready) break
      slot.write(to)
      this.#head = (this.#head + 1) % this.#slots.length
      this.owed--
    }
  }
}

export const none: Encode<unknown> = () => {}
export const NOBODY = new RequestCount('resp', '')

function isRefused(value: unknown): value is Refused {
  return typeof value === 'object' && value !== null && (value as Partial<Outcome>).kind === 'refused'
}
