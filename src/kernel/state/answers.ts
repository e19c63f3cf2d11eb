/**
 * The answers of recent operations, for whoever has to ask again: so many in all. Where there is no room, the key that keeps the most makes
 * some, of the session that was silent longest: so nobody's memory is filled by another's questions.
 */
import type { Outcome } from '../outcome.ts'

export const ANSWERS = 65_536
/** So many characters of an answer count as one more: all of them together stay below 64 MiB of text. */
const HEAVY = 1_024

/** Something that stands in one line. */
interface Linked<T> {
  before: T | undefined
  after: T | undefined
}

/** In the order of arrival; anyone may leave. (The first of a Map that is always emptied from the front is found only behind all that went.) */
class LinkedList<T extends Linked<T>> {
  first: T | undefined
  #last: T | undefined

  add(one: T): void {
    one.before = this.#last
    one.after = undefined
    if (this.#last === undefined) this.first = one
    else this.#last.after = one
    this.#last = one
  }

  remove(one: T): void {
    if (one.before === undefined) this.first = one.after
    else one.before.after = one.after
    if (one.after === undefined) this.#last = one.before
    else one.after.before = one.before
  }
}

export interface Answer {
  readonly outcome: Outcome
  /** What was asked, as the operation said; 0 when it did not. */
  readonly asked: number
}

interface KeptAnswer extends Answer, Linked<KeptAnswer> {
  readonly seq: number
  /** For how many it counts. */
  weight: number
}

/** An answer that names many resources, or tells much, takes the room of several. */
function weightOf(outcome: Outcome): number {
  let characters = 0
  if (outcome.kind === 'granted') for (const name of outcome.resources) characters += name.length
  else if (outcome.kind === 'refused') {
    characters = outcome.message.length
    for (const fact of Object.values(outcome.facts))
      if (typeof fact === 'string') characters += fact.length
      else if (typeof fact === 'object') for (const item of fact) characters += String(item).length
  }
  return 1 + Math.floor(characters / HEAVY)
}

export class AnswerSession implements Linked<AnswerSession> {
  readonly name: string
  /** Up to here nothing is known any more. */
  seq: number
  before: AnswerSession | undefined
  after: AnswerSession | undefined
  /** Of all its answers. */
  weight = 0
  readonly #answers = new Map<number, KeptAnswer>()
  readonly #line = new LinkedList<KeptAnswer>()

  constructor(name: string, seq = 0) {
    this.name = name
    this.seq = seq
  }

  get size(): number {
    return this.#answers.size
  }

  answer(seq: number): Answer | undefined {
    return this.#answers.get(seq)
  }

  /** The oldest that is kept. */
  get oldest(): number | undefined {
    return this.#line.first?.seq
  }

  add(seq: number, { outcome, asked }: Answer, weight: number): void {
    const kept = { seq, outcome, asked, weight, before: undefined, after: undefined }
    this.#answers.set(seq, kept)
    this.#line.add(kept)
    this.weight += weight
  }

  /** What it counted for. */
  dropOldest(): number {
    const { seq, weight } = this.#line.first!
    this.#line.remove(this.#line.first!)
    this.#answers.delete(seq)
    this.weight -= weight
    return weight
  }

  weigh(): void {
    this.weight = 0
    for (const kept of this) {
      kept.weight = weightOf(kept.outcome)
      this.weight += kept.weight
    }
  }

  *[Symbol.iterator](): Generator<KeptAnswer, void, void> {
    for (let kept = this.#line.first; kept !== undefined; kept = kept.after) yield kept
  }
}

/** What one key has been answered. */
class AnswersOfKey implements Linked<AnswersOfKey> {
  readonly key: number
  /** The sum of the weights of its answers. */
  count = 0
  before: AnswersOfKey | undefined
  after: AnswersOfKey | undefined
  readonly sessions = new Map<string, AnswerSession>()
  /** The one that was silent longest comes first. */
  readonly line = new LinkedList<AnswerSession>()

  constructor(key: number) {
    this.key = key
  }
}

export class Answers {
  #size = 0
  /** The sum of all weights. */
  #weight = 0
  /** Those whose count changed last come last, which is the order in which they are saved. */
  readonly #keepers = new Map<number, AnswersOfKey>()
  /** By how many they keep, in the same order. A count grows by a few, and the highest falls no faster than it grew: little work. */
  readonly #ranks = new Map<number, LinkedList<AnswersOfKey>>()
  #most = 0

  /** How many answers are kept in all. */
  get size(): number {
    return this.#size
  }

  session(key: number, name: string): AnswerSession | undefined {
    return this.#keepers.get(key)?.sessions.get(name)
  }

  /** Those up to `acked` the client has, so they need not be kept. Rules before version 2 count every answer as one. */
  keep(key: number, name: string, seq: number, acked: number, answer: Answer, rules: number): void {
    const keeper = this.#keepers.get(key) ?? new AnswersOfKey(key)
    const known = keeper.sessions.get(name)
    const session = known ?? new AnswerSession(name)
    const weight = rules >= 2 ? weightOf(answer.outcome) : 1
    let more = weight
    this.#size++
    for (let old = session.oldest; old !== undefined && old <= acked; old = session.oldest) {
      more -= session.dropOldest()
      this.#size--
    }
    session.seq = Math.max(session.seq, Math.min(acked, seq - 1))
    session.add(seq, answer, weight)
    if (known === undefined) keeper.sessions.set(name, session)
    else keeper.line.remove(session)
    keeper.line.add(session)
    this.#count(keeper, more)
    while (this.#weight > ANSWERS) this.#makeRoom()
  }

  /** As it was saved: keys and sessions in the order in which they are handed out here. */
  load(key: number, session: AnswerSession, rules: number): void {
    const keeper = this.#keepers.get(key) ?? new AnswersOfKey(key)
    keeper.sessions.set(session.name, session)
    keeper.line.add(session)
    if (rules >= 2) session.weigh()
    this.#size += session.size
    this.#count(keeper, session.weight)
  }

  /** The rules have been raised to those by which large answers count for more. */
  weigh(): void {
    for (const keeper of [...this.#keepers.values()]) {
      const before = keeper.count
      let weight = 0
      for (const session of keeper.sessions.values()) {
        session.weigh()
        weight += session.weight
      }
      this.#count(keeper, weight - before)
    }
  }

  *[Symbol.iterator](): Generator<readonly [key: number, sessions: readonly AnswerSession[]], void, void> {
    for (const { key, line } of this.#keepers.values()) {
      const sessions: AnswerSession[] = []
      for (let session = line.first; session !== undefined; session = session.after) sessions.push(session)
      yield [key, sessions]
    }
  }

  #count(keeper: AnswersOfKey, more: number): void {
    const { key, count } = keeper
    this.#keepers.delete(key)
    const rank = this.#ranks.get(count)
    if (count > 0) rank!.remove(keeper)
    if (rank !== undefined && rank.first === undefined) this.#ranks.delete(count)
    keeper.count += more
    this.#weight += more
    if (keeper.count > 0) {
      this.#keepers.set(key, keeper)
      const same = this.#ranks.get(keeper.count) ?? new LinkedList()
      same.add(keeper)
      this.#ranks.set(keeper.count, same)
    }
    this.#most = Math.max(this.#most, keeper.count)
    while (this.#most > 0 && !this.#ranks.has(this.#most)) this.#most--
  }

  /** The oldest answer of the longest silent session goes. What the session was asked up to there is STALE from now on, and not done again. */
  #makeRoom(): void {
    const keeper = this.#ranks.get(this.#most)!.first!
    const session = keeper.line.first!
    session.seq = Math.max(session.seq, session.oldest!)
    this.#size--
    const weight = session.dropOldest()
    if (session.size === 0) {
      keeper.line.remove(session)
      keeper.sessions.delete(session.name)
    }
    this.#count(keeper, -weight)
  }
}
