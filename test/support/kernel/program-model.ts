/**
 * All that a lease can have or undergo, again, the naive way and together: lists that are searched from the front. Members of pools are
 * decided by PoolModel.
 *
 * Left out, because other tests have them: changed capacities (model.ts), generations and transactions (entry-model.ts), keys, registrations, and members
 * that come and go.
 */

import { conflicts, meets } from '../../../sim/covers.ts'
import { type Ask, type ModelRules, PoolModel } from './pool-model.ts'

export const POOL = 'g'
export const FIRST_TERM = 30_000
const NOT_LIMITED = 86_400_000
const RECIPIENT = -1e15
const BY_FORCE = -2e15
const PRIORITY = 1e9

export interface Wish {
  readonly resource: string
  readonly units: number
  readonly shared: boolean
}

export interface ModelEntry {
  readonly key: string
  readonly value: string
}

interface Running {
  readonly duration: number
  ran: number
}

export interface ModelLease {
  readonly id: number
  readonly holder: string
  incarnation: number
  ttl: number
  term: number
  readonly grace: number
  maxLife: number
  parent: number
  readonly priority: number
  readonly rank: number
  any: number
  /** 0: it states none. */
  permits: number
  /** Its names stand for all names below them, too. */
  covers: boolean
  /** Leases that its client keeps. */
  readonly holding: readonly number[]
  /** The class of work that the log learns from; empty: none. */
  readonly work: string
  readonly isPool: boolean
  /** It came by a transfer. */
  readonly isHeir: boolean
  /** It came by a transfer, as the answer to a request that waited. */
  isAnswer: boolean
  status: 'waiting' | 'live' | 'suspect' | 'frozen'
  confirmed: boolean
  open: boolean
  since: number
  /** Of a lease that was passed on and waits: since when it has been held. */
  heldSince: number | undefined
  /** The term that ran out before the grace period began. */
  lastTerm: number
  wishes: readonly Wish[]
  held: readonly Wish[]
  pending: readonly ModelEntry[]
  cap: Running | undefined
  breaks: readonly Running[]
}

export interface ModelRequest {
  readonly holder: string
  readonly incarnation?: number
  readonly ttl: number
  readonly wishes: readonly Wish[]
  readonly any?: number
  readonly wait?: boolean
  readonly priority?: number
  readonly parent?: number
  readonly grace?: number
  readonly maxLife?: number
  readonly entries?: readonly ModelEntry[]
  readonly work?: string
  readonly steal?: 'after' | 'force'
  readonly pool?: Ask
  readonly permits?: number
  readonly covers?: boolean
  readonly holding?: readonly number[]
}

export interface ProgramRules {
  readonly capacity: Readonly<Record<string, number>>
  /** By resource. */
  readonly lockDelay: Readonly<Record<string, number>>
  /** The most leases of one holder that hold or want a resource of this kind (`KIND/…`). */
  readonly quota: { readonly kind: string; readonly most: number }
  /** The longest ttl of leases with an entry of this kind (`KIND/…`). */
  readonly ttlMax: { readonly kind: string; readonly most: number }
  readonly pool: ModelRules
}

export class ProgramModel {
  readonly rules: ProgramRules
  readonly pool: PoolModel
  leases: ModelLease[] = []
  entries: (ModelEntry & { readonly lease: number })[] = []
  /** Class of work, ms, and whether the holder died. */
  readonly learned: (readonly [work: string, ms: number, died: boolean])[] = []
  wall = 0
  longest: number
  nextLease: number

  constructor(rules: ProgramRules, start: { readonly nextLease: number; readonly longest: number }) {
    this.rules = rules
    this.pool = new PoolModel(rules.pool, {
      servesAtOnce: false,
      endsWith: (waiter, lease) => this.#ancestry(this.find(waiter)?.parent ?? 0).some(({ id }) => id === lease),
    })
    this.nextLease = start.nextLease
    this.longest = start.longest
  }

  find(id: number): ModelLease | undefined {
    return this.leases.find(lease => lease.id === id)
  }

  /** `accepts`: what the kernel said about a reservation, which depends on all other windows. */
  acquire(request: ModelRequest, accepts = true): string {
    const {
      holder,
      incarnation,
      ttl,
      wishes,
      any = 0,
      wait = false,
      parent = 0,
      grace = 0,
      maxLife = 0,
      entries = [],
      pool,
      covers = false,
      holding = [],
    } = request
    // It is alone at its own name.
    const permits = covers ? 1 : (request.permits ?? 0)
    if (ttl > this.rules.ttlMax.most && entries.some(({ key }) => key.startsWith(`${this.rules.ttlMax.kind}/`))) return 'INVALID'
    if (wishes.some(wish => wish.units > this.#room(wish.resource, permits))) return 'INVALID'
    if (parent >= this.nextLease || this.find(parent)?.status === 'waiting') return 'INVALID'
    if (parent > 0 && !this.#isHeld(parent)) return 'GONE'
    const process = { name: holder, incarnation: incarnation ?? this.nextLease }
    let mustWait = false
    for (const { key } of entries) {
      const refusal = this.#entryRefusal(process, key)
      if (refusal === 'HELD' && wait) mustWait = true
      else if (refusal !== undefined) return refusal
    }
    if (this.#isOverQuota(holder, wishes)) return 'LIMIT'
    const { priority = 0, work = '', steal } = request
    const rank = steal === undefined ? this.pool.elapsed - priority * PRIORITY : steal === 'force' ? BY_FORCE : RECIPIENT
    const isReservation = pool !== undefined && pool.from > 0
    const lease: ModelLease = {
      ...{
        id: this.nextLease,
        holder,
        incarnation: process.incarnation,
        ttl,
        grace,
        maxLife,
        parent,
        priority,
        rank,
        any,
        permits,
        covers,
        holding,
        work,
      },
      ...{ term: isReservation ? ttl + pool.from : Math.min(ttl, FIRST_TERM), isPool: pool !== undefined, isHeir: false, isAnswer: false },
      ...{
        status: 'waiting',
        confirmed: false,
        open: isReservation,
        since: this.wall,
        heldSince: undefined,
        lastTerm: 0,
        wishes,
        held: [],
        pending: entries,
      },
      ...{ cap: undefined, breaks: [] },
    }
    if (pool !== undefined) return this.#acquireMembers(lease, pool, wait, accepts)
    const got = mustWait ? undefined : this.#wouldGet(lease)
    if (got === undefined && !wait) return 'HELD'
    const isOwn = ({ isHeir, isAnswer, open, confirmed, held, status, ...other }: ModelLease) =>
      isHeir &&
      !isAnswer &&
      !open &&
      !confirmed &&
      status !== 'frozen' &&
      other.holder === holder &&
      other.incarnation === process.incarnation &&
      this.#meets({ ...other, held }, lease)
    const waitsForItself = got === undefined && steal === undefined && any === 0 && this.leases.some(isOwn)
    if (waitsForItself) return 'DEADLOCK'
    const victims = steal === undefined || got !== undefined ? [] : this.#victims(lease, steal === 'force')
    if (victims === 'INVALID') return 'INVALID'
    this.nextLease++
    this.leases.push(lease)
    if (got !== undefined) this.#give(lease, got)
    for (const victim of victims) this.#end(victim, steal === 'force', 'revoked')
    this.#serve()
    return this.find(lease.id)!.status === 'waiting' ? 'queued' : 'granted'
  }

  #acquireMembers(lease: ModelLease, ask: Ask, wait: boolean, accepts: boolean): string {
    const { pool } = this
    if (ask.from > 0) {
      if (!wait) return 'INVALID'
      if (!pool.isPossible(ask) || !pool.mayEverHold(ask)) return 'LIMIT'
      if (!accepts) return 'HELD'
    } else {
      const now = pool.wouldGet(lease.id, ask, false)
      if (!now && (!pool.isPossible(ask) || !pool.mayEverHold(ask))) return 'LIMIT'
      if (!now && !wait && !pool.wouldGet(lease.id, ask, true)) return 'HELD'
    }
    this.nextLease++
    this.leases.push(lease)
    pool.take(lease.id, ask)
    this.#serve()
    return lease.status === 'waiting' ? 'queued' : 'granted'
  }

  renew(id: number, { ttl = 0, waiting = false }: { readonly ttl?: number; readonly waiting?: boolean } = {}): number {
    const lease = this.find(id)
    if (lease === undefined || lease.status === 'frozen') return -1
    if (waiting && lease.status !== 'waiting') return 0
    const ahead = lease.status === 'waiting' && lease.isPool ? Math.max(0, this.#claim(id).begin - this.pool.elapsed) : 0
    // The process that renews a lease has it. A reservation before its window has no process yet.
    if (lease.open && ahead === 0) lease.open = false
    if (lease.status === 'suspect') lease.status = 'live'
    if (lease.status === 'live') {
      lease.confirmed = true
      lease.ttl = Math.max(lease.ttl, Math.min(ttl, this.#longestTtl(lease)))
    }
    lease.term = ahead > 0 ? lease.ttl + ahead : lease.confirmed ? lease.ttl : Math.min(lease.ttl, FIRST_TERM)
    if (lease.status === 'live' && this.held(lease).length > 0) this.longest = Math.max(this.longest, lease.term)
    return lease.term
  }

  #longestTtl(lease: ModelLease): number {
    const { kind, most } = this.rules.ttlMax
    const isLimited = this.entries.some(({ key, lease: on }) => on === lease.id && key.startsWith(`${kind}/`))
    return isLimited ? most : NOT_LIMITED
  }

  claim(id: number, incarnation: number | undefined): string {
    const lease = this.find(id)
    if (lease === undefined || lease.status === 'frozen') return 'GONE'
    if (!lease.open) return 'HELD'
    lease.open = false
    lease.incarnation = incarnation ?? id
    this.#serve()
    return 'done'
  }

  extend(id: number, by: number): string {
    const lease = this.find(id)
    if (lease === undefined || (lease.status !== 'live' && lease.status !== 'suspect')) return 'GONE'
    if (!lease.isPool || this.held(lease).length === 0 || lease.cap === undefined) return 'INVALID'
    if (this.pool.extend(id, by) !== undefined) return 'HELD'
    lease.maxLife += by
    lease.cap = { duration: lease.cap.duration + by, ran: lease.cap.ran }
    return 'done'
  }

  widen(id: number, wishes: readonly Wish[]): string {
    const lease = this.find(id)
    if (lease === undefined) return 'GONE'
    if (lease.status !== 'waiting') return 'done'
    if (lease.any === 0) return 'INVALID'
    const fresh = wishes.filter(wish => !lease.wishes.some(({ resource }) => resource === wish.resource))
    for (const wish of fresh) {
      if (wish.units > this.#room(wish.resource)) return 'INVALID'
      if (!lease.wishes.some(isUnder(this.rules.quota.kind)) && this.#isOverQuota(lease.holder, [wish])) return 'LIMIT'
    }
    lease.wishes = [...lease.wishes, ...fresh]
    this.#serve()
    return 'done'
  }

  /** `stopped`: descendants that their holder does not use any more either. */
  /** `lost`: its holder says that it has lost the lease, which ends as one that lapsed. */
  release(
    id: number,
    {
      resource,
      stopped = [],
      lost = false,
    }: { readonly resource?: string; readonly stopped?: readonly number[]; readonly lost?: boolean } = {},
  ): string {
    const lease = this.find(id)
    if (lease === undefined) return 'GONE'
    const held = this.held(lease)
    if (resource !== undefined && !held.some(wish => wish.resource === resource)) return 'GONE'
    if (resource === undefined || (lease.status === 'frozen' && held.length === 1))
      this.#end(lease, true, lost ? 'lapsed' : 'released', stopped)
    else if (lease.isPool) this.pool.giveBack(id, resource.slice(POOL.length + 1))
    else lease.held = lease.held.filter(wish => wish.resource !== resource)
    this.#serve()
    return 'done'
  }

  termDue(id: number): string {
    const lease = this.find(id)!
    const rest = this.#showUpTime(lease)
    if (rest > 0) {
      lease.term = Math.max(rest, 1_000)
      if (lease.status === 'live') this.longest = Math.max(this.longest, lease.term)
      return 'done'
    }
    if (lease.status === 'live' && lease.grace > 0) {
      Object.assign(lease, { status: 'suspect', lastTerm: lease.term, term: lease.grace })
      this.#serve()
      return 'done'
    }
    if (lease.status === 'live' || lease.status === 'suspect') this.#end(lease, true, 'lapsed')
    else this.#end(lease, true, 'released')
    this.#serve()
    return 'done'
  }

  /** A reservation whose window has not begun. */
  #isAhead(lease: ModelLease): boolean {
    return lease.isPool && lease.status === 'waiting' && this.#claim(lease.id).begin > this.pool.elapsed
  }

  /** For how long a reservation waits for the process that takes it, by the log's own time. */
  #showUpTime(lease: ModelLease): number {
    const { begin = 0, start = 0 } = lease.isPool && !lease.isHeir ? (this.#claimOf(lease.id) ?? {}) : {}
    const isOpen = lease.open && (lease.status === 'waiting' || lease.status === 'live')
    if (begin === 0 || !(this.#isAhead(lease) || isOpen)) return 0
    return Math.max(begin, start) + lease.ttl - this.pool.elapsed
  }

  /** A cap, an announced break or the notice of a preemption is due. */
  limitDue(id: number, isNotice = false): string {
    if (!isNotice || this.pool.noticeEnds(id)) this.#end(this.find(id)!, false, 'revoked')
    this.#serve()
    return 'done'
  }

  revoke(ids: readonly number[], force: boolean): string {
    if (ids.length === 0) return 'NOT_FOUND'
    for (const id of ids) {
      const lease = this.find(id)
      if (lease !== undefined) this.#end(lease, force, 'revoked')
    }
    this.#serve()
    return 'done'
  }

  break(resource: string, after: number): string {
    const holders = this.leases.filter(lease => lease.status !== 'frozen' && this.held(lease).some(wish => wish.resource === resource))
    if (holders.length === 0) return 'NOT_FOUND'
    const isFull = (lease: ModelLease) =>
      lease.breaks.length >= (lease.isPool ? 4 : 5) && lease.breaks.every(({ duration }) => duration > after)
    if (after > 0 && holders.some(isFull)) return 'LIMIT'
    for (const lease of holders)
      if (after === 0) {
        if (this.find(lease.id) === lease) this.#end(lease, false, 'revoked')
      } else if (lease.breaks.every(({ duration }) => duration > after)) lease.breaks = [...lease.breaks, { duration: after, ran: 0 }]
    this.#serve()
    return 'done'
  }

  /** A timer has run for at least so long, as the log says. */
  age(id: number, timer: 'cap' | 'break' | 'notice', ms: number): void {
    const lease = this.find(id)!
    const running = timer === 'cap' ? lease.cap : lease.breaks[0]
    if (timer === 'notice') this.pool.age(id, ms)
    else running!.ran = Math.max(running!.ran, ms)
  }

  transfer(id: number, to: string, { incarnation, stopped }: { readonly incarnation?: number; readonly stopped: boolean }): string {
    const giver = this.find(id)
    if (giver === undefined || giver.status !== 'live') return 'GONE'
    const held = this.held(giver)
    if (held.length === 0) return 'INVALID'
    const isMeant = (lease: ModelLease) => lease.holder === to && (incarnation === undefined || lease.incarnation === incarnation)
    const waiter = this.#line().find(request => !request.isHeir && isMeant(request) && this.#covers(giver, held, request))
    const claim = this.#claimPassedOn(giver, held)
    const successor = this.#heirOf(giver, to, incarnation)
    if (giver.isPool) this.pool.handOver(id, waiter?.id ?? this.nextLease, stopped)
    this.#end(giver, stopped, 'transferred')
    const isAnswered = waiter !== undefined && this.find(waiter.id) === waiter && !this.#lacksEntries(waiter)
    const heir = isAnswered ? waiter : successor
    if (isAnswered && waiter.maxLife > 0 && (claim.cap === undefined || waiter.maxLife < claim.cap.duration - claim.cap.ran))
      Object.assign(claim, { maxLife: waiter.maxLife, cap: undefined })
    Object.assign(heir, claim, { isAnswer: isAnswered })
    if (!isAnswered) {
      this.nextLease++
      this.leases.push(heir)
    }
    if (stopped && !this.#isHeldAround({ ...heir, holding: [] }, held)) this.#give(heir, held)
    if (!isAnswered) this.#endSelfWaits({ ...heir, held })
    this.#serve()
    return 'done'
  }

  /** Returns what goes on with the lease that gets it. */
  #claimPassedOn({ grace, maxLife, permits, covers, priority, isPool, cap, breaks, since }: ModelLease, held: readonly Wish[]) {
    const running = { cap: cap && { ...cap }, breaks: breaks.map(one => ({ ...one })) }
    return {
      grace,
      maxLife,
      permits,
      covers,
      priority,
      isPool,
      ...running,
      heldSince: since,
      rank: RECIPIENT,
      any: 0,
      isHeir: true,
      wishes: isPool ? [] : held,
    }
  }

  #heirOf({ ttl, parent, work, ...giver }: ModelLease, to: string, incarnation: number | undefined): ModelLease {
    const id = this.nextLease
    return {
      ...{ ...giver, id, holder: to, incarnation: incarnation ?? id, ttl, term: Math.min(ttl, FIRST_TERM), parent, work },
      ...{ status: 'waiting', confirmed: false, open: incarnation === undefined, lastTerm: 0, held: [], pending: [], holding: [] },
    }
  }

  /** Returns whether the lease has all that the request waits for, and the request does not end with it. */
  #covers(giver: ModelLease, held: readonly Wish[], { wishes, any, parent, permits, covers }: ModelLease): boolean {
    if (giver.permits !== permits || giver.covers !== covers) return false
    const covered = wishes.filter(wish =>
      held.some(has => has.resource === wish.resource && has.shared === wish.shared && has.units >= wish.units),
    )
    const isCovered = any === 0 ? covered.length === wishes.length : covered.length === any && held.length === any
    return isCovered && (giver.parent === 0 || giver.parent === parent) && !this.#ancestry(parent).includes(giver)
  }

  /** Returns whether one of `wishes` cannot be fulfilled beside what is held. */
  #meets({ held, permits, covers }: Pick<ModelLease, 'held' | 'permits' | 'covers'>, asked: ModelLease): boolean {
    const claims = held.map(has => ({ ...has, covers }))
    if (claims.some(claim => asked.wishes.some(wish => conflicts(claim, { ...wish, covers: asked.covers })))) return true
    const room = (resource: string) => Math.min(this.#room(resource, permits), this.#room(resource, asked.permits))
    const excludes = (has: Wish, { resource, units, shared }: Wish) =>
      has.resource === resource && (shared ? !has.shared : has.shared || has.units + units > room(resource))
    return asked.wishes.some(wish => held.some(has => excludes(has, wish)))
  }

  /** A request for a name that its own process has got by a transfer would wait for itself. */
  #endSelfWaits(heir: ModelLease): void {
    if (heir.open) return
    for (const request of this.#line()) {
      const isOwn = request.holder === heir.holder && request.incarnation === heir.incarnation && !request.isHeir
      if (isOwn && request.any === 0 && this.#meets(heir, request)) this.#drop(request)
    }
  }

  put(id: number, key: string, value: string): string {
    const lease = this.find(id)
    if (lease === undefined || (lease.status !== 'live' && lease.status !== 'suspect')) return 'GONE'
    const refusal = this.#entryRefusal({ name: lease.holder, incarnation: lease.incarnation }, key)
    if (refusal !== undefined) return refusal
    if (lease.ttl > this.rules.ttlMax.most) return 'INVALID'
    this.#attach(id, { key, value })
    this.#serve()
    return 'done'
  }

  delete(key: string, lease?: number): string {
    const there = this.entries.find(entry => entry.key === key)
    if (there === undefined) return 'NOT_FOUND'
    if (lease !== undefined && there.lease !== lease) return 'STALE'
    this.entries = this.entries.filter(entry => entry !== there)
    this.#serve()
    return 'done'
  }

  tick(ms: number): void {
    this.wall += ms
    const before = this.leases.filter(lease => this.#isAhead(lease))
    this.pool.tick(ms)
    for (const lease of before) if (!this.#isAhead(lease)) lease.term = lease.ttl
    this.#serve()
  }

  /** The members of a pool lease are its resources. */
  held(lease: ModelLease): readonly Wish[] {
    if (!lease.isPool) return lease.held
    const { holds = [] } = this.#claimOf(lease.id) ?? {}
    return holds.map(({ member, units }) => ({ resource: `${POOL}/${member}`, units, shared: false }))
  }

  queue(resource: string): number[] {
    return this.#queueOf(resource).map(({ id }) => id)
  }

  /** The waiters that name a resource, first to last. */
  #queueOf(resource: string): ModelLease[] {
    const isPromised = ({ id }: ModelLease) => this.#claimOf(id)?.promised.some(({ member }) => `${POOL}/${member}` === resource) === true
    return this.leases
      .filter(lease => lease.status === 'waiting' && (isPromised(lease) || lease.wishes.some(wish => wish.resource === resource)))
      .sort(inOrder)
  }

  #claimOf(id: number): PoolModel['leases'][number] | undefined {
    return this.pool.leases.find(lease => lease.id === id)
  }

  #claim(id: number): PoolModel['leases'][number] {
    return this.#claimOf(id)!
  }

  #isHeld(id: number): boolean {
    return ['live', 'suspect'].includes(this.find(id)?.status ?? '')
  }

  /** The units in use that a lease agrees to, if it states so many permits. */
  #room(resource: string, permits = 0): number {
    const capacity = this.rules.capacity[resource]
    return permits === 0 ? (capacity ?? 1) : Math.min(permits, capacity ?? permits)
  }

  /** An older process of the same name never overwrites a newer one, and no other holder takes an entry over. */
  #entryRefusal({ name, incarnation }: { readonly name: string; readonly incarnation: number }, key: string): 'HELD' | 'STALE' | undefined {
    const there = this.entries.find(entry => entry.key === key)
    if (there === undefined) return undefined
    const owner = this.find(there.lease)!
    if (owner.holder !== name) return 'HELD'
    return owner.incarnation > incarnation ? 'STALE' : undefined
  }

  #isOverQuota(holder: string, wishes: readonly Wish[]): boolean {
    const { kind, most } = this.rules.quota
    if (!wishes.some(isUnder(kind))) return false
    return this.leases.filter(lease => lease.holder === holder && [...lease.held, ...lease.wishes].some(isUnder(kind))).length >= most
  }

  /** The waiters for names, first to last. */
  #line(): ModelLease[] {
    return this.leases.filter(({ status, wishes }) => status === 'waiting' && wishes.length > 0).sort(inOrder)
  }

  #lacksEntries({ holder: name, incarnation, pending }: ModelLease): boolean {
    return pending.some(({ key }) => this.#entryRefusal({ name, incarnation }, key) !== undefined)
  }

  #wouldGet(lease: ModelLease): readonly Wish[] | undefined {
    if (this.#lacksEntries(lease)) return undefined
    const free = lease.wishes.filter(wish => {
      const holders = this.leases.filter(({ held }) => held.some(({ resource }) => resource === wish.resource))
      const others = holders.flatMap(({ held }) => held).filter(held => held.resource === wish.resource)
      const used = others.reduce((sum, held) => sum + (held.shared ? 0 : held.units), 0)
      const room = Math.min(...[lease, ...holders].map(({ permits }) => this.#room(wish.resource, permits)))
      const fits = wish.shared ? used === 0 : !others.some(held => held.shared) && used + wish.units <= room
      if (!fits || this.#isHeldAround(lease, [wish])) return false
      const claim = { ...wish, covers: lease.covers }
      // Its client has it already.
      const isUnder = (held: Wish) => wish.resource.startsWith(`${held.resource}/`) && (wish.shared || !held.shared)
      if (this.leases.some(other => other.covers && isOwn(lease, other) && other.held.some(isUnder))) return true
      const queued = this.#line().filter(other => other.wishes.some(wanted => meets({ ...wanted, covers: other.covers }, claim)))
      return ![...this.#queueOf(wish.resource), ...queued].some(other => other !== lease && inOrder(other, lease) < 0)
    })
    const needed = lease.any === 0 ? lease.wishes.length : lease.any
    return free.length < needed ? undefined : free.slice(0, needed)
  }

  /** Returns whether another client holds a claim above or below one of these. */
  #isHeldAround(lease: ModelLease, wishes: readonly Wish[]): boolean {
    const others = this.leases.filter(other => other.id !== lease.id && !isOwn(lease, other))
    return others.some(({ held, covers }) =>
      held.some(has => wishes.some(wish => conflicts({ ...has, covers }, { ...wish, covers: lease.covers }))),
    )
  }

  /** The leases that a steal ends. Of resources with one unit only: whatever is in its way. */
  #victims(thief: ModelLease, force: boolean): readonly ModelLease[] | 'INVALID' {
    const above = this.#ancestry(thief.parent)
    const victims = new Set<ModelLease>()
    for (const wish of thief.wishes)
      for (const lease of this.leases) {
        const has = lease.held.find(held => held.resource === wish.resource)
        const isAround = lease.held.some(held => conflicts({ ...held, covers: lease.covers }, { ...wish, covers: thief.covers }))
        if (lease.status === 'frozen' && !force) continue
        if (isAround && has === undefined && isOwn(thief, lease)) continue
        if (!isAround && (has === undefined || (wish.shared && has.shared))) continue
        if (above.includes(lease)) return 'INVALID'
        victims.add(lease)
      }
    if (thief.wishes.length === 1) return [...victims]
    return [...victims].filter(lease => !this.#ancestry(lease.parent).some(ancestor => victims.has(ancestor)))
  }

  #ancestry(id: number): ModelLease[] {
    const lease = this.find(id)
    return lease === undefined ? [] : [lease, ...this.#ancestry(lease.parent)]
  }

  #give(lease: ModelLease, got: readonly Wish[]): void {
    Object.assign(lease, { status: 'live', since: lease.heldSince ?? this.wall, wishes: [], any: 0, held: lease.isPool ? [] : got })
    lease.heldSince = undefined
    if (got.length > 0) this.longest = Math.max(this.longest, lease.term)
    if (lease.maxLife > 0) lease.cap ??= { duration: lease.maxLife, ran: 0 }
    for (const entry of lease.pending) this.#attach(lease.id, entry)
    lease.pending = []
  }

  #attach(lease: number, entry: ModelEntry): void {
    this.entries = [...this.entries.filter(({ key }) => key !== entry.key), { ...entry, lease }]
  }

  /** Waiters for names first, then the pool. */
  #serve(): void {
    this.#followPool()
    for (;;) {
      for (let next = this.#nextInLine(); next !== undefined; next = this.#nextInLine()) this.#give(next, this.#wouldGet(next)!)
      this.pool.serveRecipients()
      this.#followPool()
      if (!this.pool.isChanged) return
      this.pool.serve()
      this.#followPool()
    }
  }

  #nextInLine(): ModelLease | undefined {
    return this.#line().find(lease => this.#wouldGet(lease) !== undefined)
  }

  /** Applies what the pool has decided: grants, and then preemptions without notice, which end the leases below as well. */
  #followPool(): void {
    const decided = this.leases.flatMap(lease => {
      const claim = lease.isPool ? this.#claimOf(lease.id) : undefined
      return claim === undefined ? [] : [{ lease, claim }]
    })
    for (const { lease, claim } of decided) {
      if (claim.status === 'waiting' || lease.status !== 'waiting') continue
      const isWindow = claim.begin > 0 && !lease.isHeir
      // Its holder has a whole ttl to show up.
      if (isWindow) lease.term = lease.ttl
      this.#give(lease, this.held(lease))
    }
    for (const { lease, claim } of decided)
      if (claim.status === 'frozen' && (lease.status === 'live' || lease.status === 'suspect')) this.#end(lease, false, 'revoked')
  }

  /** `stopped`: its holder does not rely on it any more. `also`: descendants of which that is true as well. */
  #end(lease: ModelLease, stopped: boolean, type: 'released' | 'lapsed' | 'revoked' | 'transferred', also: readonly number[] = []): void {
    if (this.find(lease.id) !== lease) return
    const children = this.leases.filter(({ parent }) => parent === lease.id)
    const held = this.held(lease)
    if (lease.status === 'waiting') this.#drop(lease)
    else if (lease.status === 'frozen') {
      if (stopped) this.#drop(lease)
    } else {
      this.#learn(lease, type)
      this.entries = this.entries.filter(entry => entry.lease !== lease.id)
      const delay = type === 'lapsed' ? Math.max(0, ...held.map(({ resource }) => this.rules.lockDelay[resource] ?? 0)) : 0
      const believes = !stopped && lease.status === 'live' && held.length > 0
      if (!believes && delay === 0) this.#drop(lease)
      else {
        Object.assign(lease, { status: 'frozen', parent: 0, cap: undefined, breaks: [], ...(delay > 0 && { term: delay }) })
        if (lease.isPool) this.pool.freeze(lease.id)
      }
    }
    for (const child of children) {
      const hasStopped = also.includes(child.id)
      this.#end(child, hasStopped, hasStopped ? type : 'revoked', also)
    }
  }

  #drop(lease: ModelLease): void {
    this.leases = this.leases.filter(other => other !== lease)
    if (this.#claimOf(lease.id) !== undefined) this.pool.release(lease.id)
  }

  /** Counts how long work of its class is held. A dead holder used it until some time in the half of a term that followed its last renewal. */
  #learn(lease: ModelLease, type: string): void {
    const { work, grace, status, since } = lease
    const isOwn = this.held(lease).some(({ resource }) => resource.split('/')[0] === work.split('/')[0])
    if (work === '' || !isOwn) return
    const held = this.wall - since
    if (type === 'released') this.learned.push([work, held, false])
    if (type !== 'lapsed') return
    const term = status === 'suspect' ? lease.lastTerm : lease.term
    this.learned.push([work, Math.max(0, Math.min(held, held - grace - Math.floor((term * 3) / 4))), true])
  }
}

function isOwn({ holder, holding }: ModelLease, other: ModelLease): boolean {
  return other.status !== 'frozen' && other.holder === holder && holding.includes(other.id)
}

function inOrder(one: ModelLease, other: ModelLease): number {
  return one.rank - other.rank || one.id - other.id
}

function isUnder(kind: string): (wish: Wish) => boolean {
  return ({ resource }) => resource === kind || resource.startsWith(`${kind}/`)
}
