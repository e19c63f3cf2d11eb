/** Detects a client that never completes a command, never reads its replies, or does not hang up after the last one. */

export interface SlowClientLimits {
  /** Timeout of an incomplete command, and of the client's hang-up, in ms. */
  readonly incomplete: number
  /** Timeout without progress in reading replies, in ms. */
  readonly unread: number
}

export class SlowClientDetector {
  /** Since when a command is incomplete, or the client has not hung up after the last reply. */
  #incompleteSince = Number.POSITIVE_INFINITY
  #unreadSince = Number.POSITIVE_INFINITY
  #backlog = 0

  incomplete(now: number): void {
    this.#incompleteSince = Math.min(this.#incompleteSince, now)
  }

  complete(): void {
    this.#incompleteSince = Number.POSITIVE_INFINITY
  }

  /** Call this regularly. `backlog` is the number of unread bytes; `closing`: the last reply has been written. */
  isTooSlow(now: number, { backlog, closing }: { readonly backlog: number; readonly closing: boolean }, limits: SlowClientLimits): boolean {
    if (backlog === 0) this.#unreadSince = Number.POSITIVE_INFINITY
    else if (this.#unreadSince === Number.POSITIVE_INFINITY || backlog < this.#backlog) this.#unreadSince = now
    this.#backlog = backlog
    // A client that still reads the last replies cannot have seen the end of the connection yet.
    if (closing && backlog > 0 && this.#incompleteSince < now) this.#incompleteSince = now
    return now - this.#incompleteSince > limits.incomplete || now - this.#unreadSince > limits.unread
  }
}
