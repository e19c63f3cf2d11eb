/** The commands that govern API keys: what a key may do, what its requests may say, and how much it may have. */

export const VERBS = ['acquire', 'renew', 'release', 'read', 'watch', 'register', 'break', 'revoke', 'policy', 'admin'] as const
export type Verb = (typeof VERBS)[number]

/** A verb allowed for all names under a prefix, by whole segments. */
export interface Scope {
  readonly verb: Verb
  readonly prefix: string
}

/** Names in one list of a key. */
export const MAX_KEY_NAMES = 64

/** The requests of a key may say this. A name that ends with `*` stands for all names that begin so. */
export interface KeyBounds {
  /** The accounts of pools that it may use; the first is used where a request names none. Left out: any. */
  readonly accounts?: readonly string[]
  /** The holder names that it may use, beside its own name. Left out: any. */
  readonly holders?: readonly string[]
  /** The priorities that it may use. A request that names none gets the one nearest to 0. Left out: any. */
  readonly priority?: PriorityRange
  /** It may not name members of a pool, only ask the pool for some. */
  readonly noMembers?: boolean
}

export interface PriorityRange {
  readonly low: number
  readonly high: number
}

/** A key, or all keys of a group together, may have this much. What is left out is not limited. */
export interface KeyLimits {
  /** Leases, waiting or not. */
  readonly leases?: number
  /** Leases that wait. */
  readonly waiters?: number
  /** Entries of its leases, entries that its waiters bring, and entries without a lease that it was the last to write. */
  readonly entries?: number
  /** The bytes of their keys and values. */
  readonly bytes?: number
  /** Open connections to one server. Servers check this and the next two, each for itself. */
  readonly connections?: number
  /** Requests in a second to one server, without renewals and releases. */
  readonly requests?: number
  /** Requests that may come at once. Left out: as many as in a second. */
  readonly burst?: number
}

/** A key, or all keys of a group together, have this much. */
export interface KeyUse {
  leases: number
  waiters: number
  entries: number
  bytes: number
}

/** Creates a key: a client with its secret may do what `allow` says. A log has only the secret's hash. */
export interface CreateKey extends KeyBounds {
  readonly kind: 'key'
  readonly name: string
  readonly hash: string
  readonly allow: readonly Scope[]
  /** Keys of the same group share the limits of the group. */
  readonly group?: string
  readonly limits?: KeyLimits
  /** Unix time in ms by the wall clock of the servers, which refuse the key from then on. Left out: it does not expire. */
  readonly expires?: number
}

/** Gives a key a new secret. Its leases stay its own. */
export interface RotateKey {
  readonly kind: 'rotate'
  readonly id: number
  readonly hash: string
  /** For how many ms the former secret stays valid. Left out: every former secret ends now. */
  readonly overlap?: number
  /** The new time of expiry. Left out: it stays as it is. */
  readonly expires?: number
}

/** Sets the limits of a key or of a group. */
export interface LimitKey {
  readonly kind: 'limit'
  readonly id?: number
  readonly group?: string
  /** In place of all present limits. Left out: there are none. */
  readonly limits?: KeyLimits
}

export interface RevokeKey {
  readonly kind: 'unkey'
  readonly id: number
}
