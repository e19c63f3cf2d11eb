/**
 * The commands of the kernel. They carry durations, never instants: nothing in a log may depend on the clock of one machine. The comment
 * of an optional field says what it means to leave it out. command-table.ts has a row for each command, from which its encoding follows.
 */

import type { Comparison, EntryChange, GrantChange, Transaction } from './entry-command.ts'
import type { CreateKey, LimitKey, RevokeKey, RotateKey } from './key-command.ts'
import type { LossCause } from './loss-cause.ts'
import type { RevokePart } from './revoke-part.ts'

export * from './entry-command.ts'
export * from './key-command.ts'

/** Limits of one acquisition. */
export const MAX_RESOURCES = 256
export const MAX_ENTRIES = 64
export const MAX_LABELS = 32
/** Of the value of a label, in UTF-8. */
export const LABEL_BYTES = 1_024
/** Priorities are from -PRIORITY_LIMIT to PRIORITY_LIMIT. */
export const PRIORITY_LIMIT = 1_000
/** Other leases that one release may name. */
export const MAX_STOPPED = 10_000
/** Limits of what is attached to one lease; bytes are those of keys and values in UTF-8. One request cannot bring that much, and one turn of the event loop can handle it. */
export const MAX_LEASE_ENTRIES = 1_024
export const MAX_LEASE_BYTES = 2 * 1_024 * 1_024

/** Limits of one request of a pool. */
export const MAX_CONDITIONS = 16
export const MAX_CONDITION_VALUES = 64

/** Units of one resource. Shared grants exclude exclusive grants but not each other, and take no units. */
export interface Want {
  readonly resource: string
  /** Default: 1; always 1 when shared. */
  readonly units?: number
  readonly shared?: boolean
}

export interface Attachment {
  readonly key: string
  readonly value: string
  /**
   * Increases with each start of the owner: an older generation never overwrites a newer one, and a newer one takes the key over from any
   * lease that has it. Default: 0.
   */
  readonly generation?: number
}

/**
 * `in` and `not-in` compare texts, and a member without the label passes `not-in`. The others, except `absent` and `present`, compare plain
 * decimal numbers (`40`, `80.5`) with one value, and no member passes whose label is not one.
 */
export const POOL_TESTS = [
  'in',
  'not-in',
  'less',
  'at-most',
  'more',
  'at-least',
  'absent',
  'present',
] as const satisfies readonly PoolTest[]
export type PoolTest = 'in' | 'not-in' | 'less' | 'at-most' | 'more' | 'at-least' | 'absent' | 'present'

/** A condition on the labels of a member. */
export interface PoolCondition {
  readonly label: string
  readonly test: PoolTest
  /** One or more texts for `in` and `not-in`, none for `absent` and `present`, one number for the others. */
  readonly values?: readonly string[]
}

/**
 * Asks for members of a pool, all at once or nothing. The members are the entries `pool/NAME/MEMBER`, and what is granted are the resources
 * `NAME/MEMBER`. Which of them is decided when the request is granted: those with the least room first, then by name.
 */
export interface PoolRequest {
  readonly pool: string
  /** Members. Default: 1. */
  readonly count?: number
  /** Units of each member. Left out: all units, so that no other lease is on it. */
  readonly units?: number
  /** Instead of `count` and `units`: this many units in all, on as few members as possible. */
  readonly total?: number
  /** All of them must hold. */
  readonly match?: readonly PoolCondition[]
  /** All members have the same value of this label. */
  readonly near?: string
  /** The user or team, for shares and quotas. Left out: the name of the holder. */
  readonly account?: string
  /** For how many ms it will probably be held. It plans with this and never ends a lease by it; `maxLife` does. */
  readonly expect?: number
  /** It may be preempted for others: it is recalled, and ends after a notice. */
  readonly preemptible?: boolean
  /** A reservation: its window begins in so many ms of the log's own time, and lasts `maxLife`, which must be given. */
  readonly from?: number
}

/** Asks for a lease, with or without resources. It gets all of `wants` or nothing, unless `any` is given. */
export interface Acquire {
  readonly kind: 'acquire'
  readonly holder: string
  /** The number that the holder's process got with its first lease. Left out: the new lease's id becomes that number. */
  readonly incarnation?: number
  readonly ttl: number
  readonly wants: readonly Want[]
  /** The number of `wants` that suffice. Left out: all of them. */
  readonly any?: number
  /** Queue if it cannot be granted now. Left out: be refused. */
  readonly wait?: boolean
  /** -1000 to 1000; higher goes first. Default: 0. */
  readonly priority?: number
  readonly entries?: readonly Attachment[]
  /** The new lease ends with this one, in the same revision. */
  readonly parent?: number
  readonly labels?: readonly (readonly [name: string, value: string])[]
  /** Leases that the client keeps while it waits. Only leases named here count for deadlocks: a guess would refuse clients that are in none. */
  readonly holding?: readonly number[]
  /** The lease is suspect this long after its ttl: still listed and renewable, and not granted to others. */
  readonly grace?: number
  /** The lease ends this long after it was granted, renewed or not. */
  readonly maxLife?: number
  /** Ends the present holders first. `after` waits until they have stopped; `force` does not, and is the one exception to S1. */
  readonly steal?: 'after' | 'force'
  /** Tells the present holders that a client waits. */
  readonly recall?: boolean
  /** Members of a pool instead of named resources: `wants` is empty then. */
  readonly pool?: PoolRequest
  /**
   * The units of each resource that may be in use at once, in the opinion of this lease: a grant keeps to the smallest number of all leases on the resource.
   * A lease without this has that of the policies, by default 1, and a policy that states a capacity bounds all of them. Not with `any`, `pool` or shared wants.
   */
  readonly permits?: number
  /**
   * Claim each name with all names below it (`NAME/…`): it conflicts with every claim there and with every covering claim above, unless both are shared. Leases in
   * `holding` with the same holder name are no obstacle. Not with `any`, `permits`, units or pools. Left out: each name stands for itself.
   */
  readonly covers?: boolean
  /** All of them must be true, otherwise nothing is granted. Not with `wait`, `pool` or `entries`. */
  readonly compare?: readonly Comparison[]
  /**
   * Changes of entries in the revision of the grant, under the rules of a transaction. Not with `wait`, `pool` or `entries`. Such a lease needs no renewal before its
   * whole term begins: clients that read the entries rely on it at once.
   */
  readonly changes?: readonly GrantChange[]
}

/**
 * Lets a lease that holds members of a pool live longer than its `maxLife` says, unless a waiter or a reservation needs them.
 */
export interface Extend {
  readonly kind: 'extend'
  readonly lease: number
  /** Ms by which its life gets longer. Policies still cap the whole. */
  readonly by: number
}

/** Adds resources to a waiting lease that was acquired with `any`. It keeps its place, in the new queues too. */
export interface Widen {
  readonly kind: 'widen'
  readonly lease: number
  readonly wants: readonly Want[]
}

/** Renews leases. One that has ended stays ended; the outcome says which are gone. */
export interface Renew {
  readonly kind: 'renew'
  readonly leases: readonly number[]
  /**
   * Renew only leases that still wait: a server does so for waiters with a live connection. It must not confirm a grant that the waiter may
   * never learn of, so a lease that was granted meanwhile is not renewed, and answered with 0.
   */
  readonly waiting?: boolean
  /**
   * The ttl that the leases have from now on. It lengthens only: a copy of this command that arrives late must not shorten a term that its holder
   * relies on by then. A longer one than policies allow is shortened to that.
   */
  readonly ttl?: number
}

/** Takes a lease that was transferred to a name without an incarnation. The first process of that name gets it, and may use it after a renewal. */
export interface Claim {
  readonly kind: 'claim'
  readonly lease: number
  /** Of the process that takes the lease. Left out: this is its first lease. */
  readonly incarnation?: number
}

/** Gives back a whole lease, or one of its grants. */
export interface Release {
  readonly kind: 'release'
  readonly lease: number
  readonly resource?: string
  /**
   * Descendants of the lease that their holder has stopped using as well: they are released with it, in one revision. Descendants that are
   * not named here are frozen until their own holder has stopped.
   */
  readonly stopped?: readonly number[]
  /** For how many ms the lease was held, by the holder's own clock. For statistics only (rule/learn.ts). */
  readonly ran?: number
  /** The holder has lost the lease and stopped, and this is why. It ends as `lapsed`, with this cause. */
  readonly lost?: LossCause
  /** All of them must be true, otherwise nothing is released. Not with `resource`; neither are `changes`. With either, a lease that is frozen counts as gone. */
  readonly compare?: readonly Comparison[]
  /** Changes of entries in the revision of the release, under the rules of a transaction. */
  readonly changes?: readonly EntryChange[]
}

/** A timer has expired. It counts only for the epoch that it names: a renewal earlier in the log has started a new epoch. */
export interface Due {
  readonly kind: 'due'
  readonly timer: number
  readonly epoch: number
}

/** Timers have run for at least `ms`. With these lower bounds, redeploys and crash loops cannot keep a lease alive forever. */
export interface Aged {
  readonly kind: 'aged'
  readonly marks: readonly { readonly timer: number; readonly epoch: number; readonly ms: number }[]
}

/** Every lease that was not renewed since the owned run `run` began is `ms` older than it was then. */
export interface AgedTogether {
  readonly kind: 'aged-together'
  readonly run: number
  readonly ms: number
}

/** A new run of the log begins, under an owner that may keep renewals in memory, or shared again. Written by replicas only. */
export interface Run {
  readonly kind: 'run'
  readonly owned: boolean
  /** Random. It tells this run from another one of the same number, if the log was rolled back. */
  readonly nonce?: number
  /** Becomes the log's secret if it has none yet (lineage.ts). */
  readonly secret?: string
}

export interface Put {
  readonly kind: 'put'
  readonly lease: number
  readonly key: string
  readonly value: string
  /** As for an Attachment. */
  readonly generation?: number
}

export interface Delete {
  readonly kind: 'delete'
  readonly key: string
  /** Delete only if the entry is still attached to this lease. */
  readonly lease?: number
}

/** Ends leases with their descendants and entries: one lease, all of a holder, or all that hold or want a name under a prefix. */
export interface Revoke extends RevokePart {
  readonly kind: 'revoke'
  readonly target: { readonly lease: number } | { readonly holder: string } | { readonly prefix: string }
  readonly force?: boolean
  readonly by?: string
}

/**
 * Gives the grants to another holder, under a new lease and new tokens. The recipient renews before it uses them. The new lease belongs to
 * the recipient's key if the recipient waits for this or its incarnation is named, and its key may acquire all of it; otherwise to the
 * giver's key.
 */
export interface Transfer {
  readonly kind: 'transfer'
  readonly lease: number
  readonly to: string
  readonly incarnation?: number
  /**
   * The holder itself says that it stopped before it sent this. Left out, as by an operator: the units are frozen until the holder has
   * stopped, and then go to the recipient before any waiter.
   */
  readonly stopped?: boolean
}

/** Ends the leases that hold the resource, at most `after` ms from now. A second break can only shorten that. */
export interface Break {
  readonly kind: 'break'
  readonly resource: string
  readonly after?: number
  readonly by?: string
}

/** Tells the holders of a resource that another client would like it. */
export interface Recall {
  readonly kind: 'recall'
  readonly resource: string
  readonly by?: string
}

/** Rules for all names under a prefix. Each rule is taken from the longest prefix that has it. */
export interface PolicyRules {
  readonly ttlMin?: number
  readonly ttlMax?: number
  readonly capacity?: number
  /** After a lapse, and only then, the units are withheld this long. */
  readonly lockDelay?: number
  /** The least grace and the longest life of leases acquired from now on. With `any`, the rules of all named resources count. */
  readonly grace?: number
  readonly maxLife?: number
  /**
   * A holder may keep its resources this long while another client waits for one of them. It is counted once for a lease, from its first
   * waiter, and has no effect if no client waits when it is over.
   */
  readonly maxHold?: number
  /** Leases, waiting or not, that one holder may have under the prefix. */
  readonly quota?: number
  /** Waiters allowed for one resource. */
  readonly waiters?: number
  /**
   * `fifo`: no waiter overtakes another. `fit`: a waiter that fits may overtake one that waits for more units. Of pools only: `backfill`, a
   * waiter may overtake if that does not delay the first one; `fair`, the waiters of the account that used least come first.
   */
  readonly queue?: 'fifo' | 'fit' | 'backfill' | 'fair'
  /** A waiter gains one point of priority for each such number of ms of the log's own time. Left out: never. */
  readonly aging?: number
  /** Limits of leases in all, and of leases made with one key. Read from the empty prefix only. */
  readonly leases?: number
  readonly leasesPerKey?: number
  /** Registrations (`services/SERVICE/INSTANCE`): what a lapse adds to the penalty of its key; 0: no penalties. */
  readonly flapPenalty?: number
  /** A penalty halves in this many ms of the log's own time. */
  readonly flapHalfLife?: number
  /** A key with a penalty above this is suppressed until the penalty has fallen to `flapReuse`. */
  readonly flapSuppress?: number
  readonly flapReuse?: number
  /** Percent of a service's registrations that are expected to renew in time; with fewer, lapses are slowed. 0: never. */
  readonly preserveShare?: number
  /** A service of fewer registrations than this is neither preserved nor swept by shares. */
  readonly preserveLeast?: number
  /** The longest time that one registration is kept for that reason, in ms. */
  readonly preserveMost?: number
  /** Percent of a service's registrations that may lapse in one sweep; 100: all of them. */
  readonly sweepShare?: number
  /** Pools: the usage of an account halves in this many ms of the log's own time. */
  readonly shareHalfLife?: number
  /** Pools: what each grant adds to the usage of its account, in unit-ms. */
  readonly sharePenalty?: number
  /** Of `POOL/accounts/ACCOUNT`: an account with twice the weight gets twice the share. */
  readonly shareWeight?: number
  /** Of `POOL/accounts/ACCOUNT`: units that the account may hold. 0: any number. */
  readonly quotaUnits?: number
  /** Of `POOL/accounts/ACCOUNT`: units that it may hold beyond its quota while no waiter within its own quota needs them. */
  readonly quotaBorrow?: number
  /** Of `POOL/accounts/ACCOUNT`: unit-milliseconds that it may use in a week of the log's own time. 0: any number. */
  readonly quotaWeek?: number
  /** Pools: `marked`: waiters may preempt leases that are preemptible, that borrow or that overtook. */
  readonly preempt?: 'none' | 'marked'
  /** Pools: a lease is not preempted before it has held its members this long, in ms. */
  readonly minHold?: number
  /** Pools: how long before its end the holder of a preempted lease is told, in ms. */
  readonly preemptNotice?: number
  /** Entries without a lease that there may be under the prefix that sets this. Default: 0, which refuses every transaction. */
  readonly freeEntries?: number
  /** The bytes of their keys and values together. */
  readonly freeBytes?: number
}

export interface Policy {
  readonly kind: 'policy'
  readonly prefix: string
  /** Left out: the prefix loses its rules. */
  readonly rules?: PolicyRules
}

/** The owner of a protected resource asks whether a newer token has been seen. */
export interface Fence {
  readonly kind: 'fence'
  readonly resource: string
  readonly token: number
}

/** Advances the log's own time, which serves fairness and statistics and never ends a lease. It counts only if `n` is the next number. */
export interface Tick {
  readonly kind: 'tick'
  readonly n: number
  readonly elapsed: number
}

/** Raises the rules version. Replicas that do not know the new rules stop with an error. */
export interface Upgrade {
  readonly kind: 'upgrade'
  readonly rules: number
}

/** After a log lost records, or was restored: raises the counters above all that a survivor saw. Nothing is granted for `quiet` ms. */
export interface Generation {
  readonly kind: 'generation'
  readonly lease: number
  readonly token: number
  readonly revision: number
  readonly quiet: number
  /** The number of the next key: leases of a lost key must not belong to another key. */
  readonly key?: number
}

/**
 * The leases move to another log: this log decides nothing any more, and no lease lapses. Without `to`, the move has begun. With `to`, it is
 * final, and clients are told the new place. `stay` calls the move off: every timer starts again.
 */
export interface Move {
  readonly kind: 'move'
  readonly to?: string
  readonly stay?: boolean
  /** Before the first step: the leases will move to `to`, and this log still decides. Without `to`, they will not. */
  readonly prepare?: boolean
  /** With the second step: the revision of the first. It tells this move from another one that began after this one was called off. */
  readonly since?: number
  /** In the log that the leases move to, written by src/replica/restore.ts. Between the two steps that log decides nothing. */
  readonly into?: 'begin' | 'end'
}

export type Command =
  | Acquire
  | Widen
  | Renew
  | Claim
  | Extend
  | Release
  | Due
  | Aged
  | AgedTogether
  | Run
  | Put
  | Delete
  | Transaction
  | Revoke
  | Transfer
  | Break
  | Recall
  | Policy
  | CreateKey
  | RotateKey
  | LimitKey
  | RevokeKey
  | Fence
  | Tick
  | Upgrade
  | Generation
  | Move

/** An operation that a client may have to send twice: the same session and number have one effect and one answer. */
export interface Operation {
  readonly session: string
  readonly seq: number
  /** The client has the answers up to this number; they need not be kept. */
  readonly acked: number
  /**
   * It may have been sent before. Then even a refusal is written to the log, for a first copy that is still on its way: otherwise a client
   * that was refused with `HELD` could be granted the lease later.
   */
  readonly again?: boolean
  /** A digest of the command (digest.ts). The same operation with another digest is refused. 0 or left out: unknown. */
  readonly asked?: number
}

/** A command and the id of the key it came with; 0 for a proposer that has the store itself. */
export interface Proposal {
  readonly command: Command
  readonly key?: number
  readonly op?: Operation | undefined
}
