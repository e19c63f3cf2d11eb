/** The same bytes in chunks of one size, each in a buffer of its own, so that many small chunks do not become as many writes. */
export async function* rechunk(size: number, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let piece = new Uint8Array(size)
  let filled = 0
  for await (let chunk of chunks) {
    while (chunk.length > 0) {
      const taken = chunk.subarray(0, size - filled)
      piece.set(taken, filled)
      filled += taken.length
      chunk = chunk.subarray(taken.length)
      if (filled < size) continue
      yield piece
      piece = new Uint8Array(size)
      filled = 0
    }
  }
  if (filled > 0) yield piece.slice(0, filled)
}
