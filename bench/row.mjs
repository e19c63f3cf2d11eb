// One row of the benchmark: what Leasehold did in several rounds, beside peers that did the same in the same minute, and what was wanted. A row is plain data: it
// is printed, written as JSON, drawn and shown in docs/numbers.md.

/** Wanted: a value, or a ratio to a peer, of at least this. */
export const atLeast = limit => ({ atLeast: limit })
/** Wanted: a value, or a ratio to a peer, of at most this. */
export const atMost = limit => ({ atMost: limit })

export function median(list) {
  if (list.length === 0) throw new Error('a median of nothing')
  const sorted = [...list].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** Median, lowest and highest of the rounds. */
export function spreadOf(rounds) {
  return { median: median(rounds), lowest: Math.min(...rounds), highest: Math.max(...rounds), rounds: rounds.length }
}

/** 'met', 'not met', or undefined if nothing was wanted. */
export function verdict(want, reached) {
  if (want === undefined) return undefined
  if (want.atLeast !== undefined) return reached >= want.atLeast ? 'met' : 'not met'
  return reached <= want.atMost ? 'met' : 'not met'
}

/**
 * Makes a row of what was measured.
 *
 * - `name`, `unit`
 * - `rounds`, or `value` if there was one round: what Leasehold did. `failed`: why it could not be measured.
 * - `want`: what is wanted of the value.
 * - `cpu`: the processor time of the server for an operation in each round, in µs.
 * - `peers`: each `{ name, rounds or value, failed, want, beside, about, cpu }`. Its ratio is Leasehold's median divided by the peer's. `beside` holds Leasehold's
 *   rounds next to those of this peer, if it did more rounds than the peer. `about` says which version, client and settings. Where the processor time of both
 *   servers is known, it decides whether the ratio that is wanted was reached: it changes less with the disk and with other work on the machine.
 */
export function rowOf({ name, unit, value, rounds = value === undefined ? [] : [value], cpu = [], failed, want, peers = [] }) {
  const ours = { ...figureOf(rounds, failed), ...cpuOf(cpu) }
  return {
    name,
    unit,
    ...ours,
    ...(want !== undefined && { want, verdict: ours.failed === undefined ? verdict(want, ours.median) : 'not measured' }),
    peers: peers.map(peer => peerOf(peer, ours)),
  }
}

function figureOf(rounds, failed) {
  if (failed !== undefined) return { failed }
  if (rounds.length === 0) return { failed: 'no round was measured' }
  if (!rounds.every(Number.isFinite)) return { failed: `a round is not a number: ${rounds.join(', ')}` }
  return spreadOf(rounds)
}

function cpuOf(rounds) {
  return rounds.length === 0 || !rounds.every(Number.isFinite) ? {} : { cpu: median(rounds) }
}

/** Divides the processor time of both so that it is compared with what is wanted of the ratio: more is better for rates, less for times. */
function cpuRatioOf({ cpu: ours }, { cpu: theirs }, want) {
  if (ours === undefined || theirs === undefined || ours === 0 || theirs === 0) return undefined
  return want?.atMost === undefined ? theirs / ours : ours / theirs
}

function peerOf({ name, about, value, rounds = value === undefined ? [] : [value], failed, want, beside, cpu = [] }, ours) {
  const figure = { ...figureOf(rounds, failed), ...cpuOf(cpu) }
  const measured = figure.failed === undefined && ours.failed === undefined
  const ratio = measured ? (beside === undefined || beside.length === 0 ? ours.median : median(beside)) / figure.median : undefined
  const cpuRatio = cpuRatioOf(ours, figure, want)
  return {
    name,
    ...(about !== undefined && { about }),
    ...figure,
    ...(ratio !== undefined && { ratio }),
    ...(measured && cpuRatio !== undefined && { cpuRatio }),
    ...(want !== undefined && { want, verdict: measured ? verdict(want, cpuRatio ?? ratio) : 'not measured' }),
  }
}

export function shown(value) {
  const size = Math.abs(value)
  if (size >= 1_000) return Math.round(value).toLocaleString('en')
  return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2)
}

/** The ratio with two digits that count. */
export function shownRatio(ratio) {
  return `${ratio >= 100 ? ratio.toFixed(0) : ratio >= 10 ? ratio.toFixed(1) : ratio.toFixed(2)} ×`
}

export function shownSpread({ lowest, highest, rounds }) {
  return rounds === 1 ? '' : `${shown(lowest)} to ${shown(highest)}`
}

/** Returns what was wanted, as `≥ 3 ×` or `≤ 450`. */
export function shownWant({ atLeast, atMost }, after = '') {
  return atLeast === undefined ? `≤ ${atMost.toLocaleString('en')}${after}` : `≥ ${atLeast.toLocaleString('en')}${after}`
}

const NAME = 66
const VALUE = 12
const SPREAD = 24

/** The lines that are printed for a row. */
export function linesOf(row) {
  return [line(row.name, row, row.unit), ...row.peers.map(peer => line(`  ${peer.name}`, peer, row.unit))]
}

function line(name, figure, unit) {
  if (figure.failed !== undefined) return `${name.padEnd(NAME)} not measured: ${oneLine(figure.failed)}`
  const { want, ratio, cpu, cpuRatio } = figure
  const compared = ratio === undefined ? '' : `  ours is ${shownRatio(ratio)}`
  const used = cpu === undefined ? '' : `  CPU ${shown(cpu)} µs${cpuRatio === undefined ? '' : ` (${shownRatio(cpuRatio)})`}`
  const wanted = want === undefined ? '' : `  wanted ${shownWant(want, ratio === undefined ? '' : ' ×')}: ${figure.verdict.toUpperCase()}`
  return `${name.padEnd(NAME)} ${shown(figure.median).padStart(VALUE)} ${unit.padEnd(12)} ${shownSpread(figure).padEnd(SPREAD)}${compared}${used}${wanted}`.trimEnd()
}

/** The first line that says something, bounded: an engine may print pages. */
export function oneLine(text) {
  const said = String(text)
    .split('\n')
    .map(each => each.trim())
    .find(each => each !== '')
  return (said ?? 'no reason given').slice(0, 300)
}
