/** Long answers as JSON, piece by piece, with a turn of the loop for others in between. */
import { turn } from '../clock.ts'

const PIECE = 500

/** Whether it is written in one piece. */
export function isShort(items: readonly unknown[]): boolean {
  return items.length <= PIECE
}

/** An object: `items` under their name, and the rest, which has at least one field. */
export async function* jsonPieces(name: string, items: readonly unknown[], rest: object): AsyncGenerator<string, void, void> {
  for (let i = 0; i < items.length; i += PIECE) {
    yield `${i === 0 ? `{"${name}":[` : ','}${JSON.stringify(items.slice(i, i + PIECE)).slice(1, -1)}`
    await turn()
  }
  yield `],${JSON.stringify(rest).slice(1)}`
}
