/**
 * Passes appends to the worker thread through shared memory. Between two appends the worker blocks in `Atomics.wait` instead of running its
 * event loop. The caller blocks until the answer is there, for at most `LONGEST_WAIT` ms.
 *
 * A message wakes an event loop on each side, which takes longer than a sync of a fast disk. The wait is bounded, because renewals need no disk
 * and must not wait for a slow one: an answer that is late comes as a message, and the next appends are sent as messages.
 *
 * The memory: four words, then the request (number of the call, position, length), the position of the answer, and the bytes of the record.
 */
import type { Position } from '../../store.ts'

/** Incremented with every request and every message. A worker that is about to block sees the change and does not block. */
const BELL = 0
/** Counts the messages to the worker. */
const MESSAGES = 1
/** 1 while the worker waits at the bell. */
const PARKED = 2
/** What became of the request. */
const STATE = 3
/** `LATE`: the caller does not wait any more. `BY_MESSAGE`: the answer comes as a message. */
const [NONE, ASKED, LATE, ANSWERED, BY_MESSAGE] = [0, 1, 2, 3, 4]

/** A larger record has the commands of many callers. It goes as a message, and the loop reads the next commands during the sync. */
const LONGEST_RECORD = 4 * 1_024
/** How long a caller stands still for an answer, in ms. */
const LONGEST_WAIT = 1
/** After an answer that took longer, so many appends do not wait. Doubled each time, up to the second number. */
const [FEWEST_SKIPPED, MOST_SKIPPED] = [1, 256]
/** The worker returns to its event loop if there was no append for so long, in ms. */
const LONGEST_PARKED = 1_000

const FIELDS = 64
const BYTES = 128

class SharedLayout {
  readonly words: Int32Array
  /** The number of the call, the index and the length of the request; the index of the answer. */
  readonly numbers: Float64Array
  /** The nonces of the request and of the answer. */
  readonly nonces: BigUint64Array
  readonly bytes: Uint8Array

  constructor(readonly shared: SharedArrayBuffer) {
    this.words = new Int32Array(shared, 0, 4)
    this.numbers = new Float64Array(shared, FIELDS, 4)
    this.nonces = new BigUint64Array(shared, FIELDS + 32, 2)
    this.bytes = new Uint8Array(shared, BYTES)
  }
}

/** The caller's end. */
export class AppendChannel {
  readonly #memory = new SharedLayout(new SharedArrayBuffer(BYTES + LONGEST_RECORD))
  #skip = 0
  #skipNext = FEWEST_SKIPPED

  get memory(): SharedArrayBuffer {
    return this.#memory.shared
  }

  /** Undefined: send the request as a message. `by message`: it was asked for, and the answer to this call comes as a message. */
  append(call: number, record: Uint8Array, after: Position): Position | 'by message' | undefined {
    const { words, numbers, nonces, bytes } = this.#memory
    if (record.length > LONGEST_RECORD || Atomics.load(words, PARKED) === 0 || Atomics.load(words, STATE) !== NONE) return undefined
    if (this.#skip > 0) {
      this.#skip--
      return undefined
    }
    bytes.set(record)
    numbers[0] = call
    numbers[1] = after.index
    numbers[2] = record.length
    nonces[0] = after.nonce
    Atomics.store(words, STATE, ASKED)
    Atomics.add(words, BELL, 1)
    Atomics.notify(words, BELL)
    Atomics.wait(words, STATE, ASKED, LONGEST_WAIT)
    if (Atomics.compareExchange(words, STATE, ASKED, LATE) === ASKED) {
      this.#skip = this.#skipNext
      this.#skipNext = Math.min(this.#skipNext * 2, MOST_SKIPPED)
      return 'by message'
    }
    if (Atomics.exchange(words, STATE, NONE) === BY_MESSAGE) return 'by message'
    this.#skipNext = FEWEST_SKIPPED
    return { index: numbers[3]!, nonce: nonces[1]! }
  }

  /** Call this after every message to the worker. */
  messageSent(): void {
    const { words } = this.#memory
    Atomics.add(words, MESSAGES, 1)
    Atomics.add(words, BELL, 1)
    Atomics.notify(words, BELL)
  }
}

export interface AppendRequest {
  readonly call: number
  readonly record: Uint8Array
  readonly after: Position
}

/** The worker's end. */
export class AppendListener {
  readonly #memory: SharedLayout
  #received = 0

  constructor(shared: SharedArrayBuffer) {
    this.#memory = new SharedLayout(shared)
  }

  /** Call this for every message that was received. */
  messageReceived(): void {
    this.#received = (this.#received + 1) | 0
  }

  /** Waits for the next request. Undefined if there is a message instead, or nothing for a while. */
  next(): AppendRequest | undefined {
    const { words } = this.#memory
    for (;;) {
      const bell = Atomics.load(words, BELL)
      if (this.#asked) return this.#request()
      // More may have been received than the caller has counted yet.
      if (((Atomics.load(words, MESSAGES) - this.#received) | 0) > 0) return undefined
      Atomics.store(words, PARKED, 1)
      const woken = Atomics.wait(words, BELL, bell, LONGEST_PARKED)
      Atomics.store(words, PARKED, 0)
      if (woken === 'timed-out' && !this.#asked) return undefined
    }
  }

  get #asked(): boolean {
    const state = Atomics.load(this.#memory.words, STATE)
    return state === ASKED || state === LATE
  }

  #request(): AppendRequest {
    const { numbers, nonces, bytes } = this.#memory
    return { call: numbers[0]!, record: bytes.slice(0, numbers[2]!), after: { index: numbers[1]!, nonce: nonces[0]! } }
  }

  /** Answers the request; undefined if its answer is no plain position. False: send the answer as a message. */
  answer(position: Position | undefined): boolean {
    const { words, numbers, nonces } = this.#memory
    if (position !== undefined) {
      numbers[3] = position.index
      nonces[1] = position.nonce
    }
    if (Atomics.compareExchange(words, STATE, ASKED, position === undefined ? BY_MESSAGE : ANSWERED) === ASKED) {
      Atomics.notify(words, STATE)
      return position !== undefined
    }
    Atomics.store(words, STATE, NONE)
    return false
  }
}
