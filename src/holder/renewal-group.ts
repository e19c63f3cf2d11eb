/** Groups of leases with one term and strategy, which are renewed together by one message. */
import type { DeadlineTimer } from './deadline-timer.ts'
import type { HeldLease, RenewalStrategy } from './held-lease.ts'

export type RenewalKind = 'waiting' | 'granted' | 'stalled' | RenewalStrategy

/** Renewals that one message may carry. */
export const MAX_RENEWALS = 10_000

/** A group is renewed this often, as a part of its term. Other kinds are not renewed by the clock. */
export const RENEWAL_INTERVALS: Readonly<Partial<Record<RenewalKind, number>>> = {
  waiting: 1 / 3,
  half: 1 / 2,
  continuous: 1 / 8,
  'on-activity': 1 / 8,
}

export class RenewalGroup {
  readonly kind: RenewalKind
  readonly term: number
  /** The part of the term that may be trusted, in ms. */
  readonly validity: number
  readonly members = new Set<HeldLease>()
  /** When the group is renewed next. */
  renewAt = Number.POSITIVE_INFINITY
  /** When the first of its members comes into jeopardy, or to its end. */
  checkAt = Number.POSITIVE_INFINITY
  readonly timer: DeadlineTimer
  /** Renewals without an answer. */
  inFlight = 0
  failures = 0
  /** Number of the last request that was answered. */
  answered = 0

  constructor(kind: RenewalKind, term: number, validity: number, createTimer: (group: RenewalGroup) => DeadlineTimer) {
    this.timer = createTimer(this)
    this.kind = kind
    this.term = term
    this.validity = validity
  }
}

/** All groups of a process, by kind and term. */
export class RenewalGroups implements Iterable<RenewalGroup> {
  readonly #createTimer: (group: RenewalGroup) => DeadlineTimer
  readonly #groups = new Map<string, RenewalGroup[]>()

  constructor(createTimer: (group: RenewalGroup) => DeadlineTimer) {
    this.#createTimer = createTimer
  }

  /** Returns how many combinations of kind and term there are. */
  get kinds(): number {
    return this.#groups.size
  }

  *[Symbol.iterator](): Generator<RenewalGroup> {
    for (const groups of this.#groups.values()) yield* [...groups]
  }

  *members(): Generator<HeldLease> {
    for (const group of this) yield* [...group.members]
  }

  /** A group that has room for the lease. */
  withRoom(kind: RenewalKind, held: HeldLease): RenewalGroup {
    const key = `${kind} ${held.term}`
    const groups = this.#groups.get(key) ?? []
    for (const group of groups) if (group.members.size < MAX_RENEWALS) return group
    const group = new RenewalGroup(kind, held.term, held.validity, this.#createTimer)
    groups.push(group)
    this.#groups.set(key, groups)
    return group
  }

  drop(group: RenewalGroup): void {
    group.timer.clear()
    const key = `${group.kind} ${group.term}`
    const others = this.#groups.get(key)?.filter(other => other !== group) ?? []
    if (others.length > 0) this.#groups.set(key, others)
    else this.#groups.delete(key)
  }

  /** Merges groups that fit into one message: releases must not leave many small groups behind. */
  absorbInto(group: RenewalGroup): void {
    for (const other of this.#groups.get(`${group.kind} ${group.term}`) ?? []) {
      if (other === group || other.inFlight > 0 || group.members.size + other.members.size > MAX_RENEWALS) continue
      for (const held of other.members) {
        group.members.add(held)
        held.group = group
      }
      group.checkAt = Math.min(group.checkAt, other.checkAt)
      other.members.clear()
      this.drop(other)
    }
  }
}
