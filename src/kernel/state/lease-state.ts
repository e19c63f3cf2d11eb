/**
 * A lease and a resource of the state. There may be a million of each. What most of them would keep in small objects of their own is therefore kept in place:
 * the countdown of a term, an incarnation that is the id of the lease, and the list of an only grant.
 */
import type { Holder, LeaseExtras, PoolMember, Status } from '../state.ts'
import { FIRST_TERM } from '../state.ts'

/** The incarnation in the holder of a lease that was acquired without one: then each lease is its own. */
export const OWN_INCARNATION = 0

export class Grant {
  readonly lease: LeaseState
  readonly resource: Resource
  /** 0: it is shared. */
  readonly units: number
  readonly token: number

  constructor(lease: LeaseState, resource: Resource, units: number, token: number) {
    this.lease = lease
    this.resource = resource
    this.units = units
    this.token = token
  }

  get shared(): boolean {
    return this.units === 0
  }
}

/** An only grant, or a list of none or several. Read it with `grants`. The list `NO_GRANTS` is shared and never written to. */
export type HeldGrants = Grant | Grant[]

export const NO_GRANTS: Grant[] = []
const NO_QUEUE: LeaseState[] = []

/** Adds a grant to one or several. Use it in place of what was held. */
export function withGrant(held: HeldGrants, grant: Grant): HeldGrants {
  if (!Array.isArray(held)) return [held, grant]
  held.push(grant)
  return held
}

/** Removes the grant at `place`. Use it in place of what was held. */
export function withoutGrant(held: HeldGrants, place: number): HeldGrants {
  if (!Array.isArray(held)) return NO_GRANTS
  held.splice(place, 1)
  return held.length === 1 ? held[0]! : held
}

/** What a timekeeper keeps in a lease about its term. It belongs to one replica and is not part of the state. */
export interface TermCountdown {
  /** See replica/timer-wheel.ts. */
  bucket: CountdownBucket | undefined
  place: number
  /** See replica/countdowns.ts. */
  zero: number
  counted: number
  busy: number
  found: boolean
}

export interface CountdownBucket {
  readonly tick: number
  readonly alarms: Pick<TermCountdown, 'bucket' | 'place'>[]
}

type NewLease = Pick<LeaseState, 'id' | 'holder' | 'key' | 'ttl' | 'status' | 'run' | 'since'>

export class LeaseState implements TermCountdown {
  // What a renewal reads comes first, so that it lies close together in memory.
  counted = 0
  zero = 0
  busy = 0
  found = false
  status: Status
  /** Renewed at least once since it was granted. */
  confirmed = false
  /** The run of the log in which this epoch began. */
  run: number
  /** How many ms TERM had run before the present run began, or when a mark was written. */
  aged = 0
  ttl: number
  key: number
  /** Changes whenever TERM is restarted. */
  epoch = 1
  /** The running duration of TERM. */
  term: number
  readonly id: number
  holder: Holder
  held: HeldGrants = NO_GRANTS
  since: number
  extras: LeaseExtras | undefined = undefined
  bucket: CountdownBucket | undefined = undefined
  place = 0

  /** A lease without grants, with its short first term, that no table lists. */
  constructor({ id, holder, key, ttl, status, run, since }: NewLease) {
    this.status = status
    this.run = run
    this.ttl = ttl
    this.key = key
    this.term = Math.min(ttl, FIRST_TERM)
    this.id = id
    this.holder = holder
    this.since = since
  }

  /** In the order of their tokens. */
  get grants(): readonly Grant[] {
    return Array.isArray(this.held) ? this.held : [this.held]
  }

  /** Which process of the holder name has it. */
  get incarnation(): number {
    const { process } = this.holder
    return process === OWN_INCARNATION ? this.id : process
  }
}

export class Resource {
  readonly name: string
  held: HeldGrants = NO_GRANTS
  used = 0
  sharers = 0
  /** By rank, then by id. Every queue has the same order, so two waiters for the same two resources never block each other. */
  queue: LeaseState[] = NO_QUEUE
  /** True if it is listed in `State.freed`. */
  freed = false
  /** Derived: the member of a pool that this is. */
  member: PoolMember | undefined = undefined

  constructor(name: string) {
    this.name = name
  }

  /** In the order of their tokens. */
  get grants(): readonly Grant[] {
    return Array.isArray(this.held) ? this.held : [this.held]
  }
}
