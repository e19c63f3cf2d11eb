/**
 * The claims of a state by the segments of their names: what is held and waited for below a name, and the covering claims above it. Names that begin with another
 * segment have nothing to do with each other. So a first segment is listed when a covering claim below it is asked for the first time, and from then on: a log
 * without covering claims pays nothing, and other names next to nothing.
 *
 * Each place counts the grants below it and lists the waiters below it, so that no question visits all of them.
 */
import type { Grant, LeaseState } from './lease-state.ts'
import { insertionIndex } from './order.ts'
import { SortedList } from './sorted-list.ts'

/** Most places have no waiters: one list for all of them. */
const NO_WAITERS: readonly LeaseState[] = []

export class ClaimNode {
  /** Empty: the root. */
  readonly name: string
  readonly above: ClaimNode | undefined
  /** By name: the order must be the same on every replica. Undefined: there are none. */
  below: SortedList<ClaimNode> | undefined
  /** Grants and waiters, each with each of its names, here and below. */
  size = 0
  /** Grants below, and those of them that are shared. */
  exclusiveBelow = 0
  sharedBelow = 0
  /** Covering grants of this very name. */
  exclusiveCovers = 0
  sharedCovers = 0
  /** The covering waiters for this very name, by rank, then by id. */
  covering = NO_WAITERS
  /** The waiters for names below, in the same order. A waiter for two of them is listed twice. None at the root, which has no name. */
  waiting = NO_WAITERS
  /** True if it is listed in `State.freed`. */
  freed = false

  constructor(name: string, above: ClaimNode | undefined) {
    this.name = name
    this.above = above
  }
}

/** First segments are forgotten from this many on, if nothing below them is claimed. */
const MANY_SEGMENTS = 1_000

export class ClaimTree {
  readonly root = new ClaimNode('', undefined)
  /** The first segments of the names whose claims are listed. */
  readonly segments = new Set<string>()
  /** They are looked through at this number. */
  #enough = MANY_SEGMENTS
  /** Covering grants and covering waiters, each with each of its names. */
  coverings = 0

  /** Begins to list the claims whose names begin with these segments. Returns those that were not listed so far: the caller adds what is claimed there. */
  list(segments: Iterable<string>): ReadonlySet<string> {
    if (this.segments.size >= this.#enough) {
      for (const known of this.segments) if (this.root.below?.get(known) === undefined) this.segments.delete(known)
      this.#enough = Math.max(MANY_SEGMENTS, 2 * this.segments.size)
    }
    const added = new Set<string>()
    for (const segment of segments) if (!this.segments.has(segment)) added.add(segment)
    for (const segment of added) this.segments.add(segment)
    return added
  }

  #isListed(name: string): boolean {
    return this.segments.has(firstSegment(name))
  }

  addGrant(grant: Grant): void {
    if (this.#isListed(grant.resource.name)) this.#countGrant(this.#made(grant.resource.name), grant, 1)
  }

  deleteGrant(grant: Grant): void {
    if (!this.#isListed(grant.resource.name)) return
    const place = this.at(grant.resource.name)!
    this.#countGrant(place, grant, -1)
    this.#drop(place)
  }

  #countGrant(place: ClaimNode, { shared, lease: { extras } }: Grant, more: number): void {
    if (extras?.covers === true) {
      this.coverings += more
      if (shared) place.sharedCovers += more
      else place.exclusiveCovers += more
    }
    place.size += more
    for (let above = place.above; above !== undefined; above = above.above) {
      above.size += more
      if (shared) above.sharedBelow += more
      else above.exclusiveBelow += more
    }
  }

  addWaiter(lease: LeaseState, name: string): void {
    if (!this.#isListed(name)) return
    const { rank, covers } = lease.extras!
    const place = this.#made(name)
    const insert = (list: readonly LeaseState[]): readonly LeaseState[] => {
      const longer = list === NO_WAITERS ? [] : (list as LeaseState[])
      longer.splice(insertionIndex(longer, rank, lease.id), 0, lease)
      return longer
    }
    if (covers) {
      this.coverings++
      place.covering = insert(place.covering)
    }
    place.size++
    for (let above = place.above; above !== undefined; above = above.above) {
      above.size++
      if (above.above !== undefined) above.waiting = insert(above.waiting)
    }
  }

  deleteWaiter(lease: LeaseState, name: string): void {
    if (!this.#isListed(name)) return
    const { rank, covers } = lease.extras!
    const place = this.at(name)!
    const remove = (list: readonly LeaseState[]) => void (list as LeaseState[]).splice(insertionIndex(list, rank, lease.id), 1)
    if (covers) {
      this.coverings--
      remove(place.covering)
    }
    place.size--
    for (let above = place.above; above !== undefined; above = above.above) {
      above.size--
      if (above.above !== undefined) remove(above.waiting)
    }
    this.#drop(place)
  }

  at(name: string): ClaimNode | undefined {
    let place: ClaimNode | undefined = this.root
    for (let end = nextEnd(name, 0); end > 0; end = nextEnd(name, end)) {
      place = place.below?.get(end === name.length ? name : name.slice(0, end))
      if (place === undefined) return undefined
    }
    return place
  }

  /** The places with the names above this one, first segments first, as far as there are claims at or below them. */
  *above(name: string): Generator<ClaimNode, void, void> {
    let place: ClaimNode | undefined = this.root
    for (let end = nextEnd(name, 0); end < name.length; end = nextEnd(name, end)) {
      place = place.below?.get(name.slice(0, end))
      if (place === undefined) return
      yield place
    }
  }

  #made(name: string): ClaimNode {
    let place = this.root
    for (let end = nextEnd(name, 0); end > 0; end = nextEnd(name, end)) {
      const segment = end === name.length ? name : name.slice(0, end)
      place.below ??= new SortedList()
      place = place.below.get(segment) ?? place.below.add(new ClaimNode(segment, place))
    }
    return place
  }

  #drop(idle: ClaimNode): void {
    for (let place = idle; place.size === 0 && place.above !== undefined; place = place.above) place.above.below!.delete(place)
  }
}

export function firstSegment(name: string): string {
  return name.slice(0, nextEnd(name, 0))
}

/** The end of the segment after `end`; 0: there is none. */
function nextEnd(name: string, end: number): number {
  if (end === name.length) return 0
  const slash = name.indexOf('/', end + 1)
  return slash < 0 ? name.length : slash
}
