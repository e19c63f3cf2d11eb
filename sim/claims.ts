/**
 * Judges what combinations of features do to one lease:
 *
 * - a transfer binds the new lease to a waiting process only if it covers what that process asked for (S10), and keeps what belongs to the claim: parent,
 *   account, rank, priority, preemptibility, running notices, limits, grace and ttl (S14, S8);
 * - a lease is preempted only while it holds members and for a waiter that still waits (S14);
 * - a lease that a process of its name has renewed cannot be claimed by another one (S7);
 * - a limited life ends the lease, not sooner and not much later, whatever renews it, extends it or passes it on (S4, S5);
 * - a lock-delay withholds the units for as long as the policy says (S4);
 * - a renewal with a ttl stays within what policies allow for every resource and entry (S5).
 */
import type { Command } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import { isLossCause } from '../src/kernel/loss-cause.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { rule } from '../src/kernel/rule/policy.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { agedOf } from '../src/kernel/state/timers.ts'
import { CAP, type Grant, type LeaseState, LIVE, type PoolClaim, PREEMPT, SLOTS, type State, TERM, WAITING } from '../src/kernel/state.ts'
import type { LogView } from './log-view.ts'
import type { PairTracker } from './pairs.ts'
import { RHO, type World } from './world.ts'

/** The limit on a life may end a lease this late, while hosts crash and stall. */
const CAP_LATENESS = 20_000

/** A lease just before a command. */
interface Before {
  readonly id: number
  readonly lease: LeaseState
  readonly status: number
  readonly confirmed: boolean
  readonly grants: readonly Grant[]
  readonly parent: number
  readonly claim: PoolClaim | undefined
  readonly rank: number
  readonly priority: number
  readonly maxLife: number
  readonly grace: number
  readonly permits: number
  readonly ttl: number
  /** Each running timer has this much left, by slot. */
  readonly left: readonly (number | undefined)[]
  /** Of a transfer: the waiting requests of the recipient's name for one of its resources. */
  readonly requests: readonly Request[]
}

interface Request {
  readonly id: number
  readonly wants: readonly { readonly resource: string; readonly units: number; readonly shared: boolean }[]
  readonly any: number
  readonly permits: number
  readonly parent: number
  readonly ttl: number
  readonly maxLife: number
  readonly entries: readonly string[]
}

/** Of a lease whose giver was granted before the log was last replaced: neither too long nor too short for any comparison. */
const UNKNOWN_LIFE = { from: Number.NaN, life: Number.NaN }

export class ClaimChecker {
  readonly #world: World
  readonly #log: LogView
  readonly #pairs: PairTracker
  #before: Before | undefined
  /** When the life of each lease with a limit began, and how long it is. */
  readonly #lives = new Map<number, { readonly from: number; readonly life: number }>()
  /** When the lock-delay of each lapsed lease began, and how long it is. */
  readonly #delays = new Map<number, { readonly from: number; readonly delay: number }>()

  constructor(world: World, log: LogView, pairs: PairTracker) {
    this.#world = world
    this.#log = log
    this.#pairs = pairs
  }

  /** Before a command is applied: remembers what its judgement will need. */
  before(command: Command | undefined): void {
    this.#before = command === undefined ? undefined : rememberLease(this.#log.state, command)
  }

  /** The log lost records or begins anew: all lives and delays may have begun again. */
  forget(): void {
    this.#lives.clear()
    this.#delays.clear()
    this.#before = undefined
    // A lease that was passed on and still waits for a lock-delay counts its life already.
    for (const { id, status, extras } of this.#log.state.leases.values())
      if (status === WAITING && extras?.timers?.[CAP] !== undefined) this.#lives.set(id, UNKNOWN_LIFE)
  }

  judge(command: Command, outcome: Outcome, events: readonly Event[]): void {
    const before = this.#before
    if (command.kind === 'move' || command.kind === 'generation') this.forget()
    if (outcome.kind !== 'refused' && before !== undefined) {
      if (command.kind === 'transfer' && outcome.kind === 'done') this.#judgeTransfer(command, before, outcome.id!)
      if (command.kind === 'claim') this.#judgeClaim(before)
      if (command.kind === 'due' && command.timer % SLOTS === PREEMPT && outcome.kind === 'done') this.#judgePreemption(before, events)
      if (command.kind === 'due' && command.timer % SLOTS === TERM) this.#judgeReservation(before)
      if (command.kind === 'extend' && outcome.kind === 'done') this.#extend(before, command.by)
    }
    if (command.kind === 'renew' && outcome.kind === 'renewed') this.#judgeRenewals(command, outcome.ttls)
    for (const event of events) this.#follow(event, command)
  }

  // Transfers

  #judgeTransfer({ to, incarnation }: Extract<Command, { readonly kind: 'transfer' }>, before: Before, id: number): void {
    const world = this.#world
    const received = findLease(this.#log.state, id)
    this.#pairs.looked('S10', before.id, ...before.grants.map(({ resource }) => resource.name))
    if (received === undefined) return world.violate('S8', `lease ${before.id} was transferred to ${to}, and lease ${id} is not there`)
    const answered = before.requests.find(request => request.id === id)
    if (answered !== undefined) this.#judgeAnswer(before, received, answered)
    else if (incarnation === undefined && received.extras?.open !== true)
      world.violate('S10', `lease ${id}, which was transferred to the name ${to} alone, belongs to a process`)
    this.#judgeKept(before, received, answered)
    for (const grant of received.grants)
      if (before.grants.some(({ token }) => token >= grant.token)) world.violate('S3', `lease ${id} came by a transfer with an old token`)
    const life = this.#lives.get(before.id) ?? (before.left[CAP] === undefined ? undefined : UNKNOWN_LIFE)
    if (life !== undefined) this.#lives.set(id, life)
    this.#pairs.looked('S14', before.id)
  }

  /** A request is answered with all that it asks for. */
  #judgeAnswer({ grants, parent }: Before, { id, extras, holder }: LeaseState, request: Request): void {
    if (!covers(grants, request) || (extras?.permits ?? 0) !== request.permits)
      this.#world.violate(
        'S10',
        `lease ${id} answers a request of ${holder.name} for something else: it holds ${grants.map(({ resource }) => resource.name)}`,
      )
    const entries = new Set([...(extras?.entries ?? []), ...(extras?.pending ?? []).map(({ key }) => key)])
    if ((parent !== 0 && parent !== request.parent) || request.entries.some(key => !entries.has(key)))
      this.#world.violate('S10', `lease ${id} answers a request of ${holder.name} without its parent or its entries`)
  }

  /** A request that is answered keeps its parent and its ttl, and its own limit on its life if that is shorter. */
  #judgeKept(before: Before, received: LeaseState, answered: Request | undefined): void {
    const world = this.#world
    const { extras, ttl, id } = received
    const claim = extras?.pool
    const kept: readonly (readonly [string, unknown, unknown])[] = [
      ['parent', answered?.parent ?? before.parent, extras?.parent?.id ?? 0],
      ['grace', before.grace, extras?.grace ?? 0],
      ['permits', before.permits, extras?.permits ?? 0],
      ['ttl', answered?.ttl ?? before.ttl, ttl],
      ['pool', before.claim?.pool, claim?.pool],
      ['account', before.claim?.account, claim?.account],
      ['preemptibility', before.claim?.preemptible, claim?.preemptible],
      ['start', before.claim?.start, claim?.start],
      ['loan', before.claim?.borrows, claim?.borrows],
      ['promise to yield', before.claim?.yields, claim?.yields],
    ]
    // A start of 0 means that the log's own time had not begun: such a claim begins with the transfer.
    const began = before.claim?.start !== 0
    const life = answered !== undefined && answered.maxLife > 0 ? answered.maxLife : before.maxLife
    if (![before.maxLife, life].includes(extras?.maxLife ?? 0))
      world.violate('S14', `lease ${id} has lost the limit on its life by a transfer`)
    for (const [what, was, is] of kept)
      if (was !== is && (began || (what !== 'start' && what !== 'loan')))
        world.violate('S14', `lease ${id} has lost its ${what} by a transfer: ${String(was)} is now ${String(is)}`)
    if (before.claim === undefined || received.status !== LIVE) return
    if (before.priority !== (extras?.priority ?? 0) || before.rank !== (extras?.rank ?? 0))
      world.violate('S14', `lease ${id} has lost its priority ${before.priority} or its rank by a transfer`)
    this.#judgeTimers(before, received)
  }

  /** Timers that were running continue. */
  #judgeTimers(before: Before, received: LeaseState): void {
    const world = this.#world
    const { id, extras } = received
    for (let slot = CAP; slot < SLOTS; slot++) {
      const was = before.left[slot]
      const is = leftOf(this.#log.state, received, slot)
      if (was === undefined) continue
      if (slot !== PREEMPT && (is === undefined || is > was))
        world.violate('S5', `a limit of lease ${id} with ${was} ms left has ${is ?? 'no'} ms left after a transfer`)
      if (slot === PREEMPT && is !== undefined && is > was)
        world.violate('S14', `the notice of lease ${id} began again with its transfer: ${was} ms were left`)
      if (slot === PREEMPT && is !== undefined && extras?.pool?.notice === 0)
        world.violate('S14', `the notice of lease ${id} goes on after its transfer, for no waiter`)
    }
  }

  // Preemption

  #judgePreemption({ id, grants, claim, lease }: Before, events: readonly Event[]): void {
    if (!events.some(({ type, lease: ended, cause }) => ended === id && type === 'revoked' && cause === 'preempted')) return
    this.#pairs.looked('S14', id, ...grants.map(({ resource }) => resource.name))
    if (grants.length === 0) return this.#world.violate('S14', `lease ${id} was revoked for the members that it had given back`)
    const waiter = claim === undefined || claim.notice === 0 ? undefined : findLease(this.#log.state, claim.notice)
    if (waiter !== undefined) return
    const was = claim?.notice ?? 0
    // The notice is taken back in the same revision in which its waiter goes or is served.
    this.#world.violate(
      'S14',
      `lease ${id} of ${lease.holder.name} was preempted for ${was === 0 ? 'no waiter' : `${was}, which has gone`}`,
    )
  }

  // Claims

  #judgeClaim({ id, status, confirmed, lease }: Before): void {
    this.#pairs.looked('S7', id)
    if (status !== LIVE || !confirmed) return
    this.#world.violate('S7', `lease ${id} was claimed by a second process of ${lease.holder.name}: another had renewed it`)
  }

  // Lives, delays and terms

  /** No term ends a reservation before its window has begun. */
  #judgeReservation({ id, status, claim }: Before): void {
    if (status !== WAITING || claim === undefined || claim.from <= this.#log.state.elapsed) return
    this.#pairs.looked('S4', id)
    if (findLease(this.#log.state, id) === undefined)
      this.#world.violate('S4', `reservation ${id} ended ${claim.from - this.#log.state.elapsed} ms before its window`)
  }

  #extend({ id }: Before, by: number): void {
    const life = this.#lives.get(id)
    if (life !== undefined) this.#lives.set(id, { ...life, life: life.life + by })
    this.#pairs.looked('S5', id)
  }

  #judgeRenewals({ leases, ttl }: Extract<Command, { readonly kind: 'renew' }>, ttls: readonly number[]): void {
    const { state } = this.#log
    for (const [i, id] of leases.entries()) {
      const lease = findLease(state, id)
      if (lease === undefined || ttls[i]! <= 0) continue
      const life = this.#lives.get(id)
      if (life !== undefined && this.#world.now > life.from + life.life * (1 + RHO) + CAP_LATENESS)
        this.#world.violate(
          'S5',
          `lease ${id} was renewed ${Math.round(this.#world.now - life.from)} ms after it began, with a life of ${life.life} ms`,
        )
      if (ttl === undefined) continue
      this.#pairs.looked('S5', id)
      if (lease.ttl !== ttl) continue
      const names = [...lease.grants.map(grant => grant.resource.name), ...(lease.extras?.entries ?? [])]
      const tooLong = names.find(name => ttl > rule(state, name, 'ttlMax'))
      if (tooLong !== undefined) this.#world.violate('S5', `a renewal gave lease ${id} ${ttl} ms, and ${tooLong} allows less`)
    }
  }

  #follow({ type, lease: id, cause }: Event, command: Command): void {
    const { now } = this.#world
    const lease = findLease(this.#log.state, id)
    if (
      type === 'granted' &&
      lease !== undefined &&
      (lease.extras?.maxLife ?? 0) > 0 &&
      !this.#lives.has(id) &&
      command.kind !== 'transfer'
    )
      this.#lives.set(id, { from: now, life: lease.extras!.maxLife })
    if (type === 'revoked' && cause === 'cap') {
      const life = this.#lives.get(id)
      this.#pairs.looked('S5', id)
      if (life !== undefined && now < life.from + life.life / (1 + RHO) - 0.001)
        this.#world.violate('S4', `lease ${id} was ended ${Math.round(now - life.from)} ms after it began, with a life of ${life.life} ms`)
    }
    if (type === 'frozen' && (cause === 'lapsed' || isLossCause(cause ?? '')) && lease !== undefined)
      this.#delays.set(id, {
        from: now,
        delay: Math.max(...lease.grants.map(({ resource }) => rule(this.#log.state, resource.name, 'lockDelay'))),
      })
    const delay = type === 'thawed' && command.kind === 'due' ? this.#delays.get(id) : undefined
    if (delay !== undefined) {
      this.#pairs.looked('S4', id)
      if (now < delay.from + delay.delay / (1 + RHO) - 0.001)
        this.#world.violate(
          'S4',
          `the units of lease ${id} were free ${Math.round(now - delay.from)} ms after its lapse, with a delay of ${delay.delay} ms`,
        )
    }
    if (type !== 'granted' && lease === undefined) this.#delays.delete(id)
  }
}

function rememberLease(state: State, command: Command): Before | undefined {
  const id = command.kind === 'due' ? Math.floor(command.timer / SLOTS) : 'lease' in command ? command.lease : undefined
  const lease = typeof id === 'number' ? findLease(state, id) : undefined
  if (lease === undefined) return undefined
  const { extras, status, confirmed, grants, ttl } = lease
  return {
    ...{ id: lease.id, lease, status, confirmed, grants: [...grants], ttl },
    parent: extras?.parent?.id ?? 0,
    claim: extras?.pool === undefined ? undefined : { ...extras.pool },
    rank: extras?.rank ?? 0,
    priority: extras?.priority ?? 0,
    maxLife: extras?.maxLife ?? 0,
    grace: extras?.grace ?? 0,
    permits: extras?.permits ?? 0,
    left: Array.from({ length: SLOTS }, (_, slot) => (slot < CAP ? undefined : leftOf(state, lease, slot))),
    requests: command.kind === 'transfer' ? requestsOf(state, grants, command.to) : [],
  }
}

function leftOf(state: State, { extras }: LeaseState, slot: number): number | undefined {
  const timer = extras?.timers?.[slot]
  return timer === undefined ? undefined : timer.duration - agedOf(state, timer)
}

function requestsOf(state: State, grants: readonly Grant[], to: string): readonly Request[] {
  const waiters = new Set(grants.flatMap(({ resource }) => state.resources.get(resource.name)?.queue ?? []))
  return [...waiters]
    .filter(({ holder, status }) => holder.name === to && status === WAITING)
    .map(({ id, ttl, extras }) => ({
      ...{ id, wants: extras!.wants, any: extras!.any, permits: extras!.permits },
      parent: extras!.parent?.id ?? 0,
      ttl,
      maxLife: extras!.maxLife,
      entries: extras!.pending.map(({ key }) => key),
    }))
}

/** Returns whether these grants are all that a request asks for. */
function covers(grants: readonly Grant[], { wants, any }: Request): boolean {
  const met = wants.filter(want =>
    grants.some(
      ({ resource, units, shared }) => resource.name === want.resource && shared === want.shared && (shared || units >= want.units),
    ),
  )
  return any === 0 ? met.length === wants.length : met.length === any && grants.length === any
}
