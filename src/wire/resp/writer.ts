/** Encodes the replies of a RESP server, straight into bytes. */

const CR = 0x0d
const LF = 0x0a
const ZERO = 0x30
const MINUS = 0x2d
const HALF = 1e8

/** Collects replies. `taken` hands them over and starts again. */
export class RespWriter {
  /** RESP 3 has its own types for maps, pushes and null. In RESP 2 they are arrays, and null is an absent string. */
  protocol: 2 | 3 = 2
  #bytes = Buffer.allocUnsafe(16 << 10)
  length = 0

  /** Called only where there is no room for `more` bytes: every value that is written checks that itself. */
  #grow(more: number): void {
    const grown = Buffer.allocUnsafe(Math.max(2 * this.#bytes.length, this.length + more))
    this.#bytes.copy(grown, 0, 0, this.length)
    this.#bytes = grown
  }

  /** Writes ASCII text unchanged. */
  raw(text: string): void {
    const { length } = text
    if (this.length + length > this.#bytes.length) this.#grow(length)
    if (length > 40) {
      this.length += this.#bytes.write(text, this.length, 'latin1')
      return
    }
    for (let i = 0; i < length; i++) this.#bytes[this.length + i] = text.charCodeAt(i)
    this.length += length
  }

  /** A line with a number. `before` is ASCII: the sign that says of what it is, an integer or the length of what follows, and what stands before that. */
  integer(value: number, before = ':'): void {
    const room = before.length + 24
    if (this.length + room > this.#bytes.length) this.#grow(room)
    for (let i = 0; i < before.length; i++) this.#bytes[this.length++] = before.charCodeAt(i)
    if (value < 0) this.#bytes[this.length++] = MINUS
    const size = Math.abs(value)
    // Ids and tokens have fifteen digits. Their halves are small integers, which divide several times faster.
    const high = size < HALF ? 0 : Math.floor(size / HALF)
    let rest = (size - high * HALF) | 0
    let end = this.length + (high > 0 ? 9 : 1)
    for (let power = 10, first = high > 0 ? high : rest; power <= first; power *= 10) end++
    for (let i = end - 1; i >= this.length; i--) {
      if (i === end - 9) rest = high | 0
      const next = (rest / 10) | 0
      this.#bytes[i] = ZERO + (rest - next * 10)
      rest = next
    }
    this.length = end
    this.#bytes[this.length++] = CR
    this.#bytes[this.length++] = LF
  }

  simple(text: string): void {
    this.raw(`+${text}\r\n`)
  }

  /** `code` is the first word. Control characters are replaced: text from clients must not end the line. */
  error(code: string, message: string): void {
    const line = Buffer.from(`-${code} ${message.replace(/[\r\n\0]/g, ' ')}\r\n`)
    if (this.length + line.length > this.#bytes.length) this.#grow(line.length)
    this.length += line.copy(this.#bytes, this.length)
  }

  text(text: string): void {
    const { length } = text
    if (this.length + 3 * length + 32 > this.#bytes.length) this.#grow(3 * length + 32)
    if (length < 256) {
      // Most texts are short ASCII: their byte length is known before they are written.
      const mark = this.length
      this.integer(length, '$')
      const start = this.length
      let i = 0
      for (; i < length; i++) {
        const code = text.charCodeAt(i)
        if (code > 127) break
        this.#bytes[start + i] = code
      }
      if (i === length) {
        this.#bytes[start + length] = CR
        this.#bytes[start + length + 1] = LF
        this.length = start + length + 2
        return
      }
      this.length = mark
    }
    this.bulk(Buffer.from(text))
  }

  /** Writes what another writer of the same protocol has encoded. */
  append(encoded: Uint8Array): void {
    if (this.length + encoded.length > this.#bytes.length) this.#grow(encoded.length)
    this.#bytes.set(encoded, this.length)
    this.length += encoded.length
  }

  /** `before` is ASCII, as for an integer. */
  bulk(bytes: Uint8Array, before = '$'): void {
    const room = before.length + bytes.length + 32
    if (this.length + room > this.#bytes.length) this.#grow(room)
    this.integer(bytes.length, before)
    this.#bytes.set(bytes, this.length)
    this.length += bytes.length
    this.#bytes[this.length++] = CR
    this.#bytes[this.length++] = LF
  }

  array(count: number): void {
    this.integer(count, '*')
  }

  /** `count` pairs follow. */
  map(count: number): void {
    if (this.protocol === 3) this.integer(count, '%')
    else this.integer(2 * count, '*')
  }

  push(count: number): void {
    this.integer(count, this.protocol === 3 ? '>' : '*')
  }

  null(): void {
    this.raw(this.protocol === 3 ? '_\r\n' : '$-1\r\n')
  }

  /** A copy of everything written so far. */
  taken(): Buffer {
    const taken = Buffer.allocUnsafe(this.length)
    this.#bytes.copy(taken, 0, 0, this.length)
    this.length = 0
    // Do not keep the memory of one huge reply forever.
    if (this.#bytes.length > 1 << 20) this.#bytes = Buffer.allocUnsafe(16 << 10)
    return taken
  }
}
