// A chart of one group as SVG, without any package. Rows with peers become bars, ours first; rows that are only wanted below or above a limit become one bar and a mark at
// the limit. The chart has its own background, and colours for light and dark pages.
import { shown, shownRatio, shownWant } from './row.mjs'

const WIDTH = 860
const MARGIN = 20
/** Where bars begin, and how long the longest is. */
const LEFT = 330
const LONGEST = 300
const BAR = 16
const GAP = 6
const TITLE = 24
/** A limit is marked at this part of the longest bar, if the value is not far beyond it. */
const LIMIT_AT = 0.6

const STYLE = `
  .page { fill: #ffffff; stroke: #d0d7de }
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .head { font-size: 16px; font-weight: 600 }
  .row { font-weight: 600 }
  .quiet { fill: #57606a }
  .ours { fill: #0969da }
  .peer { fill: #8c959f }
  .limit { stroke: #1f2328; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #30363d }
    text { fill: #e6edf3 }
    .quiet { fill: #9198a1 }
    .ours { fill: #4493f8 }
    .peer { fill: #6e7681 }
    .limit { stroke: #e6edf3 }
  }`

export function escaped(text) {
  return String(text).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}

/** Draws the rows of a group. Rows without peers and without a limit are left to the table. */
export function chart(title, rows) {
  const blocks = rows.map(blockOf).filter(block => block !== undefined)
  let y = MARGIN + 30
  const drawn = blocks.map(({ height, draw }) => {
    const text = draw(y)
    y += height
    return text
  })
  const height = y + MARGIN - GAP
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-labelledby="title desc">`,
    `<title id="title">${escaped(title)}</title>`,
    `<desc id="desc">${escaped(blocks.map(({ said }) => said).join('; '))}</desc>`,
    `<style>${STYLE}\n</style>`,
    `<rect class="page" x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="6"/>`,
    `<text class="head" x="${MARGIN}" y="${MARGIN + 10}">${escaped(title)}</text>`,
    ...drawn,
    '</svg>',
    '',
  ].join('\n')
}

function blockOf(row) {
  if (row.failed !== undefined)
    return { height: TITLE + GAP, said: `${row.name}: not measured`, draw: y => heading(row.name, 'not measured', y) }
  if (row.peers.length > 0) return barsOf(row)
  return row.want === undefined ? undefined : limitOf(row)
}

function barsOf(row) {
  const bars = [{ ...row, name: 'Leasehold', ours: true }, ...row.peers]
  const most = Math.max(...bars.flatMap(({ median = 0 }) => median), Number.MIN_VALUE)
  const said = `${row.name}: ${bars.map(bar => `${bar.name} ${bar.failed === undefined ? shown(bar.median) : 'not measured'}`).join(', ')}`
  return {
    height: TITLE + bars.length * (BAR + GAP) + 2 * GAP,
    said,
    draw: top =>
      [
        heading(row.name, row.unit, top),
        ...bars.map((bar, i) => barLine(bar, top + TITLE + i * (BAR + GAP), (bar.median ?? 0) / most)),
      ].join('\n'),
  }
}

function barLine({ name, failed, median, ratio, want, verdict, ours }, y, share) {
  const label = `<text x="${LEFT - 10}" y="${y + 12}" text-anchor="end">${escaped(name)}</text>`
  if (failed !== undefined) return `${label}<text class="quiet" x="${LEFT}" y="${y + 12}">not measured</text>`
  const compared =
    ratio === undefined ? '' : `, ours ${shownRatio(ratio)}${want === undefined ? '' : ` (wanted ${shownWant(want, ' ×')}: ${verdict})`}`
  return `${label}${bar(y, share, ours)}<text class="quiet" x="${LEFT + lengthOf(share) + 8}" y="${y + 12}">${escaped(shown(median) + compared)}</text>`
}

function limitOf(row) {
  const limit = row.want.atLeast ?? row.want.atMost
  // A value far beyond the limit moves the mark to the left: the scale always begins at 0.
  const scale = Math.max(limit / LIMIT_AT, row.median, Number.MIN_VALUE)
  const share = row.median / scale
  const mark = LEFT + Math.round((limit / scale) * LONGEST)
  const text = `${shown(row.median)} ${row.unit} (wanted ${shownWant(row.want)}: ${row.verdict})`
  return {
    height: TITLE + BAR + 2 * GAP,
    said: `${row.name}: ${text}`,
    draw(top) {
      const y = top + TITLE
      const line = `<line class="limit" x1="${mark}" y1="${y - 3}" x2="${mark}" y2="${y + BAR + 3}"/>`
      const after = Math.max(LEFT + lengthOf(share), mark) + 8
      return `${heading(row.name, '', top)}\n${bar(y, share, true)}${line}<text class="quiet" x="${after}" y="${y + 12}">${escaped(text)}</text>`
    },
  }
}

function heading(name, unit, y) {
  const after = unit === '' ? '' : ` <tspan class="quiet" font-weight="400">${escaped(unit)}</tspan>`
  return `<text class="row" x="${MARGIN}" y="${y + 14}">${escaped(name)}${after}</text>`
}

/** Never invisible, however small the share. */
function lengthOf(share) {
  return Math.max(2, Math.round(Math.max(0, share) * LONGEST))
}

function bar(y, share, ours) {
  return `<rect class="${ours ? 'ours' : 'peer'}" x="${LEFT}" y="${y}" width="${lengthOf(share)}" height="${BAR}" rx="2"/>`
}
