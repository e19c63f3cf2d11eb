/** Writes long lists as JSON in pieces, and yields to the event loop between pieces. */
import { turn } from '../clock.ts'

const PIECE_ITEMS = 500

/** Returns whether a list is written in one piece. */
export function fitsOnePiece(items: readonly unknown[]): boolean {
  return items.length <= PIECE_ITEMS
}

/** The JSON object `{[name]: items, ...rest}`. `rest` must have at least one field. */
export async function* jsonPieces(name: string, items: readonly unknown[], rest: object): AsyncGenerator<string, void, void> {
  for (let i = 0; i < items.length; i += PIECE_ITEMS) {
    yield `${i === 0 ? `{"${name}":[` : ','}${JSON.stringify(items.slice(i, i + PIECE_ITEMS)).slice(1, -1)}`
    await turn()
  }
  yield `],${JSON.stringify(rest).slice(1)}`
}
