/**
 * The upper contract: what the holder's side (`Leases`) talks to. A replica in this process implements it, and so do the clients of a server. The
 * published suite `lessorSuite` (leasehold/testing) checks an implementation.
 *
 * Guaranteed:
 * - An outcome was decided at the revision it carries, and is durable as `profile` says before it is returned.
 * - A refusal was true at the end of the log at some moment between the call and the answer.
 * - Watches deliver the revisions in order, each of them whole. A gap appears only as an event of type `resync`.
 *
 * Not guaranteed:
 * - That an answer ever comes. Callers that cannot wait for ever pass a `signal`.
 * - That a proposal whose call was aborted, or failed with `UNKNOWN`, was not carried out.
 * - That a read without `consistent` shows the newest state.
 *
 * Refusals are outcomes; failures are thrown as `LeaseError`: `UNAVAILABLE` when certainly nothing was done, `UNKNOWN` when that is uncertain,
 * `DIVERGED` when the log has lost records. An aborted call throws the reason of its signal.
 */
/// <reference lib="esnext.disposable" preserve="true" />
import type { LeaseError } from './errors.ts'
import type { Acquire, Command, Operation, PolicyRules, PoolRequest } from './kernel/command.ts'
import type { Event } from './kernel/event.ts'
import type { Outcome } from './kernel/outcome.ts'
import type { ApiKeyView } from './lessor/key-view.ts'
import type { ListPart } from './lessor/list-part.ts'
import type { BackupOptions, ReadOptions, WatchOptions } from './lessor/read-options.ts'
import type { SketchView } from './lessor/sketch-view.ts'
import type { Profile } from './store.ts'

export interface Lessor extends AsyncDisposable {
  /** The guarantees of the store behind this lessor. */
  readonly profile: Profile

  /** Why requests have to wait at present, for messages; undefined: they do not, or it is not known. */
  readonly delayReason?: string | undefined

  /** Fires when this lessor will never answer again. The reason is a `LeaseError`: closed, disowned or diverged. */
  readonly signal: AbortSignal

  /**
   * Proposes a command. `completion` gets what was decided; a refusal is an outcome of kind `refused`, and changed nothing. Safe to repeat with the same `op`.
   * The command is handed over: the caller must not change it afterwards. Never throws. `propose` (src/lessor/propose.ts) is the same with a promise.
   */
  submit(command: Command, options: ProposeOptions, completion: Completion): void
  /** Replicas only: renews a lease for `key` and returns its term, if nothing has to be written for that. Undefined: `submit` the renewal instead. */
  renewAtOnce?(lease: number, key: number): number | undefined

  /**
   * Replicas only, before a request that does not wait: stays until the leases of holders that seem to be dead have ended, as this process may be the only one
   * that counts their time. Returns at once if a living holder stands in the way. Throws `UNCONFIRMED` after `limit` ms, else after that term or 30 s.
   */
  confirm?(command: Acquire, options: { readonly limit?: number; readonly signal: AbortSignal }): Promise<void>

  /** Reads a view of the state. */
  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>>

  /** Reads one page of a list of leases or resources, filtered and in order. The order of a long list may be seconds old, its items are not. Optional. */
  page?<K extends 'leases' | 'resources'>(
    query: Extract<Query, { readonly kind: K }>,
    page: ListPart,
    options?: { readonly signal?: AbortSignal },
  ): Promise<PageView<K>>

  /**
   * Delivers the events of resources and entries under `prefix`, one array per revision. An array with a single event of type `resync` reports a gap:
   * read the state again, then continue from the revision of that event. Ends when `options.signal` fires.
   */
  watch(prefix: string, options: WatchOptions): AsyncIterable<readonly Event[]>

  /**
   * Streams the whole state at the end of the log, as the bytes of a backup file (format: src/replica/backup.ts). A lessor that forwards the bytes
   * neither reads nor changes them. They contain the hashes of all keys and every entry, so a server gives them only to keys with `admin` on the empty
   * prefix. Stopping early, by `signal` or by leaving the loop, leaves nothing behind. Optional.
   */
  backup?(options?: BackupOptions): AsyncIterable<Uint8Array>

  /**
   * Replicas only: how far the log has come. A server sends it with its answers, and clients present it when they reconnect. It covers everything the
   * client was answered.
   */
  readonly witness?: string | undefined

  /**
   * Replicas only: whether the log still contains what `witness` describes. False: the log was put back to an older state, and holders must give up
   * leases that the lost records granted. If this log signed the witness and this replica owns the log, it first begins a new generation, which grants
   * nothing for the longest term. Throws `UNAVAILABLE` while the end of the log is not known.
   */
  continues?(witness: string): Promise<boolean>

  /** Clients only: calls `listener` each time the server turns out to have a log that was put back. Returns a function that unsubscribes. */
  onRewound?(listener: (why: LeaseError) => void): () => void
}

export interface ProposeOptions {
  /** Identifies the operation: repeating it has one effect and one answer, within the window that docs/assumptions.md states. */
  readonly op?: Operation
  /** The API key of the caller. @default 0, a caller with direct access to the store */
  readonly key?: number
  /** Stops waiting for the answer. The command may still be carried out. */
  readonly signal?: AbortSignal
}

/** The callbacks of `submit`. Exactly one of them is called, once, possibly before `submit` returns; after `signal` has fired, maybe none. */
export interface Completion {
  settle(outcome: Outcome): void
  fail(error: unknown): void
}

export type { BackupOptions, ReadOptions, WatchOptions } from './lessor/read-options.ts'
export type { SketchBin, SketchView } from './lessor/sketch-view.ts'

/** Restricts a list. Which items are left out when there are more than `limit` is not guaranteed. */
export interface Listing {
  /** The most items to return; `View.more` tells whether there are others. @default no limit */
  readonly limit?: number
  /**
   * Returns only items under one of these prefixes; none if the list is empty. A server passes the prefixes that the caller's key may read, so that
   * nothing else is even looked at. A lease is under them if all that it names is. @default everything
   */
  readonly within?: readonly string[]
}

/** One page of a list. */
export interface PageView<K extends 'leases' | 'resources'> extends View<K> {
  /** The number of matching items on all pages. */
  readonly total: number
}

/** Which waiters of a pool are returned: a queue may be long. */
export interface PoolPage {
  /** The most waiters to return, up to `MAX_POOL_PAGE`. 0: only counts, members and the accounts that hold. @default 1000 */
  readonly limit?: number
  /** Returns waiters from this position on. @default 0 */
  readonly skip?: number
  /** Instead of a page: this waiter, the first ones, and a sample of the others before it, whose positions are approximate in a long fair queue. */
  readonly lease?: number
}

/** The most waiters of a pool in one answer. */
export const MAX_POOL_PAGE = 1_000

/** Widens a list of leases beyond `within`: leases of this key, whatever they name, and unclaimed leases that the key may claim. */
export interface OwnLeases {
  readonly key: number
  /** The prefixes that the key may acquire under. */
  readonly claims: readonly string[]
}

export type Query =
  /** The counts of the whole state. */
  | { readonly kind: 'summary' }
  | { readonly kind: 'lease'; readonly lease: number }
  | ({ readonly kind: 'leases'; readonly holder?: string; readonly prefix?: string; readonly own?: OwnLeases } & Listing)
  /** `waiters` and `holders`: the most waiters and grants to return. @default all */
  | { readonly kind: 'resource'; readonly resource: string; readonly waiters?: number; readonly holders?: number }
  | ({ readonly kind: 'resources'; readonly prefix: string } & Listing)
  /** An entry whose key equals the prefix is always included, whatever the limit. `named`: only entries `PREFIX/ANY/NAMED`, found without looking at others. */
  | ({ readonly kind: 'entries'; readonly prefix: string; readonly named?: string } & Listing)
  | { readonly kind: 'services'; readonly service?: string }
  /** One pool: members, queue, accounts and rules. A name without members and waiters is an empty pool. */
  | ({ readonly kind: 'pool'; readonly pool: string } & PoolPage)
  /** The pools that have members, waiters or holders. */
  | { readonly kind: 'pools' }
  /**
   * The last grants of a resource that have ended, oldest first; with a `limit`, the newest so many. With a revision `below`: those of all names below it that
   * ended after that revision, each with its name.
   */
  | { readonly kind: 'history'; readonly resource: string; readonly limit?: number; readonly below?: number }
  /** The durations for which the leases of a class of work were held: one sketch for all work, and one for each level of the class that anything is known of. */
  | { readonly kind: 'durations'; readonly class: string }
  | { readonly kind: 'policies' }
  | { readonly kind: 'keys' }

/** The answer to a query of kind `K`. */
export interface View<K extends Query['kind'] = Query['kind']> {
  /** The revision of the state that was read. */
  readonly revision: number
  readonly value: QueryResults[K]
  /** There are more items than the `limit` of the query. */
  readonly more?: true
}

export interface QueryResults {
  summary: Summary
  lease: LeaseView | undefined
  leases: readonly LeaseView[]
  resource: ResourceView
  resources: readonly ResourceView[]
  entries: readonly EntryView[]
  services: readonly ServiceView[]
  pool: PoolView
  pools: readonly PoolSummary[]
  history: readonly PastGrant[]
  durations: readonly SketchView[]
  policies: readonly { readonly prefix: string; readonly rules: PolicyRules }[]
  keys: readonly ApiKeyView[]
}

/**
 * `suspect`: the ttl has run out and the grace period has not; a renewal makes the lease live again. `frozen`: the lease has ended, but its units stay taken
 * until its holder has certainly stopped.
 */
export type LeaseStatus = 'waiting' | 'live' | 'suspect' | 'frozen'

export interface GrantView {
  readonly resource: string
  readonly lease: number
  readonly holder: string
  /** Distinguishes processes of the same holder name. */
  readonly incarnation: number
  /** The fencing token. */
  readonly token: number
  readonly units: number
  readonly shared: boolean
  readonly status: LeaseStatus
  /** Wall time of the grant in ms, for display only. */
  readonly since: number
  /** About how many ms the lease has left unless it is renewed, for display only. */
  readonly remaining: number
  /** The units that may be in use at once, as the lease states. Left out: it states none. */
  readonly permits?: number
  /** It stands for all names below this one, too. Left out: for this name alone. */
  readonly covers?: boolean
}

export interface WaiterView extends Pick<GrantView, 'permits' | 'covers'> {
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  /** 0 is next. */
  readonly position: number
  readonly units: number
  readonly shared: boolean
  readonly priority: number
  /** Wall time in ms, for display only. */
  readonly since: number
}

export interface ResourceView {
  readonly resource: string
  readonly capacity: number
  /** The units that may be in use at once, by the smallest `permits` of its holders. Left out: they state none, and the capacity counts. */
  readonly limit?: number
  readonly grants: readonly GrantView[]
  /** Grants of names above that cover this one: their holders hold it as well. Left out: none. */
  readonly coveredBy?: readonly GrantView[]
  /** Covering requests that wait for a name above, each with that name. A later request for this name waits behind them. Left out: none. */
  readonly waitersAbove?: readonly (WaiterView & { readonly resource: string })[]
  /** While a covering request waits for this name: grants of names below, 20 at most. Left out: none. */
  readonly heldBelow?: readonly GrantView[]
  readonly queue: readonly WaiterView[]
  /** The highest token shown to `fence`; 0 when none was. */
  readonly fence: number
}

export interface LeaseView {
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  /** The API key that the lease belongs to; 0: none. */
  readonly key: number
  readonly ttl: number
  readonly status: LeaseStatus
  /** Wall time of the grant in ms, for display only. */
  readonly since: number
  /** About how many ms the lease has left unless it is renewed, for display only. */
  readonly remaining: number
  readonly grants: readonly GrantView[]
  /** The resources that a waiting lease waits for, with its position in each queue. */
  readonly wants: readonly { readonly resource: string; readonly units: number; readonly shared: boolean; readonly position: number }[]
  readonly entries: readonly { readonly key: string; readonly value: string }[]
  readonly labels: readonly (readonly [string, string])[]
  /** The lease that this one ends with; 0: none. */
  readonly parent: number
  readonly children: readonly number[]
  /** The holder was asked to give the lease back. */
  readonly recalled: boolean
  /** It claims all names below its own, too. Left out: its own alone. */
  readonly covers?: boolean
  /** For how many ms the lease may be held in all, renewals or not. Left out: without a limit. */
  readonly maxLife?: number
}

export interface EntryView {
  readonly key: string
  readonly value: string
  /** 0: the entry hangs on no lease. Then it has no holder, is `live`, and stays until it is deleted. */
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  readonly status: LeaseStatus
  /** The revision in which the entry was last written. */
  readonly revision: number
  /** The revision that made the entry. */
  readonly created: number
  /** The number of times the entry was written since it was made; 1 is the first time. */
  readonly version: number
  readonly generation: number
  /** A registration that has come and gone too often. */
  readonly suppressed: boolean
  /** Of a registration that has lapsed lately: its penalty for that, above which penalty it is suppressed, and at which it is free again. */
  readonly flap?: { readonly penalty: number; readonly suppress: number; readonly reuse: number }
  /** About how many ms its lease has left unless it is renewed, for display only. */
  readonly remaining: number
}

/** The registrations of one service, and the protection against a hiccup that would empty it (docs/registry.md). */
export interface ServiceView {
  readonly service: string
  readonly instances: number
  readonly suspect: number
  readonly suppressed: number
  /** Too many instances are silent at once: their lapses are slowed. */
  readonly preserving: boolean
  /** Wall time in ms since when lapses are slowed, for display only; 0 when they are not. */
  readonly since: number
  /** Instances that lapsed in the present sweep. */
  readonly removed: number
}

/** A pool as a whole. All log times are ms of the log's own time, comparable with `elapsed`. */
export interface PoolView {
  readonly pool: string
  /** Log time of this answer. */
  readonly elapsed: number
  /** By name; members that have left and are still held come last. */
  readonly members: readonly PoolMemberView[]
  /** The number of waiters, reservations included. */
  readonly waiting: number
  /** In the order of service: those that the query asked for. */
  readonly queue: readonly PoolWaiterView[]
  /** Reservations whose window has not begun, by their start. They also have a place in the queue. */
  readonly reservations: readonly PoolWaiterView[]
  /** Those of `queue`, and unless the query names a lease, those that hold members. With the whole queue, all. */
  readonly accounts: readonly PoolAccountView[]
  /** The rules in force for the name of the pool. */
  readonly rules: PoolRules
}

export type PoolRules = Required<
  Pick<
    PolicyRules,
    | 'queue'
    | 'aging'
    | 'waiters'
    | 'maxLife'
    | 'maxHold'
    | 'shareHalfLife'
    | 'sharePenalty'
    | 'preempt'
    | 'minHold'
    | 'preemptNotice'
    | 'ttlMin'
    | 'ttlMax'
  >
>

export interface PoolMemberView {
  readonly member: string
  /** The resource that is held while the member is taken. */
  readonly resource: string
  readonly labels: Readonly<Record<string, string>>
  /** Units that the member has, as its offer and policies say. */
  readonly units: number
  readonly used: number
  /** `suspect`: its offer was not renewed in time, and it is not given out. `draining`: it has left, and is still held. */
  readonly status: 'live' | 'suspect' | 'draining'
  /** The lease that offers it and the holder of that lease; 0 and empty when draining. */
  readonly offer: number
  readonly offeredBy: string
  readonly grants: readonly PoolGrantView[]
  /** Clients that wait for this member by its name. */
  readonly waiting: number
}

export interface PoolGrantView {
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  /** Empty for a lease that took the member by its name. */
  readonly account: string
  readonly units: number
  readonly shared: boolean
  readonly token: number
  readonly status: LeaseStatus
  /** Wall time of the grant in ms, for display only. */
  readonly since: number
  /** Log time of the grant. */
  readonly start: number
  /** For how many ms of log time it has been held. */
  readonly held: number
  /** For how many ms it will probably be held; 0: unknown. */
  readonly expect: number
  /** After how many ms it ends at the latest; 0: it has no such end. */
  readonly maxLife: number
  readonly priority: number
  readonly preemptible: boolean
  readonly yields: boolean
  readonly borrows: boolean
  /** The holder was asked to give it back. */
  readonly recalled: boolean
  /** The class of work that its duration counts for, its label `learn`. Empty: none. */
  readonly class: string
}

export interface PoolWaiterView {
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  readonly account: string
  /** With its defaults filled in. Of a reservation, `from` is how many ms of log time are left until its window. */
  readonly request: PoolRequest
  /** 0 is next. */
  readonly position: number
  readonly priority: number
  /** Its order in the queue: lower goes first. */
  readonly rank: number
  /** Wall time in ms, for display only. */
  readonly since: number
  readonly maxLife: number
  /** True if the present members could ever serve it. If not, it is passed over. */
  readonly possible: boolean
  /** The class of work that its duration will count for, its label `learn`. Empty: none. */
  readonly class: string
}

export interface PoolAccountView {
  readonly account: string
  /** Unit-milliseconds, decayed to the time of this answer. */
  readonly usage: number
  readonly weight: number
  /** Units that its leases hold. */
  readonly held: number
  readonly leases: number
  readonly waiting: number
  /** Units that it may hold, and beyond that borrow; 0: any number, and none. */
  readonly quota: number
  readonly borrow: number
  /** With a quota for the week: unit-ms used, and in how many ms that is less than the quota. With quotas for kinds: units held of each. */
  readonly week?: { readonly used: number; readonly quota: number; readonly again: number }
  readonly kinds?: readonly { readonly kind: string; readonly held: number; readonly quota: number }[]
}

export interface PoolSummary {
  readonly pool: string
  readonly members: number
  /** Units of all members, and how many of them are held. */
  readonly units: number
  readonly used: number
  readonly waiting: number
  readonly reservations: number
}

/** A grant that has ended. */
export interface PastGrant {
  /** Only in an answer about the names below another one. */
  readonly resource?: string
  readonly lease: number
  readonly holder: string
  readonly token: number
  /** Wall times in ms, for display only. */
  readonly since: number
  readonly until: number
  readonly cause: string
  readonly by?: string
  /** The revision that ended it. 0: the log itself has forgotten the grant, and only its run was kept. */
  readonly revision: number
  /** Of a command that `leasehold run` has run: its exit code (128 + the signal that ended it), for how many ms it ran, and its name. For display only. */
  readonly exit?: number
  readonly ran?: number
  readonly command?: string
}

/** The size of the whole state. */
export interface Figures {
  readonly leases: number
  readonly waiting: number
  readonly suspect: number
  readonly frozen: number
  readonly resources: number
  readonly entries: number
  readonly keys: number
  readonly nextToken: number
}

/** A server leaves out the figures for keys that may not read everything. */
export interface Summary extends Partial<Figures> {
  /** The rules version of the log. */
  readonly rules: number
  /** The log lost records, and nothing is granted until the longest ttl has passed. */
  readonly quiet: boolean
  /** The URL that the leases of this log have moved to; empty while the move is under way. */
  readonly moved?: string
}
