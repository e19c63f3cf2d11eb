/**
 * The second clock: when an agent was last active. Its calls count, and events that a hook reports in another process: these leave a mark on the
 * session, and the process that keeps the session notices that the mark has changed. No two clocks are compared.
 */
import type { Clock } from '../clock.ts'
import type { LeaseView } from '../lessor.ts'

/** A tool call that is under way counts as activity for at most this long: a hung one must not keep its claims for ever. */
export const UNDER_WAY_LIMIT = 3_600_000

/** The content of a mark. */
export interface ActivityMark {
  /** Wall time in ms, for display only. */
  readonly at: number
  readonly underWay: boolean
}

export class Activity {
  readonly #clock: Clock
  readonly #limit: number
  #lastActive: number
  /** Since when a tool call is under way. */
  #underWay: number | undefined
  #mark = ''

  /** @param limit the longest time without activity, in ms; infinity: no limit */
  constructor(clock: Clock, limit: number) {
    this.#clock = clock
    this.#limit = limit
    this.#lastActive = clock.uptime()
  }

  /** `underWay`: a tool call begins, and the next activity ends it. */
  note(underWay = false): void {
    this.#lastActive = this.#clock.uptime()
    this.#underWay = underWay ? this.#lastActive : undefined
  }

  /** The text of a mark, for the session's entry. */
  mark(underWay: boolean): string {
    this.#mark = JSON.stringify({ at: this.#clock.wall(), underWay } satisfies ActivityMark)
    return this.#mark
  }

  /** Another process may have left a mark. It counts from now on, when it was seen. */
  see(value: string | undefined): void {
    if (value === undefined || value === this.#mark) return
    this.#mark = value
    this.note(readMark(value)?.underWay)
  }

  /** Milliseconds since the last activity, by a clock that goes on while the machine sleeps. */
  get idleFor(): number {
    const now = this.#clock.uptime()
    const underWay = this.#underWay
    if (underWay !== undefined && now - underWay < UNDER_WAY_LIMIT) return 0
    return now - this.#lastActive
  }

  /** Its claims yield to a waiter. */
  get isIdle(): boolean {
    return this.idleFor >= this.#limit
  }
}

export function activityKey(agent: string): string {
  return `agents/${agent}/~activity`
}

export function markOf({ entries, holder }: Pick<LeaseView, 'entries' | 'holder'>): string | undefined {
  return entries.find(({ key }) => key === activityKey(holder))?.value
}

export function readMark(value: string | undefined): ActivityMark | undefined {
  try {
    const mark = JSON.parse(value ?? '') as ActivityMark | null
    return typeof mark?.at === 'number' ? { at: mark.at, underWay: mark.underWay === true } : undefined
  } catch {
    return undefined
  }
}

/** The last denial of an agent, with the reason, is an entry on its session, for people who look on. */
export interface Denial {
  /** Wall time in ms, for display only. */
  readonly at: number
  readonly resource: string
  readonly reason: string
}

export function denialKey(agent: string): string {
  return `agents/${agent}/~denied`
}
