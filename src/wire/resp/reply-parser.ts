/**
 * Parses the RESP that a client receives: replies and pushes. The server is not trusted: the size and the nesting of a reply are limited, and
 * anything else is a `ProtocolError`, which ends the connection.
 */
import { ProtocolError } from './command-parser.ts'

/** A reply `-CODE message`. */
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
const MAX_LINE = 64 << 10
/** After one of these a line has a number: the value of an integer, or the length of what follows. */
const NUMBERED: ReadonlySet<string | undefined> = new Set(':$=!*~>%|')
const INCOMPLETE = Symbol('the reply is incomplete')

export class ReplyParser {
  readonly #bounds: ReplyBounds
  #buffer: Buffer = EMPTY
  #at = 0
  #end = 0
  /** Do not try to parse before this many bytes are there. */
  #needed = 1

  constructor(bounds: ReplyBounds = BOUNDS) {
    this.#bounds = bounds
  }

  /** Calls `reply` for each complete reply. Its byte arrays are valid only until `reply` returns. Throws `ProtocolError`. */
  feed(chunk: Uint8Array, reply: (reply: Reply) => void): void {
    if (this.#at === this.#end) {
      this.#buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
      this.#at = 0
      this.#end = chunk.byteLength
    } else this.#append(chunk)
    while (this.#end - this.#at >= this.#needed) {
      const start = this.#at
      const value = this.#value(0)
      if (value === INCOMPLETE) {
        this.#at = start
        this.#needed = Math.max(this.#needed, this.#end - start + 1)
        if (this.#needed > this.#bounds.bytes) throw new ProtocolError(`a reply has more than ${this.#bounds.bytes} bytes`)
        break
      }
      this.#needed = 1
      reply(value)
    }
    if (this.#at === this.#end) this.#buffer = EMPTY
    // The chunk belongs to the caller. Copy the rest of it.
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

  /** Appends to the rest of what came before. */
  #append(chunk: Uint8Array): void {
    const rest = this.#end - this.#at
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

  #line(): string | typeof INCOMPLETE {
    const end = this.#buffer.indexOf('\r\n', this.#at, 'latin1')
    if (end < 0 || end + 2 > this.#end) {
      if (this.#end - this.#at > MAX_LINE) throw new ProtocolError('a reply has a line that is too long')
      return INCOMPLETE
    }
    const line = this.#buffer.toString('utf8', this.#at, end)
    this.#at = end + 2
    return line
  }

  #value(depth: number): Reply | typeof INCOMPLETE {
    if (depth > this.#bounds.depth) throw new ProtocolError(`a reply is nested more than ${this.#bounds.depth} deep`)
    const line = this.#line()
    if (line === INCOMPLETE) return INCOMPLETE
    const type = line[0]
    const rest = line.slice(1)
    const number = /^-?\d{1,16}$/.test(rest) ? Number(rest) : Number.NaN
    if (NUMBERED.has(type) && !Number.isSafeInteger(number)) throw new ProtocolError('a reply has a number that cannot be read')
    switch (type) {
      case '+':
        return rest
      case '-':
        return new ReplyError(rest)
      case ':':
        return number
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
        return this.#bulk(type === '!', number)
      case '*':
      case '~':
        return this.#items(number, depth)
      case '>': {
        const items = this.#items(number, depth)
        return items === INCOMPLETE ? INCOMPLETE : new Push((items as readonly Reply[] | null) ?? [])
      }
      case '%':
        return this.#map(number, depth)
      case '|': {
        // Attributes precede the reply, and are ignored.
        const attributes = this.#map(number, depth)
        return attributes === INCOMPLETE ? INCOMPLETE : this.#value(depth + 1)
      }
      default:
        throw new ProtocolError('a reply begins with a character that RESP does not know')
    }
  }

  #bulk(error: boolean, length: number): Reply | typeof INCOMPLETE {
    if (length === -1) return null
    if (length < 0 || length > this.#bounds.bytes) throw new ProtocolError(`a reply has more than ${this.#bounds.bytes} bytes`)
    const end = this.#at + length
    if (end + 2 > this.#end) {
      this.#needed = this.#end - this.#at + (end + 2 - this.#end)
      return INCOMPLETE
    }
    const bytes = this.#buffer.subarray(this.#at, end)
    this.#at = end + 2
    return error ? new ReplyError(bytes.toString('utf8')) : bytes
  }

  #items(count: number, depth: number): readonly Reply[] | null | typeof INCOMPLETE {
    if (count === -1) return null
    if (count < 0 || count > this.#bounds.bytes / 3) throw new ProtocolError('a reply has too many items')
    const items: Reply[] = []
    for (let i = 0; i < count; i++) {
      const item = this.#value(depth + 1)
      if (item === INCOMPLETE) return INCOMPLETE
      items.push(item)
    }
    return items
  }

  #map(pairs: number, depth: number): ReadonlyMap<Reply, Reply> | typeof INCOMPLETE {
    const items = this.#items(2 * pairs, depth)
    if (items === INCOMPLETE) return INCOMPLETE
    const map = new Map<Reply, Reply>()
    for (let i = 0; i < 2 * pairs; i += 2) {
      const name = items![i]!
      map.set(name instanceof Uint8Array ? Buffer.from(name).toString('utf8') : name, items![i + 1]!)
    }
    return map
  }
}
