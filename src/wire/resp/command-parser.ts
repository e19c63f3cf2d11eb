/**
 * Parses the RESP that a server receives: commands.
 *
 * Commands are parsed in place: an argument is a pair of offsets until the caller asks for its text. A chunk may end at any byte, and at most
 * `bytes` of an unfinished command are kept.
 */
import { isUtf8 } from 'node:buffer'

/** The bytes are not RESP. The rest of the connection cannot be parsed. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError'
}

export interface CommandBounds {
  /** Of one command, with the framing of its arguments. */
  readonly bytes: number
  readonly args: number
  /** Names the clients that these bounds apply to, for error messages. */
  readonly whose?: string
}

const CR = 0x0d
const LF = 0x0a
const SPACE = 0x20
const TAB = 0x09
const STAR = 0x2a
const DOLLAR = 0x24
const ZERO = 0x30
const NINE = 0x39
const MINUS = 0x2d
const QUOTE = 0x22
const APOSTROPHE = 0x27
const BACKSLASH = 0x5c
const MAX_DIGITS = 16
/** Bytes in a line with a number, and in a command on one line. */
const MAX_NUMBER_LINE = 32
const MAX_INLINE = 64 << 10
const HTTP = /[ \t]HTTP\/\d\.\d\s*$/
/** The letters that have a special meaning after a backslash between double quotes. */
const ESCAPES: ReadonlyMap<number, number> = new Map([...'nrtba'].map((letter, i) => [letter.charCodeAt(0), [10, 13, 9, 8, 7][i]!]))
const EMPTY = Buffer.alloc(0)

export class CommandParser {
  /** A change applies from the next `next`. */
  bounds: CommandBounds
  /** The command came as a plain line. A program of another protocol may have sent it by accident. */
  inline = false
  #buffer: Buffer = EMPTY
  /** The buffer is a copy and may grow; otherwise it is the last chunk, which belongs to the caller. */
  #owned = false
  #end = 0
  /** Where the current command begins, and how far it was parsed. */
  #start = 0
  #at = 0
  /** Arguments still to come; -1 between commands. */
  #left = -1
  /** Of the current argument; -1 while its length is unknown. */
  #length = -1
  /** Pairs of offsets from `#start`: where each argument begins and ends. */
  readonly #args: number[] = []
  #base = 0
  /** Arguments of the command that `next` found, including its name. Valid until the next `next` or `feed`. */
  count = 0
  /** Every byte that was fed belongs to a command that `next` has returned, and `next` has found no more. */
  isEmpty = true

  constructor(bounds: CommandBounds) {
    this.bounds = bounds
  }

  /** Bytes of the unfinished command. */
  get rest(): number {
    return this.#end - this.#start
  }

  feed(chunk: Uint8Array): void {
    this.isEmpty = false
    if (this.#start === this.#end) {
      this.#buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
      this.#owned = false
      this.#start = 0
      this.#at = 0
      this.#end = chunk.byteLength
      return
    }
    const rest = this.#end - this.#start
    const needed = rest + chunk.byteLength
    if (!this.#owned || this.#start + needed > this.#buffer.length) {
      const room =
        this.#owned && needed <= this.#buffer.length
          ? this.#buffer
          : Buffer.allocUnsafe(Math.max(needed, Math.min(2 * needed, this.bounds.bytes)))
      this.#buffer.copy(room, 0, this.#start, this.#end)
      this.#at -= this.#start
      this.#start = 0
      this.#end = rest
      this.#buffer = room
      this.#owned = true
    }
    this.#buffer.set(chunk, this.#end)
    this.#end += chunk.byteLength
  }

  /** Copies the rest of the last chunk, which is valid only while it is being read. Returns how many bytes of an unfinished command are kept. */
  keep(): number {
    const rest = this.#end - this.#start
    if (rest === 0) this.#buffer = EMPTY
    if (rest === 0 || this.#owned) return rest
    const own = Buffer.allocUnsafe(rest)
    this.#buffer.copy(own, 0, this.#start, this.#end)
    this.#at -= this.#start
    this.#start = 0
    this.#end = rest
    this.#buffer = own
    this.#owned = true
    return rest
  }

  /** Drops all bytes. */
  forget(): void {
    this.#left = -1
    this.#length = -1
    this.#args.length = 0
    this.count = 0
    this.#start = this.#at = this.#end
    this.#buffer = EMPTY
    this.isEmpty = true
  }

  /** Returns whether there is a complete command. Throws `ProtocolError`. */
  next(): boolean {
    for (;;) {
      if (this.#left < 0) {
        this.#start = this.#at
        this.#args.length = 0
        this.count = 0
        if (this.#at >= this.#end) {
          this.#buffer = EMPTY
          this.isEmpty = true
          return false
        }
        this.inline = this.#buffer[this.#at] !== STAR
        if (this.inline) {
          if (!this.#line()) return false
          this.count = this.#args.length / 2
          if (this.count > 0) return true
          continue
        }
        const count = this.#number(STAR)
        if (count === undefined) return false
        if (count > this.bounds.args) throw this.#tooMany()
        if (count <= 0) continue
        this.#left = count
      }
      while (this.#left > 0) {
        if (this.#length < 0) {
          const length = this.#number(DOLLAR)
          if (length === undefined) return this.#unfinished()
          if (length < 0) throw new ProtocolError('the length of an argument cannot be negative')
          if (this.#at - this.#start + length > this.bounds.bytes) throw this.#tooLong()
          this.#length = length
        }
        const end = this.#at + this.#length
        if (end + 2 > this.#end) return this.#unfinished()
        if (this.#buffer[end] !== CR || this.#buffer[end + 1] !== LF)
          throw new ProtocolError('an argument does not end where its length says')
        this.#args.push(this.#at - this.#start, end - this.#start)
        this.#at = end + 2
        this.#length = -1
        this.#left--
      }
      this.#left = -1
      this.#base = this.#start
      this.#start = this.#at
      this.count = this.#args.length / 2
      return true
    }
  }

  /** Makes `next` find the current command again. Not for a command on one line, whose quotes have been removed in place. */
  putBack(): void {
    this.#start = this.#base
    this.#at = this.#base
    this.#args.length = 0
    this.count = 0
  }

  #unfinished(): false {
    if (this.#end - this.#start > this.bounds.bytes + MAX_NUMBER_LINE) throw this.#tooLong()
    return false
  }

  #tooLong(): ProtocolError {
    const { bytes, whose = '' } = this.bounds
    return new ProtocolError(`a command${whose} has at most ${bytes} bytes`)
  }

  #tooMany(): ProtocolError {
    const { args, whose = '' } = this.bounds
    return new ProtocolError(`a command${whose} has at most ${args} arguments`)
  }

  /** A line such as `*3` or `$11`; undefined while it is incomplete. */
  #number(sign: number): number | undefined {
    const buffer = this.#buffer
    const start = this.#at
    if (start < this.#end && buffer[start] !== sign) throw notNumber(sign)
    const isNegative = start + 1 < this.#end && buffer[start + 1] === MINUS
    const first = isNegative ? start + 2 : start + 1
    const last = Math.min(this.#end, first + MAX_DIGITS)
    let at = first
    let value = 0
    for (; at < last && buffer[at]! >= ZERO && buffer[at]! <= NINE; at++) value = value * 10 + (buffer[at]! - ZERO)
    if (at >= this.#end || (buffer[at] === CR && at + 1 === this.#end)) return undefined
    if (at === first || buffer[at] !== CR || buffer[at + 1] !== LF || value > Number.MAX_SAFE_INTEGER) throw notNumber(sign)
    this.#at = at + 2
    return isNegative ? -value : value
  }

  /** A command typed as words on one line. Returns whether the line was complete. */
  #line(): boolean {
    const first = this.#buffer[this.#at]!
    // TLS and other binary protocols. Only the first byte counts: a web page may choose the bytes that follow.
    if (first !== CR && first !== LF && first !== TAB && (first < SPACE || first > 0x7e)) throw new ProtocolError('this is not RESP')
    const found = this.#buffer.indexOf(LF, this.#at)
    const complete = found >= 0 && found < this.#end
    const length = (complete ? found : this.#end) - this.#at
    const max = Math.min(MAX_INLINE, this.bounds.bytes)
    if (length > max) throw new ProtocolError(`a line${this.bounds.whose ?? ''} has at most ${max} bytes`)
    if (!complete) return false
    // A web page can choose the method and target of a request line, but not leave out its `HTTP/1.1`.
    if (HTTP.test(this.#buffer.toString('latin1', Math.max(this.#at, found - 16), found))) throw new ProtocolError('this is malformed HTTP')
    if (!this.#split(found)) this.#unquote(length)
    if (this.#args.length / 2 > this.bounds.args) throw this.#tooMany()
    this.#base = this.#start
    this.#at += length + 1
    this.#start = this.#at
    return true
  }

  /** Splits at blanks. False: there are quotes, and `#unquote` must do it. */
  #split(end: number): boolean {
    let word = -1
    for (let i = this.#at; i <= end; i++) {
      const byte = this.#buffer[i]!
      if (byte === QUOTE || byte === APOSTROPHE) return false
      const blank = isBlank(byte)
      if (!blank && word < 0) word = i
      if (!blank || word < 0) continue
      this.#args.push(word - this.#start, i - this.#start)
      word = -1
    }
    return true
  }

  /** Splits as Redis does: "…" with escapes, '…' with \' only, and a blank after either. The unquoted words overwrite the line. */
  #unquote(length: number): void {
    if (!this.#owned) this.keep()
    const line = this.#buffer.subarray(this.#at, this.#at + length)
    const unquoted: number[] = []
    this.#args.length = 0
    for (let i = 0; i < length; i++) {
      if (isBlank(line[i]!)) continue
      const begin = unquoted.length
      for (; i < length && !isBlank(line[i]!); i++) {
        if (line[i] !== QUOTE && line[i] !== APOSTROPHE) {
          unquoted.push(line[i]!)
          continue
        }
        i = quoted(line, i, unquoted)
        if (i + 1 < length && !isBlank(line[i + 1]!)) throw unbalanced()
      }
      this.#args.push(begin, unquoted.length)
    }
    line.set(unquoted)
  }

  // Arguments

  /** Not a copy. */
  bytes(i: number): Buffer {
    return this.#buffer.subarray(this.#base + this.#args[2 * i]!, this.#base + this.#args[2 * i + 1]!)
  }

  length(i: number): number {
    return this.#args[2 * i + 1]! - this.#args[2 * i]!
  }

  /** Undefined if the argument is not UTF-8: decoding would change it. */
  text(i: number): string | undefined {
    const start = this.#base + this.#args[2 * i]!
    const end = this.#base + this.#args[2 * i + 1]!
    let at = start
    while (at < end && this.#buffer[at]! < 128) at++
    if (at === end) return this.#buffer.toString('latin1', start, end)
    const bytes = this.#buffer.subarray(start, end)
    return isUtf8(bytes) ? bytes.toString('utf8') : undefined
  }

  /** An integer of at most 2^53 - 1. Undefined if the argument is none, or missing. */
  number(i: number): number | undefined {
    if (i >= this.count) return undefined
    const buffer = this.#buffer
    const start = this.#base + this.#args[2 * i]!
    const end = this.#base + this.#args[2 * i + 1]!
    const isNegative = buffer[start] === MINUS
    const first = isNegative ? start + 1 : start
    if (end <= first || end - first > MAX_DIGITS) return undefined
    let value = 0
    for (let at = first; at < end; at++) {
      const byte = buffer[at]!
      if (byte < ZERO || byte > NINE) return undefined
      value = value * 10 + (byte - ZERO)
    }
    if (value > Number.MAX_SAFE_INTEGER) return undefined
    return isNegative ? 0 - value : value
  }

  /** Returns whether the argument is `word`, in any case. Pass `word` in upper case. */
  is(i: number, word: string): boolean {
    const start = this.#base + this.#args[2 * i]!
    if (this.#args[2 * i + 1]! - this.#args[2 * i]! !== word.length) return false
    for (let at = 0; at < word.length; at++) {
      const byte = this.#buffer[start + at]!
      if ((byte >= 0x61 && byte <= 0x7a ? byte - 32 : byte) !== word.charCodeAt(at)) return false
    }
    return true
  }

  /** The argument in upper case, cut to the length of the longest command name. */
  word(i: number): string {
    return this.bytes(i)
      .toString('latin1', 0, Math.min(this.length(i), 64))
      .toUpperCase()
  }
}

function notNumber(sign: number): ProtocolError {
  return new ProtocolError(`expected '${String.fromCharCode(sign)}' and a number`)
}

function isBlank(byte: number): boolean {
  return byte === SPACE || byte === TAB || byte === CR || byte === LF
}

/** Appends the text between the quote at `at` and the closing one. Returns the position of the closing quote. */
function quoted(line: Buffer, at: number, unquoted: number[]): number {
  const quote = line[at]!
  for (let i = at + 1; i < line.length; i++) {
    const byte = line[i]!
    if (byte === quote) return i
    const next = line[i + 1]
    if (byte !== BACKSLASH || next === undefined || (quote === APOSTROPHE && next !== APOSTROPHE)) {
      unquoted.push(byte)
      continue
    }
    const hex = quote === QUOTE ? /^x([0-9a-f]{2})$/i.exec(line.toString('latin1', i + 1, i + 4)) : null
    unquoted.push(hex === null ? (ESCAPES.get(next) ?? next) : Number.parseInt(hex[1]!, 16))
    i += hex === null ? 1 : 3
  }
  throw unbalanced()
}

function unbalanced(): ProtocolError {
  return new ProtocolError('unbalanced quotes in request')
}
