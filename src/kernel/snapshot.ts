/**
 * The whole state as bytes, in chunks that each stand for themselves: first the small tables, then history and remembered answers, then the leases.
 *
 * A snapshot is taken in slices while the state goes on changing: the state tells of each lease before it changes (`saving`), and a lease
 * not yet written is written then, as it was. Of history and answers the lists are copied at once: what stands in them does not change while a
 * snapshot is taken. So the chunks together are the state at the moment the first one was asked for.
 */
import { type Answer, Session } from './answers.ts'
import { Damaged, FromTheFuture, Reader, Writer } from './bytes.ts'
import { VERBS } from './command.ts'
import { readOutcome, readRules, writeOutcome, writeRules } from './encode.ts'
import type { Lineage } from './lineage.ts'
import { joinQueues } from './queue.ts'
import { countEntry } from './service.ts'
import {
  type Attached,
  addEntry,
  addLease,
  FROZEN,
  findLease,
  found,
  internHolder,
  type Lease,
  NO_GRANTS,
  nameFence,
  type Past,
  RULES,
  rareOf,
  resourceOf,
  SLOTS,
  type State,
  type Status,
  SUSPECT,
  TERM,
  type Timer,
  WAITING,
  withGrant,
} from './state.ts'

const MAGIC = 0x53
const FORMAT = 1
const TABLES = 1
const LEASES = 2
const END = 3
const HISTORY = 4
const ANSWERED = 5
const CHUNK = 128 * 1_024

/** Lazily encodes the state as it is when the first chunk is asked for. Only one at a time; leaving the loop early ends it. */
export function* saveState(state: State): Generator<Uint8Array, void, void> {
  if (state.saving !== undefined) throw new Error('a snapshot is already being taken')
  try {
    yield* chunksOf(state, saving => {
      state.saving = saving
    })
  } finally {
    state.saving = undefined
  }
}

/** `sees` is handed what must be told of every lease before it changes, for as long as chunks are still to come. */
function* chunksOf(state: State, sees: (saving: NonNullable<State['saving']>) => void): Generator<Uint8Array, void, void> {
  const limit = state.nextLease
  const ahead = new Set<Lease>()
  let cursor = 0
  let count = 0
  let chunk = begin(LEASES)
  const write = (lease: Lease): void => {
    writeLease(chunk, state, lease)
    count++
  }
  sees({
    before(lease) {
      if (lease.id <= cursor || lease.id >= limit || ahead.has(lease)) return
      ahead.add(lease)
      write(lease)
    },
  })
  const history = [...state.history].map(([name, past]) => [name, past.slice()] as const)
  const sessions = sessionsOf(state)
  yield tables(state)
  yield* listed(HISTORY, history, (to, [name, past]) => {
    to.text(name)
    to.list(past, item => writePast(to, item))
  })
  yield* listed(ANSWERED, sessions, writeSession)
  for (const lease of state.leases.values()) {
    if (lease.id >= limit) break
    cursor = lease.id
    if (!ahead.has(lease)) write(lease)
    if (chunk.length < CHUNK) continue
    const full = chunk
    chunk = begin(LEASES)
    yield full.sealed()
  }
  cursor = limit
  if (chunk.length > 2) yield chunk.sealed()
  const last = begin(END)
  for (const n of [count, history.length, sessions.length]) last.uint(n)
  yield last.sealed()
}

/** As many chunks as it takes. */
function* listed<T>(kind: number, items: readonly T[], write: (to: Writer, item: T) => void): Generator<Uint8Array, void, void> {
  let chunk = begin(kind)
  for (const item of items) {
    write(chunk, item)
    if (chunk.length < CHUNK) continue
    const full = chunk
    chunk = begin(kind)
    yield full.sealed()
  }
  if (chunk.length > 2) yield chunk.sealed()
}

interface SavedSession {
  readonly key: number
  readonly name: string
  readonly seq: number
  readonly answers: readonly (Answer & { readonly seq: number })[]
}

function sessionsOf(state: State): SavedSession[] {
  const saved: SavedSession[] = []
  for (const [key, sessions] of state.answers)
    for (const session of sessions) saved.push({ key, name: session.name, seq: session.seq, answers: [...session] })
  return saved
}

function writeSession(to: Writer, { key, name, seq, answers }: SavedSession): void {
  to.uint(key)
  to.text(name)
  to.uint(seq)
  to.list(answers, answer => {
    to.uint(answer.seq)
    to.uint(answer.asked)
    writeOutcome(to, answer.outcome)
  })
}

function begin(kind: number): Writer {
  const to = new Writer(kind === END ? 32 : CHUNK + 4_096)
  to.byte(MAGIC)
  to.byte(FORMAT * 16 + kind)
  return to
}

/** 64 bits over the whole state, as text: equal states, equal hashes, on every replica and every version of the engine that runs us. */
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

function tables(state: State): Uint8Array {
  const to = begin(TABLES)
  const { run } = state
  for (const n of [state.rules, state.index, state.revision, state.origin, state.nextLease, state.nextToken, state.nextKey]) to.uint(n)
  to.uint32(state.trailA)
  to.uint32(state.trailB)
  for (const n of [state.wall, state.longest, state.tick, state.elapsed, run.number, run.ms, state.quietEpochs]) to.uint(n)
  to.bool(run.owned)
  writeTimer(to, state.quiet)
  to.byte(state.moved === undefined ? 0 : state.awaiting ? 2 : 1)
  to.text(state.moved ?? '')
  to.list([...state.policies], ([prefix, rules]) => {
    to.text(prefix)
    writeRules(to, rules)
  })
  to.list([...state.keys.values()], key => {
    to.uint(key.id)
    to.text(key.name)
    to.text(key.hash)
    to.list(key.allow, scope => {
      to.byte(VERBS.indexOf(scope.verb))
      to.text(scope.prefix)
    })
  })
  to.list([...state.fences], ([name, token]) => {
    to.text(name)
    to.uint(token)
    to.uint(state.fencedBy.get(name) ?? 0)
  })
  to.list([...state.proposers], ([proposer, { seq, index }]) => {
    to.uint(proposer)
    to.uint(seq)
    to.uint(index)
  })
  to.list([...state.flaps], ([key, { penalty, at, suppressed }]) => {
    to.text(key)
    to.uint(penalty)
    to.uint(at)
    to.bool(suppressed)
  })
  to.list([...state.upkeep], ([name, { preserving, since, base, removed, at }]) => {
    to.text(name)
    to.bool(preserving)
    for (const n of [since, base, removed, at]) to.uint(n)
  })
  if (hasLineage(state)) writeLineage(to, state.lineage)
  return to.sealed()
}

/** Only then is it written: a log of older rules has none, and its snapshots stay as older builds read them. */
function hasLineage({ rules, lineage: { id, before, generation } }: State): boolean {
  return rules >= 2 && (id !== 0 || before.length > 0 || generation.index !== 0)
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

function writeTimer(to: Writer, timer: Timer | undefined): void {
  to.bool(timer !== undefined)
  if (timer === undefined) return
  for (const n of [timer.duration, timer.epoch, timer.run, timer.aged]) to.uint(n)
}

function readTimer(from: Reader): Timer | undefined {
  if (!from.bool()) return undefined
  return { duration: from.uint(), epoch: from.uint(), run: from.uint(), aged: from.uint() }
}

function writeLease(to: Writer, state: State, lease: Lease): void {
  const { rare } = lease
  to.uint(lease.id)
  to.text(lease.holder.name)
  to.uint(lease.holder.incarnation)
  to.uint(lease.key)
  to.uint(lease.ttl)
  to.byte(lease.status | (lease.confirmed ? 4 : 0) | (rare === undefined ? 0 : 8))
  for (const n of [lease.term, lease.epoch, lease.run, lease.aged, lease.since]) to.uint(n)
  to.list(lease.grants, grant => {
    to.text(grant.resource.name)
    to.uint(grant.units)
    to.bool(grant.shared)
    to.uint(grant.token)
  })
  if (rare === undefined) return
  to.list(rare.wants, want => {
    to.text(want.resource)
    to.uint(want.units)
    to.bool(want.shared)
  })
  to.uint(rare.any)
  to.int(rare.rank)
  to.int(rare.priority)
  to.list(rare.holding, id => to.uint(id))
  to.uint(rare.parent?.id ?? 0)
  to.bool(rare.handed)
  to.bool(rare.open)
  to.list([...(rare.entries ?? [])], key => {
    const entry = state.entries.get(key)!
    to.text(key)
    to.text(entry.value)
    to.uint(entry.revision)
    to.uint(entry.generation)
  })
  to.list(rare.labels, ([name, value]) => {
    to.text(name)
    to.text(value)
  })
  to.uint(rare.grace)
  to.uint(rare.maxLife)
  to.bool(rare.recalled)
  to.text(rare.cause)
  to.text(rare.by)
  to.uint(rare.started)
  to.uint(rare.slowed)
  to.bool(rare.timers !== undefined)
  for (const timer of rare.timers?.slice(1) ?? []) writeTimer(to, timer)
}

/** Collects chunks, in the order they were made, and becomes a state. */
export class StateLoader {
  readonly #state = found(0)
  readonly #leases: { readonly lease: Lease; readonly holder: string; readonly incarnation: number; readonly rest: LeaseRest }[] = []
  #sessions = 0
  #expected: { readonly leases: number; readonly names: number; readonly sessions: number } | undefined
  #begun = false

  /** Throws Damaged or FromTheFuture. */
  add(chunk: Uint8Array): void {
    if (chunk[0] === MAGIC && chunk[1]! >> 4 > FORMAT) throw new FromTheFuture(`a snapshot of format ${chunk[1]! >> 4}`)
    const from = Reader.unseal(chunk)
    if (from.byte() !== MAGIC) throw new Damaged('this is not a snapshot')
    const kind = from.byte() & 15
    if (!this.#begun && kind !== TABLES) throw new Damaged('a snapshot without its beginning')
    if (this.#expected !== undefined) throw new Damaged('a snapshot that goes on after its end')
    if (kind === TABLES) this.#readTables(from)
    else if (kind === LEASES) while (!from.ended) this.#leases.push(readLease(from))
    else if (kind === HISTORY) while (!from.ended) this.#readHistory(from)
    else if (kind === ANSWERED) while (!from.ended) this.#readSession(from)
    else if (kind === END) this.#expected = { leases: from.uint(), names: from.uint(), sessions: from.uint() }
    else throw new FromTheFuture(`a chunk of kind ${kind}`)
    from.finish()
  }

  finish(): State {
    const state = this.#state
    const found = { leases: this.#leases.length, names: state.history.size, sessions: this.#sessions }
    for (const what of ['leases', 'names', 'sessions'] as const)
      if (this.#expected?.[what] !== found[what]) throw new Damaged(`a snapshot of ${this.#expected?.[what]} ${what} has ${found[what]}`)
    // The order of ids is the order in which they were made, which is what everything derived from them rests on.
    this.#leases.sort((a, b) => a.lease.id - b.lease.id)
    for (const { lease, holder, incarnation } of this.#leases) {
      if (findLease(state, lease.id) !== undefined) throw new Damaged(`lease ${lease.id} is there twice`)
      Object.assign(lease, { holder: internHolder(state, holder, incarnation) })
      addLease(state, lease)
    }
    for (const { lease, rest } of this.#leases) link(state, lease, rest)
    for (const resource of state.resources.values()) resource.grants.sort((a, b) => a.token - b.token)
    return state
  }

  #readHistory(from: Reader): void {
    const name = from.text()
    if (this.#state.history.has(name)) throw new Damaged(`the history of ${name} is there twice`)
    this.#state.history.set(
      name,
      from.list(() => readPast(from)),
    )
  }

  #readSession(from: Reader): void {
    const key = from.uint()
    const session = new Session(from.text(), from.uint())
    from.list(() => {
      const seq = from.uint()
      const asked = from.uint()
      session.add(seq, { outcome: readOutcome(from), asked })
    })
    this.#state.answers.load(key, session)
    this.#sessions++
  }

  #readTables(from: Reader): void {
    if (this.#begun) throw new Damaged('a snapshot that begins twice')
    this.#begun = true
    const state = this.#state
    state.rules = from.uint()
    if (state.rules > RULES) throw new FromTheFuture(`rules of version ${state.rules}`)
    state.index = from.uint()
    state.revision = from.uint()
    state.origin = from.uint()
    state.nextLease = from.uint()
    state.nextToken = from.uint()
    state.nextKey = from.uint()
    state.trailA = from.uint32()
    state.trailB = from.uint32()
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
    from.list(() => state.policies.set(from.text(), readRules(from)))
    from.list(() => {
      const [id, name, hash] = [from.uint(), from.text(), from.text()]
      const allow = from.list(() => ({ verb: VERBS[from.byte()] ?? unknownVerb(), prefix: from.text() }))
      state.keys.set(id, { id, name, hash, allow })
    })
    from.list(() => nameFence(state, from.text(), from.uint(), from.uint()))
    from.list(() => state.proposers.set(from.uint(), { seq: from.uint(), index: from.uint() }))
    from.list(() => {
      const key = from.text()
      const flap = { penalty: from.uint(), at: from.uint(), suppressed: from.bool() }
      state.flaps.set(key, flap)
      if (flap.suppressed) state.suppressed.add(key)
    })
    from.list(() =>
      state.upkeep.set(from.text(), {
        preserving: from.bool(),
        since: from.uint(),
        base: from.uint(),
        removed: from.uint(),
        at: from.uint(),
      }),
    )
    if (!from.ended) state.lineage = readLineage(from)
  }
}

function unknownVerb(): never {
  throw new FromTheFuture('a verb not known here')
}

/** What needs the other leases and the resources to be put in its place. */
interface LeaseRest {
  readonly grants: readonly { readonly resource: string; readonly units: number; readonly shared: boolean; readonly token: number }[]
  readonly parent: number
  readonly entries: readonly Omit<Attached, 'lease'>[]
}

function readLease(from: Reader): { lease: Lease; holder: string; incarnation: number; rest: LeaseRest } {
  const id = from.uint()
  const holder = from.text()
  const incarnation = from.uint()
  const key = from.uint()
  const ttl = from.uint()
  const flags = from.byte()
  if (flags > 15) throw new FromTheFuture('a lease with fields not known here')
  const [term, epoch, run, aged, since] = [from.uint(), from.uint(), from.uint(), from.uint(), from.uint()]
  // The same order as in `openLease`: leases that were loaded and leases that were opened are one shape.
  const lease: Lease = {
    alarm: undefined,
    status: (flags & 3) as Status,
    confirmed: (flags & 4) !== 0,
    run,
    aged,
    ttl,
    key,
    epoch,
    term,
    id,
    holder: { name: holder, incarnation, leases: 0 },
    grants: NO_GRANTS,
    since,
    rare: undefined,
  }
  const grants = from.list(() => ({ resource: from.text(), units: from.uint(), shared: from.bool(), token: from.uint() }))
  if ((flags & 8) === 0) return { lease, holder, incarnation, rest: { grants, parent: 0, entries: [] } }
  const rare = rareOf(lease)
  rare.wants = from.list(() => ({ resource: from.text(), units: from.uint(), shared: from.bool() }))
  rare.any = from.uint()
  rare.rank = from.int()
  rare.priority = from.int()
  rare.holding = from.list(() => from.uint())
  const parent = from.uint()
  rare.handed = from.bool()
  rare.open = from.bool()
  const entries = from.list(() => ({ key: from.text(), value: from.text(), revision: from.uint(), generation: from.uint() }))
  rare.labels = from.list(() => [from.text(), from.text()] as const)
  rare.grace = from.uint()
  rare.maxLife = from.uint()
  rare.recalled = from.bool()
  rare.cause = from.text()
  rare.by = from.text()
  rare.started = from.uint()
  rare.slowed = from.uint()
  if (from.bool()) rare.timers = Array.from({ length: SLOTS }, (_, slot) => (slot === TERM ? undefined : readTimer(from)))
  return { lease, holder, incarnation, rest: { grants, parent, entries } }
}

function link(state: State, lease: Lease, { grants, parent, entries }: LeaseRest): void {
  for (const { resource: name, units, shared, token } of grants) {
    const resource = resourceOf(state, name)
    const grant = { lease, resource, units, shared, token }
    lease.grants = withGrant(lease.grants, grant)
    resource.grants = withGrant(resource.grants, grant)
    if (shared) resource.sharers++
    else resource.used += units
  }
  if (lease.status === WAITING && lease.rare === undefined) throw new Damaged(`lease ${lease.id} waits for nothing`)
  if (lease.status === WAITING) joinQueues(state, lease)
  else if (lease.status === SUSPECT) state.counts.suspect++
  else if (lease.status === FROZEN) state.counts.frozen++
  for (const rest of entries) {
    const rare = rareOf(lease)
    rare.entries ??= new Set()
    rare.entries.add(rest.key)
    const entry = { ...rest, lease }
    addEntry(state, entry)
    countEntry(state, entry, 1)
  }
  if (parent === 0) return
  const above = findLease(state, parent)
  if (above === undefined) throw new Damaged(`lease ${lease.id} hangs on ${parent}, which is not there`)
  rareOf(lease).parent = above
  const rare = rareOf(above)
  rare.children ??= new Set()
  rare.children.add(lease)
}
