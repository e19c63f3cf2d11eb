/**
 * The state that all replicas of a log share, byte for byte: types, constants and how a log begins.
 *
 * The state is plain data. state/ holds its parts and the functions that keep its indexes consistent; rule/ holds the rules that change it.
 * Everything that can be derived (the grants and the queue of a resource) is kept with the leases, so a snapshot is the leases and a few small tables.
 */
import type { CreateKey, KeyLimits, KeyUse, PolicyRules } from './command.ts'
import { Answers } from './state/answers.ts'
import type { ClaimNode, ClaimTree } from './state/claim-tree.ts'
import type { Durations } from './state/durations.ts'
import { FreeEntries, type FreeEntry } from './state/free-entries.ts'
import { FreedResources } from './state/freed-resources.ts'
import type { Attached, Holder, LeaseState, PoolMember, PoolState, Resource, Timer } from './state/lease-state.ts'
import { LeaseTable } from './state/lease-table.ts'
import { type Lineage, newLineage } from './state/lineage.ts'
import { PrefixTree } from './state/prefix-tree.ts'

export type {
  Attached,
  Grant,
  Holder,
  KindUnits,
  LeaseExtras,
  LeaseState,
  PoolAccount,
  PoolClaim,
  PoolMember,
  PoolShape,
  PoolState,
  Resource,
  Slot,
  Status,
  StepUse,
  Timer,
} from './state/lease-state.ts'
export { BREAK, CAP, FIRST_TERM, FROZEN, HOLD, LIVE, PREEMPT, SLOTS, SUSPECT, TERM, WAITING } from './state/lease-state.ts'

/**
 * The newest rules version this code knows. It must not touch a state of a newer version.
 *
 * A changed rule applies only once `state.rules` has reached its version: records decided under older rules must replay as they were decided.
 */
export const RULES = 1

/** The highest origin of counters (see `beginLog`): the wall clock of the year 2128. */
export const ORIGIN_LIMIT = 5e14

/**
 * Commands that need a new lease id, token, revision or key id are refused once a counter reaches this limit. Waiters may still take tokens and
 * revisions beyond it, and a timer id is eight times its lease id: the limit leaves room for both to stay safe integers.
 */
export const COUNTER_LIMIT = 2 ** 50 - 2 ** 30

/** The timer id of the log itself: its quiet period after records were lost. No lease has id 0. */
export const QUIET = 0

/** The penalty of a registration key that came and went: see rule/flap.ts. */
export interface Flap {
  /** The penalty at log time `at`. */
  penalty: number
  at: number
  suppressed: boolean
}

/** The number of registrations of a service, and of those that missed a renewal. */
export interface Service {
  total: number
  suspect: number
}

/** Kept for a service while its lapses are slowed or counted: see rule/service.ts. */
export interface Upkeep {
  preserving: boolean
  /** Wall time, for display only. */
  since: number
  /** Registrations when the present series of sweeps began; 0 when there is none. */
  base: number
  removed: number
  /** Log time when the present sweep began. */
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

export interface ApiKey extends Omit<CreateKey, 'kind'> {
  readonly id: number
  /** The secret before the last rotation, and until when servers accept it, by their wall clock. */
  readonly former?: { readonly hash: string; readonly until: number }
}

/** The resources that the present command has freed, and the places below which waiters may be served. */
export type Freed = FreedResources<Resource | ClaimNode>

/** Leases of each holder name under each prefix with a quota: by prefix, then by holder name (state/quota-counts.ts). */
export type QuotaCounts = Map<string, Map<string, number>>

/** Says whether there are quotas for accounts of pools, whether there are quotas of unit-time in a week, and names the kinds with quotas of each pool. */
export interface AccountQuotas {
  readonly any: boolean
  readonly week: boolean
  readonly kinds: ReadonlyMap<string, readonly string[]>
}

export interface State {
  rules: number
  /** The index of the last record applied. */
  index: number
  revision: number
  /** Ids and tokens start far above zero (see `beginLog`): `origin` is subtracted where a small number makes a better map key. */
  origin: number
  nextLease: number
  nextToken: number
  nextKey: number
  /** A digest of all outcomes and events: replicas that applied equal logs have equal decision hashes. */
  decisionHashA: number
  decisionHashB: number
  /** Wall time of the last batch: for display, and to check the expiry that is given to a key. */
  wall: number
  /** The longest term ever granted: for how long a holder may still trust a grant that the log has lost. */
  longest: number
  tick: number
  elapsed: number
  run: { number: number; owned: boolean; ms: number }
  /** The identity of the log, and its runs. */
  lineage: Lineage
  quiet: Timer | undefined
  quietEpochs: number
  /** The URL that the leases have moved to; empty while the move is under way; undefined: the leases are in this log. */
  moved: string | undefined
  /** Only while `moved` is empty: leases are being moved into this log, and its contents are not in force yet. */
  awaiting: boolean
  /** Only while `awaiting`, and with the copy of the leases: how far the counters of this log itself had come. */
  floor: { readonly revision: number; readonly lease: number; readonly token: number; readonly key: number } | undefined
  /** By their numbers after `origin`. */
  leases: LeaseTable<LeaseState>
  readonly resources: Map<string, Resource>
  /** Derived: how many of the grants of a resource, from the front, are frozen or already have a HOLD timer, unless none. See rule/queue.ts. */
  readonly pressed: Map<Resource, number>
  readonly entries: Map<string, Attached>
  /** The entries that belong to no lease. No key is both here and in `entries`. */
  readonly free: FreeEntries
  /** Derived: the entries of both kinds, by the segments of their keys. */
  readonly tree: PrefixTree<Attached | FreeEntry>
  /** The most recently changed come last. */
  readonly flaps: Map<string, Flap>
  /** Derived: the keys of flaps that are suppressed, in the same order. */
  readonly suppressed: Set<string>
  /** Derived. */
  readonly services: Map<string, Service>
  readonly upkeep: Map<string, Upkeep>
  /** Pools with members, waiters, holders or usage. */
  readonly pools: Map<string, PoolState>
  readonly holders: Map<string, Holder>
  /** Derived: what each key has, unless it has nothing. */
  readonly keyUse: Map<number, KeyUse>
  /** The groups that have keys, and how many. Everything but their limits is derived. */
  readonly groups: Map<string, { keys: number; readonly use: KeyUse; limits: KeyLimits | undefined }>
  readonly history: Map<string, Past[]>
  /** Leases were held for these durations, by class of work; those that ended last come last. See rule/learn.ts. */
  readonly durations: Map<string, Durations>
  /** An iterator over the names of `history`, oldest first. A new iteration would walk over all names deleted before. */
  oldest: Iterator<string> | undefined
  readonly fences: Map<string, number>
  /** The key that first fenced a resource. Resources fenced without a key are not listed. */
  readonly fencedBy: Map<string, number>
  /** Derived: the number of resources that each key was the first to fence. */
  readonly fencedWith: Map<number, number>
  readonly policies: Map<string, PolicyRules>
  readonly keys: Map<number, ApiKey>
  readonly proposers: Map<number, Proposer>
  readonly answers: Answers
  /** Derived from `holding`: the waiters that keep a lease while they wait, in order of arrival. Used to find cycles. */
  readonly keeping: Map<number, Set<LeaseState>>
  /** Derived, and built only when a covering claim is first asked for. See rule/covers.ts. */
  claims: ClaimTree | undefined
  /** Derived, and built only when a quota is first checked. Most logs have no quota, and may have a million leases. */
  quotaCounts: QuotaCounts | undefined
  /** Derived: which quotas policies set for accounts of pools; undefined: not looked for since policies changed. */
  accountQuotas: AccountQuotas | undefined
  /** Derived from `LeaseExtras.pending`: the waiters that want to attach an entry with a key. */
  readonly pending: Map<string, Set<LeaseState>>
  readonly counts: { waiting: number; suspect: number; frozen: number }
  /** Resources that the present command has freed. `settle` serves their queues; empty between commands. */
  readonly freed: Freed
  /** Pools whose queues `settle` serves after those of the freed resources; empty between commands. */
  readonly freedPools: PoolState[]
  /** Derived: leases that were transferred to a process which has not renewed them yet. */
  readonly unused: Set<LeaseState>
  /** Members that are gone because their offer ended without a release: `end` ends the leases that hold them. Empty between commands. */
  readonly vanished: PoolMember[]
  /** Set while a snapshot is being taken: receives each lease before it changes or ends. Not part of the state. */
  saving: { before(lease: LeaseState): void } | undefined
}

/** The state before the first record. */
export function createState(wall = 0, rules = RULES): State {
  const state: State = {
    rules,
    index: 0,
    revision: 0,
    origin: 0,
    nextLease: 1,
    nextToken: 1,
    nextKey: 1,
    decisionHashA: 0,
    decisionHashB: 0,
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
    floor: undefined,
    leases: new LeaseTable(),
    resources: new Map(),
    pressed: new Map(),
    entries: new Map(),
    free: new FreeEntries(),
    tree: new PrefixTree(),
    flaps: new Map(),
    suppressed: new Set(),
    services: new Map(),
    upkeep: new Map(),
    pools: new Map(),
    holders: new Map(),
    keyUse: new Map(),
    groups: new Map(),
    history: new Map(),
    durations: new Map(),
    oldest: undefined,
    fences: new Map(),
    fencedBy: new Map(),
    fencedWith: new Map(),
    policies: new Map(),
    keys: new Map(),
    proposers: new Map(),
    answers: new Answers(),
    keeping: new Map(),
    claims: undefined,
    quotaCounts: undefined,
    accountQuotas: undefined,
    pending: new Map(),
    counts: { waiting: 0, suspect: 0, frozen: 0 },
    freed: new FreedResources(),
    freedPools: [],
    unused: new Set(),
    vanished: [],
    saving: undefined,
  }
  beginLog(state, wall, rules)
  return state
}

/**
 * Starts the counters of a log from the wall time of its first record: a hundred numbers for each millisecond. Tokens, ids and revisions therefore
 * still grow when an engine lost everything and the log begins again. The rules version is that of the replica that wrote the first record, not of
 * the replica that reads it; otherwise one log would have two states.
 */
export function beginLog(state: State, wall: number, rules: number): void {
  state.rules = rules
  // A clock that is wrong by centuries must leave room for counters to grow: timer ids must stay safe integers, too.
  const origin = Math.min(Math.max(0, Math.floor(wall)) * 100, ORIGIN_LIMIT)
  state.origin = origin
  state.revision = origin
  state.nextLease = origin + 1
  state.nextToken = origin + 1
}

/**
 * Raises ids and tokens as `beginLog` does: those given out in records that were lost since are not given out again. The revision stays, or a watch
 * that resumes over a restart would find a gap where there is none.
 */
export function raiseCounters(state: State): void {
  const base = Math.min(state.wall * 100, ORIGIN_LIMIT)
  state.nextToken = Math.max(state.nextToken, base + 1)
  if (base < state.nextLease) return
  state.nextLease = base + 1
  // Small numbers again. A new table, because a snapshot that is being taken still iterates over the old one.
  const { leases } = state
  state.origin = base
  state.leases = new LeaseTable()
  for (const lease of leases.values()) state.leases.set(lease.id - base, lease)
}
