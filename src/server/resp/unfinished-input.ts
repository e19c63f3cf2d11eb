/** Bounds the bytes of incomplete commands. Those of thousands of connections together must not exhaust the memory. */

/** An incomplete command of up to this many bytes is always kept: a usual one, split by the network. */
const SMALL_COMMAND = 16 << 10

/** Bytes of incomplete commands, over all connections. */
export interface UnfinishedTotal {
  unfinishedBytes: number
}

export class UnfinishedInput {
  readonly #total: UnfinishedTotal
  readonly #max: number
  #bytes = 0

  /** `max` is the limit over all connections. */
  constructor(total: UnfinishedTotal, max: number) {
    this.#total = total
    this.#max = max
  }

  /** Sets the bytes of this connection. */
  count(bytes: number): void {
    this.#total.unfinishedBytes += bytes - this.#bytes
    this.#bytes = bytes
  }

  /** Why the counted bytes cannot be kept until the rest of their command arrives; undefined if they can. */
  refusal(authenticated: boolean): string | undefined {
    if (this.#bytes <= SMALL_COMMAND) return undefined
    if (!authenticated) return `commands before AUTH may have ${SMALL_COMMAND} bytes in all: send AUTH first`
    if (this.#total.unfinishedBytes <= this.#max) return undefined
    return `incomplete commands of all connections exceed ${this.#max} bytes, the limit: retry later`
  }
}
