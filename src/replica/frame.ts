/**
 * Frames the chunks of a snapshot: each chunk follows its length. A store keeps the bytes in order and may cut them anywhere, while the kernel reads them in
 * the chunks that it wrote.
 */

const LENGTH = 4
/** Far more than any chunk needs. Larger chunks are refused, since older builds cannot read them. */
const MAX = 1 << 28

export function frameChunk(chunk: Uint8Array): Uint8Array {
  if (chunk.length > MAX) throw new Error(`a chunk of ${chunk.length} bytes cannot be read again by every build: it was not written`)
  const frame = new Uint8Array(LENGTH + chunk.length)
  new DataView(frame.buffer).setUint32(0, chunk.length)
  frame.set(chunk, LENGTH)
  return frame
}

/** Reads chunks of every length that fits into four bytes: older builds wrote larger chunks than they could read. */
export async function* readFrames(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  const held = new PendingBytes()
  for await (const piece of pieces) {
    held.add(piece)
    for (let chunk = held.take(); chunk !== undefined; chunk = held.take()) yield chunk
  }
  if (held.size > 0) throw new Error('it is cut off')
}

/** Bytes that were read and are not a whole chunk yet. They are joined once, when the chunk is complete; joining each piece would copy the others again. */
class PendingBytes {
  readonly #pieces: Uint8Array[] = []
  size = 0

  add(piece: Uint8Array): void {
    if (piece.length === 0) return
    this.#pieces.push(piece)
    this.size += piece.length
  }

  /** The next chunk, once it is complete. */
  take(): Uint8Array | undefined {
    if (this.size < LENGTH) return undefined
    this.#gather(LENGTH)
    const [first] = this.#pieces
    const length = new DataView(first!.buffer, first!.byteOffset).getUint32(0)
    if (this.size < LENGTH + length) return undefined
    this.#gather(LENGTH + length)
    const whole = this.#pieces[0]!
    const rest = whole.subarray(LENGTH + length)
    if (rest.length === 0) this.#pieces.shift()
    else this.#pieces[0] = rest
    this.size -= LENGTH + length
    return whole.subarray(LENGTH, LENGTH + length)
  }

  /** Joins pieces until the first one has at least this many bytes. */
  #gather(bytes: number): void {
    if (this.#pieces[0]!.length >= bytes) return
    let count = 0
    let sum = 0
    while (sum < bytes) sum += this.#pieces[count++]!.length
    const joined = new Uint8Array(sum)
    let at = 0
    for (const piece of this.#pieces.splice(0, count)) {
      joined.set(piece, at)
      at += piece.length
    }
    this.#pieces.unshift(joined)
  }
}
