/**
 * A store keeps the bytes of a snapshot in their order and may cut them anywhere; the kernel reads them in the chunks it wrote. So each chunk
 * goes with its length before it.
 */

const LENGTH = 4
/** Far more than any chunk. Nothing larger is written: older builds do not read it. */
const MAX = 1 << 28

export function frameChunk(chunk: Uint8Array): Uint8Array {
  if (chunk.length > MAX) throw new Error(`a chunk of ${chunk.length} bytes cannot be read again by every build: it was not written`)
  const frame = new Uint8Array(LENGTH + chunk.length)
  new DataView(frame.buffer).setUint32(0, chunk.length)
  frame.set(chunk, LENGTH)
  return frame
}

/** Reads chunks of every length that fits into four bytes: older builds wrote larger ones than they could read. */
export async function* readFrames(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  const held = new PendingBytes()
  for await (const piece of pieces) {
    held.add(piece)
    for (let chunk = held.take(); chunk !== undefined; chunk = held.take()) yield chunk
  }
  if (held.size > 0) throw new Error('it is cut off')
}

/** Pieces that were read and are not part of a whole chunk yet. They are joined once, when the chunk is there: joined one by one they would be copied again with each. */
class PendingBytes {
  readonly #pieces: Uint8Array[] = []
  size = 0

  add(piece: Uint8Array): void {
    if (piece.length === 0) return
    this.#pieces.push(piece)
    this.size += piece.length
  }

  /** The next chunk, once all of it is there. */
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

  /** The first piece has so many bytes at least. */
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
