import type { Belief, Strategy } from '../lease.ts'
import type { Alarm } from './deadline-timer.ts'

export type Kind = 'waiting' | 'told' | 'stalled' | Strategy

/** How often a group is renewed, as a part of its term; the others are not renewed by the clock. */
export const ROUND: Readonly<Partial<Record<Kind, number>>> = { waiting: 1 / 3, half: 1 / 2, continuous: 1 / 8, 'on-activity': 1 / 8 }

/** Leases of one term and strategy, which are renewed together. */
export class Group {
  readonly kind: Kind
  readonly term: number
  /** How much of the term may be believed in. */
  readonly valid: number
  readonly members = new Set<Belief>()
  /** The next renewal. */
  beat = Number.POSITIVE_INFINITY
  /** When the first of its members comes into jeopardy, or to its end. */
  attention = Number.POSITIVE_INFINITY
  readonly alarm: Alarm
  underway = 0
  failures = 0
  /** The last request that was answered. */
  answered = 0

  constructor(kind: Kind, term: number, valid: number, alarm: (group: Group) => Alarm) {
    this.alarm = alarm(this)
    this.kind = kind
    this.term = term
    this.valid = valid
  }
}
