/**
 * Divides the time of the event loop between the callers of a server, so that the flood of one does not delay the others.
 *
 * Requests are handled in slices of a few milliseconds. Between two slices the loop reads sockets and fires timers. A request is handled at once while the slice
 * has time left and no other request of its party waits: that is the ordinary case. Otherwise it waits in the queue of its party, and the queues are served in
 * turn, one request each. Within a party, renewals go first.
 */
import type { Clock } from '../clock.ts'
import { Fifo } from '../fifo.ts'
import type { Caller } from './access-control.ts'

/** Clients that share one turn: those of one key or, without a key, of one address. On this machine each connection without a key is a party of its own. */
export type Party = number | string | Caller

/** In ms. */
const SLICE = 5

/** The requests of one party that wait for their turn. */
class PartyQueue {
  readonly party: Party
  readonly #urgent = new Fifo<() => void>()
  readonly #others = new Fifo<() => void>()

  constructor(party: Party) {
    this.party = party
  }

  add(work: () => void, urgent: boolean): void {
    if (urgent) this.#urgent.push(work)
    else this.#others.push(work)
  }

  take(): () => void {
    return (this.#urgent.shift() ?? this.#others.shift())!
  }

  get isEmpty(): boolean {
    return this.#urgent.size === 0 && this.#others.size === 0
  }
}

export class CallerTurns {
  readonly #clock: Clock
  readonly #slice: number
  readonly #queues = new Map<Party, PartyQueue>()
  /** The same queues, the next one first. */
  readonly #order = new Fifo<PartyQueue>()
  /** When the current slice ends. Undefined: no request has been handled in this turn of the event loop. */
  #ends: number | undefined
  /** The party whose turn it is, and how many of its requests were handled in this turn. */
  #served: Party | undefined
  #handled = 0
  /** For metrics and tests: requests that had to wait. */
  readonly stats = { waited: 0 }

  /** `slice`: infinite where time does not pass while code runs. */
  constructor(clock: Clock, { slice = SLICE }: { readonly slice?: number } = {}) {
    this.#clock = clock
    this.#slice = slice
  }

  /** Returns whether the next request of this party may be handled now. If not, `wait` for its turn. */
  mayHandle(party: Party): boolean {
    if (this.#slice === Number.POSITIVE_INFINITY) return true
    if (party === this.#served) return this.#handled++ === 0 || (this.#queues.size === 0 && this.#hasTime())
    if (this.#queues.has(party)) return false
    if (this.#ends !== undefined) return this.#hasTime()
    this.#begin()
    return true
  }

  /** Calls `handle` when it is the turn of this party. */
  wait(party: Party, handle: () => void, urgent = false): void {
    this.stats.waited++
    let queue = this.#queues.get(party)
    if (queue === undefined) {
      queue = new PartyQueue(party)
      this.#queues.set(party, queue)
      this.#order.push(queue)
    }
    queue.add(handle, urgent)
    if (this.#ends === undefined) this.#begin()
  }

  /** Undefined if the request may be handled now. Otherwise resolves when it may. */
  turn(party: Party, urgent = false): Promise<void> | undefined {
    if (this.mayHandle(party)) return undefined
    return new Promise(resolve => this.wait(party, this.#onceSliceIsOver(resolve), urgent))
  }

  /** Resolves in a later turn of this party. Work that takes long asks for it after each of its slices. */
  next(party: Party): Promise<void> | undefined {
    return this.#slice === Number.POSITIVE_INFINITY ? undefined : new Promise(resolve => this.wait(party, this.#onceSliceIsOver(resolve)))
  }

  /** The request is handled after this slice, and its time counts for the next one. */
  #onceSliceIsOver(resolve: () => void): () => void {
    return () => {
      resolve()
      this.#ends = 0
    }
  }

  #hasTime(): boolean {
    return this.#clock.now() < this.#ends!
  }

  #begin(): void {
    this.#ends = this.#clock.now() + this.#slice
    this.#clock.soon(this.#serve)
  }

  readonly #serve = (): void => {
    this.#ends = undefined
    if (this.#queues.size === 0) return
    this.#begin()
    while (this.#queues.size > 0 && this.#hasTime()) {
      const queue = this.#order.shift()!
      const handle = queue.take()
      if (queue.isEmpty) this.#queues.delete(queue.party)
      else this.#order.push(queue) // behind the others
      this.#served = queue.party
      this.#handled = 0
      handle()
    }
    this.#served = undefined
  }
}

export function partyOf(caller: Caller, address: string | undefined): Party {
  if (caller.key !== 0) return caller.key
  return caller.operator === true || address === undefined || isThisMachine(address) ? caller : address
}

function isThisMachine(address: string): boolean {
  return address === '::1' || address.startsWith('127.') || address.startsWith('::ffff:127.')
}
