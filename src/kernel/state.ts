/**
 * The state that every replica of a log has in common, to the byte.
 *
 * Plain data and a few lookups; the rules that change it are in apply.ts and the files it names. What can be derived (who holds a resource,
 * who waits for it) hangs on the leases that cause it, so a snapshot is the leases and a few small tables.
 */
import { Answers } from './answers.ts'
import type { Attachment, CreateKey, PolicyRules, Want } from './command.ts'
import { Freed } from './freed.ts'
import { type Lineage, newLineage } from './lineage.ts'
import { PrefixTree } from './prefix-tree.ts'

/**
 * The newest rules this code knows. A state above it must not be touched.
 *
 * A rule that decides differently than before does so only where `state.rules` has reached its version: records that were decided under older rules
 * must be replayed as they were decided. Version 2 corrects mistakes of version 1.
 */
export const RULES = 2

/** Where the clocks of the year 2128 begin. */
export const ORIGIN_LIMIT = 5e14

/**
 * Where ids, tokens, revisions and the numbers of keys end: what needs a new one is refused from there on. The number of a timer is eight times that of its
 * lease, and what waits already may still take tokens and revisions beyond: all of them stay safe integers.
 */
export const COUNTER_LIMIT = 2 ** 50 - 2 ** 30

/** Until a holder has renewed once, it may never have heard of its grant: then it must not own a GPU until tomorrow. */
export const FIRST_TERM = 30_000

export const WAITING = 0
export const LIVE = 1
/** Its ttl has run and its grace has not: nobody else has it yet, and a renewal brings it back. */
export const SUSPECT = 2
/** Ended, but its holder may still believe: it keeps its units, and nothing else, until it releases or its term has run. */
export const FROZEN = 3
export type Status = typeof WAITING | typeof LIVE | typeof SUSPECT | typeof FROZEN

/** A lease's timers. The first is its ttl, its grace, its freeze or its lock-delay, whichever runs: there is never more than one of them. */
export const TERM = 0
export const CAP = 1
export const HOLD = 2
/** The first of several: a second break that is shorter runs beside the first, and whichever is due first ends the lease. */
export const BREAK = 3
export const SLOTS = 8
export type Slot = 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7

/** The timer of the log itself: quiet after entries were lost. No lease has id 0. */
export const QUIET = 0

export interface Holder {
  readonly name: string
  readonly incarnation: number
  leases: number
}

export interface Grant {
  readonly lease: Lease
  readonly resource: Resource
  readonly units: number
  readonly shared: boolean
  readonly token: number
}

export interface Timer {
  readonly duration: number
  readonly epoch: number
  readonly run: number
  aged: number
}

/** What most leases do not have. */
export interface Rare {
  wants: readonly Required<Want>[]
  any: number
  rank: number
  priority: number
  holding: readonly number[]
  /** Derived, of one who waits: in the queues of these it is passed over, since there is not as much as it wants. See queue.ts. */
  passed: ReadonlySet<string> | undefined
  parent: Lease | undefined
  /** It came by a transfer: its key need not be one that may acquire it. */
  handed: boolean
  /** It was transferred to a name, and no process of that name has taken it yet. */
  open: boolean
  children: Set<Lease> | undefined
  entries: Set<string> | undefined
  /** Of one who waits: what is to hang on it when it is granted. */
  pending: readonly Attachment[]
  /** Derived: the bytes of its entries' keys and values. */
  bytes: number
  labels: readonly (readonly [string, string])[]
  grace: number
  maxLife: number
  recalled: boolean
  cause: string
  by: string
  /** CAP, HOLD and the BREAKs; epochs are numbered by `started`, so a cancelled and restarted timer is another one. */
  timers: (Timer | undefined)[] | undefined
  started: number
  /** For how many ms its lapse has been put off since it was last renewed. Registrations only: see service.ts. */
  slowed: number
}

export interface Lease {
  readonly id: number
  holder: Holder
  key: number
  readonly ttl: number
  status: Status
  /** Renewed at least once since it was granted. */
  confirmed: boolean
  /** The running duration of TERM. */
  term: number
  /** Changes whenever TERM is restarted. */
  epoch: number
  /** The run of the log in which this epoch began. */
  run: number
  /** TERM had run so long before the present run began, or when a mark said so. */
  aged: number
  grants: Grant[]
  since: number
  rare: Rare | undefined
  /** Belongs to whoever counts this lease's time; never part of the state. */
  alarm: unknown
}

export interface Resource {
  readonly name: string
  /** In the order of their tokens. */
  grants: Grant[]
  used: number
  sharers: number
  /** By rank, then by id: the same order in every queue, so that two who want the same two things never block each other. */
  queue: Lease[]
  /** It stands in `freed`. */
  freed: boolean
  /** Derived: of so many of `grants`, from the front, the holders are frozen or count how long they hold while others wait. See queue.ts. */
  pressed: number
}

export interface Attached {
  readonly key: string
  value: string
  lease: Lease
  revision: number
  generation: number
}

/** What is held against a key that came and went: see flap.ts. */
export interface Flap {
  /** As it was when the log's own time was `at`. */
  penalty: number
  at: number
  suppressed: boolean
}

/** How many registrations a service has, and how many of them missed a renewal. */
export interface Service {
  total: number
  suspect: number
}

/** Kept for a service while its lapses are slowed or counted: see service.ts. */
export interface Upkeep {
  preserving: boolean
  /** Wall time, for people. */
  since: number
  /** Registrations when the present row of sweeps began; 0 when there is none. */
  base: number
  removed: number
  /** The log's own time when the present sweep began. */
  at: number
}

export interface Past {
  lease: number
  holder: string
  token: number
  since: number
  until: number
  cause: string
  by: string
  revision: number
}

export interface Proposer {
  seq: number
  index: number
}

export interface Key extends Omit<CreateKey, 'kind'> {
  readonly id: number
}

export interface State {
  rules: number
  /** The last entry applied. */
  index: number
  revision: number
  /** Ids and tokens start far above zero (see `found`): `origin` is subtracted where a small number makes a better key. */
  origin: number
  nextLease: number
  nextToken: number
  nextKey: number
  /** Folds every outcome and event: equal logs, equal trails. */
  trailA: number
  trailB: number
  /** Wall time of the last batch, for people. */
  wall: number
  /** The longest term ever granted: how long someone may believe in what this log forgot. */
  longest: number
  tick: number
  elapsed: number
  run: { number: number; owned: boolean; ms: number }
  /** Which log this is, and its runs. */
  lineage: Lineage
  quiet: Timer | undefined
  quietEpochs: number
  /** The leases have left for there (empty: it is not known yet where); undefined: they are here. */
  moved: string | undefined
  /** Only while `moved` is empty: they are on their way into this log, and what it holds is not in force yet. */
  awaiting: boolean
  leases: Map<number, Lease>
  readonly resources: Map<string, Resource>
  readonly entries: Map<string, Attached>
  /** Derived: the same entries, by the segments of their keys. */
  readonly tree: PrefixTree<Attached>
  /** Those that changed last come last. */
  readonly flaps: Map<string, Flap>
  /** Derived: the keys of flaps that are suppressed, in the same order. */
  readonly suppressed: Set<string>
  /** Derived. */
  readonly services: Map<string, Service>
  readonly upkeep: Map<string, Upkeep>
  readonly holders: Map<string, Holder>
  /** How many leases each key made. Counted from the leases themselves: no snapshot carries it. */
  readonly madeWith: Map<number, number>
  readonly history: Map<string, Past[]>
  /** Where its oldest names are taken away: a walk from the front would pass all that went before. */
  oldest: Iterator<string> | undefined
  readonly fences: Map<string, number>
  /** Which key named it first; none that has the store itself. */
  readonly fencedBy: Map<string, number>
  /** Derived: how many each key named. */
  readonly fencedWith: Map<number, number>
  readonly policies: Map<string, PolicyRules>
  readonly keys: Map<number, Key>
  readonly proposers: Map<number, Proposer>
  readonly answers: Answers
  /** Who waits while keeping a lease, in the order they came: derived from `holding`, for finding cycles. */
  readonly keeping: Map<number, Set<Lease>>
  /** Derived, and only once a quota was asked for: the leases of each holder's name. Most logs have no quota, and a million leases. */
  byHolder: Map<string, Set<Lease>> | undefined
  /** Who waits with an entry for a key: derived from `pending`. */
  readonly pending: Map<string, Set<Lease>>
  readonly counts: { waiting: number; suspect: number; frozen: number }
  /** What a command has freed and nobody has looked at yet. Empty between commands. */
  readonly freed: Freed
  /** Set while a snapshot is being taken: sees each lease before it changes or goes. Never part of the state. */
  saving: { before(lease: Lease): void } | undefined
}

/** Before the first entry. */
export function createState(wall = 0, rules = RULES): State {
  const state: State = {
    rules,
    index: 0,
    revision: 0,
    origin: 0,
    nextLease: 1,
    nextToken: 1,
    nextKey: 1,
    trailA: 0,
    trailB: 0,
    wall: 0,
    longest: 0,
    tick: 0,
    elapsed: 0,
    run: { number: 0, owned: false, ms: 0 },
    lineage: newLineage(),
    quiet: undefined,
    quietEpochs: 0,
    moved: undefined,
    awaiting: false,
    leases: new Map(),
    resources: new Map(),
    entries: new Map(),
    tree: new PrefixTree(),
    flaps: new Map(),
    suppressed: new Set(),
    services: new Map(),
    upkeep: new Map(),
    holders: new Map(),
    madeWith: new Map(),
    history: new Map(),
    oldest: undefined,
    fences: new Map(),
    fencedBy: new Map(),
    fencedWith: new Map(),
    policies: new Map(),
    keys: new Map(),
    proposers: new Map(),
    answers: new Answers(),
    keeping: new Map(),
    byHolder: undefined,
    pending: new Map(),
    counts: { waiting: 0, suspect: 0, frozen: 0 },
    freed: new Freed(),
    saving: undefined,
  }
  beginLog(state, wall, rules)
  return state
}

/**
 * The first entry founds the log: counters start from the wall time it carries, a hundred numbers for each millisecond, so that tokens, ids
 * and revisions still grow when an engine forgot everything and the log begins again. The log begins with the rules of its founder, not with those of
 * its reader: otherwise one log would have two states.
 */
export function beginLog(state: State, wall: number, rules: number): void {
  state.rules = rules
  // A clock that is wrong by centuries must not leave too little room above: the number of a timer is to be a safe integer, too.
  const origin = Math.min(Math.max(0, Math.floor(wall)) * 100, ORIGIN_LIMIT)
  state.origin = origin
  state.revision = origin
  state.nextLease = origin + 1
  state.nextToken = origin + 1
}

export function findLease(state: State, id: number): Lease | undefined {
  return state.leases.get(id - state.origin)
}

/** Every change of a lease goes through here first: a snapshot under way takes it as it was. */
export function touch(state: State, lease: Lease): void {
  state.saving?.before(lease)
}

export function rareOf(lease: Lease): Rare {
  lease.rare ??= {
    wants: [],
    any: 0,
    rank: 0,
    priority: 0,
    holding: [],
    passed: undefined,
    parent: undefined,
    handed: false,
    open: false,
    children: undefined,
    entries: undefined,
    pending: [],
    bytes: 0,
    labels: [],
    grace: 0,
    maxLife: 0,
    recalled: false,
    cause: '',
    by: '',
    timers: undefined,
    started: 0,
    slowed: 0,
  }
  return lease.rare
}

/** One object for all leases of a holder: a million leases of one process should not keep a million copies of its name. */
export function internHolder(state: State, name: string, incarnation: number): Holder {
  const known = state.holders.get(name)
  if (known?.incarnation === incarnation) return known
  const holder = { name, incarnation, leases: 0 }
  if (known === undefined || incarnation > known.incarnation) state.holders.set(name, holder)
  return holder
}

/** A new lease, its first term short and its grants still to come. Left out, the lease's own number becomes its holder's incarnation. */
export function openLease(
  state: State,
  holder: string,
  incarnation: number | undefined,
  key: number,
  ttl: number,
  status: typeof WAITING | typeof LIVE,
): Lease {
  const id = state.nextLease++
  // What a renewal looks at comes first, to lie close together.
  const lease: Lease = {
    alarm: undefined,
    status,
    confirmed: false,
    run: state.run.number,
    aged: 0,
    ttl,
    key,
    epoch: 1,
    term: Math.min(ttl, FIRST_TERM),
    id,
    holder: internHolder(state, holder, incarnation ?? id),
    grants: NO_GRANTS,
    since: state.wall,
    rare: undefined,
  }
  addLease(state, lease)
  return lease
}

export function addLease(state: State, lease: Lease): void {
  state.leases.set(lease.id - state.origin, lease)
  lease.holder.leases++
  if (state.byHolder !== undefined) addToHolder(state.byHolder, lease)
  if (lease.key !== 0) state.madeWith.set(lease.key, (state.madeWith.get(lease.key) ?? 0) + 1)
}

function addToHolder(byHolder: Map<string, Set<Lease>>, lease: Lease): void {
  const own = byHolder.get(lease.holder.name)
  if (own === undefined) byHolder.set(lease.holder.name, new Set([lease]))
  else own.add(lease)
}

/** All leases of whoever bears this name, whichever process it is. The first call walks over everything. */
export function leasesOf(state: State, holder: string): Iterable<Lease> {
  if (state.byHolder === undefined) {
    state.byHolder = new Map()
    for (const lease of state.leases.values()) addToHolder(state.byHolder, lease)
  }
  return state.byHolder.get(holder) ?? NO_HOLDER
}

/** From here on it ends with its parent. */
export function hangOn(state: State, parent: Lease, lease: Lease): void {
  touch(state, parent)
  const rare = rareOf(parent)
  rare.children ??= new Set()
  rare.children.add(lease)
  rareOf(lease).parent = parent
}

/** The key of a lease that was transferred to a name which no process is known by: whoever renews it first has it (renew.ts). */
export const UNCLAIMED = Number.MAX_SAFE_INTEGER

/** From here on it answers to this key. The caller has touched it. */
export function rekey(state: State, lease: Lease, key: number): void {
  uncount(state, lease.key)
  lease.key = key
  if (key !== 0) state.madeWith.set(key, (state.madeWith.get(key) ?? 0) + 1)
}

/** From here on it belongs to this process. The caller has touched it. */
export function rehold(state: State, lease: Lease, incarnation: number): void {
  const { holder } = lease
  leaveHolder(state, holder)
  lease.holder = internHolder(state, holder.name, incarnation)
  lease.holder.leases++
}

function leaveHolder(state: State, holder: Holder): void {
  holder.leases--
  if (holder.leases === 0 && state.holders.get(holder.name) === holder) state.holders.delete(holder.name)
}

function uncount(state: State, key: number): void {
  if (key === 0) return
  const left = state.madeWith.get(key)! - 1
  if (left === 0) state.madeWith.delete(key)
  else state.madeWith.set(key, left)
}

export function dropLease(state: State, lease: Lease): void {
  state.leases.delete(lease.id - state.origin)
  leaveHolder(state, lease.holder)
  const own = state.byHolder?.get(lease.holder.name)
  if (own?.delete(lease) && own.size === 0) state.byHolder!.delete(lease.holder.name)
  uncount(state, lease.key)
}

/** The caller knows that no higher token was shown. */
export function nameFence(state: State, resource: string, token: number, key: number): void {
  if (key !== 0 && !state.fences.has(resource)) {
    state.fencedBy.set(resource, key)
    state.fencedWith.set(key, (state.fencedWith.get(key) ?? 0) + 1)
  }
  state.fences.set(resource, token)
}

/** Shared by all who have none, and never written to: a million leases should not keep a million empty lists, or lists with room to grow. */
export const NO_GRANTS: Grant[] = []
const NO_HOLDER: Lease[] = []

/** The list with `grant` at its end: a new one where there was none, exactly as large as it must be. */
export function withGrant(grants: Grant[], grant: Grant): Grant[] {
  if (grants.length === 0) return [grant]
  grants.push(grant)
  return grants
}

/** Where the grant with this token stands among those of its resource, which are in the order of their tokens. */
export function placeOfGrant(grants: readonly Grant[], token: number): number {
  let low = 0
  let high = grants.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (grants[middle]!.token < token) low = middle + 1
    else high = middle
  }
  return low
}

export function resourceOf(state: State, name: string): Resource {
  let resource = state.resources.get(name)
  if (resource === undefined) {
    resource = { name, grants: NO_GRANTS, used: 0, sharers: 0, queue: NO_HOLDER, freed: false, pressed: 0 }
    state.resources.set(name, resource)
  }
  return resource
}

export function dropIfIdle(state: State, resource: Resource): void {
  if (resource.grants.length > 0 || resource.queue.length > 0) return
  if (state.resources.get(resource.name) === resource) state.resources.delete(resource.name)
}

export function addEntry(state: State, entry: Attached): void {
  state.entries.set(entry.key, entry)
  state.tree.set(entry.key, entry)
}

export function dropEntry(state: State, key: string): void {
  state.entries.delete(key)
  state.tree.delete(key)
}

export function timerId(lease: Lease, slot: Slot): number {
  return lease.id * SLOTS + slot
}

/** The running timer of a slot. TERM always runs; the others only when something started them. */
export function timerOf(lease: Lease, slot: Slot): Timer | undefined {
  if (slot === TERM) return { duration: lease.term, epoch: lease.epoch, run: lease.run, aged: lease.aged }
  return lease.rare?.timers?.[slot]
}

/** How long the log says a timer has run at least: what marks said of it, and what the present run has told of all that it found. */
export function agedOf(state: State, timer: { readonly run: number; readonly aged: number }): number {
  return timer.aged + (timer.run < state.run.number ? state.run.ms : 0)
}
