/**
 * RESP as a client reads it: answers and pushes out of bytes. What a server sends is not trusted: a frame has at most so many bytes, values are
 * nested at most so deep, and what is neither is an error that ends the connection.
 */
import { ProtocolError } from './command-parser.ts'

/** An answer `-CODE message`. */
export class ReplyError extends Error {
  override readonly name = 'ReplyError'
}

export type Reply = string | number | null | boolean | Uint8Array | ReplyError | readonly Reply[] | Push | ReadonlyMap<Reply, Reply>

export class Push {
  readonly items: readonly Reply[]

  constructor(items: readonly Reply[]) {
    this.items = items
  }
}

export interface ReplyBounds {
  readonly bytes: number
  readonly depth: number
}

const BOUNDS: ReplyBounds = { bytes: 256 << 20, depth: 8 }
const EMPTY = Buffer.alloc(0)
const LONGEST_LINE = 64 << 10
const SHORT = Symbol('there is more to come')

export class ReplyParser {
  readonly #bounds: ReplyBounds
  #buffer: Buffer = EMPTY
  #at = 0
  #end = 0
  /** Trying again makes sense only when so many bytes are there. */
  #needed = 1

  constructor(bounds: ReplyBounds = BOUNDS) {
    this.#bounds = bounds
  }

  /** Takes the next whole answers out of the chunk. Bulks are good only until `reply` returns. Throws `ProtocolError`. */
  feed(chunk: Uint8Array, reply: (reply: Reply) => void): void {
    this.#append(chunk)
    while (this.#end - this.#at >= this.#needed) {
      const start = this.#at
      const value = this.#value(0)
      if (value === SHORT) {
        this.#at = start
        this.#needed = Math.max(this.#needed, this.#end - start + 1)
        if (this.#needed > this.#bounds.bytes) throw new ProtocolError(`an answer has more than ${this.#bounds.bytes} bytes`)
        break
      }
      this.#needed = 1
      reply(value)
    }
    if (this.#at === this.#end) this.#buffer = EMPTY
    // The chunk is not ours: what is left of it is.
    else
      this.#buffer =
        this.#buffer.byteOffset === chunk.byteOffset && this.#buffer.buffer === chunk.buffer
          ? Buffer.from(this.#buffer.subarray(this.#at, this.#end))
          : this.#compact()
    this.#end -= this.#at
    this.#at = 0
  }

  #compact(): Buffer {
    if (this.#at > 0) this.#buffer.copyWithin(0, this.#at, this.#end)
    return this.#buffer
  }

  #append(chunk: Uint8Array): void {
    const rest = this.#end - this.#at
    if (rest === 0) {
      this.#buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
      this.#at = 0
      this.#end = chunk.byteLength
      return
    }
    const needed = rest + chunk.byteLength
    if (needed > this.#buffer.length) {
      const room = Buffer.allocUnsafe(Math.max(needed, Math.min(this.#needed, this.#bounds.bytes), Math.min(2 * needed, 1 << 20)))
      this.#buffer.copy(room, 0, this.#at, this.#end)
      this.#buffer = room
    }
    this.#buffer.set(chunk, rest)
    this.#at = 0
    this.#end = needed
  }

  #line(): string | typeof SHORT {
    const end = this.#buffer.indexOf('\r\n', this.#at, 'latin1')
    if (end < 0 || end + 2 > this.#end) {
      if (this.#end - this.#at > LONGEST_LINE) throw new ProtocolError('an answer has a line without an end')
      return SHORT
    }
    const line = this.#buffer.toString('utf8', this.#at, end)
    this.#at = end + 2
    return line
  }

  #value(depth: number): Reply | typeof SHORT {
    if (depth > this.#bounds.depth) throw new ProtocolError(`an answer is nested more than ${this.#bounds.depth} deep`)
    const line = this.#line()
    if (line === SHORT) return SHORT
    const rest = line.slice(1)
    switch (line[0]) {
      case '+':
        return rest
      case '-':
        return new ReplyError(rest)
      case ':':
        return whole(rest)
      case '_':
        return null
      case '#':
        return rest === 't'
      case ',':
        return Number(rest)
      case '(':
        return rest
      case '$':
      case '=':
      case '!':
        return this.#bulk(line[0] === '!', whole(rest))
      case '*':
      case '~':
        return this.#items(whole(rest), depth)
      case '>': {
        const items = this.#items(whole(rest), depth)
        return items === SHORT ? SHORT : new Push((items as readonly Reply[] | null) ?? [])
      }
      case '%':
        return this.#map(whole(rest), depth)
      case '|': {
        // What is said about an answer is not the answer.
        const about = this.#map(whole(rest), depth)
        return about === SHORT ? SHORT : this.#value(depth + 1)
      }
      default:
        throw new ProtocolError('an answer begins with a sign that RESP does not know')
    }
  }

  #bulk(error: boolean, length: number): Reply | typeof SHORT {
    if (length === -1) return null
    if (length < 0 || length > this.#bounds.bytes) throw new ProtocolError(`an answer has more than ${this.#bounds.bytes} bytes`)
    const end = this.#at + length
    if (end + 2 > this.#end) {
      this.#needed = this.#end - this.#at + (end + 2 - this.#end)
      return SHORT
    }
    const bytes = this.#buffer.subarray(this.#at, end)
    this.#at = end + 2
    return error ? new ReplyError(bytes.toString('utf8')) : bytes
  }

  #items(count: number, depth: number): readonly Reply[] | null | typeof SHORT {
    if (count === -1) return null
    if (count < 0 || count > this.#bounds.bytes / 3) throw new ProtocolError('an answer has too many items')
    const items: Reply[] = []
    for (let i = 0; i < count; i++) {
      const item = this.#value(depth + 1)
      if (item === SHORT) return SHORT
      items.push(item)
    }
    return items
  }

  #map(pairs: number, depth: number): ReadonlyMap<Reply, Reply> | typeof SHORT {
    const items = this.#items(2 * pairs, depth)
    if (items === SHORT) return SHORT
    const map = new Map<Reply, Reply>()
    for (let i = 0; i < 2 * pairs; i += 2) {
      const name = items![i]!
      map.set(name instanceof Uint8Array ? Buffer.from(name).toString('utf8') : name, items![i + 1]!)
    }
    return map
  }
}

function whole(text: string): number {
  const value = /^-?\d{1,16}$/.test(text) ? Number(text) : Number.NaN
  if (!Number.isSafeInteger(value)) throw new ProtocolError('an answer has a number that is none')
  return value
}
