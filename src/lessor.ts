/**
 * The upper contract: what the holder's side talks to, a replica nearby or a server far away.
 *
 * Not promised: that an answer comes; that a local read is the newest; that an aborted proposal was not carried out. Promised: an outcome
 * is decided at the revision it carries and is durable as the profile says; a refusal was true at the log's end when it was asked for;
 * watches are ordered and whole, and a gap can only appear as `resync`; a command is decided as it was when it was proposed, whatever the caller
 * does with its object afterwards.
 */
import type { LeaseError } from './errors.ts'
import type { Command, Operation, PolicyRules, Scope } from './kernel/command.ts'
import type { Event, EventType } from './kernel/event.ts'
import type { Outcome } from './kernel/outcome.ts'
import type { Profile } from './store.ts'

export { MAX_RESOURCES, MAX_STOPPED } from './kernel/command.ts'
export { copyOf } from './kernel/copy.ts'
export { ELSEWHERE } from './kernel/event.ts'

export interface ProposeOptions {
  /** Asking again with the same operation has one effect and one answer, within the window that docs/guarantees.md states. */
  readonly op?: Operation
  /** The key it came with; 0, the default, is whoever has the store itself. */
  readonly key?: number
  /** Stops waiting for the answer. What was asked may still happen. */
  readonly signal?: AbortSignal
}

export interface ReadOptions {
  /** At the log's end, not merely at what has been applied here. */
  readonly consistent?: boolean
  /** At this revision or a later one. */
  readonly atLeast?: number
  readonly signal?: AbortSignal
}

/** Resources that are looked at, and holders that are named, to say who is in the way. */
const MAX_NAMED = 8

/** Who holds something of these resources, as far as the asker may see it: for messages. */
export async function holdersOf(
  lessor: Pick<Lessor, 'read'>,
  resources: readonly string[],
  signal?: AbortSignal,
): Promise<readonly string[]> {
  const views = await Promise.all(
    resources.slice(0, MAX_NAMED).map(resource => lessor.read({ kind: 'resource', resource }, signal === undefined ? {} : { signal })),
  )
  const names = new Set(views.flatMap(({ value }) => value.grants.map(({ holder }) => holder)))
  return [...names].slice(0, MAX_NAMED)
}

export interface WatchOptions {
  /** Everything after this revision, without a gap; left out: from now on. */
  readonly after?: number
  /** Only events of these types, and `resync`; left out: all. */
  readonly types?: readonly EventType[]
  readonly signal: AbortSignal
}

/** What of a list is looked for, and how much of it. Which are left out when there are more is not promised. */
export interface Listing {
  /** At most so many; the view says `more` when there are others. */
  readonly limit?: number
  /**
   * Only what is under one of these prefixes, and nothing when there are none: what a key may see, said beforehand, so that the rest is not even
   * looked at. A lease is within them when all that it names is. Left out: everything.
   */
  readonly within?: readonly string[]
}

/** Besides those within the prefixes: leases of this key, whatever they name, and leases that no key has claimed and this one may. */
export interface OwnLeases {
  readonly key: number
  /** Prefixes that it may acquire under. */
  readonly claims: readonly string[]
}

export type Query =
  | { readonly kind: 'summary' }
  | { readonly kind: 'lease'; readonly lease: number }
  | ({ readonly kind: 'leases'; readonly holder?: string; readonly prefix?: string; readonly own?: OwnLeases } & Listing)
  | { readonly kind: 'resource'; readonly resource: string }
  | ({ readonly kind: 'resources'; readonly prefix: string } & Listing)
  /** An entry whose key is the prefix itself is among them, whatever the limit. */
  | ({ readonly kind: 'entries'; readonly prefix: string } & Listing)
  | { readonly kind: 'services'; readonly service?: string }
  | { readonly kind: 'history'; readonly resource: string }
  | { readonly kind: 'policies' }
  | { readonly kind: 'keys' }

export type LeaseStatus = 'waiting' | 'live' | 'suspect' | 'frozen'

export interface GrantView {
  readonly resource: string
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  readonly token: number
  readonly units: number
  readonly shared: boolean
  readonly status: LeaseStatus
  /** For people: wall time of the grant, and about how many ms the lease has left unless renewed. */
  readonly since: number
  readonly remaining: number
}

export interface WaiterView {
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  readonly position: number
  readonly units: number
  readonly shared: boolean
  readonly priority: number
  readonly since: number
}

export interface ResourceView {
  readonly resource: string
  readonly capacity: number
  readonly grants: readonly GrantView[]
  readonly queue: readonly WaiterView[]
  /** The highest token shown to `fence`; 0 when none was. */
  readonly fence: number
}

export interface LeaseView {
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  readonly key: number
  readonly ttl: number
  readonly status: LeaseStatus
  readonly since: number
  readonly remaining: number
  readonly grants: readonly GrantView[]
  /** What a waiting lease waits for, with its place in each queue. */
  readonly wants: readonly { readonly resource: string; readonly units: number; readonly shared: boolean; readonly position: number }[]
  readonly entries: readonly { readonly key: string; readonly value: string }[]
  readonly labels: readonly (readonly [string, string])[]
  readonly parent: number
  readonly children: readonly number[]
  readonly recalled: boolean
}

export interface EntryView {
  readonly key: string
  readonly value: string
  readonly lease: number
  readonly holder: string
  readonly incarnation: number
  readonly status: LeaseStatus
  readonly revision: number
  readonly generation: number
  /** A registration that has come and gone too often. */
  readonly suppressed: boolean
  /** About how many ms its lease has left unless renewed. */
  readonly remaining: number
}

/** The registrations of one service, and what is done so that a hiccup does not empty it. */
export interface ServiceView {
  readonly service: string
  readonly instances: number
  readonly suspect: number
  readonly suppressed: number
  /** Too many are silent at once: their lapses are slowed. */
  readonly preserving: boolean
  /** Since when, by the wall, for people; 0 when it is not. */
  readonly since: number
  /** Lapsed in the present sweep. */
  readonly removed: number
}

export interface PastGrant {
  readonly lease: number
  readonly holder: string
  readonly token: number
  readonly since: number
  readonly until: number
  readonly cause: string
  readonly by?: string
  readonly revision: number
}

/** How much there is of everything. */
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

/** The figures are left out for who may not read everything. */
export interface Summary extends Partial<Figures> {
  readonly rules: number
  /** Nothing is granted until the log has been quiet for the longest ttl. */
  readonly quiet: boolean
  /** The leases of this log are in another, or on their way there (empty). */
  readonly moved?: string
}

interface QueryResults {
  summary: Summary
  lease: LeaseView | undefined
  leases: readonly LeaseView[]
  resource: ResourceView
  resources: readonly ResourceView[]
  entries: readonly EntryView[]
  services: readonly ServiceView[]
  history: readonly PastGrant[]
  policies: readonly { readonly prefix: string; readonly rules: PolicyRules }[]
  keys: readonly { readonly id: number; readonly name: string; readonly hash: string; readonly allow: readonly Scope[] }[]
}

export interface View<K extends Query['kind'] = Query['kind']> {
  /** The state it was read from. */
  readonly revision: number
  readonly value: QueryResults[K]
  /** There are others beyond the `limit` of the question. */
  readonly more?: true
}

/** Who is told what became of a proposal: exactly one of these is called, once, and perhaps before `submit` returns. */
export interface Completion {
  settle(outcome: Outcome): void
  fail(error: unknown): void
}

export interface Lessor extends AsyncDisposable {
  readonly profile: Profile
  /** Fires when this lessor will never answer again, with the reason: closed, disowned, diverged. */
  readonly signal: AbortSignal

  /**
   * Throws `UNAVAILABLE` when certainly not done, `UNKNOWN` when nobody can know, `DIVERGED` when the log lost its tail. The command belongs
   * to the lessor from here on: it must not be changed.
   */
  propose(command: Command, options?: ProposeOptions): Promise<Outcome>
  /** As `propose`, without a promise: a server answers so many that promises would be most of its garbage. Left out where that saves nothing. */
  submit?(command: Command, options: ProposeOptions, told: Completion): void
  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>>
  /** One array per revision. A gap is told by an array with one event of type `resync`: read anew, then go on from its revision. */
  watch(prefix: string, options: WatchOptions): AsyncIterable<readonly Event[]>
  /**
   * Everything, at the log's end, as the bytes of a backup file (src/replica/backup.ts); whoever carries them looks at none of them and leaves
   * none out. It contains the hashes of keys and every entry: over a wire it is for an administrator of everything (`admin` over the empty prefix).
   * Left out where it cannot be had. Stopping early, by `signal` or by leaving the loop, leaves nothing behind.
   */
  backup?(options?: { readonly signal?: AbortSignal }): AsyncIterable<Uint8Array>
  /** Of a replica: how far its log has come, for a client to show when it comes back. It must contain all that the client was answered. */
  readonly witness?: string | undefined
  /**
   * Of a replica: whether its log contains what `witness` tells of. False: the log went back, and whoever believes by what is lost must stop. Shown a
   * witness that the log itself has signed, an owner first begins a generation, which grants nothing for the longest term. Throws `UNAVAILABLE` while the
   * end of the log is not known.
   */
  continues?(witness: string): Promise<boolean>
  /** Of a client: tells each time the server turns out to have a log that went back. Returns what ends that. */
  onRewound?(tell: (why: LeaseError) => void): () => void
}

/** Tells what a promise brings. */
export function complete(told: Completion, answer: Promise<Outcome>): void {
  answer.then(
    outcome => told.settle(outcome),
    error => told.fail(error),
  )
}
