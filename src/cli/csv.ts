/** Reads and writes tables as CSV (RFC 4180): cells are separated by commas, and quoted where they contain a comma, a quote or a line break. */

export interface CsvRow {
  /** The line of the file in which the row begins, from 1 on. */
  readonly line: number
  readonly cells: readonly string[]
}

/** A problem in a line. */
export interface CsvProblem {
  readonly line: number
  readonly problem: string
}

/** Returns the rows, without empty lines, or the first thing that is wrong. Cells lose the spaces around them unless they are quoted. */
export function parseCsv(text: string): readonly CsvRow[] | CsvProblem {
  const rows: CsvRow[] = []
  const cell = /\s*"((?:[^"]|"")*)"[^\S\n]*(?=,|\r?\n|$)|([^,"\n]*)(?=,|\n|$)/y
  let at = text.startsWith('\ufeff') ? 1 : 0
  for (let line = 1; at < text.length; ) {
    const cells: string[] = []
    const first = line
    for (;;) {
      cell.lastIndex = at
      const found = cell.exec(text)
      if (found === null) return { line, problem: 'a quote is not closed, or stands inside a cell that is not quoted' }
      const [whole, quoted, plain = ''] = found
      cells.push(quoted === undefined ? plain.trim() : quoted.replaceAll('""', '"'))
      line += whole.split('\n').length - 1
      at += whole.length
      if (text[at] !== ',') break
      at++
    }
    if (text[at] === '\r') at++
    at++ // the end of the line
    line++
    if (cells.some(cell => cell !== '')) rows.push({ line: first, cells })
  }
  return rows
}

/** One line without its end. */
export function csvLine(cells: readonly (string | number)[]): string {
  return cells.map(cell => (/[",\r\n]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : cell)).join(',')
}
