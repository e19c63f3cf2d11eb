/**
 * The answers of recent operations, for whoever has to ask again: so many in all. Where there is no room, the key that keeps the most makes
 * some, of the session that was silent longest: so nobody's memory is filled by another's questions.
 */
import type { Outcome } from './outcome.ts'

export const ANSWERS = 65_536

export interface Answer {
  readonly outcome: Outcome
  /** What was asked, as the operation said; 0 when it did not. */
  readonly asked: number
}

export interface Session {
  /** Up to here nothing is known any more. */
  seq: number
  readonly answers: Map<number, Answer>
}

interface Keeper {
  readonly key: number
  count: number
  /** The one that was silent longest comes first. */
  readonly sessions: Map<string, Session>
}

export class Answers {
  #size = 0
  /** By the number of their key; those whose count changed last come last, which is the order in which they are saved. */
  readonly #keepers = new Map<number, Keeper>()
  /** The same, by how many they keep, in the same order. A count grows by one and the highest falls no faster than it grew: constant work. */
  readonly #ranks = new Map<number, Set<Keeper>>()
  #most = 0

  /** How many answers are kept in all. */
  get size(): number {
    return this.#size
  }

  session(key: number, name: string): Session | undefined {
    return this.#keepers.get(key)?.sessions.get(name)
  }

  /** Those up to `acked` the client has, so they need not be kept. */
  keep(key: number, name: string, seq: number, acked: number, answer: Answer): void {
    const keeper = this.#keeper(key)
    const session: Session = keeper.sessions.get(name) ?? { seq: 0, answers: new Map() }
    let more = 1
    for (const old of session.answers.keys()) {
      if (old > acked) break
      session.answers.delete(old)
      more--
    }
    session.seq = Math.max(session.seq, Math.min(acked, seq - 1))
    session.answers.set(seq, answer)
    keeper.sessions.delete(name)
    keeper.sessions.set(name, session)
    this.#count(keeper, more)
    while (this.#size > ANSWERS) this.#makeRoom()
  }

  /** As it was saved: keys and sessions in the order in which they are handed out here. */
  load(key: number, name: string, session: Session): void {
    const keeper = this.#keeper(key)
    keeper.sessions.set(name, session)
    this.#count(keeper, session.answers.size)
  }

  *[Symbol.iterator](): Generator<readonly [key: number, sessions: ReadonlyMap<string, Session>], void, void> {
    for (const { key, sessions } of this.#keepers.values()) yield [key, sessions]
  }

  #keeper(key: number): Keeper {
    return this.#keepers.get(key) ?? { key, count: 0, sessions: new Map() }
  }

  #count(keeper: Keeper, more: number): void {
    const { key, count } = keeper
    this.#keepers.delete(key)
    const rank = this.#ranks.get(count)
    rank?.delete(keeper)
    if (rank?.size === 0) this.#ranks.delete(count)
    keeper.count += more
    this.#size += more
    if (keeper.count > 0) {
      this.#keepers.set(key, keeper)
      const same = this.#ranks.get(keeper.count)
      if (same === undefined) this.#ranks.set(keeper.count, new Set([keeper]))
      else same.add(keeper)
    }
    this.#most = Math.max(this.#most, keeper.count)
    while (this.#most > 0 && !this.#ranks.has(this.#most)) this.#most--
  }

  /** The oldest answer of the longest silent session goes. What the session was asked up to there is STALE from now on, and not done again. */
  #makeRoom(): void {
    for (const keeper of this.#ranks.get(this.#most)!)
      for (const [name, session] of keeper.sessions)
        for (const old of session.answers.keys()) {
          session.answers.delete(old)
          session.seq = Math.max(session.seq, old)
          if (session.answers.size === 0) keeper.sessions.delete(name)
          return this.#count(keeper, -1)
        }
  }
}
