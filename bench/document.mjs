// Shows results in docs/numbers.md: `npm run bench -- --write-docs` writes what is between its marks, every row with a chart for each group.
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
const spread = ({ failed, ...row }) => (failed === undefined ? shownSpread(row) : '')
const ratio = value => (value === undefined ? '' : unbroken(shownRatio(value)))
const command = ({ part, quick }) => `\`${part}${quick ? ' --quick' : ''}\``
/** For example `≥ 3 ×, not met`. */
const goal = ({ want, verdict }, unit) => (want === undefined ? '' : [unbroken(shownWant(want, unit)), verdict].filter(Boolean).join(', '))
const unbroken = text => text.replaceAll(' ', '\u00a0')

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

/** A row for each figure, with its part, and one for each peer. */
function tableOf(rows) {
  const knowsCpu = rows.some(({ peers }) => peers.some(({ cpuRatio }) => cpuRatio !== undefined))
  const cpu = cell => (knowsCpu ? [cell] : [])
  return table(
    ['what', 'median', 'spread', 'ours ÷ peer', ...cpu('by processor time'), 'goal'],
    rows.flatMap(row => [
      [`${command(row)}: ${row.name}`, figure(row), spread(row), '', ...cpu(''), goal(row, ` ${row.unit}`)],
      ...row.peers.map(peer => [
        `compared with ${peer.name}`,
        figure({ ...peer, unit: row.unit }),
        spread(peer),
        ratio(peer.ratio),
        ...cpu(ratio(peer.cpuRatio)),
        goal(peer, ' ×'),
      ]),
    ]),
  )
}

/** For docs/numbers.md: a chart and every row of each group, then the versions and settings of the peers. */
export function numbersBlock(groups) {
  const parts = groups.map(group =>
    [
      `### ${group.title}`,
      `\`npm run bench -- ${group.group}\``,
      `![${group.title}](images/performance-${group.group}.svg)`,
      tableOf(rowsOf(group)),
    ].join('\n\n'),
  )
  const about = settings(groups.flatMap(rowsOf))
  const compared = about.length === 0 ? [] : ['### Versions and settings', about.map(text => `- ${text}`).join('\n')]
  return [...measuredOn(groups), ...parts, ...compared].join('\n\n')
}

/** Writes the page and the charts. Returns the files. */
export function writeDocuments(names) {
  const groups = names.map(name => readResults(name)).filter(results => results !== undefined)
  if (groups.length === 0) throw new Error('there are no results yet: run npm run bench first')
  const page = ['docs/numbers.md', withBlock(readFileSync(join(root, 'docs/numbers.md'), 'utf8'), numbersBlock(groups))]
  const charts = groups.map(group => [`docs/images/performance-${group.group}.svg`, chart(group.title, rowsOf(group))])
  for (const [path, text] of [page, ...charts]) writeFileSync(join(root, path), text)
  return [page, ...charts].map(([path]) => path)
}
