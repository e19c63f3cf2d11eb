/** A part of the replay hands this to the command: rows of a table, the same for programs, and bars for the plot. */
import type { BarGroup } from './plot.ts'

export interface Report {
  readonly head: readonly string[]
  readonly rows: readonly (readonly string[])[]
  /** One object for each row, for `--json`. */
  readonly facts: readonly object[]
  readonly bars: readonly BarGroup[]
  readonly plotTitle: string
}

/** Says on stderr what is being done. */
export type Progress = (text: string) => void

export function tableOf(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map(row => row[i]!.length)))
  return rows
    .map(row =>
      row
        .map((cell, i) => cell.padEnd(widths[i]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`
}
