/**
 * Those who wait through a connection to this server. While the connection lives, the server keeps their place in the queue; when it goes,
 * their place goes with it. One watch and one beat for all of them.
 */
import { type Clock, pause } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { ELSEWHERE, type Event } from '../kernel/event.ts'
import { GONE, type Granted, type Outcome, type Queued } from '../kernel/outcome.ts'
import { FIRST_TERM } from '../kernel/state.ts'
import type { Lessor } from '../lessor.ts'

interface Place {
  readonly queued: Queued
  /** When its place must be renewed, on the monotonic clock. */
  due: number
  /** Whoever asked for it: several where an operation was asked again before the first connection was known to be dead. */
  readonly followers: Set<Follower>
}

interface Follower {
  readonly granted: (granted: Granted) => void
  readonly failed: (error: unknown) => void
}

export interface RemoteWaiterOptions {
  /** Whoever asks again must hear that the wait was in vain, and not only that its place is gone: see `wasInVain`. */
  readonly remember?: boolean
}

const NEWS = ['granted', 'withdrawn'] as const
const MAX = 10_000
/** A place is renewed this often within its ttl. */
const BEATS = 3
const RETRY = 100

export class RemoteWaiters {
  readonly #lessor: Lessor
  readonly #clock: Clock
  readonly #places = new Map<number, Place>()
  #watching: AbortController | undefined
  /** The watch has told everything up to here. */
  #heard = 0
  #beat: (() => void) | undefined
  #beatAt = Number.POSITIVE_INFINITY

  constructor(lessor: Lessor, clock: Clock) {
    this.#lessor = lessor
    this.#clock = clock
  }

  get size(): number {
    return this.#places.size
  }

  /** Waits for the grant of a queued lease. Rejects with `GONE` when it is withdrawn, with the signal's reason when that fires first. */
  follow(queued: Queued, signal: AbortSignal, { remember = false }: RemoteWaiterOptions = {}): Promise<Granted> {
    const { lease, revision } = queued
    return new Promise((resolve, reject) => {
      const place = this.#places.get(lease) ?? { queued, due: this.#clock.now() + queued.ttl / BEATS, followers: new Set() }
      const left = () => {
        place.followers.delete(follower)
        reject(signal.reason)
        // Another copy of the question still waits, through a connection that lives.
        if (place.followers.size > 0 || !this.#settle(lease, place)) return
        // Also when it was granted at this moment: nobody will hear of it.
        const inVain = remember && signal.reason instanceof LeaseError && signal.reason.code === 'TIMEOUT'
        this.#giveUp(lease, inVain).catch(() => {})
      }
      const follower: Follower = {
        granted: granted => {
          signal.removeEventListener('abort', left)
          resolve(granted)
        },
        failed: error => {
          signal.removeEventListener('abort', left)
          reject(error)
        },
      }
      place.followers.add(follower)
      this.#places.set(lease, place)
      if (signal.aborted) return left()
      signal.addEventListener('abort', left, { once: true })
      this.#beatBy(place.due)
      if (this.#watching === undefined) {
        this.#watching = new AbortController()
        void this.#watch(revision, this.#watching.signal)
      } else if (this.#heard >= revision) void this.#look(lease) // the news may have come before we listened
    })
  }

  /** Whether a place that is gone was given up since its time was over, on whichever server. */
  async wasInVain(lease: number): Promise<boolean> {
    // Of a place that is gone, only what was answered before is heard.
    return (await this.#giveUp(lease, true)).kind === 'done'
  }

  #giveUp(lease: number, inVain: boolean): Promise<Outcome> {
    const op = { session: `waited ${lease}`, seq: 1, acked: 0, again: true }
    return this.#lessor.propose({ kind: 'release', lease }, inVain ? { op } : {})
  }

  /** Nobody waits here any more. Whether this was the first to say so. */
  #settle(lease: number, place: Place): boolean {
    if (this.#places.get(lease) !== place) return false
    this.#places.delete(lease)
    if (this.#places.size === 0) this.#rest()
    return true
  }

  #granted(place: Place, granted: Granted): void {
    if (this.#settle(place.queued.lease, place)) for (const follower of place.followers) follower.granted(granted)
  }

  #failed(place: Place, error: unknown): void {
    if (this.#settle(place.queued.lease, place)) for (const follower of place.followers) follower.failed(error)
  }

  #rest(): void {
    this.#watching?.abort()
    this.#watching = undefined
    this.#heard = 0
    this.#beat?.()
    this.#beat = undefined
    this.#beatAt = Number.POSITIVE_INFINITY
  }

  // News

  async #watch(after: number, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        for await (const events of this.#lessor.watch('', { after, types: NEWS, signal })) {
          if (signal.aborted) return
          after = events[0]!.revision
          this.#heard = after
          if (events[0]!.type === 'resync') for (const lease of this.#places.keys()) void this.#look(lease)
          else this.#tell(events)
        }
      } catch (error) {
        if (this.#lessor.signal.aborted) {
          for (const place of [...this.#places.values()]) this.#failed(place, error)
          return
        }
        await pause(this.#clock, RETRY, signal).catch(() => {})
      }
    }
  }

  #tell(events: readonly Event[]): void {
    for (const { lease, type, cause } of events) {
      const place = this.#places.get(lease)
      if (place === undefined || cause === ELSEWHERE) continue
      if (type === 'withdrawn') this.#failed(place, withdrawn(lease, cause))
      else {
        const given = events.filter(event => event.lease === lease && event.type === 'granted')
        this.#granted(
          place,
          granted(
            place.queued,
            events[0]!.revision,
            given.map(event => ({ resource: event.resource!, token: event.token! })),
          ),
        )
      }
    }
  }

  /** Where news may have been missed, the state itself is asked. */
  async #look(lease: number): Promise<void> {
    try {
      const { revision, value } = await this.#lessor.read({ kind: 'lease', lease })
      const place = this.#places.get(lease)
      if (place === undefined) return
      if (value === undefined) this.#failed(place, withdrawn(lease, undefined))
      else if (value.status !== 'waiting') this.#granted(place, granted(place.queued, revision, value.grants))
    } catch (error) {
      const place = this.#places.get(lease)
      if (this.#lessor.signal.aborted && place !== undefined) this.#failed(place, error)
      // Else the next beat finds out.
    }
  }

  // Keeping places

  #beatBy(at: number): void {
    if (at >= this.#beatAt) return
    this.#beat?.()
    this.#beatAt = at
    this.#beat = this.#clock.after(Math.max(0, at - this.#clock.now()), () => {
      this.#beatAt = Number.POSITIVE_INFINITY
      void this.#renew()
    })
  }

  async #renew(): Promise<void> {
    const now = this.#clock.now()
    const due: number[] = []
    for (const [lease, place] of this.#places) {
      if (place.due <= now + 1 && due.length < MAX) {
        due.push(lease)
        place.due = now + place.queued.ttl / BEATS
      }
      this.#beatBy(place.due)
    }
    if (due.length === 0) return
    const outcome = await this.#lessor.propose({ kind: 'renew', leases: due, waiting: true }).catch(() => undefined)
    if (outcome?.kind !== 'renewed') return
    // Gone, or granted meanwhile: the news of it is on its way, or was missed.
    for (const [i, ttl] of outcome.ttls.entries()) if (ttl === GONE || ttl === 0) void this.#look(due[i]!)
  }
}

function granted(
  { lease, incarnation, ttl }: Queued,
  revision: number,
  grants: readonly { readonly resource: string; readonly token: number }[],
): Granted {
  return {
    kind: 'granted',
    revision,
    lease,
    incarnation,
    ttl: Math.min(ttl, FIRST_TERM),
    resources: grants.map(({ resource }) => resource),
    tokens: grants.map(({ token }) => token),
  }
}

function withdrawn(lease: number, cause: string | undefined): LeaseError {
  const why = cause === 'unkeyed' ? 'the key it was asked with was revoked' : (cause ?? 'it has ended')
  return new LeaseError(cause === 'unkeyed' ? 'UNAUTHENTICATED' : 'GONE', `lease ${lease} waits no longer: ${why}`, {
    facts: { lease, ...(cause !== undefined && { cause }) },
  })
}
