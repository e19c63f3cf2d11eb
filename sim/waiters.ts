/** Judges queues by a model: the order of waiters, whether free resources are granted, and whether a reported deadlock is one. */
import type { Acquire, Command } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { rule } from '../src/kernel/rule/policy.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { FROZEN, type LeaseState, type Resource, type State, WAITING } from '../src/kernel/state.ts'
import { type Claim, claimsHeld, claimsWanted, hasCovering, holdersAround, isOwn, isUnderOwn, meets, waitersAround } from './covers.ts'
import type { PairTracker } from './pairs.ts'
import { agreed, agreedByAll } from './permits.ts'
import { PoolJudge, type PoolVerdict } from './pool-judge.ts'
import { POOL } from './pools.ts'

/** The rank of a lease that steals or was transferred: before all plain waiters. */
const FIRST = -1e15
/** The rank of a lease that steals by force: before FIRST as well. */
const FORCED = -2e15
const PRIORITY = 1e9
/** Reservations come before plain waiters, the earliest window first. */
const RESERVED = -5e14

export class Waiters {
  readonly #violate: PoolVerdict['violate']
  readonly #ranks = new Map<number, number>()
  readonly #queued = new Set<number>()
  readonly #pools: PoolJudge
  /** The request of each lease. `any`: this many of the resources; 0: all of them. */
  readonly #requests = new Map<number, { readonly resources: readonly string[]; readonly any: number }>()
  /** The leases that each covering or covered request named as its own. */
  readonly #holding = new Map<number, readonly number[]>()
  /** Some request covered. */
  #covers = false

  /** The rank that each recipient of a transfer which waits gets with its grant: that of the giver. */
  readonly #passedOn = new Map<number, number>()
  readonly #pairs: Pick<PairTracker, 'looked'>

  constructor(violate: PoolVerdict['violate'], pairs: Pick<PairTracker, 'looked'>) {
    this.#violate = violate
    this.#pairs = pairs
    this.#pools = new PoolJudge({ violate, rankOf: lease => this.#ranks.get(lease) })
  }

  /** The log lost records: the rest is replayed, after the contents with which the log began. */
  forget(state: State): void {
    this.#ranks.clear()
    this.#queued.clear()
    this.#requests.clear()
    this.#passedOn.clear()
    this.#holding.clear()
    this.#covers = hasCovering(state)
    this.#pools.forget()
    for (const { id, extras, status } of state.leases.values()) {
      if (extras !== undefined) this.#ranks.set(id, extras.rank)
      if (status === WAITING) this.#queued.add(id)
      if (status === WAITING) this.#holding.set(id, extras!.holding)
      if (extras?.passedOn !== undefined) this.#passedOn.set(id, extras.passedOn.rank)
    }
  }

  wasQueued(lease: number): boolean {
    return this.#queued.has(lease)
  }

  /** Records the rank that a command gives its lease; called before it is judged. */
  follow(state: State, command: Command, outcome: Outcome): void {
    if (command.kind === 'acquire' && (outcome.kind === 'granted' || outcome.kind === 'queued')) {
      this.#ranks.set(outcome.lease, rankOf(state, command))
      if (command.pool === undefined)
        this.#requests.set(outcome.lease, { resources: command.wants.map(({ resource }) => resource), any: command.any ?? 0 })
      if (command.covers === true) this.#covers = true
      if (command.holding !== undefined) this.#holding.set(outcome.lease, command.holding)
      if (outcome.kind === 'queued') this.#queued.add(outcome.lease)
    }
    if (command.kind === 'transfer' && outcome.kind === 'done' && outcome.id !== undefined) this.#passOn(state, command.lease, outcome.id)
    const request = command.kind === 'widen' && outcome.kind === 'done' ? this.#requests.get(command.lease) : undefined
    if (command.kind === 'widen' && request !== undefined)
      this.#requests.set(command.lease, { ...request, resources: [...request.resources, ...command.wants.map(({ resource }) => resource)] })
  }

  #passOn(state: State, giver: number, to: number): void {
    const { status, grants, extras } = findLease(state, to)!
    const rank = this.#ranks.get(giver) ?? 0
    this.#ranks.set(to, status === WAITING ? FIRST : rank)
    if (status === WAITING) this.#passedOn.set(to, rank)
    // It may have brought more than was asked for.
    const resources = status === WAITING ? extras!.wants.map(want => want.resource) : grants.map(({ resource }) => resource.name)
    this.#requests.set(to, { resources, any: 0 })
  }

  judge(state: State, command: Command, outcome: Outcome, events: readonly Event[]): void {
    if (command.kind === 'acquire') this.#judgeCycle(state, command, outcome)
    const granted = new Map<number, string[]>()
    for (const { type, lease, resource } of events) {
      if (resource === undefined) continue
      if (type === 'queued') this.#judgeRank(state, lease)
      if (type === 'queued' || type === 'granted') this.#pairs.looked('S14', lease, resource)
      if (type === 'granted') {
        const all = granted.get(lease)
        if (all === undefined) granted.set(lease, [resource])
        else all.push(resource)
      }
      if (this.#covers) {
        this.#judgeFreeAround(state, resource)
        if (type === 'granted') this.#judgeAround(state, resource, lease, command.kind !== 'transfer')
      }
      const there = state.resources.get(resource)
      if (there === undefined) continue
      this.judgeFree(state, there)
      this.#pairs.looked('L1', lease, resource)
      if (type === 'queued') this.#judgeOrder(there)
      // The recipient of a transfer takes the holder's place, and none in the queue.
      if (type === 'granted' && command.kind !== 'transfer') this.#judgeTurn(state, there, lease)
    }
    for (const [lease, resources] of granted) this.#judgeWhole(lease, resources)
    this.#pools.judge(state, command, events)
    for (const lease of granted.keys()) this.#continueClaim(lease)
    if (state.pools.size > 0) for (const invariant of ['S10', 'S14', 'S15', 'L1']) this.#pairs.looked(invariant, POOL)
  }

  #continueClaim(id: number): void {
    const rank = this.#passedOn.get(id)
    if (rank === undefined) return
    this.#ranks.set(id, rank)
    this.#passedOn.delete(id)
  }

  #judgeRank(state: State, id: number): void {
    const lease = findLease(state, id)
    const rank = lease?.status === WAITING ? lease.extras?.rank : undefined
    const expected = this.#ranks.get(id)
    if (rank !== undefined && expected !== undefined && rank !== expected)
      this.#violate('S14', `${id} waits with rank ${rank}, and by its priority it should be ${expected}`)
  }

  /** A queue is ordered by rank, then by age, even for a waiter that joined it later than younger ones. */
  #judgeOrder({ name, queue }: Resource): void {
    for (let i = 1; i < queue.length; i++) {
      const [before, after] = [queue[i - 1]!, queue[i]!]
      const [first, second] = [before, after].map(({ id, extras }) => this.#ranks.get(id) ?? extras!.rank) as [number, number]
      if (first > second || (first === second && before.id > after.id))
        this.#violate('S14', `${before.id} is before ${after.id} in the queue for ${name}, and has waited less`)
    }
  }

  /** In a fifo queue no waiter overtakes another. */
  #judgeTurn(state: State, there: Resource, id: number): void {
    const first = firstServable(state, there)
    if (first === undefined || rule(state, there.name, 'queue') !== 'fifo' || first.extras!.pending.length > 0) return
    const lease = findLease(state, id)
    const claim = lease === undefined ? undefined : claimsHeld(lease).find(({ resource }) => resource === there.name)
    // What its own covering claim covers is not waited for.
    if (claim !== undefined && isUnderOwn(state, claim, lease!.holder.name, this.#holding.get(id) ?? [])) return
    const rank = this.#ranks.get(id) ?? 0
    const before = this.#ranks.get(first.id) ?? first.extras!.rank
    if (before < rank || (before === rank && first.id < id))
      this.#violate('S14', `${id} was granted ${there.name} before ${first.id}, which had waited longer`)
  }

  /** No waiter above or below waits for what is free. */
  #judgeFreeAround(state: State, resource: string): void {
    for (const waiter of state.leases.values())
      if (
        waiter.status === WAITING &&
        claimsWanted(waiter).some(wanted => wanted.resource === resource || meets(wanted, { resource, shared: false, covers: true }))
      )
        for (const { resource: name } of claimsWanted(waiter)) this.judgeFree(state, state.resources.get(name)!)
  }

  /** No claim is granted beside a conflicting one above or below, nor in its turn before a waiter there. */
  #judgeAround(state: State, resource: string, granted: number, isTurn: boolean): void {
    const lease = findLease(state, granted)
    if (lease === undefined) return
    const holding = this.#holding.get(lease.id) ?? []
    const isObstacle = (other: LeaseState) => other !== lease && !isOwn(lease.holder.name, holding, other)
    const rank = this.#ranks.get(lease.id) ?? 0
    for (const claim of claimsHeld(lease).filter(held => held.resource === resource)) {
      const [holder] = holdersAround(state, claim).filter(isObstacle)
      if (holder !== undefined) this.#violate('S1', `${lease.id} was granted ${resource} while ${holder.id} holds ${claimsOf(holder)}`)
      if (!isTurn || isUnderOwn(state, claim, lease.holder.name, holding)) continue
      const isOvertaken = (waiter: LeaseState) => {
        const before = this.#ranks.get(waiter.id) ?? waiter.extras!.rank
        return waiter !== lease && waiter.extras!.pending.length === 0 && (before < rank || (before === rank && waiter.id < lease.id))
      }
      const passed = waitersAround(state, claim).find(waiter => isOvertaken(waiter) && mayBlock(state, waiter, claim))
      if (passed !== undefined)
        this.#violate('S14', `${lease.id} was granted ${resource} before ${passed.id}, which waits for ${claimsOf(passed)}`)
    }
  }

  /** A request is granted whole, or with as many resources as it asked for: never a part. */
  #judgeWhole(lease: number, resources: readonly string[]): void {
    this.#pairs.looked('S10', lease, ...resources)
    const request = this.#requests.get(lease)
    if (request === undefined) return
    const expected = request.any === 0 ? request.resources.length : request.any
    if (resources.length !== expected || resources.some(name => !request.resources.includes(name)))
      this.#violate('S10', `lease ${lease} was granted ${resources.join(', ')}, which is not the ${expected} it asked for`)
  }

  /** A resource must not be free while the first waiter fits. */
  judgeFree(state: State, there: Resource): void {
    const first = firstServable(state, there)
    if (first === undefined || state.quiet !== undefined || state.moved !== undefined) return
    const { wants, any, pending, permits } = first.extras!
    if (pending.length > 0) return // it may wait for the keys of its entries
    const free = wants.filter(want => {
      const resource = state.resources.get(want.resource)
      if (resource === undefined || want.units > agreed(state, want.resource, permits)) return false
      const isBeside = permits > 0 && resource.sharers === 0 && resource.used + want.units <= agreedByAll(state, resource, permits)
      if (resource.grants.length > 0 && !isBeside) return false
      if (!isFreeAround(state, first, want)) return false
      return firstServable(state, resource) === first
    })
    if (free.length >= (any === 0 ? wants.length : any))
      this.#violate('L1', `${free.map(({ resource }) => resource).join(', ')} is free and ${first.holder.name} waits for it`)
  }

  /** A request refused for a deadlock would have closed a cycle, and a queued one did not. */
  #judgeCycle(state: State, command: Acquire, outcome: Outcome): void {
    const { wait, steal, any, holding = [] } = command
    if (wait !== true || steal !== undefined || any !== undefined || holding.length === 0) return
    const refused = outcome.kind === 'refused' && outcome.code === 'DEADLOCK'
    if (!refused && outcome.kind !== 'queued') return
    const self = outcome.kind === 'queued' ? findLease(state, outcome.lease) : undefined
    const closes = closesCycle(state, command, self)
    if (refused && !closes) this.#violate('S10', `${command.holder} was refused for a deadlock that does not exist`)
    if (!refused && closes) this.#violate('L1', `${command.holder} waits in a cycle in which no waiter can release anything`)
  }
}

/** The first waiter that would fit if all units were free. A waiter that can never fit blocks no other. */
function firstServable(state: State, { name, queue }: Resource): LeaseState | undefined {
  return queue.find(waiter => isServable(state, waiter, name))
}

function isServable(state: State, { extras }: LeaseState, name: string): boolean {
  const { wants, any, permits } = extras!
  const there = wants.filter(({ resource, units }) => units <= agreed(state, resource, permits))
  return there.length >= (any === 0 ? wants.length : any) && there.some(({ resource }) => resource === name)
}

/** A waiter that fits makes others wait behind it, unless the queue of its name says otherwise. */
function mayBlock(state: State, waiter: LeaseState, claim: Claim): boolean {
  return claimsWanted(waiter).some(wanted => {
    const there = meets(wanted, claim) ? state.resources.get(wanted.resource) : undefined
    return there !== undefined && isServable(state, waiter, there.name) && rule(state, there.name, 'queue') === 'fifo'
  })
}

/** Returns whether no claim above or below keeps a waiter from what it wants, held or waited for earlier. */
function isFreeAround(state: State, waiter: LeaseState, { resource, shared }: Acquire['wants'][number]): boolean {
  const { covers, holding } = waiter.extras!
  const { name } = waiter.holder
  const claim = { resource, shared: shared === true, covers }
  const isObstacle = (other: LeaseState) => other !== waiter && !isOwn(name, holding, other)
  if (holdersAround(state, claim).some(isObstacle)) return false
  const isBefore = ({ id, extras }: LeaseState) =>
    extras!.rank < waiter.extras!.rank || (extras!.rank === waiter.extras!.rank && id < waiter.id)
  return (
    isUnderOwn(state, claim, name, holding) || !waitersAround(state, claim).some(other => isBefore(other) && mayBlock(state, other, claim))
  )
}

function claimsOf(lease: LeaseState): string {
  return [...claimsHeld(lease), ...claimsWanted(lease)]
    .map(({ resource, covers }) => (covers ? `${resource} and below` : resource))
    .join(', ')
}

function rankOf(state: State, { steal, priority = 0, wants, pool }: Acquire): number {
  if (steal !== undefined) return steal === 'force' ? FORCED : FIRST
  if (pool?.from !== undefined) return RESERVED + state.elapsed + pool.from
  const names = pool === undefined ? wants.map(({ resource }) => resource) : [pool.pool]
  const aging = Math.max(0, ...names.map(name => rule(state, name, 'aging')))
  return state.elapsed - priority * (aging === 0 ? PRIORITY : aging)
}

/** A request or a waiter on the way of a search for a cycle. */
interface Asked {
  readonly wants: Acquire['wants']
  readonly permits: number
  readonly covers: boolean
  readonly holder: string
  readonly holding: readonly number[]
  readonly before: (other: LeaseState) => boolean
}

/** Looks at every waiter between the new request and the leases that its client keeps. */
function closesCycle(state: State, command: Acquire, self: LeaseState | undefined): boolean {
  const kept = new Set(command.holding)
  const rank = rankOf(state, command)
  const seen = new Set<LeaseState>()
  const pending: Asked[] = [
    {
      ...{ wants: command.wants, permits: command.covers === true ? 1 : (command.permits ?? 0), covers: command.covers === true },
      ...{ holder: command.holder, holding: command.holding ?? [], before: other => other !== self && other.extras!.rank <= rank },
    },
  ]
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    for (const want of next.wants) {
      const resource = state.resources.get(want.resource)
      if (want.shared === true) continue
      const waiters: LeaseState[] = []
      const keepers = (id: number) => [...state.leases.values()].filter(other => other.extras?.holding.includes(id) === true)
      const claim = { resource: want.resource, shared: false, covers: next.covers }
      const isUnder = isUnderOwn(state, claim, next.holder, next.holding)
      for (const holder of holdersAround(state, claim)) {
        if (holder.status === FROZEN || isOwn(next.holder, next.holding, holder)) continue
        if (kept.has(holder.id)) return true
        waiters.push(...keepers(holder.id))
      }
      if (!isUnder) waiters.push(...waitersAround(state, claim).filter(other => next.before(other) && mayBlock(state, other, claim)))
      const [only, ...more] = resource?.grants ?? []
      const units = want.units ?? 1
      if (resource !== undefined && only !== undefined && more.length === 0 && !only.shared && only.lease.status !== FROZEN)
        if (only.units + units > agreedByAll(state, resource, next.permits)) {
          if (kept.has(only.lease.id)) return true
          waiters.push(...keepers(only.lease.id))
        }
      if (!isUnder && resource !== undefined && rule(state, want.resource, 'queue') === 'fifo')
        waiters.push(...resource.queue.filter(next.before))
      for (const waiter of waiters) {
        if (waiter === self || seen.has(waiter) || waiter.extras!.any !== 0) continue
        seen.add(waiter)
        const { wants, permits, covers, holding, rank: its } = waiter.extras!
        const holder = waiter.holder.name
        pending.push({
          wants,
          permits,
          covers,
          holder,
          holding,
          before: other => other.extras!.rank < its || (other.extras!.rank === its && other.id < waiter.id),
        })
      }
    }
  }
  return false
}
