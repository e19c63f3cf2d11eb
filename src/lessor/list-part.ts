/** Which part of a list of leases or resources a reader asks for, and in which order. */

/** A page of a list can be sorted by these. `waiters` of a lease: the names it waits for. */
export type ListColumn = 'name' | 'holder' | 'since' | 'remaining' | 'waiters' | 'token'
export const LIST_COLUMNS: readonly ListColumn[] = ['name', 'holder', 'since', 'remaining', 'waiters', 'token']

/** States of resources, then those of leases. */
export type ListState = 'held' | 'waited' | 'frozen' | 'live' | 'waiting' | 'suspect'
export const LIST_STATES: readonly ListState[] = ['held', 'waited', 'frozen', 'live', 'waiting', 'suspect']

/** The most items in one page of a list. */
export const MAX_LIST_PAGE = 1_000

/** Which items of a list are returned, and in which order. */
export interface ListPart {
  /** A column, with a minus to begin with the largest. */
  readonly sort: ListColumn | `-${ListColumn}`
  /** @default 0 */
  readonly offset?: number
  /** Up to `MAX_LIST_PAGE`. @default 100 */
  readonly limit?: number
  /** Only items whose name or holder contains this text, in any case. */
  readonly text?: string
  /** Only items of exactly this holder. */
  readonly holder?: string
  readonly state?: ListState
  /** Only leases with this label: its key, and its value unless any will do. */
  readonly label?: readonly [key: string, value?: string]
  /** Only leases that begin a tree: with others below them, or sessions, which hold nothing themselves. @default false */
  readonly roots?: boolean
}
