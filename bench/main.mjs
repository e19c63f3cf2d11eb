// `npm run bench [-- NAME…] [--quick] [--json FILE] [--write-docs]`: measures Leasehold beside its peers and beside the bare work beneath it, in one run. Peers that this
// machine lacks are installed (bench/peers/provide.mjs), started with the same durability, and stopped at the end.
//
// Machines are noisy, so compare ratios. Run it on an otherwise idle machine.
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { namesOf, parseArguments, USAGE, UsageError } from './arguments.mjs'
import { chart } from './chart.mjs'
import { stopEngines } from './contenders.mjs'
import { rowsOf, writeDocuments } from './document.mjs'
import { groups, settingsOf } from './groups.mjs'
import { version } from './leasehold.mjs'
import { machine, shownMachine } from './machine.mjs'
import { Missing } from './peers/provide.mjs'
import { RESULTS, readResults, writeResults } from './results.mjs'
import { linesOf, oneLine, rowOf } from './row.mjs'

// Peers end with this process, whatever ends it.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(130))

// A client of a peer may fail outside of any call, for example when its server ends. The others are measured all the same.
const strayError = error => {
  process.exitCode = 1
  console.error('an error outside of any measurement:', error)
}
process.on('uncaughtException', strayError)
process.on('unhandledRejection', strayError)

/** Runs a part, and returns its rows. An error of the part is a row, too. */
async function measured(group, part, settings) {
  const began = performance.now()
  const rows = []
  const report = figures => {
    const row = { ...rowOf(figures), ...(figures.about !== undefined && { about: figures.about }) }
    rows.push(row)
    for (const line of linesOf(row)) console.log(line)
  }
  try {
    await groups[group].parts[part](report, settings)
  } catch (error) {
    report({ name: part, unit: '', failed: oneLine(error?.message ?? error) })
    // What is not installed cannot be measured. Everything else is our mistake, or a peer's that was not foreseen.
    if (!(error instanceof Missing)) {
      process.exitCode = 1
      console.error(error)
    }
  }
  const seconds = Number(((performance.now() - began) / 1_000).toFixed(1))
  return { at: new Date().toISOString(), quick: settings.quick, machine: machine(), seconds, rows }
}

function summary(results) {
  const judged = results
    .flatMap(({ rows }) => rows)
    .flatMap(row => [row, ...row.peers.map(peer => ({ ...peer, name: `${row.name}, compared with ${peer.name}` }))])
  const counted = verdict => judged.filter(each => each.verdict === verdict)
  console.log(
    `\nwanted: ${counted('met').length} met, ${counted('not met').length} not met, ${counted('not measured').length} not measured`,
  )
  for (const { name } of counted('not met')) console.log(`  NOT MET: ${name}`)
  for (const { name, failed } of judged.filter(each => each.failed !== undefined)) console.log(`  NOT MEASURED: ${name}: ${failed}`)
}

async function run({ chosen, quick, json }) {
  console.log(`Leasehold ${version} on ${shownMachine(machine())}`)
  if (quick) console.log('A quick run: rounds are few and short. Compare ratios, not figures.')
  const settings = settingsOf(quick)
  const all = {}
  for (const [i, { group, parts }] of chosen.entries()) {
    const { title, keepsEnginesFor } = groups[group]
    const began = performance.now()
    console.log(`\n${group}: ${title}`)
    const results = {}
    for (const part of parts) results[part] = await measured(group, part, settings)
    const said = Object.values(results).flatMap(({ rows }) => rows.flatMap(row => [row, ...row.peers]))
    for (const about of new Set(said.map(each => each.about).filter(each => each !== undefined))) console.log(`  with ${about}`)
    console.log(`${group} took ${((performance.now() - began) / 1_000).toFixed(0)} s`)
    const next = chosen[i + 1]?.group
    if (next === undefined || next !== keepsEnginesFor) await stopEngines()
    const kept = writeResults(group, title, results)
    for (const part of kept) console.log(`bench/results/${group}.json keeps its full run of ${part}`)
    writeFileSync(join(RESULTS, `${group}.svg`), chart(title, rowsOf(readResults(group))))
    all[group] = { title, parts: results }
  }
  summary(Object.values(all).flatMap(({ parts }) => Object.values(parts)))
  if (json === undefined) return
  mkdirSync(dirname(json), { recursive: true })
  writeFileSync(json, `${JSON.stringify({ version, quick, machine: machine(), groups: all }, null, 2)}\n`)
  console.log(`wrote ${json}`)
}

try {
  const given = parseArguments(process.argv.slice(2), groups)
  if (given.help) console.log(`${USAGE}\n\n${namesOf(groups)}`)
  else {
    if (given.chosen.length > 0) await run(given)
    if (given.writeDocs)
      console.log(
        writeDocuments(Object.keys(groups))
          .map(path => `wrote ${path}`)
          .join('\n'),
      )
  }
} catch (error) {
  process.exitCode = 1
  console.error(error instanceof UsageError ? error.message : error)
} finally {
  await stopEngines()
}
