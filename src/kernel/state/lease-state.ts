/**
 * Leases, resources and pools of the state, which refer to each other.
 *
 * There may be a million leases and resources. What most of them would keep in small objects of their own is therefore kept in place: the countdown of a term,
 * an incarnation that is the id of the lease, and the list of an only grant.
 */
import type { Attachment, PoolCondition, Want } from '../command.ts'
import type { AccountTable } from './account-table.ts'
import type { PermitCounts } from './permit-counts.ts'

/** The longest first term of a lease, until its first renewal. A holder that never received its grant must not block a resource for a day. */
export const FIRST_TERM = 30_000

export const WAITING = 0
export const LIVE = 1
/** The ttl has run out and the grace period has not: the grants are kept, and a renewal makes the lease live again. */
export const SUSPECT = 2
/** The lease has ended, but its holder may not know yet: its units stay taken until the holder releases them or the term runs out. */
export const FROZEN = 3
export type Status = typeof WAITING | typeof LIVE | typeof SUSPECT | typeof FROZEN

/** The timer slots of a lease. TERM is the ttl, the grace period, the freeze or the lock-delay: only one of them runs at a time. */
export const TERM = 0
export const CAP = 1
export const HOLD = 2
/** The first of several slots: a second, shorter break runs beside the first, and the earlier one ends the lease. */
export const BREAK = 3
/** Of leases that hold members of a pool: the notice of a preemption. Breaks of such a lease have one slot less. */
export const PREEMPT = 7
export const SLOTS = 8
export type Slot = 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7

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

/** The fields of a lease in which a timekeeper counts its term. It belongs to one replica and is not part of the state. */
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
  /** Renewed at least once since it was granted, or granted with changes of entries: its whole term runs. */
  confirmed = false
  /** The run of the log in which this epoch began. */
  run: number
  /** The time in ms that TERM had run before the present run began, or when a mark was written. */
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
  /** Derived: what its holders state as its permits; undefined: none ever did. */
  permits: PermitCounts | undefined = undefined
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

export interface Holder {
  readonly name: string
  /** The incarnation, or OWN_INCARNATION: then that of each lease is its id. Read `LeaseState.incarnation` instead. */
  readonly process: number
  leases: number
}

export interface Timer {
  readonly duration: number
  readonly epoch: number
  readonly run: number
  aged: number
}

/** The fields that most leases do not need. They are allocated on first use. */
export interface LeaseExtras {
  wants: readonly Required<Want>[]
  any: number
  /** 0: it states none. See rule/permits.ts. */
  permits: number
  /** It claims all names below its own, too. Where it is exclusive, it counts as one that states one permit. See rule/covers.ts. */
  covers: boolean
  rank: number
  priority: number
  holding: readonly number[]
  /** Derived. Resources whose queues pass this waiter over, because it wants more than their capacity. See rule/queue.ts. */
  passed: ReadonlySet<string> | undefined
  /** Of a lease that was passed on and has not been granted yet: what it gets with the grant. */
  passedOn: { readonly rank: number; readonly since: number } | undefined
  parent: LeaseState | undefined
  /** The lease was granted from a queue: its holder relies on it only once a renewal has confirmed that. */
  waited: boolean
  /** The lease came by a transfer, and no request of its process asked for it: its key need not be allowed to acquire the resources. */
  handed: boolean
  /** The lease was transferred to a holder name, and no process of that name has claimed it yet. */
  open: boolean
  children: Set<LeaseState> | undefined
  entries: Set<string> | undefined
  /** Of a waiter: the entries to attach with the grant. */
  pending: readonly Attachment[]
  /** Derived: the bytes of the keys and values of its entries, and how many leases end with it. */
  bytes: number
  descendants: number
  labels: readonly (readonly [string, string])[]
  grace: number
  maxLife: number
  recalled: boolean
  cause: string
  by: string
  /** CAP, HOLD and the BREAKs. `started` numbers their epochs, so a timer that is cancelled and started again has a new epoch. */
  timers: (Timer | undefined)[] | undefined
  started: number
  /** For how many ms the lapse has been postponed since the last renewal. Registrations only: see rule/service.ts. */
  slowed: number
  /** Its request to a pool, while it waits for members and while it holds them. */
  pool: PoolClaim | undefined
}

/** A request of a pool, with the defaults filled in. 0 and empty texts stand for what was left out. */
export interface PoolClaim {
  readonly pool: string
  /** Members; 0 where `total` counts instead. */
  readonly count: number
  /** Units of each member; 0: all units of the member. */
  readonly units: number
  readonly total: number
  readonly match: readonly PoolCondition[]
  readonly near: string
  readonly account: string
  readonly expect: number
  readonly preemptible: boolean
  /** Log time at which the window of a reservation begins. */
  readonly from: number
  /** Log time of the grant; 0 while it waits. */
  start: number
  /** It overtook a waiter, and makes room as soon as that waiter could be served instead. */
  yields: boolean
  /** It is beyond the quota of its account, and makes room for a waiter within its own. */
  borrows: boolean
  /** The lease was passed on, and with it the advance on the usage of its account: nothing is given back for this one. */
  passedOn: boolean
  /** The waiter that it is being preempted for; 0: none. */
  notice: number
  /** Derived, of a waiter. */
  shape: PoolShape | undefined
}

/** An entry `pool/NAME/MEMBER`: the resource `NAME/MEMBER` is given out to those that ask the pool NAME. */
export interface PoolMember {
  readonly pool: PoolState
  readonly name: string
  readonly resource: string
  /** Carries labels and units, and belongs to the lease that offers the member. */
  entry: Attached
  labels: ReadonlyMap<string, string>
  /** As its entry says. */
  units: number
  /** The units in force: a policy for its resource may say something else. */
  capacity: number
  /** Units that the pool may give now, as it is listed in `PoolState.free`; 0: it is not listed. */
  room: number
}

/** The usage of a pool by one user or team. */
export interface PoolAccount {
  readonly name: string
  /** Unit-milliseconds at log time `at`, decaying. */
  usage: number
  at: number
  /** Used in the last week, at log time `at`. Empty without a quota for it. */
  week: readonly StepUse[]
  /** Derived: units that its leases hold, and leases that hold members. */
  held: number
  leases: number
  /** Derived: units that they hold of each kind of members, without members that have left the pool. */
  kinds: Map<string, number> | undefined
  /** Derived: its waiters, in the order of the queue. */
  readonly waiting: LeaseState[]
}

/** The unit-milliseconds that were used in one step of log time. See rule/pool/week.ts. */
export interface StepUse {
  readonly step: number
  readonly used: number
}

/** The needs of a waiter, apart from its identity. Waiters with equal needs share one. */
export interface PoolShape {
  readonly key: string
  /** The number of waiters that have it. */
  waiters: number
  /** True if all members together could serve it, judged at this version of the pool. */
  possible: boolean
  version: number
  /** The units of the largest member that matches, at the version `measured` of the pool. */
  largest: number
  measured: number
  /** The turn of service in which it was found not to fit. Until a member is freed it will not fit either. */
  failed: number
  /** It did not fit for waiters that stay until so many windows of reservations have begun, nor for those that stay longer. */
  failedBefore: number
  /** The most that it could be given of the kinds with quotas (`limited`), at this version of the pool. */
  kinds: { readonly version: number; readonly limited: readonly string[]; readonly asked: readonly KindUnits[] } | undefined
}

/** Units of members of one kind. */
export interface KindUnits {
  readonly kind: string
  readonly units: number
}

/** Everything here is derived from entries, leases and policies, except the usage of accounts. */
export interface PoolState {
  readonly name: string
  readonly members: Map<string, PoolMember>
  /** The members with room, by room, then by name. */
  readonly free: PoolMember[]
  /** The waiters by rank, then by id. */
  readonly queue: LeaseState[]
  /** The leases that hold members by a request of the pool. In no particular order: a rule that chooses among them must sort them. */
  readonly holders: Set<LeaseState>
  /** Those of them that were told that they will be preempted. */
  readonly noticed: Set<LeaseState>
  /** The waiters whose window has not begun yet, also in `queue`. In no particular order. */
  readonly reserved: Set<LeaseState>
  readonly accounts: AccountTable<PoolAccount>
  readonly shapes: Map<string, PoolShape>
  /** Changes when members come, go or change. */
  version: number
  /** Numbers the turns of service. */
  turn: number
  /** True if it is listed in `State.freedPools`. */
  freed: boolean
}

export interface Attached {
  readonly key: string
  value: string
  lease: LeaseState
  revision: number
  generation: number
  /** The revision that made the entry, and how often it has been written since. */
  created: number
  version: number
}
