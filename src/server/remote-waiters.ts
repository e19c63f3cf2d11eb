/**
 * Keeps the places of waiters that are connected to this server. The server renews a place in the queue while its connection is open, and gives it up when the
 * connection closes. One watch and one renewal timer serve all waiters.
 */

import { BACKOFF } from '../backoff.ts'
import { type Clock, pause } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { DEADLOCK, ELSEWHERE, type Event } from '../kernel/event.ts'
import { GONE, type Granted, type Outcome, type Queued } from '../kernel/outcome.ts'
import { FIRST_TERM } from '../kernel/state.ts'
import { propose } from '../lessor/propose.ts'
import type { Lessor } from '../lessor.ts'
import { selfWaitError } from '../refused-error.ts'

interface QueuedLease {
  readonly queued: Queued
  /** When the lease must be renewed, on the monotonic clock. */
  due: number
  /** The requests that wait for it. Several, if a client repeated an operation before its first connection was known to be dead. */
  readonly followers: Set<QueueFollower>
}

interface QueueFollower {
  readonly granted: (granted: Granted) => void
  readonly failed: (error: unknown) => void
}

interface Leaving {
  readonly lease: number
  readonly timedOut: boolean
}

export interface RemoteWaiterOptions {
  /** Record a timeout in the log, so that a repeated request gets `TIMEOUT` and not `GONE`: see `hasTimedOut`. @default false */
  readonly remember?: boolean
}

const WATCHED_EVENTS = ['granted', 'withdrawn'] as const
/** Maximum leases in one renewal. */
const MAX_RENEWED = 1_000
/** Waiters that are answered, read or given up in one turn of the event loop. Ten thousand may be granted together, or leave with one connection. */
const SLICE = 200
/** Renewals of a queued lease within its ttl. */
const RENEWALS_PER_TTL = 3

export class RemoteWaiters {
  readonly #lessor: Lessor
  readonly #clock: Clock
  readonly #queued = new Map<number, QueuedLease>()
  #watching: AbortController | undefined
  /** The watch has delivered all events up to this revision. */
  #seenRevision = 0
  #cancelRenewal: (() => void) | undefined
  #renewalAt = Number.POSITIVE_INFINITY
  /** Waiters whose clients are gone or whose time is over, and whose places have not been given up yet. */
  readonly #leaving: Leaving[] = []
  /** The number that were given up in this turn of the event loop. */
  #left = 0

  constructor(lessor: Lessor, clock: Clock) {
    this.#lessor = lessor
    this.#clock = clock
  }

  get size(): number {
    return this.#queued.size
  }

  /** Waits for the grant of a queued lease. Rejects with `GONE` when it is withdrawn, with the signal's reason when that fires first. */
  follow(queued: Queued, signal: AbortSignal, { remember = false }: RemoteWaiterOptions = {}): Promise<Granted> {
    const { lease, revision } = queued
    return new Promise((resolve, reject) => {
      const waiter = this.#queued.get(lease) ?? {
        queued,
        due: this.#clock.now() + queued.ttl / RENEWALS_PER_TTL,
        followers: new Set(),
      }
      const onAbort = () => {
        waiter.followers.delete(follower)
        reject(signal.reason)
        // A repetition of the request may still wait on another connection.
        if (waiter.followers.size > 0 || !this.#remove(lease, waiter)) return
        // Give it up even if it is granted at this moment: no client would learn of the grant.
        const timedOut = remember && signal.reason instanceof LeaseError && signal.reason.code === 'TIMEOUT'
        this.#leave({ lease, timedOut })
      }
      const follower: QueueFollower = {
        granted: granted => {
          signal.removeEventListener('abort', onAbort)
          resolve(granted)
        },
        failed: error => {
          signal.removeEventListener('abort', onAbort)
          reject(error)
        },
      }
      waiter.followers.add(follower)
      this.#queued.set(lease, waiter)
      if (signal.aborted) return onAbort()
      signal.addEventListener('abort', onAbort, { once: true })
      this.#renewBy(waiter.due)
      if (this.#watching === undefined) {
        this.#watching = new AbortController()
        void this.#watch(revision, this.#watching.signal)
      } else if (this.#seenRevision >= revision) void this.#readLease(lease) // its events may have passed already
    })
  }

  /** Returns whether a lease that is gone was given up because its wait timed out, on this server or another. */
  async hasTimedOut(lease: number): Promise<boolean> {
    // The lease is gone, so only the recorded answer of that operation can be `done`.
    return (await this.#giveUp(lease, true)).kind === 'done'
  }

  /** At once, unless many leave in this turn of the event loop. */
  #leave(leaving: Leaving): void {
    if (this.#left === 0) this.#clock.soon(() => this.#leaveOn())
    if (this.#left < SLICE) {
      this.#left++
      this.#giveUp(leaving.lease, leaving.timedOut).catch(() => {})
    } else this.#leaving.push(leaving)
  }

  #leaveOn(): void {
    this.#left = 0
    for (const leaving of this.#leaving.splice(0, SLICE)) this.#leave(leaving)
  }

  /** Calls `each` for some items in each turn of the event loop. */
  async #inSlices<T>(items: Iterable<T>, each: (item: T) => void): Promise<void> {
    let done = 0
    for (const item of items) {
      if (done > 0 && done % SLICE === 0) await new Promise<void>(resolve => this.#clock.soon(resolve))
      done++
      each(item)
    }
  }

  #giveUp(lease: number, timedOut: boolean): Promise<Outcome> {
    const op = { session: `waited ${lease}`, seq: 1, acked: 0, again: true }
    return propose(this.#lessor, { kind: 'release', lease }, timedOut ? { op } : {})
  }

  /** Removes a waiter. Returns false if it was removed before. */
  #remove(lease: number, waiter: QueuedLease): boolean {
    if (this.#queued.get(lease) !== waiter) return false
    this.#queued.delete(lease)
    if (this.#queued.size === 0) this.#stop()
    return true
  }

  #granted(waiter: QueuedLease, granted: Granted): void {
    if (this.#remove(waiter.queued.lease, waiter)) for (const follower of waiter.followers) follower.granted(granted)
  }

  #failed(waiter: QueuedLease, error: unknown): void {
    if (this.#remove(waiter.queued.lease, waiter)) for (const follower of waiter.followers) follower.failed(error)
  }

  /** Ends the watch and the timer while there is no waiter. */
  #stop(): void {
    this.#watching?.abort()
    this.#watching = undefined
    this.#seenRevision = 0
    this.#cancelRenewal?.()
    this.#cancelRenewal = undefined
    this.#renewalAt = Number.POSITIVE_INFINITY
  }

  // Events

  async #watch(after: number, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        for await (const events of this.#lessor.watch('', { after, types: WATCHED_EVENTS, signal })) {
          if (signal.aborted) return
          after = events[0]!.revision
          this.#seenRevision = after
          if (events[0]!.type === 'resync') await this.#inSlices([...this.#queued.keys()], lease => void this.#readLease(lease))
          else await this.#onEvents(events)
        }
      } catch (error) {
        if (this.#lessor.signal.aborted) {
          for (const waiter of [...this.#queued.values()]) this.#failed(waiter, error)
          return
        }
        await pause(this.#clock, BACKOFF.background.first, signal).catch(() => {})
      }
    }
  }

  async #onEvents(events: readonly Event[]): Promise<void> {
    const { revision } = events[0]!
    const grants = new Map<number, Event[]>()
    for (const event of events) {
      const { lease, type, cause, by, resource } = event
      const waiter = this.#queued.get(lease)
      if (waiter === undefined || cause === ELSEWHERE) continue
      const before = grants.get(lease)
      if (type === 'withdrawn')
        this.#failed(waiter, cause === DEADLOCK ? selfWaitError(resource ?? '', Number(by)) : withdrawnError(lease, cause))
      else if (before === undefined) grants.set(lease, [event])
      else before.push(event)
    }
    await this.#inSlices(grants, ([lease, granted]) => {
      const waiter = this.#queued.get(lease)
      if (waiter === undefined) return
      const tokens = granted.map(({ resource, token }) => ({ resource: resource!, token: token! }))
      this.#granted(waiter, grantedOutcome(waiter.queued, revision, tokens))
    })
  }

  /** Reads the lease itself where its events may have been missed. */
  async #readLease(lease: number): Promise<void> {
    try {
      const { revision, value } = await this.#lessor.read({ kind: 'lease', lease })
      const waiter = this.#queued.get(lease)
      if (waiter === undefined) return
      if (value === undefined) this.#failed(waiter, withdrawnError(lease, undefined))
      else if (value.status !== 'waiting') this.#granted(waiter, grantedOutcome(waiter.queued, revision, value.grants))
    } catch (error) {
      const waiter = this.#queued.get(lease)
      if (this.#lessor.signal.aborted && waiter !== undefined) this.#failed(waiter, error)
      // Otherwise the next renewal finds out.
    }
  }

  // Renewals

  #renewBy(at: number): void {
    if (at >= this.#renewalAt) return
    this.#cancelRenewal?.()
    this.#renewalAt = at
    this.#cancelRenewal = this.#clock.after(Math.max(0, at - this.#clock.now()), () => {
      this.#renewalAt = Number.POSITIVE_INFINITY
      void this.#renew()
    })
  }

  async #renew(): Promise<void> {
    const now = this.#clock.now()
    const due: number[] = []
    for (const [lease, waiter] of this.#queued) {
      if (waiter.due <= now + 1 && due.length < MAX_RENEWED) {
        due.push(lease)
        waiter.due = now + waiter.queued.ttl / RENEWALS_PER_TTL
      }
      this.#renewBy(waiter.due)
    }
    if (due.length === 0) return
    const outcome = await propose(this.#lessor, { kind: 'renew', leases: due, waiting: true }).catch(() => undefined)
    if (outcome?.kind !== 'renewed') return
    // Gone, or granted meanwhile. Its event is on its way, or was missed.
    for (const [i, ttl] of outcome.ttls.entries()) if (ttl === GONE || ttl === 0) void this.#readLease(due[i]!)
  }
}

function grantedOutcome(
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

function withdrawnError(lease: number, cause: string | undefined): LeaseError {
  const why = cause === 'unkeyed' ? 'the key that requested it was revoked' : (cause ?? 'it has ended')
  return new LeaseError(cause === 'unkeyed' ? 'UNAUTHENTICATED' : 'GONE', `lease ${lease} is no longer waiting: ${why}`, {
    facts: { lease, ...(cause !== undefined && { cause }) },
  })
}
