/**
 * A store keeps the bytes of a snapshot in their order and may cut them anywhere; the kernel reads them in the chunks it wrote. So each chunk
 * goes with its length before it.
 */

const LENGTH = 4
/** Far more than any chunk: a length above it was never written. */
const MOST = 1 << 28

export function framed(chunk: Uint8Array): Uint8Array {
  const frame = new Uint8Array(LENGTH + chunk.length)
  new DataView(frame.buffer).setUint32(0, chunk.length)
  frame.set(chunk, LENGTH)
  return frame
}

export async function* unframed(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  let rest = new Uint8Array(0)
  for await (const piece of pieces) {
    const bytes = new Uint8Array(rest.length + piece.length)
    bytes.set(rest)
    bytes.set(piece, rest.length)
    let at = 0
    while (bytes.length - at >= LENGTH) {
      const length = new DataView(bytes.buffer).getUint32(at)
      if (length > MOST) throw new Error('it is not in chunks')
      if (bytes.length - at - LENGTH < length) break
      yield bytes.subarray(at + LENGTH, at + LENGTH + length)
      at += LENGTH + length
    }
    rest = bytes.subarray(at)
  }
  if (rest.length > 0) throw new Error('it is cut off')
}
