// Shows results in the documents: `npm run bench -- --write-docs` writes what is between the marks in docs/performance.md (charts and what was wanted) and docs/numbers.md
// (every row), and the charts beside them.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { chart } from './chart.mjs'
import { shownMachine } from './machine.mjs'
import { readResults } from './results.mjs'
import { shown, shownRatio, shownSpread, shownWant } from './row.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const BEGIN = '<!-- npm run bench -- --write-docs writes from here -->'
const END = '<!-- to here -->'

/** The text with what stands between the marks replaced. */
export function withBlock(text, block) {
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)]
  if (begin < 0 || end < begin) throw new Error(`the page lacks ${BEGIN} and ${END}`)
  return `${text.slice(0, begin + BEGIN.length)}\n\n${block.trim()}\n\n${text.slice(end)}`
}

const cell = text => String(text).replaceAll('|', '\\|').replaceAll('\n', ' ')
const table = (head, rows) => [head, head.map(() => '---'), ...rows].map(cells => `| ${cells.map(cell).join(' | ')} |`).join('\n')

export function rowsOf({ parts }) {
  return Object.entries(parts).flatMap(([part, { rows, quick }]) => rows.map(row => ({ ...row, part, quick })))
}

const figure = ({ failed, median, unit }) => (failed === undefined ? `${shown(median)} ${unit}` : `not measured: ${failed}`)

/** Everything that was wanted: of a value, or of a ratio to a peer. */
function wanted(rows) {
  return rows.flatMap(row => [
    ...(row.want === undefined ? [] : [[row.name, shownWant(row.want, ` ${row.unit}`), figure(row), row.verdict, command(row)]]),
    ...row.peers
      .filter(({ want }) => want !== undefined)
      .map(peer => [
        `${row.name}, compared with ${peer.name}`,
        shownWant(peer.want, ' ×'),
        peer.ratio === undefined ? (peer.failed ?? row.failed ?? 'not measured') : shownRatio(peer.ratio),
        peer.verdict,
        command(row),
      ]),
  ])
}

const command = ({ part, quick }) => `\`${part}${quick ? ' --quick' : ''}\``

/** A sentence for each machine, with the days of its measurements. */
function measuredOn(groups) {
  const days = new Map()
  for (const { machine, at } of groups.flatMap(({ parts }) => Object.values(parts))) {
    const name = shownMachine(machine)
    days.set(name, new Set(days.get(name)).add(at.slice(0, 10)))
  }
  return [...days].map(([name, on]) => `Measured on ${name}, on ${[...on].sort().join(' and ')}.`)
}

/** Versions, clients and settings of the peers. */
function settings(rows) {
  const said = rows.flatMap(({ about, peers }) => [about, ...peers.map(peer => peer.about)]).filter(about => about !== undefined)
  return [...new Set(said)].sort()
}

/** For docs/performance.md. */
export function performanceBlock(groups) {
  const parts = groups.map(group => {
    const rows = rowsOf(group)
    const about = settings(rows)
    return [
      `### ${group.title}`,
      `\`npm run bench -- ${group.group}\``,
      `![${group.title}](images/performance-${group.group}.svg)`,
      ...(wanted(rows).length === 0 ? [] : [table(['what', 'wanted', 'reached', '', '`npm run bench --`'], wanted(rows))]),
      ...(about.length === 0 ? [] : [about.map(text => `- ${text}`).join('\n')]),
    ].join('\n\n')
  })
  return [...measuredOn(groups), ...parts].join('\n\n')
}

/** For docs/numbers.md. */
export function numbersBlock(groups) {
  const lines = groups.flatMap(group =>
    rowsOf(group).flatMap(row => [
      [command(row), row.name, figure(row), row.failed === undefined ? shownSpread(row) : '', ''],
      ...row.peers.map(peer => [
        '',
        `compared with ${peer.name}`,
        figure({ ...peer, unit: row.unit }),
        peer.failed === undefined ? shownSpread(peer) : '',
        peer.ratio === undefined ? '' : shownRatio(peer.ratio),
      ]),
    ]),
  )
  return [...measuredOn(groups), table(['`npm run bench --`', 'what', 'median', 'spread', 'ours ÷ peer'], lines)].join('\n\n')
}

/** Writes both pages and the charts. Returns the files. */
export function writeDocuments(names) {
  const groups = names.map(name => readResults(name)).filter(results => results !== undefined)
  if (groups.length === 0) throw new Error('there are no results yet: run npm run bench first')
  const pages = [
    ['docs/performance.md', performanceBlock(groups)],
    ['docs/numbers.md', numbersBlock(groups)],
  ].map(([path, block]) => [path, withBlock(readFileSync(join(root, path), 'utf8'), block)])
  const charts = groups.map(group => [`docs/images/performance-${group.group}.svg`, chart(group.title, rowsOf(group))])
  for (const [path, text] of [...pages, ...charts]) writeFileSync(join(root, path), text)
  return [...pages, ...charts].map(([path]) => path)
}
