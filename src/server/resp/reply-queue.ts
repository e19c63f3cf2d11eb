/** Keeps the replies of a connection in the order of its commands, until the replies before them are ready. */
import type { Refused } from '../../kernel/outcome.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import type { Caller } from '../access-control.ts'
import { NO_KEY, type RequestCounter, type RequestCounters, UNCOUNTED } from '../request-counters.ts'
import { asLeaseError, writeError } from './replies.ts'

export type Encode<T = never> = (to: RespWriter, value: T) => void

/** The connection that the replies belong to. */
interface ReplyingSession {
  readonly caller: Caller
  readonly host: { readonly counters: RequestCounters; scheduleFlush(session: ReplyingSession): void }
}

/** The place of one reply in the queue. Slots are reused. */
export class ReplySlot {
  ready = false
  value: unknown = undefined
  error: unknown = undefined
  failed = false
  encode: Encode<unknown> = writeNothing
  counter: RequestCounter = UNCOUNTED
  readonly settle: (value: unknown) => void
  readonly fail: (error: unknown) => void

  constructor(session: ReplyingSession) {
    this.settle = value => {
      this.value = value
      this.ready = true
      session.host.scheduleFlush(session)
    }
    this.fail = error => {
      this.error = error
      this.failed = true
      this.ready = true
      session.host.scheduleFlush(session)
    }
  }
}

export class ReplyQueue {
  /** Replies that are not written yet. */
  pending = 0
  readonly #session: ReplyingSession
  readonly #slots: ReplySlot[] = []
  /** The key of the caller whose replies were written last, and its counter. */
  #key = 0
  #keyCounter = NO_KEY
  #head = 0

  constructor(session: ReplyingSession) {
    this.#session = session
  }

  /** The slot for the reply to the current command. */
  next(encode: Encode<unknown>, counter: RequestCounter): ReplySlot {
    if (this.pending === this.#slots.length) {
      // Full: rotate the pending slots to the start, and append new ones.
      this.#slots.push(...this.#slots.splice(0, this.#head))
      this.#head = 0
      for (let more = Math.max(4, this.#slots.length); more > 0; more--) this.#slots.push(new ReplySlot(this.#session))
    }
    const slot = this.#slots[(this.#head + this.pending) % this.#slots.length]!
    this.pending++
    slot.encode = encode
    slot.counter = counter
    return slot
  }

  /** Returns whether `write` has something to write. */
  get ready(): boolean {
    return this.pending > 0 && this.#slots[this.#head]!.ready
  }

  /** Writes the replies that are ready, up to the first that is not. */
  write(to: RespWriter): void {
    const { caller, host } = this.#session
    if (caller.key !== this.#key) {
      this.#key = caller.key
      this.#keyCounter = host.counters.ofKey(caller.key)
    }
    const keyCounter = this.#keyCounter
    while (this.pending > 0) {
      const slot = this.#slots[this.#head]!
      if (!slot.ready) break
      if (slot.failed) {
        const { code } = asLeaseError(slot.error)
        slot.counter.increment(code)
        keyCounter.increment(code)
        writeError(to, slot.error)
      } else {
        const outcome = slot.value as Partial<Refused> | null | undefined
        if (outcome?.kind === 'refused') {
          slot.counter.increment(outcome.code)
          keyCounter.increment(outcome.code)
        } else {
          slot.counter.ok++
          keyCounter.ok++
        }
        slot.encode(to, slot.value)
      }
      slot.value = slot.error = undefined
      slot.failed = slot.ready = false
      this.#head = (this.#head + 1) % this.#slots.length
      this.pending--
    }
  }
}

export const writeNothing: Encode<unknown> = () => {}
