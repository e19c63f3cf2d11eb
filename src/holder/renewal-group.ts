import type { HeldLease, RenewalStrategy } from '../lease.ts'
import type { DeadlineTimer } from './deadline-timer.ts'

export type RenewalKind = 'waiting' | 'told' | 'stalled' | RenewalStrategy

/** How often a group is renewed, as a part of its term; the others are not renewed by the clock. */
export const RENEWAL_INTERVALS: Readonly<Partial<Record<RenewalKind, number>>> = {
  waiting: 1 / 3,
  half: 1 / 2,
  continuous: 1 / 8,
  'on-activity': 1 / 8,
}

/** Leases of one term and strategy, which are renewed together. */
export class RenewalGroup {
  readonly kind: RenewalKind
  readonly term: number
  /** How much of the term may be believed in. */
  readonly valid: number
  readonly members = new Set<HeldLease>()
  /** The next renewal. */
  beat = Number.POSITIVE_INFINITY
  /** When the first of its members comes into jeopardy, or to its end. */
  attention = Number.POSITIVE_INFINITY
  readonly alarm: DeadlineTimer
  underway = 0
  failures = 0
  /** The last request that was answered. */
  answered = 0

  constructor(kind: RenewalKind, term: number, valid: number, alarm: (group: RenewalGroup) => DeadlineTimer) {
    this.alarm = alarm(this)
    this.kind = kind
    this.term = term
    this.valid = valid
  }
}
