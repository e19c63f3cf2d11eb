/** Two indexes that a store keeps with each record, so that a renewal can be appended behind renewals that its writer has not read (`RenewalMark` in store.ts). */
import type { RenewalMark } from '../store.ts'

export interface LastMarks {
  /** The index of the last record that is no plain renewal. */
  readonly other: number
  /** The index of the last plain renewal whose writer reads. */
  readonly reads: number
}

export const NO_MARKS: LastMarks = { other: 0, reads: 0 }

/** The marks of the record at `index`. `before`: those of the record before it. */
export function marksAfter({ other, reads }: LastMarks, index: number, renewal: RenewalMark | undefined): LastMarks {
  if (renewal === undefined) return { other: index, reads }
  return { other, reads: renewal.reads ? index : reads }
}

/** Returns whether a renewal may be appended behind the record at `index`, which has these marks, without a look at what its writer missed. */
export function passes({ other, reads }: LastMarks, index: number, renewal: RenewalMark | undefined): boolean {
  const past = renewal?.past
  return past !== undefined && past.read < index && other <= past.read && reads > past.since
}
