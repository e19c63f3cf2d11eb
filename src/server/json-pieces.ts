/** Writes long lists as JSON in pieces, each in a turn of its own. */

const PIECE_ITEMS = 250

/** Returns whether a list is written in one piece. */
export function fitsOnePiece(items: readonly unknown[]): boolean {
  return items.length <= PIECE_ITEMS
}

export interface JsonPieces<T> {
  /** Returns the value that is written for an item. */
  readonly shown: (item: T) => unknown
  /** Resolves when the next piece may be made. */
  readonly turn: () => Promise<void> | undefined
}

/** The JSON object `{[name]: items, ...rest}`. `rest` must have at least one field. */
export async function* jsonPieces<T>(
  name: string,
  items: readonly T[],
  rest: object,
  { shown, turn }: JsonPieces<T>,
): AsyncGenerator<string, void, void> {
  for (let i = 0; i < items.length; i += PIECE_ITEMS) {
    const part = items.slice(i, i + PIECE_ITEMS).map(shown)
    yield `${i === 0 ? `{"${name}":[` : ','}${JSON.stringify(part).slice(1, -1)}`
    await turn()
  }
  yield `],${JSON.stringify(rest).slice(1)}`
}
