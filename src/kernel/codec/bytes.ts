/** Writes and reads the bytes of logs and snapshots: variable-length integers, UTF-8 texts, and a checksum at the end. */

/** The bytes are not what was written: cut off, altered, or from another program. */
export class Damaged extends Error {
  override readonly name = 'Damaged'
}

/** The bytes are sound, but were written by an earlier build, in a format that is not read any more. */
export class OlderFormatError extends Error {
  override readonly name = 'OlderFormatError'
}

/** The bytes are sound, but were written by a newer version of this code. */
export class NewerFormatError extends Error {
  override readonly name = 'NewerFormatError'
}

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** 32 bits over a range of bytes. Finds accidents, not attacks. */
export function checksum(bytes: Uint8Array, start: number, end: number): number {
  let hash = 0x811c9dc5
  for (let i = start; i < end; i++) {
    hash = Math.imul(hash ^ bytes[i]!, 0x01000193)
    hash ^= hash >>> 15
  }
  return hash >>> 0
}

export class Writer {
  #bytes: Uint8Array
  length = 0

  constructor(size = 1_024) {
    this.#bytes = new Uint8Array(size)
  }

  /** Called only where there is no room for `more` bytes: every number that is written checks that itself. */
  #grow(more: number): void {
    const grown = new Uint8Array(Math.max(this.#bytes.length * 2, this.length + more))
    grown.set(this.#bytes.subarray(0, this.length))
    this.#bytes = grown
  }

  byte(value: number): void {
    if (this.length + 1 > this.#bytes.length) this.#grow(1)
    this.#bytes[this.length++] = value
  }

  /** A whole number from 0 to 2^53 - 1. Any other number would be read back as a different one. */
  uint(value: number): void {
    if (!Number.isSafeInteger(value) || value < 0) throw new RangeError(`not-whole ${value}`)
    if (this.length + 8 > this.#bytes.length) this.#grow(8)
    let rest = value
    if (rest > 0x7fffffff) {
      // Ids and tokens have fifteen digits. Their lower 28 bits are a small integer, which divides several times faster.
      const high = Math.floor(rest / 0x10000000)
      const low = rest - high * 0x10000000
      for (let shift = 0; shift < 28; shift += 7) this.#bytes[this.length++] = ((low >>> shift) & 127) | 128
      rest = high
    }
    while (rest > 127) {
      this.#bytes[this.length++] = (rest & 127) | 128
      rest >>>= 7
    }
    this.#bytes[this.length++] = rest
  }

  /** A safe integer. The sign and the six lowest bits come first, since twice a safe integer need not be safe. */
  int(value: number): void {
    const size = Math.abs(value)
    const head = (size % 64) * 2 + (value < 0 ? 1 : 0)
    if (size < 64) return this.byte(head)
    this.byte(head | 128)
    this.uint(Math.floor(size / 64))
  }

  uint32(value: number): void {
    if (this.length + 4 > this.#bytes.length) this.#grow(4)
    for (let shift = 0; shift < 32; shift += 8) this.#bytes[this.length++] = (value >>> shift) & 255
  }

  bool(value: boolean): void {
    this.byte(value ? 1 : 0)
  }

  text(value: string): void {
    const { length } = value
    const longest = length * 3 + 8
    if (this.length + longest > this.#bytes.length) this.#grow(longest)
    // Most names are short ASCII: their length is known and no encoder is needed.
    if (length < 128) {
      const start = this.length
      this.#bytes[start] = length
      let i = 0
      for (; i < length; i++) {
        const code = value.charCodeAt(i)
        if (code > 127) break
        this.#bytes[start + 1 + i] = code
      }
      if (i === length) {
        this.length = start + 1 + length
        return
      }
    }
    if (!value.isWellFormed()) throw new RangeError('lone-surrogate')
    const encoded = encoder.encode(value)
    this.uint(encoded.length)
    this.raw(encoded)
  }

  raw(bytes: Uint8Array): void {
    if (this.length + bytes.length > this.#bytes.length) this.#grow(bytes.length)
    this.#bytes.set(bytes, this.length)
    this.length += bytes.length
  }

  list<T>(items: readonly T[], write: (item: T) => void): void {
    this.uint(items.length)
    for (const item of items) write(item)
  }

  /** All bytes so far, without a copy: valid until the next write. */
  view(): Uint8Array {
    return this.#bytes.subarray(0, this.length)
  }

  /** A copy of all bytes so far, and of those of `body`, followed by their checksum. */
  sealed(body?: Writer): Uint8Array {
    const end = this.length + (body === undefined ? 0 : body.length)
    const bytes = new Uint8Array(end + 4)
    bytes.set(this.#bytes.subarray(0, this.length))
    if (body !== undefined) bytes.set(body.#bytes.subarray(0, body.length), this.length)
    const sum = checksum(bytes, 0, end)
    for (let i = 0; i < 4; i++) bytes[end + i] = (sum >>> (8 * i)) & 255
    return bytes
  }
}

/** Most names are short ASCII: decoding them by hand is faster than a decoder. Undefined if the bytes are not ASCII. */
function plainText(bytes: Uint8Array, start: number, end: number): string | undefined {
  for (let i = start; i < end; i++) if (bytes[i]! > 127) return undefined
  let text = ''
  let i = start
  // Eight at a time: each `+=` of a longer text allocates an object, to be joined later.
  for (; i + 8 <= end; i += 8)
    text += String.fromCharCode(
      bytes[i]!,
      bytes[i + 1]!,
      bytes[i + 2]!,
      bytes[i + 3]!,
      bytes[i + 4]!,
      bytes[i + 5]!,
      bytes[i + 6]!,
      bytes[i + 7]!,
    )
  for (; i < end; i++) text += String.fromCharCode(bytes[i]!)
  return text
}

export class Reader {
  readonly #bytes: Uint8Array
  readonly #end: number
  #at: number

  constructor(bytes: Uint8Array, start = 0, end = bytes.length) {
    this.#bytes = bytes
    this.#at = start
    this.#end = end
  }

  /** Reads what `sealed` wrote, and checks the checksum. */
  static unseal(bytes: Uint8Array): Reader {
    if (bytes.length < 4) throw new Damaged(`only ${bytes.length} bytes are left of it`)
    const end = bytes.length - 4
    const kept = new Reader(bytes, end).uint32()
    if (kept !== checksum(bytes, 0, end)) throw new Damaged('its checksum does not match')
    return new Reader(bytes, 0, end)
  }

  byte(): number {
    if (this.#at >= this.#end) throw new Damaged('it ends too soon')
    return this.#bytes[this.#at++]!
  }

  uint(): number {
    const first = this.byte()
    if (first < 128) return first
    let value = first & 127
    let scale = 128
    for (;;) {
      const byte = this.byte()
      value += (byte & 127) * scale
      if (byte < 128) break
      scale *= 128
      if (scale > 2 ** 49) throw new Damaged('a number is too long')
    }
    if (value > Number.MAX_SAFE_INTEGER) throw new Damaged('a number is too large')
    return value
  }

  int(): number {
    const head = this.byte()
    const size = ((head & 127) >> 1) + (head < 128 ? 0 : this.uint() * 64)
    if (size > Number.MAX_SAFE_INTEGER) throw new Damaged('a number is too large')
    return (head & 1) === 0 ? size : 0 - size
  }

  uint32(): number {
    return (this.byte() | (this.byte() << 8) | (this.byte() << 16) | (this.byte() << 24)) >>> 0
  }

  bool(): boolean {
    const byte = this.byte()
    if (byte > 1) throw new Damaged('neither yes nor no')
    return byte === 1
  }

  text(): string {
    const length = this.uint()
    const start = this.#at
    if (length > this.#end - start) throw new Damaged('a text ends too soon')
    this.#at += length
    if (length < 64) {
      const plain = plainText(this.#bytes, start, this.#at)
      if (plain !== undefined) return plain
    }
    try {
      return decoder.decode(this.#bytes.subarray(start, this.#at))
    } catch (cause) {
      throw new Damaged('a text is not UTF-8', { cause })
    }
  }

  /** The next `length` bytes, copied. */
  raw(length: number): Uint8Array {
    if (length > this.#end - this.#at) throw new Damaged('it ends too soon')
    this.#at += length
    return new Uint8Array(this.#bytes.subarray(this.#at - length, this.#at))
  }

  /** The number of unread bytes. */
  get left(): number {
    return this.#end - this.#at
  }

  /** The number of items in a list. */
  length(): number {
    const length = this.uint()
    // Every item takes at least one byte: a larger length is damage, and must not reserve memory.
    if (length > this.#end - this.#at) throw new Damaged('a list ends too soon')
    return length
  }

  list<T>(read: () => T, most = Number.POSITIVE_INFINITY): T[] {
    const length = this.length()
    if (length > most) throw new Damaged('a list is too long')
    const items: T[] = []
    for (let i = 0; i < length; i++) items.push(read())
    return items
  }

  /** Throws if anything follows. */
  finish(): void {
    if (this.#at < this.#end) throw new Damaged(`${this.#end - this.#at} bytes too many`)
  }
}
