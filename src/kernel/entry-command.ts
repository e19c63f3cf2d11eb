/** Comparisons and changes of entries: those of a transaction, and those that come with a grant or a release. */

/** Limits of one transaction: comparisons, changes of one branch, and the bytes of all keys and values together. */
export const MAX_COMPARISONS = 128
export const MAX_CHANGES = 128
export const MAX_TRANSACTION_BYTES = 1_024 * 1_024

/** A comparison looks at one of these. An entry that is not there has 0 for each number, and no value. */
export const COMPARED = ['created', 'revision', 'version', 'lease', 'value'] as const
export const RELATIONS = ['equal', 'unequal', 'less', 'greater'] as const
export type ComparedField = 'created' | 'revision' | 'version' | 'lease' | 'value'
export type Relation = 'equal' | 'unequal' | 'less' | 'greater'

/** True if the field of the entry is in this relation to `number` or, for its value, to `value`. No comparison of a missing value is true. */
export interface Comparison {
  readonly key: string
  readonly field: ComparedField
  readonly is: Relation
  /** Default: 0. */
  readonly number?: number
  /** Only for `value`, which is `equal` or `unequal`. Default: the empty value. */
  readonly value?: string
}

/** Puts or deletes one entry. */
export interface EntryChange {
  readonly key: string
  /** Default: the empty value. */
  readonly value?: string
  /** The entry ends with this lease. Left out: it hangs on no lease, and stays until it is deleted. */
  readonly lease?: number
  /** Delete the entry instead. One that is not there is left alone. */
  readonly delete?: boolean
}

/** A change of an entry that comes with a grant. */
export interface GrantChange extends EntryChange {
  /** The entry ends with the new lease. */
  readonly own?: boolean
}

/**
 * Changes entries in one revision, all or none: `success` if every comparison is true, otherwise `failure`. Only under prefixes whose policy allows free
 * entries (`PolicyRules.freeEntries`).
 */
export interface Transaction {
  readonly kind: 'transaction'
  readonly compare?: readonly Comparison[]
  readonly success?: readonly EntryChange[]
  readonly failure?: readonly EntryChange[]
}
