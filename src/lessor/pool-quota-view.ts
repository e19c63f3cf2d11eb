/** Views of the quotas of an account in a pool: for the week, and for kinds of members. */

/** The use of an account within a week of the log's own time, in unit-milliseconds. */
export interface PoolWeekView {
  readonly used: number
  readonly quota: number
  /** In how many ms it will have used less than its quota, if it uses nothing more. 0: it has. */
  readonly again: number
}

/** The members of one kind that an account holds. */
export interface PoolKindView {
  readonly kind: string
  readonly held: number
  readonly quota: number
}
