/** A snapshot keeps here how long leases were held, by class of work. */
import { BINS, FOLDS, LONGEST_DURATION } from '../state/durations.ts'
import type { State } from '../state.ts'
import { Damaged, type Reader, type Writer } from './bytes.ts'

/** Copies the table: what is counted while a snapshot is taken is not written. */
export function durationsOf(state: State): readonly ((to: Writer) => void)[] {
  return [...state.durations].map(([name, { ended, died, counts, sums, squares }]) => {
    const bins: { readonly place: number; readonly count: number; readonly sum: number; readonly square: number }[] = []
    for (let place = 0; place < counts.length; place++)
      if (counts[place] !== undefined) bins.push({ place, count: counts[place]!, sum: sums[place]!, square: squares[place]! })
    return (to: Writer) => {
      to.text(name)
      to.uint(ended)
      to.uint(died)
      to.list(bins, ({ place, count, sum, square }) => {
        for (const n of [place, count, sum, square]) to.uint(n)
      })
    }
  })
}

export function readDurations(state: State, from: Reader): void {
  const [name, ended, died] = [from.text(), from.uint(), from.uint()]
  const counts: (number | undefined)[] = []
  const sums: (number | undefined)[] = []
  const squares: (number | undefined)[] = []
  from.list(() => {
    const [place, count, sum, square] = [from.uint(), from.uint(), from.uint(), from.uint()]
    if (place >= FOLDS * BINS || sum > count * LONGEST_DURATION) throw new Damaged(`the durations of ${name} are out of bounds`)
    counts[place] = count
    sums[place] = sum
    squares[place] = square
  })
  if (state.durations.has(name)) throw new Damaged(`the durations of ${name} are there twice`)
  state.durations.set(name, { ended, died, counts, sums, squares })
}
