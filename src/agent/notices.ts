/** An agent has to know these things, although it did not ask: they are collected until its next result, because a model cannot be interrupted. */
import type { Clock } from '../clock.ts'

/**
 * asked: another agent wants a name, and says why. wanted: another holder waits for it. granted: a queued claim is held now. expiring: a claim
 * ends soon. lost: a claim is over. resumed: it was over for a while, and is held again. queued: its place was lost, and it waits anew. renamed:
 * the agent's own name is another than was asked for. unreachable: the server does not answer.
 */
export type NoticeKind = 'asked' | 'wanted' | 'granted' | 'expiring' | 'lost' | 'resumed' | 'queued' | 'renamed' | 'unreachable'

export interface Notice {
  readonly kind: NoticeKind
  /** The names it is about, as the agent writes them. */
  readonly names: readonly string[]
  /** One or two sentences: what happened, and what to do next. */
  readonly text: string
  /** The agent or holder behind it. */
  readonly by?: string
}

/** A claim that is over, for `mine`. */
export interface LostClaim {
  readonly names: readonly string[]
  readonly purpose: string
  /** Such as `idle`, `cap`, `lapsed`, `revoked`. */
  readonly cause: string
  readonly text: string
  readonly by?: string
  /** Wall time in ms, for display only. */
  readonly at: number
}

const MAX_NOTICES = 64
const MAX_LOST = 256
/** Keys of notices that were given before. */
const MAX_GIVEN = 4_096

export class Notices {
  readonly #clock: Clock
  readonly #pending: Notice[] = []
  readonly #lost: LostClaim[] = []
  readonly #given = new Set<string>()
  #leftOut = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Adds a notice. With a `key`, only the first time. */
  add(notice: Notice, key?: string): void {
    if (key !== undefined) {
      if (this.#given.has(key)) return
      this.#given.add(key)
      if (this.#given.size > MAX_GIVEN) this.#given.delete(this.#given.values().next().value!)
    }
    this.#pending.push(notice)
    if (this.#pending.length <= MAX_NOTICES) return
    this.#pending.shift()
    this.#leftOut++
  }

  /** A claim is over: a notice now, and a line of the next `mine`. */
  addLost(lost: Omit<LostClaim, 'at'>): void {
    this.#lost.push({ ...lost, at: this.#clock.wall() })
    if (this.#lost.length > MAX_LOST) this.#lost.shift()
    this.add({ kind: 'lost', names: lost.names, text: lost.text, ...(lost.by !== undefined && { by: lost.by }) })
  }

  /** The notices since the last call. */
  take(): readonly Notice[] {
    const taken = this.#pending.splice(0)
    if (this.#leftOut > 0)
      taken.unshift({ kind: 'lost', names: [], text: `${this.#leftOut} older notices were left out: call mine to see what is held` })
    this.#leftOut = 0
    return taken
  }

  /** The losses since the last call. */
  takeLost(): readonly LostClaim[] {
    return this.#lost.splice(0)
  }
}
