/** Who waits now, since when, and who waited before. Places in queues are followed by events. */
import { Newest } from './newest.ts'

/** Places that are followed at most. Beyond it, new ones are not: a page would show no more of them. */
const MAX_FOLLOWED = 100_000
/** Waits that are remembered after their end. */
const MAX_PAST = 4_000

export interface Wait {
  readonly resource: string
  readonly lease: number
  readonly holder: string
  /** Wall time in ms. */
  readonly from: number
}

export interface PastWait extends Wait {
  readonly until: number
  /** `granted`, or the cause for which the place was given up. */
  readonly ended: string
}

export class Waits {
  /** By the first segment of the name, then by lease and resource, in the order in which they began. */
  readonly #waiting = new Map<string, Map<string, Wait>>()
  readonly #past = new Newest<PastWait>(MAX_PAST)
  /** The number of waiters by resource. */
  readonly #counts = new Map<string, number>()
  #followed = 0

  /** Forgets who waits now. */
  clear(): void {
    this.#waiting.clear()
    this.#counts.clear()
    this.#followed = 0
  }

  /** Returns whether no place in a queue is followed: true most of the time, and then a grant ends no wait. */
  get none(): boolean {
    return this.#followed === 0
  }

  begin(wait: Wait): void {
    if (this.#followed >= MAX_FOLLOWED) return
    const segment = segmentOf(wait.resource)
    const waiting = this.#waiting.get(segment) ?? new Map<string, Wait>()
    this.#waiting.set(segment, waiting)
    const key = `${wait.lease} ${wait.resource}`
    if (waiting.has(key)) return
    waiting.set(key, wait)
    this.#followed++
    this.#counts.set(wait.resource, (this.#counts.get(wait.resource) ?? 0) + 1)
  }

  /** The place is no longer taken. Nothing happens if there was none. */
  end(lease: number, resource: string, until: number, ended: string): void {
    const segment = segmentOf(resource)
    const waiting = this.#waiting.get(segment)
    const wait = waiting?.get(`${lease} ${resource}`)
    if (wait === undefined) return
    waiting!.delete(`${lease} ${resource}`)
    if (waiting!.size === 0) this.#waiting.delete(segment)
    this.#followed--
    const left = this.#counts.get(resource)! - 1
    if (left === 0) this.#counts.delete(resource)
    else this.#counts.set(resource, left)
    this.#past.push({ ...wait, until, ended })
  }

  remember(past: PastWait): void {
    this.#past.push(past)
  }

  /** The oldest wait under each first segment, oldest first. */
  oldest(visible: (resource: string) => boolean, limit: number): (Wait & { readonly prefix: string })[] {
    const found: (Wait & { readonly prefix: string })[] = []
    for (const [prefix, waiting] of this.#waiting)
      for (const wait of waiting.values())
        if (visible(wait.resource)) {
          found.push({ ...wait, prefix })
          break
        }
    return found.sort((a, b) => a.from - b.from).slice(0, limit)
  }

  /** The resources with the most waiters. */
  mostContended(visible: (resource: string) => boolean, limit: number): { readonly resource: string; readonly waiters: number }[] {
    const found: { readonly resource: string; readonly waiters: number }[] = []
    for (const [resource, waiters] of this.#counts) {
      const least = found.length < limit ? 0 : found.at(-1)!.waiters
      if (waiters <= least || !visible(resource)) continue
      const at = found.findIndex(other => other.waiters < waiters)
      found.splice(at < 0 ? found.length : at, 0, { resource, waiters })
      if (found.length > limit) found.pop()
    }
    return found
  }

  /** The waits for one resource, newest first: those that go on, then those that have ended. */
  of(resource: string, limit: number): (Wait & Partial<PastWait>)[] {
    const found: (Wait & Partial<PastWait>)[] = [...(this.#waiting.get(segmentOf(resource))?.values() ?? [])]
      .filter(wait => wait.resource === resource)
      .reverse()
    for (const past of this.#past.backwards()) {
      if (found.length >= limit) break
      if (past.resource === resource) found.push(past)
    }
    return found.slice(0, limit)
  }

  /** Waits that have ended, oldest first. */
  get past(): Iterable<PastWait> {
    return this.#past
  }
}

function segmentOf(resource: string): string {
  const slash = resource.indexOf('/')
  return slash < 0 ? resource : resource.slice(0, slash)
}
