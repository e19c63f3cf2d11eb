/** The sketches of past durations that readers get. */
import { levelsOf } from '../kernel/rule/learn.ts'
import { BINS, type Durations } from '../kernel/state/durations.ts'
import type { State } from '../kernel/state.ts'
import type { SketchBin, SketchView } from '../lessor.ts'

/** Of all work, and of each level of the class that anything is known of. */
export function sketchViews(state: State, name: string): readonly SketchView[] {
  return levelsOf(name).flatMap(level => {
    const durations = state.durations.get(level)
    return durations === undefined ? [] : [sketchView(level, durations)]
  })
}

function sketchView(name: string, { ended, died, counts, sums, squares }: Durations): SketchView {
  const bins: SketchBin[] = []
  for (let bin = 0; bin < BINS; bin++) {
    const both = (list: Durations['counts']) => [list[bin] ?? 0, list[BINS + bin] ?? 0]
    const view = { bin, counts: both(counts), sums: both(sums), squares: both(squares) }
    if (view.counts.some(count => count > 0)) bins.push(view)
  }
  return { class: name, ended, died, bins }
}
