/**
 * The answers of recent operations, for clients that repeat a request. Their number is bounded. The key with the most answers makes room for new ones, from
 * the session that was silent longest, so one key's requests never displace the answers of another that keeps fewer.
 */
import type { Outcome } from '../outcome.ts'

export const ANSWERS = 65_536
/** The number of characters of an answer that count as one more answer: all answers together stay below 64 MiB of text. */
const HEAVY = 1_024
/** The number of dropped operations that a session tells apart from earlier ones that are still under way. */
const DROPPED = 32

/** An item of a linked list. */
interface Linked<T> {
  before: T | undefined
  after: T | undefined
}

/** A doubly linked list in order of arrival, with removal anywhere. (Finding the first item of a Map walks over all items deleted from its front.) */
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
  /** The digest of the command, if the operation carried one; otherwise 0. */
  readonly asked: number
}

interface KeptAnswer extends Answer, Linked<KeptAnswer> {
  readonly seq: number
  /** It counts as this many answers. */
  readonly weight: number
}

/** An answer that names many resources, or carries long texts, counts as several. */
function weightOf(outcome: Outcome): number {
  let characters = 0
  if (outcome.kind === 'granted') for (const name of outcome.resources) characters += name.length
  else if (outcome.kind === 'refused') {
    for (const fact of Object.values(outcome.facts))
      if (typeof fact === 'string') characters += fact.length
      else if (typeof fact === 'object') for (const item of fact) characters += String(item).length
  }
  return 1 + Math.floor(characters / HEAVY)
}

export class AnswerSession implements Linked<AnswerSession> {
  readonly name: string
  /** Operations up to this one are over, and their answers are no longer known. */
  seq: number
  /** Later operations that were done and whose answers are no longer known: an operation between them may still be under way. */
  readonly dropped: Set<number>
  before: AnswerSession | undefined
  after: AnswerSession | undefined
  /** The sum of the weights of its answers. */
  weight = 0
  readonly #answers = new Map<number, KeptAnswer>()
  /** The oldest answer comes first. */
  readonly line = new LinkedList<KeptAnswer>()

  constructor(name: string, seq = 0, dropped: readonly number[] = []) {
    this.name = name
    this.seq = seq
    this.dropped = new Set(dropped)
  }

  get size(): number {
    return this.#answers.size
  }

  /** `forgotten`: the operation is over, and its answer no longer known. */
  find(seq: number): Answer | 'forgotten' | undefined {
    return this.#answers.get(seq) ?? (seq <= this.seq || this.dropped.has(seq) ? 'forgotten' : undefined)
  }

  /** From now on, operations up to this one count as over. */
  forgetUpTo(seq: number): void {
    this.seq = Math.max(this.seq, seq)
    for (const one of this.dropped) if (one <= this.seq) this.dropped.delete(one)
    while (this.dropped.delete(this.seq + 1)) this.seq++
  }

  /** Drops the oldest answer, and remembers that its operation was done. Returns the weight of the answer. */
  forgetOldest(): number {
    this.dropped.add(this.line.first!.seq)
    this.forgetUpTo(this.dropped.size > DROPPED ? Math.min(...this.dropped) : this.seq)
    return this.dropOldest()
  }

  /** Returns the weight of the answer. */
  add(seq: number, { outcome, asked }: Answer): number {
    const weight = weightOf(outcome)
    const kept = { seq, outcome, asked, weight, before: undefined, after: undefined }
    this.#answers.set(seq, kept)
    this.line.add(kept)
    this.weight += weight
    return weight
  }

  /** Returns the weight of the dropped answer. */
  dropOldest(): number {
    const oldest = this.line.first!
    const { seq, weight } = oldest
    this.line.remove(oldest)
    this.#answers.delete(seq)
    this.weight -= weight
    return weight
  }

  *[Symbol.iterator](): Generator<KeptAnswer, void, void> {
    for (let kept = this.line.first; kept !== undefined; kept = kept.after) yield kept
  }
}

/** The answers of one key. */
class AnswersOfKey implements Linked<AnswersOfKey> {
  readonly key: number
  /** The sum of the weights of its answers. */
  count = 0
  before: AnswersOfKey | undefined
  after: AnswersOfKey | undefined
  readonly sessions = new Map<string, AnswerSession>()
  /** The session that was silent longest comes first. */
  readonly line = new LinkedList<AnswerSession>()

  constructor(key: number) {
    this.key = key
  }
}

export class Answers {
  #size = 0
  /** The sum of all weights. */
  #weight = 0
  /** The most recently changed key comes last; snapshots keep this order. */
  readonly #keepers = new Map<number, AnswersOfKey>()
  /** Keys by their count, in the same order. A count grows by a few, and the highest falls no faster than it grew, so finding it is cheap. */
  readonly #ranks = new Map<number, LinkedList<AnswersOfKey>>()
  #most = 0

  /** The number of kept answers. */
  get size(): number {
    return this.#size
  }

  session(key: number, name: string): AnswerSession | undefined {
    return this.#keepers.get(key)?.sessions.get(name)
  }

  /** Keeps an answer. The client has received all answers up to `acked`, so they are dropped. */
  keep(key: number, name: string, seq: number, acked: number, answer: Answer): void {
    const keeper = this.#keepers.get(key) ?? new AnswersOfKey(key)
    const known = keeper.sessions.get(name)
    const session = known ?? new AnswerSession(name)
    let more = 0
    this.#size++
    for (let old = session.line.first; old !== undefined && old.seq <= acked; old = session.line.first) {
      more -= session.dropOldest()
      this.#size--
    }
    session.forgetUpTo(Math.min(acked, seq - 1))
    more += session.add(seq, answer)
    if (known === undefined) keeper.sessions.set(name, session)
    else keeper.line.remove(session)
    keeper.line.add(session)
    this.#count(keeper, more)
    while (this.#weight > ANSWERS) this.#makeRoom()
  }

  /** Adds a session from a snapshot. Keys and sessions come in the order of the iterator below. */
  load(key: number, session: AnswerSession): void {
    const keeper = this.#keepers.get(key) ?? new AnswersOfKey(key)
    keeper.sessions.set(session.name, session)
    keeper.line.add(session)
    this.#size += session.size
    this.#count(keeper, session.weight)
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

  /** Drops the oldest answer of the session that was silent longest. A repetition of that operation is STALE from now on, and not done again. */
  #makeRoom(): void {
    const keeper = this.#ranks.get(this.#most)!.first!
    const session = keeper.line.first!
    this.#size--
    const weight = session.forgetOldest()
    if (session.size === 0) {
      keeper.line.remove(session)
      keeper.sessions.delete(session.name)
    }
    this.#count(keeper, -weight)
  }
}
