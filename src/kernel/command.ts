/**
 * What can be asked of the kernel. Commands carry durations, never instants: nothing in a log may depend on whose clock it met.
 * Optional fields left out mean what their comment says; the encoding keeps only what was given.
 */

/** What one lease may ask for. */
export const MAX_RESOURCES = 256
export const MAX_ENTRIES = 64
export const MAX_LABELS = 32
/** Leases that one release names beside its own. */
export const MAX_STOPPED = 10_000
/** What hangs on one lease: the bytes are those of its keys and values in UTF-8. More than one request brings, and little enough for one turn of the loop. */
export const MAX_LEASE_ENTRIES = 1_024
export const MAX_LEASE_BYTES = 2 * 1_024 * 1_024

/** Units of one resource. Shared grants exclude exclusive ones and not each other; they take no units. */
export interface Want {
  readonly resource: string
  /** 1 unless said otherwise; always 1 when shared. */
  readonly units?: number
  readonly shared?: boolean
}

export interface Attachment {
  readonly key: string
  readonly value: string
  /**
   * Counted by whoever starts its owner: an older one never writes over a newer one, and a newer one takes the key over from whoever has
   * it. 0 unless said otherwise.
   */
  readonly generation?: number
}

/** A lease, with or without resources. All of `wants` or nothing, unless `any` asks for some. */
export interface Acquire {
  readonly kind: 'acquire'
  readonly holder: string
  /** The number that the kernel gave this holder's process with its first lease; left out, the new lease's id becomes that number. */
  readonly incarnation?: number
  readonly ttl: number
  readonly wants: readonly Want[]
  /** Any so many of `wants`; left out: all of them. */
  readonly any?: number
  /** Queue when it cannot be granted now; left out: be refused. */
  readonly wait?: boolean
  /** Higher goes first; 0 unless said otherwise, -1000 to 1000. */
  readonly priority?: number
  readonly entries?: readonly Attachment[]
  /** Ends with this lease, in the same revision. */
  readonly parent?: number
  readonly labels?: readonly (readonly [name: string, value: string])[]
  /** Leases that the asker keeps while it waits. Only what is declared here can close a waiting cycle: a guess would refuse the innocent. */
  readonly holding?: readonly number[]
  /** After the ttl ran out, how long the lease is merely suspect: still listed, still renewable, granted to nobody else. */
  readonly grace?: number
  /** Ends this long after it was granted, renewed or not. */
  readonly maxLife?: number
  /** Ends the present holders first. `after` waits until they have stopped believing; `force` does not, and is the one exception to S1. */
  readonly steal?: 'after' | 'force'
  /** Tells the present holders that someone waits. */
  readonly recall?: boolean
}

/** More to choose from, for a lease that waits for any so many of what it wants. It keeps its place, in the new queues too. */
export interface Widen {
  readonly kind: 'widen'
  readonly lease: number
  readonly wants: readonly Want[]
}

/** Never brings back what ended; the outcome says which are gone. */
export interface Renew {
  readonly kind: 'renew'
  readonly leases: readonly number[]
  /**
   * Only those that still wait: a server keeps the place of a waiter whose connection lives. It must not confirm a grant that the waiter
   * may never hear of, so a lease that was granted meanwhile is left alone and answered with 0.
   */
  readonly waiting?: boolean
}

/** Taking what was transferred to a name alone: the first process of that name to say so has it, and believes after a renewal. */
export interface Claim {
  readonly kind: 'claim'
  readonly lease: number
  /** Of the process that takes it. Left out: this is its first lease. */
  readonly incarnation?: number
}

/** A whole lease, or one of its grants. */
export interface Release {
  readonly kind: 'release'
  readonly lease: number
  readonly resource?: string
  /**
   * Leases that hang on it, however deep, and that their holder has stopped to believe in as well: they are released with it, in one revision. What hangs
   * on it and is not named here is frozen until its own holder has stopped.
   */
  readonly stopped?: readonly number[]
}

/** A timer has run for its duration. Counts only for the epoch it names: a renewal before it in the log has changed that. */
export interface Due {
  readonly kind: 'due'
  readonly timer: number
  readonly epoch: number
}

/** Timers are at least so old. Lower bounds, so that redeploys and crash loops make nothing immortal. */
export interface Aged {
  readonly kind: 'aged'
  readonly marks: readonly { readonly timer: number; readonly epoch: number; readonly ms: number }[]
}

/** All leases not renewed since the owned run `run` began are `ms` older than they were then. */
export interface AgedTogether {
  readonly kind: 'aged-together'
  readonly run: number
  readonly ms: number
}

/** A new run of the log begins: under an owner that may keep renewals in memory, or shared again. Written by replicas only. */
export interface Run {
  readonly kind: 'run'
  readonly owned: boolean
  /** Random, from rules version 2 on: tells this run from another of its number, should the log go back. */
  readonly nonce?: number
  /** Becomes the log's own where it has none yet (lineage.ts). */
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
  /** When given, only if the entry still hangs on this lease. */
  readonly lease?: number
}

/** Ends leases with all that hangs on them: one lease, all of a holder, or all that hold or want something under a prefix. */
export interface Revoke {
  readonly kind: 'revoke'
  readonly target: { readonly lease: number } | { readonly holder: string } | { readonly prefix: string }
  readonly force?: boolean
  readonly by?: string
}

/**
 * The grants go to another holder under a new lease and new tokens. The recipient renews before it believes, with its own key where it waits for
 * this or its incarnation is named and its key may acquire all of it; otherwise the giver's key stays.
 */
export interface Transfer {
  readonly kind: 'transfer'
  readonly lease: number
  readonly to: string
  readonly incarnation?: number
  /**
   * The holder itself says that it stopped believing before it sent this. Left out, as when an operator asks, the units are frozen until
   * the holder has stopped, and go to the recipient before anyone who waits.
   */
  readonly stopped?: boolean
}

/** Ends whoever holds the resource, `after` ms from now at the latest. A second break may only shorten. */
export interface Break {
  readonly kind: 'break'
  readonly resource: string
  readonly after?: number
  readonly by?: string
}

/** Tells the holders of a resource that someone would like it. */
export interface Recall {
  readonly kind: 'recall'
  readonly resource: string
  readonly by?: string
}

/** Rules for all names under a prefix; each field is taken from the longest prefix that has it. */
export interface PolicyRules {
  readonly ttlMin?: number
  readonly ttlMax?: number
  readonly capacity?: number
  /** After a lapse, and only then, the units stay withheld this long. */
  readonly lockDelay?: number
  /** At least this much grace, and at most this long a life, for what is asked for from now on. Of `any`, the rules of all that is named count. */
  readonly grace?: number
  readonly maxLife?: number
  /**
   * How long one may go on holding once another waits: counted once for a lease, from the first who waits for any of what it holds, and called off
   * only if nobody waits when it is over.
   */
  readonly maxHold?: number
  /** Leases, waiting or not, that one holder may have under the prefix. */
  readonly quota?: number
  /** Waiters allowed for one resource. */
  readonly waiters?: number
  /** `fifo`: nobody overtakes. `fit`: whoever fits may go past one who waits for more. */
  readonly queue?: 'fifo' | 'fit'
  /** A waiter gains one point of priority for so many ms of the log's own time; left out: never. */
  readonly aging?: number
  /** Leases in all, and leases made with one key. Read from the empty prefix only. */
  readonly leases?: number
  readonly leasesPerKey?: number
  /** Registrations (`services/SERVICE/INSTANCE`): what a lapse adds to the penalty of its key; 0: nothing is held against anyone. */
  readonly flapPenalty?: number
  /** In so many ms of the log's own time a penalty halves. */
  readonly flapHalfLife?: number
  /** Above this penalty a key is suppressed, until the penalty has fallen to `flapReuse`. */
  readonly flapSuppress?: number
  readonly flapReuse?: number
  /** Percent of a service's registrations that are expected to renew in time; with fewer, lapses are slowed. 0: never. */
  readonly preserveShare?: number
  /** A service of fewer registrations than this is neither preserved nor swept by shares. */
  readonly preserveLeast?: number
  /** How long one registration is kept at most for that reason, in ms. */
  readonly preserveMost?: number
  /** Percent of a service's registrations that may lapse in one sweep; 100: all of them. */
  readonly sweepShare?: number
}

export interface Policy {
  readonly kind: 'policy'
  readonly prefix: string
  /** Left out: the prefix has no rules of its own any more. */
  readonly rules?: PolicyRules
}

export const VERBS = ['acquire', 'renew', 'release', 'read', 'watch', 'register', 'break', 'revoke', 'policy', 'admin'] as const
export type Verb = (typeof VERBS)[number]

/** A verb allowed for all names under a prefix, by whole segments. */
export interface Scope {
  readonly verb: Verb
  readonly prefix: string
}

/** A key: who has the secret may do what `allow` says. Only the secret's hash is ever in a log. */
export interface CreateKey {
  readonly kind: 'key'
  readonly name: string
  readonly hash: string
  readonly allow: readonly Scope[]
}

export interface RevokeKey {
  readonly kind: 'unkey'
  readonly id: number
}

/** A resource owner's question: has a newer token been shown? */
export interface Fence {
  readonly kind: 'fence'
  readonly resource: string
  readonly token: number
}

/** The log's own sense of passing time, for fairness and statistics, never for an end. Counts only if `n` is the next one. */
export interface Tick {
  readonly kind: 'tick'
  readonly n: number
  readonly elapsed: number
}

/** Raises the rules version. Replicas that do not know the new rules stop and say so. */
export interface Upgrade {
  readonly kind: 'upgrade'
  readonly rules: number
}

/** After a log lost entries, or was restored: counters go above all that any survivor saw, and nothing is granted for `quiet` ms. */
export interface Generation {
  readonly kind: 'generation'
  readonly lease: number
  readonly token: number
  readonly revision: number
  readonly quiet: number
  /** The number of the next key: what answers to a lost one must not answer to another. */
  readonly key?: number
}

/**
 * The leases move to another log: nothing is decided in this one any more, and nothing lapses. Left without `to` while they are on their way;
 * with it, for good, and whoever asks is told where they are. `stay`: they stay after all; every timer begins anew.
 */
export interface Move {
  readonly kind: 'move'
  readonly to?: string
  readonly stay?: boolean
  /** With the second step: the revision of the first. Called off and begun again since, it is another's copy that counts. */
  readonly since?: number
  /** In the log they go to, and written by whoever carries them (src/replica/restore.ts): between the two steps nothing is decided there. */
  readonly into?: 'begin' | 'end'
}

export type Command =
  | Acquire
  | Widen
  | Renew
  | Claim
  | Release
  | Due
  | Aged
  | AgedTogether
  | Run
  | Put
  | Delete
  | Revoke
  | Transfer
  | Break
  | Recall
  | Policy
  | CreateKey
  | RevokeKey
  | Fence
  | Tick
  | Upgrade
  | Generation
  | Move

/** An operation of a client that may have to ask twice: the same session and number, the same effect and answer. */
export interface Operation {
  readonly session: string
  readonly seq: number
  /** The client has the answers up to here; they need not be kept. */
  readonly acked: number
  /**
   * It may have been sent before. Then even a refusal is written down: a first copy that is still on its way must meet it, or a client
   * told `HELD` could be granted later after all.
   */
  readonly again?: boolean
  /** What is asked, as a number (digest.ts): asked again under the same name for something else, it is refused. 0, or left out: it is not said. */
  readonly asked?: number
}

/** A command and who asks: the id of the key it came with, 0 for whoever has the store itself. */
export interface Proposal {
  readonly command: Command
  readonly key?: number
  readonly op?: Operation
}
