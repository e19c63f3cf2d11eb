/** Long lists of a face, made in slices. Before each slice but the first, the other clients have their turn. */
import type { FaceCaller } from './face.ts'

/** Items of one slice, and about how many characters they may have together. */
const ITEMS = 200
const CHARACTERS = 64 << 10
/** Comparisons in one slice. */
const COMPARED = 10_000

type SliceTurns = Pick<FaceCaller, 'nextTurn'>

/** Maps the items. `weigh`: the characters that an item has, where they may be many. */
export async function mapInSlices<T, U>(
  caller: SliceTurns,
  items: readonly T[],
  map: (item: T) => U,
  weigh: (item: T) => number = () => 0,
): Promise<U[]> {
  const found: U[] = []
  let [done, characters] = [0, 0]
  for (const item of items) {
    if (done >= ITEMS || characters > CHARACTERS) {
      await caller.nextTurn?.()
      done = characters = 0
    }
    done++
    characters += weigh(item)
    found.push(map(item))
  }
  return found
}

/** As `sort`, of a copy. `compare` must not be 0 for items whose order matters. */
export async function sortInSlices<T>(caller: SliceTurns, items: readonly T[], compare: (a: T, b: T) => number): Promise<readonly T[]> {
  let parts: (readonly T[])[] = []
  for (let from = 0; from < items.length; from += ITEMS) {
    if (from > 0) await caller.nextTurn?.()
    parts.push(items.slice(from, from + ITEMS).sort(compare))
  }
  while (parts.length > 1) {
    const joined: (readonly T[])[] = []
    for (let i = 0; i < parts.length; i += 2) joined.push(await merged(caller, parts[i]!, parts[i + 1] ?? [], compare))
    parts = joined
  }
  return parts[0] ?? []
}

async function merged<T>(
  caller: SliceTurns,
  left: readonly T[],
  right: readonly T[],
  compare: (a: T, b: T) => number,
): Promise<readonly T[]> {
  const found: T[] = []
  for (let i = 0, j = 0; i < left.length || j < right.length; ) {
    if (found.length % COMPARED === COMPARED - 1) await caller.nextTurn?.()
    found.push(j === right.length || (i < left.length && compare(left[i]!, right[j]!) <= 0) ? left[i++]! : right[j++]!)
  }
  return found
}

/** The texts of a list, between `before` and `after`: one text if they are few, else pieces. */
export function joined(texts: readonly string[], before: string, after: string, comma = ','): string | AsyncIterable<string> {
  return texts.length <= ITEMS ? `${before}${texts.join(comma)}${after}` : pieces(texts, before, after, comma)
}

async function* pieces(texts: readonly string[], before: string, after: string, comma: string): AsyncGenerator<string, void, void> {
  yield before
  for (let from = 0; from < texts.length; from += ITEMS) yield `${from > 0 ? comma : ''}${texts.slice(from, from + ITEMS).join(comma)}`
  yield after
}
