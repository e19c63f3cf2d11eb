/**
 * The leases that end to make room for a waiter: a set that suffices, from which none can be left out, with few leases and young ones.
 *
 * The fewest would be a search through all sets. It is made for a few candidates; for more, two minimal sets are built, one that prefers young leases and one
 * that prefers leases with many units, and the smaller one is taken.
 */

export interface VictimCandidate {
  /** The token of its newest grant: higher is younger. */
  readonly token: number
  /** Units that its end would free and the waiter could use. */
  readonly units: number
}

/** Up to this many candidates all sets are tried: 255 of them. */
const FEW = 8

/**
 * The victims, youngest first; undefined if not even the end of all candidates makes room. `suffices` says whether the waiter fits once these leases have
 * ended; it must not become false when more of them end.
 */
export function chooseVictims<T extends VictimCandidate>(
  candidates: readonly T[],
  suffices: (ended: ReadonlySet<T>) => boolean,
): readonly T[] | undefined {
  const young = [...candidates].sort((a, b) => b.token - a.token)
  if (!suffices(new Set(young))) return undefined
  if (young.length <= FEW) return smallest(young, suffices)
  const byAge = minimal(young, suffices)
  const bySize = minimal(
    young.toSorted((a, b) => b.units - a.units || b.token - a.token),
    suffices,
  )
  return (bySize.length < byAge.length ? bySize : byAge).sort((a, b) => b.token - a.token)
}

/** The first of the smallest sets that suffice, where sets of younger leases come first. */
function smallest<T>(young: readonly T[], suffices: (ended: ReadonlySet<T>) => boolean): T[] {
  for (let size = 0; size <= young.length; size++)
    for (const places of combinations(young.length, size)) {
      const chosen = places.map(place => young[place]!)
      if (suffices(new Set(chosen))) return chosen
    }
  return [...young]
}

/** All ways to choose `size` of `count` places, in the order of their first places, then of their second places, and so on. */
function* combinations(count: number, size: number, from = 0): Generator<number[], void, void> {
  if (size === 0) return yield []
  for (let first = from; first <= count - size; first++) for (const rest of combinations(count, size - 1, first + 1)) yield [first, ...rest]
}

/**
 * A set from which none can be left out. The shortest beginning of the list that suffices ends with a lease that is needed; so does the shortest beginning
 * that suffices together with it, and so on. The cost grows with the size of the set and the logarithm of the list.
 */
function minimal<T>(list: readonly T[], suffices: (ended: ReadonlySet<T>) => boolean): T[] {
  const needed: T[] = []
  let most = list.length
  while (!suffices(new Set(needed))) {
    let [low, high] = [1, most]
    while (low < high) {
      const middle = (low + high) >>> 1
      if (suffices(new Set([...needed, ...list.slice(0, middle)]))) high = middle
      else low = middle + 1
    }
    needed.push(list[low - 1]!)
    most = low - 1
  }
  return needed
}
