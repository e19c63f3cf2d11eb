/**
 * The whole state as bytes, in self-contained chunks: first the small tables, then history and kept answers, then the leases.
 *
 * A snapshot is taken in slices while the state goes on changing: the state reports each lease before it changes (`saving`), and a lease that is not written yet
 * is written then, as it was. History, answers and long tables are copied at the start, because their items do not change while a snapshot is taken. So the
 * chunks together are the state at the moment when the first one was requested.
 *
 * No chunk is much larger than CHUNK, which is encoded in one turn of the event loop and held in memory by a reader. Long tables, long sessions and the entries of
 * a lease are cut for that.
 */
import { restoreClaims } from '../rule/covers.ts'
import { restorePools } from '../rule/pool/member.ts'
import { type Answer, AnswerSession } from '../state/answers.ts'
import { addLoadedLease, findLease } from '../state/leases.ts'
import type { Lineage } from '../state/lineage.ts'
import { type Attached, createState, type LeaseState, type Past, RULES, type State } from '../state.ts'
import { Damaged, NewerFormatError, Reader, Writer } from './bytes.ts'
import { readOutcome, writeOutcome } from './encode.ts'
import { FORMAT, refuseNewer, refuseOlder } from './format.ts'
import { durationsOf, readDurations } from './saved-durations.ts'
import { link, readEntry, readLease, type SavedEntry, type SavedLease, writeEntry, writeLease } from './saved-lease.ts'
import { readTimer, sizeOf, TABLE_KINDS, tableReaders, tablesOf, writeTimer } from './saved-table.ts'

const MAGIC = 0x53
/** Bytes of a chunk before its items: magic, format, kind. */
const HEAD = 3
const TABLES = 1
const LEASES = 2
const END = 3
const HISTORY = 4
const ANSWERED = 5
/** Entries that are not written with their lease. */
const ENTRIES = 6
/** This section says how long leases were held, by class of work. */
const DURATIONS = 15
const CHUNK = 64 * 1_024
const STEP = 2_000

/** Encodes lazily the state at the moment when the first chunk is requested. One at a time; leaving the loop early ends it. */
export function* saveState(state: State): Generator<Uint8Array, void, void> {
  if (state.saving !== undefined) throw new Error('snapshot-under-way')
  try {
    yield* chunksOf(state, saving => {
      state.saving = saving
    })
  } finally {
    state.saving = undefined
  }
}

/** Calls `sees` with the observer that must receive every lease before it changes, as long as chunks are still to come. */
function* chunksOf(state: State, sees: (saving: NonNullable<State['saving']>) => void): Generator<Uint8Array, void, void> {
  const limit = state.nextLease
  const ahead = new Set<LeaseState>()
  const counts = { leases: 0, names: 0, sessions: 0, entries: 0, items: 0 }
  let cursor = 0
  let chunk = begin(LEASES)
  // Collected, and written later: a lease that is about to change must not delay the command that changes it.
  let later: SavedEntry[] = []
  const writeSaved = (to: Writer, { lease, ...entry }: SavedEntry): void => {
    to.uint(lease)
    writeEntry(to, entry)
  }
  const write = (lease: LeaseState): void => {
    for (const entry of writeLease(chunk, state, lease)) later.push(entry)
    counts.leases++
  }
  sees({
    before(lease) {
      if (lease.id <= cursor || lease.id >= limit || ahead.has(lease)) return
      ahead.add(lease)
      write(lease)
    },
  })
  const history = [...state.history].map(([name, past]) => [name, past.slice()] as const)
  const durations = durationsOf(state)
  const sessions = sessionsOf(state)
  const cutTables = sizeOf(state) > CHUNK
  const lists = cutTables ? tablesOf(state) : []
  counts.names = history.length
  counts.sessions = sessions.length
  yield tables(state, !cutTables)
  for (const { kind, items } of lists) {
    counts.items += items.length
    yield* listed(kind, items, (to, item) => item(to))
  }
  yield* listed(HISTORY, history, (to, [name, past]) => {
    to.text(name)
    to.list(past, item => writePast(to, item))
  })
  counts.items += durations.length
  yield* listed(DURATIONS, durations, (to, item) => item(to))
  yield* sessionChunks(sessions)
  for (const lease of state.leases.values()) {
    if (lease.id >= limit) break
    cursor = lease.id
    if (!ahead.has(lease)) write(lease)
    if (chunk.length >= CHUNK) {
      const full = chunk
      chunk = begin(LEASES, FULL)
      yield full.sealed()
    }
    while (later.length > 0) {
      const entries = later
      later = []
      counts.entries += entries.length
      yield* listed(ENTRIES, entries, writeSaved)
    }
  }
  cursor = limit
  if (chunk.length > HEAD) yield chunk.sealed()
  counts.entries += later.length
  yield* listed(ENTRIES, later, writeSaved)
  const last = begin(END)
  for (const n of [counts.leases, counts.names, counts.sessions, counts.entries, counts.items]) last.uint(n)
  yield last.sealed()
}

/** Writes items into as many chunks as needed. */
function* listed<T>(kind: number, items: readonly T[], write: (to: Writer, item: T) => void): Generator<Uint8Array, void, void> {
  let chunk = begin(kind)
  for (const item of items) {
    write(chunk, item)
    if (chunk.length < CHUNK) continue
    const full = chunk
    chunk = begin(kind, FULL)
    yield full.sealed()
  }
  if (chunk.length > HEAD) yield chunk.sealed()
}

interface SavedSession {
  readonly key: number
  readonly name: string
  readonly seq: number
  readonly dropped: readonly number[]
  readonly answers: readonly (Answer & { readonly seq: number })[]
}

function sessionsOf(state: State): SavedSession[] {
  const saved: SavedSession[] = []
  for (const [key, sessions] of state.answers)
    for (const session of sessions) {
      const { name, seq, dropped } = session
      saved.push({ key, name, seq, dropped: [...dropped].sort((a, b) => a - b), answers: [...session] })
    }
  return saved
}

/** A session whose answers do not fit into one chunk continues in the next, where it is named again. */
function* sessionChunks(sessions: readonly SavedSession[]): Generator<Uint8Array, void, void> {
  let chunk = begin(ANSWERED)
  for (const { key, name, seq, dropped, answers } of sessions) {
    for (let at = 0; at === 0 || at < answers.length; ) {
      const body = new Writer()
      const first = at
      for (; at < answers.length && (at === first || chunk.length + body.length < CHUNK); at++) {
        const answer = answers[at]!
        body.uint(answer.seq)
        body.uint(answer.asked)
        writeOutcome(body, answer.outcome)
      }
      chunk.uint(key)
      chunk.text(name)
      chunk.uint(seq)
      chunk.list(dropped, one => chunk.uint(one))
      chunk.uint(at - first)
      chunk.raw(body.view())
      if (at === 0) at = 1 // a session without answers
      if (chunk.length < CHUNK) continue
      const full = chunk
      chunk = begin(ANSWERED, FULL)
      yield full.sealed()
    }
  }
  if (chunk.length > HEAD) yield chunk.sealed()
}

/** The size of a chunk that follows a full one. Most states fill none, and clearing so much room takes longer than writing a small state. */
const FULL = CHUNK + 4_096

function begin(kind: number, size = 2_048): Writer {
  const to = new Writer(size)
  to.byte(MAGIC)
  to.byte(FORMAT)
  to.byte(kind)
  return to
}

/** A 64-bit hash of the whole state as hex text, equal for equal states on every replica and every version of Node. */
export function stateHash(state: State): string {
  let a = 0xcbf29ce4
  let b = 0x84222325
  for (const chunk of chunksOf(state, () => {})) {
    for (let i = 0; i < chunk.length; i++) {
      a = Math.imul(a ^ chunk[i]!, 0x01000193)
      b = Math.imul(b ^ chunk[i]! ^ (a >>> 11), 0x85ebca6b)
    }
  }
  const hex = (n: number) => (n >>> 0).toString(16).padStart(8, '0')
  return hex(a) + hex(b)
}

/** `whole`: with the tables that may be long. */
function tables(state: State, whole: boolean): Uint8Array {
  const to = begin(TABLES)
  const { run } = state
  for (const n of [state.rules, state.index, state.revision, state.origin, state.nextLease, state.nextToken, state.nextKey]) to.uint(n)
  to.uint32(state.decisionHashA)
  to.uint32(state.decisionHashB)
  for (const n of [state.wall, state.longest, state.tick, state.elapsed, run.number, run.ms, state.quietEpochs]) to.uint(n)
  to.bool(run.owned)
  writeTimer(to, state.quiet)
  to.byte(state.moved === undefined ? 0 : state.awaiting ? 2 : 1)
  to.text(state.moved ?? '')
  to.list(state.floor === undefined ? [] : [state.floor], ({ revision, lease, token, key }) => {
    for (const n of [revision, lease, token, key]) to.uint(n)
  })
  if (whole) for (const { items } of tablesOf(state)) to.list(items, item => item(to))
  else for (const _ of TABLE_KINDS) to.uint(0)
  writeLineage(to, state.lineage)
  return to.sealed()
}

function writeLineage(to: Writer, { id, secret, runs, before, generation }: Lineage): void {
  to.uint(id)
  to.text(secret)
  to.list(runs, ({ number, nonce, index }) => {
    for (const n of [number, nonce, index]) to.uint(n)
  })
  to.list(before, log => to.uint(log))
  to.uint(generation.index)
  to.uint(generation.quiet)
}

function readLineage(from: Reader): Lineage {
  const [id, secret] = [from.uint(), from.text()]
  const runs = from.list(() => ({ number: from.uint(), nonce: from.uint(), index: from.uint() }))
  const before = from.list(() => from.uint())
  return { id, secret, runs, before, generation: { index: from.uint(), quiet: from.uint() } }
}

function writePast(to: Writer, past: Past): void {
  to.uint(past.lease)
  to.text(past.holder)
  for (const n of [past.token, past.since, past.until, past.revision]) to.uint(n)
  to.text(past.cause)
  to.text(past.by)
}

function readPast(from: Reader): Past {
  const lease = from.uint()
  const holder = from.text()
  const [token, since, until, revision] = [from.uint(), from.uint(), from.uint(), from.uint()]
  return { lease, holder, token, since, until, revision, cause: from.text(), by: from.text() }
}

/** The counts in the last chunk. */
interface Expected {
  readonly leases: number
  readonly names: number
  readonly sessions: number
  readonly entries: number
  readonly items: number
}

/** Reads chunks, in the order in which they were made, and builds the state. */
export class StateLoader {
  readonly #state = createState(0)
  readonly #leases: SavedLease[] = []
  /** Entries that were not written with their lease, by lease. */
  readonly #entries = new Map<number, Omit<Attached, 'lease'>[]>()
  /** A session that may continue in the next chunk. */
  #session: { readonly key: number; readonly session: AnswerSession } | undefined
  #counts = { sessions: 0, entries: 0, items: 0 }
  #expected: Expected | undefined
  #begun = false

  /** Throws Damaged, OlderFormatError or NewerFormatError. */
  add(chunk: Uint8Array): void {
    if (chunk[0] === MAGIC) refuseNewer(chunk[1])
    const from = Reader.unseal(chunk)
    if (from.byte() !== MAGIC) throw new Damaged('this is not a snapshot')
    const format = from.byte()
    refuseOlder(format < FORMAT ? format >> 4 : format) // in format 1 the kind was part of this byte
    const kind = from.byte()
    if (!this.#begun && kind !== TABLES) throw new Damaged('a snapshot without its beginning')
    if (this.#expected !== undefined) throw new Damaged('a snapshot that goes on after its end')
    if (kind === TABLES) this.#readTables(from)
    else if (kind === END) this.#readEnd(from)
    else {
      const read = this.#reading(kind, from)
      while (from.left > 0) read()
    }
    from.finish()
  }

  /** A reader for one item of a chunk of this kind. */
  #reading(kind: number, from: Reader): () => void {
    if (kind === LEASES) return () => this.#leases.push(readLease(from))
    if (kind === ENTRIES) return () => this.#readEntry(from)
    if (kind === HISTORY) return () => this.#readHistory(from)
    if (kind === ANSWERED) return () => this.#readSession(from)
    if (kind === DURATIONS) return () => this.#readDurations(from)
    const table = TABLE_KINDS.indexOf(kind)
    if (table === -1) throw new NewerFormatError(`a chunk of kind ${kind}`)
    const read = tableReaders(this.#state, from)[table]!
    return () => {
      read()
      this.#counts.items++
    }
  }

  #readEnd(from: Reader): void {
    this.#expected = { leases: from.uint(), names: from.uint(), sessions: from.uint(), entries: from.uint(), items: from.uint() }
  }

  finish(): State {
    const steps = this.steps()
    for (;;) {
      const { done, value } = steps.next()
      if (done === true) return value
    }
  }

  /** As `finish`, in slices of STEP leases: a process that serves others does their work in between. */
  *steps(): Generator<undefined, State, void> {
    const state = this.#state
    this.#endSession()
    const found = { leases: this.#leases.length, names: state.history.size, ...this.#counts }
    for (const what of ['leases', 'names', 'sessions', 'entries', 'items'] as const)
      if (this.#expected?.[what] !== found[what]) throw new Damaged(`a snapshot of ${this.#expected?.[what]} ${what} has ${found[what]}`)
    // Ids are in the order of creation, and everything that is derived from leases depends on that order.
    this.#leases.sort((a, b) => a.lease.id - b.lease.id)
    let count = 0
    for (const { lease } of this.#leases) {
      if (++count % STEP === 0) yield
      if (findLease(state, lease.id) !== undefined) throw new Damaged(`lease ${lease.id} is there twice`)
      addLoadedLease(state, lease)
    }
    for (const id of this.#entries.keys())
      if (findLease(state, id) === undefined) throw new Damaged(`entries of lease ${id}, which is not there`)
    for (const { lease, rest } of this.#leases) {
      if (++count % STEP === 0) yield
      link(state, lease, rest, this.#entries.get(lease.id))
    }
    for (const { held } of state.resources.values()) if (Array.isArray(held)) held.sort((a, b) => a.token - b.token)
    restorePools(state)
    restoreClaims(state)
    return state
  }

  #readEntry(from: Reader): void {
    const lease = from.uint()
    const entry = readEntry(from)
    const known = this.#entries.get(lease)
    if (known === undefined) this.#entries.set(lease, [entry])
    else known.push(entry)
    this.#counts.entries++
  }

  #readHistory(from: Reader): void {
    const name = from.text()
    if (this.#state.history.has(name)) throw new Damaged(`the history of ${name} is there twice`)
    this.#state.history.set(
      name,
      from.list(() => readPast(from)),
    )
  }

  #readDurations(from: Reader): void {
    readDurations(this.#state, from)
    this.#counts.items++
  }

  #readSession(from: Reader): void {
    const key = from.uint()
    const name = from.text()
    const upTo = from.uint()
    const dropped = from.list(() => from.uint())
    if (this.#session?.key !== key || this.#session.session.name !== name) {
      this.#endSession()
      this.#session = { key, session: new AnswerSession(name, upTo, dropped) }
      this.#counts.sessions++
    }
    const { session } = this.#session
    from.list(() => {
      const seq = from.uint()
      const asked = from.uint()
      session.add(seq, { outcome: readOutcome(from), asked })
    })
  }

  #endSession(): void {
    if (this.#session !== undefined) this.#state.answers.load(this.#session.key, this.#session.session)
    this.#session = undefined
  }

  #readTables(from: Reader): void {
    if (this.#begun) throw new Damaged('a snapshot that begins twice')
    this.#begun = true
    const state = this.#state
    state.rules = from.uint()
    if (state.rules > RULES) throw new NewerFormatError(`rules of version ${state.rules}`)
    state.index = from.uint()
    state.revision = from.uint()
    state.origin = from.uint()
    state.nextLease = from.uint()
    state.nextToken = from.uint()
    state.nextKey = from.uint()
    state.decisionHashA = from.uint32()
    state.decisionHashB = from.uint32()
    state.wall = from.uint()
    state.longest = from.uint()
    state.tick = from.uint()
    state.elapsed = from.uint()
    const number = from.uint()
    const ms = from.uint()
    state.quietEpochs = from.uint()
    state.run = { number, ms, owned: from.bool() }
    state.quiet = readTimer(from)
    const [left, place] = [from.byte(), from.text()]
    state.moved = left === 0 ? undefined : place
    state.awaiting = left === 2
    const [floor] = from.list(() => ({ revision: from.uint(), lease: from.uint(), token: from.uint(), key: from.uint() }))
    state.floor = floor
    for (const read of tableReaders(state, from)) from.list(read)
    state.lineage = readLineage(from)
  }
}
