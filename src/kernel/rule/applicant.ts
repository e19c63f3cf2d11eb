/** A request or a waiter, as far as it matters for a grant. */
import type { Want } from '../command.ts'
import type { LeaseState } from '../state.ts'

export type WantedResource = Required<Want>

/** A request or a waiter that is considered for a grant. */
export interface Applicant {
  /** The number that suffices; 0: all. */
  readonly any: number
  readonly rank: number
  readonly id: number
  readonly permits?: number
  readonly covers?: boolean
  /** The holder's name, and the leases that it keeps. */
  readonly holder?: string
  readonly holding?: readonly number[]
}

/** A waiter that is considered. */
export function applicantOf({ id, holder, extras }: LeaseState): Applicant {
  const { any, rank, permits, covers, holding } = extras!
  return { any, rank, id, permits, covers, holder: holder.name, holding }
}
