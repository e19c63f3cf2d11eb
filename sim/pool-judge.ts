/**
 * Judges pools, by what their disciplines promise and not by how the kernel keeps it:
 *
 * - a request is granted whole, and no member that is gone is held (S10, S8);
 * - no waiter overtakes, unless its discipline lets it; one that does yields, and takes no member from a head that is about to start; priorities age; no
 *   waiter within its quota waits behind one that borrows, and in a fair queue with preemption none of an account that holds less waits behind one of an
 *   account that holds more, and none goes before a reservation whose window has begun (S14);
 * - accounts hold no more than their quota and what they may borrow, and no more of a kind than their quota for it; what has used up its quota for the week is
 *   granted nothing (S15);
 * - a grant leaves enough members for the reservation ahead (S14);
 * - no member is free while a waiter whose turn it is fits, and the head of a backfill queue waits for no lease that overtook it and was not told (L1);
 * - each notice has a reason that cannot hold in the other direction, so that preemption does not go round in circles, and no more leases are told than are
 *   needed (S14);
 * - members that are borrowed are asked back for the head, where preemption is allowed (L1);
 * - no waiter stays at the head while others are granted on and on (L1).
 */
import type { Command, PolicyRules } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import { usedIn, weekAt } from '../src/kernel/rule/pool/week.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { FROZEN, type LeaseState, LIVE, type PoolClaim, type State } from '../src/kernel/state.ts'
import type { FindingName } from './findings.ts'
import { POOL } from './pools.ts'

/** A head waits for so many grants to others, and for so long, before it counts as starved. Leases of this world last for a second or two. */
const STARVED = { grants: 40, ms: 15_000 }
/** Notices for one waiter, beyond one for each member that it asks for: a member may vanish, or another waiter come first. */
const SPARE_NOTICES = 2

/** The rank of a reservation is above this. */
const RESERVED = -5e14

export interface PoolVerdict {
  violate(invariant: string, message: string, finding?: FindingName): void
  /** The rank that a lease has by its command, also if it never waited. */
  rankOf(lease: number): number | undefined
}

export class PoolJudge {
  readonly #verdict: PoolVerdict
  /** The head of the queue, since when, and the grants to others since then. */
  #head = { id: 0, since: 0, grants: 0 }
  #week: WeekCount | undefined

  constructor(verdict: PoolVerdict) {
    this.#verdict = verdict
  }

  judge(state: State, { kind }: Command, events: readonly Event[]): void {
    if (state.pools.size === 0) return
    this.#week ??= new WeekCount(state)
    const week = this.#week
    const scene = new PoolScene(state, this.#verdict.rankOf, account => week.isUsedUp(state, account))
    week.count(scene)
    const granted = new Map<number, string[]>()
    for (const { type, lease, resource, key = '', cause } of events) {
      if (type === 'granted' && resource?.startsWith(`${POOL}/`)) granted.set(lease, [...(granted.get(lease) ?? []), resource])
      if (type === 'deleted' && cause !== 'deleted' && cause !== 'released') this.#judgeVanished(state, key)
      if (type === 'recalled' && cause === 'preempt') this.#judgeNotice(scene, lease)
    }
    const served = new Set(kind === 'transfer' ? [] : [...granted.keys()].map(id => findLease(state, id)?.extras?.pool?.account))
    this.#judgeQuotas(scene, served)
    const told = new Set(events.flatMap(({ type, lease, cause }) => (type === 'recalled' && cause === 'preempt' ? [lease] : [])))
    for (const [id, resources] of granted) {
      const lease = findLease(state, id)
      // The recipient of a transfer takes the holder's place, and none in the queue.
      if (lease?.extras?.pool === undefined || kind === 'transfer') continue
      this.#judgeGrant(scene, lease, resources, told)
      if (scene.rankOf(lease) >= RESERVED) this.#judgeShare(scene, lease, granted)
    }
    if (state.quiet !== undefined || state.moved !== undefined) return
    this.#judgeIdleness(scene)
    if (kind === 'tick') {
      this.#judgePromise(scene)
      this.#judgeLoan(scene)
    }
    this.#judgeStarvation(scene, granted)
  }

  /** The log lost records, or begins with a copy. What is there is not judged again. */
  forget(): void {
    this.#head = { id: 0, since: 0, grants: 0 }
    this.#week = undefined
  }

  #judgeVanished({ resources, entries }: State, key: string): void {
    if (!key.startsWith(`pool/${POOL}/`)) return
    // A lease that asked for the resource by its name may be granted it in the same revision.
    const still = resources
      .get(key.slice('pool/'.length))
      ?.grants.find(({ lease }) => lease.status !== FROZEN && lease.extras?.pool !== undefined)
    // In the same revision another holder may have offered it again.
    if (still !== undefined && !entries.has(key)) this.#verdict.violate('S8', `${key} is gone, and lease ${still.lease.id} still holds it`)
  }

  #judgeGrant(scene: PoolScene, lease: LeaseState, resources: readonly string[], told: ReadonlySet<number>): void {
    const { violate } = this.#verdict
    const { id, extras } = lease
    const claim = extras!.pool!
    // The recipient of a transfer goes before all waiters and reservations, and gets what its giver had left.
    if (scene.rankOf(lease) < RESERVED) return
    if (new Set(resources).size !== claim.count)
      violate('S10', `lease ${id} was granted ${resources}, and asked for ${claim.count} members`)
    if (this.#week!.isUsedUp(scene.state, claim.account))
      violate('S15', `lease ${id} was granted members, and ${claim.account} has used up its quota for the week`)
    this.#judgeWindow(scene, lease)
    const { head } = scene
    if (head === undefined) return
    if (scene.rules.queue === 'fair' && head.extras!.pool!.from > 0 && claim.from === 0)
      violate('S14', `${id} was granted members although the window of ${head.id} has begun`)
    if (claim.borrows) violate('S14', `${id} borrows members, and ${head.id} waits for its own`)
    if (!scene.standsBefore(head, lease) || scene.rules.queue === 'fit' || scene.rules.queue === 'fair') return
    if (scene.rules.queue === 'fifo' || !claim.yields)
      return violate('S14', `${id} was granted members before ${head.id}, which had waited longer`)
    const { imminent, at } = scene.startOf(head, lease, told)
    if (imminent) return violate('S14', `${id} took members from ${head.id}, which was about to start`)
    const ends = claim.expect === 0 ? Number.POSITIVE_INFINITY : scene.state.elapsed + claim.expect
    if (!claim.preemptible && !(ends <= at && at < Number.POSITIVE_INFINITY))
      violate('S14', `${id} overtook ${head.id}, and is not expected to end before that could have started`)
  }

  /** In a fair queue with preemption, no waiter is within its quota of an account that held less when the lease was granted. */
  #judgeShare({ rules, within, heldBy }: PoolScene, { id, extras }: LeaseState, granted: ReadonlyMap<number, readonly string[]>): void {
    const { account, from } = extras!.pool!
    if (rules.queue !== 'fair' || rules.preempt !== 'marked' || from > 0) return
    // At the most: it is not known in which order the grants of one command were made.
    const grants = [...granted].reduce((sum, [, resources]) => sum + resources.length, 0)
    const held = heldBy(account) - grants
    const before = within.find(({ extras }) => extras!.pool!.account !== account && heldBy(extras!.pool!.account) < held)
    if (before !== undefined)
      this.#verdict.violate('S14', `${id} was granted members for ${account}, which held more than the account of ${before.id}`)
  }

  /** With one reservation ahead: enough members are left at its beginning. */
  #judgeWindow({ state, members, holders }: PoolScene, lease: LeaseState): void {
    const [reservation, another] = state.pools.get(POOL)!.reserved
    if (reservation === undefined || another !== undefined || lease.extras!.pool!.from > 0) return
    const { from, count } = reservation.extras!.pool!
    // A window that was granted is kept for its holder, although it may be over by then.
    if (holders.some(({ extras }) => extras!.pool!.from > 0)) return
    const stays = ({ extras }: LeaseState) => {
      const claim = extras?.pool
      return claim === undefined || (!claim.yields && (extras!.maxLife === 0 || claim.start + extras!.maxLife > from))
    }
    if (!stays(lease)) return
    // A member may be held by its name, by a lease that asked no pool and has no regard for reservations.
    if (members.some(resource => state.resources.get(resource)?.grants.some(grant => grant.lease.extras?.pool === undefined))) return
    const kept = members.filter(resource => state.resources.get(resource)?.grants.some(grant => stays(grant.lease)))
    if (members.length - kept.length < count)
      this.#verdict.violate('S14', `lease ${lease.id} was granted members that ${reservation.id} has reserved`)
  }

  /** Kinds are judged when an account is granted more (`served`): a member that is still held may have been gone, and come back. */
  #judgeQuotas(scene: PoolScene, served: ReadonlySet<string | undefined>): void {
    for (const account of new Set(scene.holders.map(({ extras }) => extras!.pool!.account))) {
      const { quotaUnits = 0, quotaBorrow = 0 } = scene.rulesOf(account)
      const held = scene.heldBy(account)
      if (quotaUnits > 0 && held > quotaUnits + quotaBorrow)
        this.#verdict.violate('S15', `${account} holds ${held} members of ${POOL}, and may hold ${quotaUnits} and borrow ${quotaBorrow}`)
      for (const [kind, quota] of served.has(account) ? scene.kindsOf(account) : []) {
        const ofKind = scene.heldOf(kind, account)
        if (ofKind > quota) this.#verdict.violate('S15', `${account} holds ${ofKind} members of the kind ${kind}, and may hold ${quota}`)
      }
    }
  }

  #judgeNotice(scene: PoolScene, id: number): void {
    const victim = findLease(scene.state, id)
    const claim = victim?.extras?.pool
    const waiter = claim === undefined ? undefined : findLease(scene.state, claim.notice)
    if (waiter === undefined) return
    const { violate } = this.#verdict
    const { pool: asks, priority } = waiter.extras!
    const forIt = scene.holders.filter(({ extras }) => extras!.pool!.notice === waiter.id)
    if (forIt.length > asks!.count + SPARE_NOTICES)
      violate('S14', `${forIt.length} leases are preempted for ${waiter.id}, which asks for ${asks!.count} members`)
    if (claim!.yields && scene.standsBefore(waiter, victim!)) return
    const { rules } = scene
    const held = scene.state.elapsed - claim!.start
    const isAbove = claim!.preemptible && priority > victim!.extras!.priority
    const isBorrowed = claim!.borrows && scene.heldBy(claim!.account) > (scene.rulesOf(claim!.account).quotaUnits ?? 0)
    const hasLess = rules.queue === 'fair' && claim!.preemptible && scene.heldBy(asks!.account) < scene.heldBy(claim!.account)
    const isFair = claim!.account !== asks!.account && (isBorrowed || hasLess) && victim!.extras!.priority <= priority
    if (rules.preempt !== 'marked' || held < (rules.minHold ?? 0) || !(isAbove || isFair))
      violate('S14', `lease ${id} is preempted for ${waiter.id} without a reason: it was held for ${held} ms, ${JSON.stringify(rules)}`)
  }

  /** Members are free, and a waiter whose turn it is fits. */
  #judgeIdleness(scene: PoolScene): void {
    const { state, rules, within, free } = scene
    // They may be kept for a window ahead.
    if (within.length === 0 || state.pools.get(POOL)!.reserved.size > 0) return
    if (within.some(({ extras }) => extras!.pending.length > 0)) return
    const asks = within.map(({ extras }) => extras!.pool!.count)
    const least = rules.queue === 'fit' ? Math.min(...asks) : rules.queue === 'fair' ? Math.max(...asks) : asks[0]!
    if (free >= least) this.#verdict.violate('L1', `${free} members of ${POOL} are free, and ${within.map(({ id }) => id)} wait`)
  }

  /** Once the leases that overtook the head would make room for it, they were told. Judged when time passes, which has the kernel look again. */
  #judgePromise(scene: PoolScene): void {
    const { state, rules, head, free, holders, usable } = scene
    if (rules.queue !== 'backfill' || head === undefined || state.pools.get(POOL)!.reserved.size > 0) return
    const { count } = head.extras!.pool!
    const ending = holders.filter(({ status, extras }) => status === FROZEN || extras!.pool!.notice !== 0)
    const others = holders.filter(lease => !ending.includes(lease) && lease.extras!.pool!.yields && scene.standsBefore(head, lease))
    const soon = free + usable(ending)
    if (soon < count && soon + usable(others) >= count)
      this.#verdict.violate('L1', `${head.id} waits for ${others.map(({ id }) => id)}, which overtook it and were not told`)
  }

  /** A lease that borrows, and that alone stands in the way of a head within its quota, was told. */
  #judgeLoan({ state, rules, head, free, holders, usable, heldBy, rulesOf }: PoolScene): void {
    if (rules.preempt !== 'marked' || rules.queue === 'fair' || head === undefined || state.pools.get(POOL)!.reserved.size > 0) return
    const { count, account } = head.extras!.pool!
    const ending = holders.filter(({ status, extras }) => status === FROZEN || extras!.pool!.notice !== 0)
    const soon = free + usable(ending)
    if (soon >= count) return
    const owes = holders.find(lease => {
      const { pool: claim, priority } = lease.extras!
      const isDue = claim!.borrows && claim!.account !== account && priority <= head.extras!.priority
      if (!isDue || ending.includes(lease) || state.elapsed - claim!.start < (rules.minHold ?? 0)) return false
      const leaving = ending.filter(({ extras }) => extras!.pool!.account === claim!.account)
      const keeps = heldBy(claim!.account) - leaving.reduce((sum, { grants }) => sum + grants.length, 0)
      return keeps > (rulesOf(claim!.account).quotaUnits ?? 0) && soon + usable([lease]) >= count
    })
    if (owes !== undefined) this.#verdict.violate('L1', `${head.id} waits within its quota for ${owes.id}, which borrows and was not told`)
  }

  #judgeStarvation({ state, rules, head }: PoolScene, granted: ReadonlyMap<number, unknown>): void {
    // In a queue of best effort a large request may wait for ever, and by its share another waiter is next.
    if (head === undefined || rules.queue === 'fit') {
      this.#head = { id: 0, since: 0, grants: 0 }
      return
    }
    if (this.#head.id !== head.id) this.#head = { id: head.id, since: state.elapsed, grants: 0 }
    this.#head.grants += granted.size
    const waited = state.elapsed - this.#head.since
    if (this.#head.grants > STARVED.grants && waited > STARVED.ms)
      this.#verdict.violate(
        'L1',
        `${head.id} has been at the head of ${POOL} for ${waited} ms, and ${this.#head.grants} others were granted`,
      )
  }
}

/** Counts the use of accounts with a quota for the week since it was set. No world is as long as a week. */
class WeekCount {
  #elapsed = 0
  #held: ReadonlyMap<string, number> = new Map()
  readonly #used = new Map<string, number>()

  /** The use before is taken from the state. */
  constructor({ pools, elapsed }: State) {
    this.#elapsed = elapsed
    for (const account of pools.get(POOL)?.accounts.values() ?? []) this.#used.set(account.name, usedIn(weekAt(account, elapsed)))
  }

  count({ state, holders, rulesOf, heldBy }: PoolScene): void {
    const passed = Math.max(0, state.elapsed - this.#elapsed)
    this.#elapsed = state.elapsed
    for (const [account, held] of this.#held) this.#used.set(account, (this.#used.get(account) ?? 0) + held * passed)
    const limited = new Set(holders.map(({ extras }) => extras!.pool!.account).filter(account => (rulesOf(account).quotaWeek ?? 0) > 0))
    this.#held = new Map([...limited].map(account => [account, heldBy(account)]))
  }

  isUsedUp({ policies }: State, account: string): boolean {
    const { quotaWeek = 0 } = policies.get(`${POOL}/accounts/${account}`) ?? {}
    return quotaWeek > 0 && (this.#used.get(account) ?? 0) >= quotaWeek
  }
}

/** The pool after a command, worked out from leases, entries and policies. */
class PoolScene {
  readonly #rankOf: PoolVerdict['rankOf']
  readonly #isUsedUp: (account: string) => boolean
  readonly state: State
  readonly rules: PolicyRules
  readonly members: readonly string[]
  /** Members that are free. */
  readonly free: number
  readonly holders: readonly LeaseState[]
  /** By rank. */
  readonly waiters: readonly LeaseState[]
  /** Looked for once, after the use of this command is counted. */
  #within: readonly LeaseState[] | undefined

  constructor(state: State, rankOf: PoolVerdict['rankOf'], isUsedUp: (account: string) => boolean) {
    this.state = state
    this.#rankOf = rankOf
    this.#isUsedUp = isUsedUp
    this.rules = { queue: 'fifo', ...state.policies.get(POOL) }
    this.members = [...state.entries.keys()].flatMap(key => (key.startsWith(`pool/${POOL}/`) ? [key.slice('pool/'.length)] : []))
    this.holders = [...state.leases.values()].filter(({ extras, grants }) => extras?.pool?.pool === POOL && grants.length > 0)
    this.free = this.members.filter(resource => this.#isOffered(resource) && !state.resources.get(resource)?.grants.length).length
    const waiters = [...(state.pools.get(POOL)?.queue ?? [])].sort((a, b) => (this.standsBefore(a, b) ? -1 : 1))
    this.waiters = waiters
  }

  /** Waiters that the present members could serve, within their quotas, by rank. */
  get within(): readonly LeaseState[] {
    this.#within ??= this.waiters.filter(({ extras }) => this.#isServable(extras!.pool!))
    return this.#within
  }

  /** Undefined as well if the first waiter brings entries: it may wait for their keys. */
  get head(): LeaseState | undefined {
    const [first] = this.within
    return first !== undefined && first.extras!.pending.length === 0 ? first : undefined
  }

  #isServable({ count, account, from }: PoolClaim): boolean {
    const { quotaUnits = 0 } = this.rulesOf(account)
    const isWithin = quotaUnits === 0 || this.heldBy(account) + count <= quotaUnits
    const isOver =
      this.#isUsedUp(account) ||
      this.kindsOf(account).some(([kind, quota]) => this.heldOf(kind, account) + this.#askedOf(kind, count) > quota)
    return from <= this.state.elapsed && this.members.length >= count && isWithin && !isOver
  }

  /** Returns whether the member could be given out, apart from who holds it. */
  #isOffered(resource: string): boolean {
    return this.state.entries.get(`pool/${resource}`)?.lease.status === LIVE && !this.state.resources.get(resource)?.queue.length
  }

  rulesOf = (account: string): PolicyRules => this.state.policies.get(`${POOL}/accounts/${account}`) ?? {}

  heldBy = (account: string): number =>
    this.holders.reduce((sum, { extras, grants }) => sum + (extras!.pool!.account === account ? grants.length : 0), 0)

  /** The kinds that the account has a quota for. */
  kindsOf(account: string): (readonly [kind: string, quota: number])[] {
    const [head, tail] = [`${POOL}/kinds/`, `/accounts/${account}`]
    return [...this.state.policies].flatMap(([prefix, { quotaUnits = 0 }]) => {
      if (quotaUnits === 0 || !prefix.startsWith(head) || !prefix.endsWith(tail)) return []
      return [[prefix.slice(head.length, -tail.length), quotaUnits] as const]
    })
  }

  heldOf(kind: string, account: string): number {
    const own = this.holders.filter(({ extras }) => extras!.pool!.account === account).flatMap(({ grants }) => grants)
    return own.filter(({ resource }) => this.#kindOf(resource.name) === kind).length
  }

  /** At the most: requests of this world have no conditions. */
  #askedOf(kind: string, count: number): number {
    return Math.min(count, this.members.filter(resource => this.#kindOf(resource) === kind).length)
  }

  #kindOf(resource: string): string | undefined {
    const entry = this.state.entries.get(`pool/${resource}`)
    return entry && JSON.parse(entry.value).labels?.kind
  }

  /** Members that would be free for others once these leases have ended. */
  usable = (leases: readonly LeaseState[]): number =>
    leases.reduce((sum, { grants }) => sum + grants.filter(({ resource }) => this.#isOffered(resource.name)).length, 0)

  /**
   * When the head could have started without `lease`. `imminent`: as soon as those have stopped that end or yield anyway. `told`: leases that were told
   * after that was decided.
   */
  startOf(head: LeaseState, lease: LeaseState, told: ReadonlySet<number>): { readonly imminent: boolean; readonly at: number } {
    const { elapsed } = this.state
    const isSoon = (other: LeaseState) =>
      other === lease ||
      (other.extras!.pool!.yields && this.standsBefore(head, other)) ||
      ((other.status === FROZEN || other.extras!.pool!.notice !== 0) && !told.has(other.id))
    let room = this.free + this.usable(this.holders.filter(isSoon))
    const { count } = head.extras!.pool!
    if (room >= count) return { imminent: true, at: elapsed }
    const ends = this.holders.filter(other => !isSoon(other)).map(other => ({ other, at: endOf(other, elapsed) }))
    for (const { other, at } of ends.sort((a, b) => a.at - b.at)) {
      room += this.usable([other])
      if (room >= count) return { imminent: false, at }
    }
    return { imminent: false, at: Number.POSITIVE_INFINITY }
  }

  /** By the ranks of their commands. */
  standsBefore(one: LeaseState, other: LeaseState): boolean {
    const [first, second] = [this.rankOf(one), this.rankOf(other)]
    return first < second || (first === second && one.id < other.id)
  }

  rankOf({ id, extras }: LeaseState): number {
    return this.#rankOf(id) ?? extras!.rank
  }
}

function endOf({ extras }: LeaseState, now: number): number {
  const { start, expect } = extras!.pool!
  const lives = [expect, extras!.maxLife].filter(ms => ms > 0)
  return lives.length === 0 ? Number.POSITIVE_INFINITY : Math.max(now, start + Math.min(...lives))
}
