// `npm test` runs every part, several beside each other. `npm run test:quick` runs the parts that need no engine, no browser and no
// network.
//
// A part that hangs is ended and has failed. A part that is missing, or that ends without its count, has failed. The last line is
// `N passed, N failed` (with `, N skipped` if there are any), and the exit code agrees with it. With CI=true a skipped test is a failure.

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { install, root } from './build.mjs'
import { beside, byClosingLine, byExitCode, during, exitOnSignals, inTurn, judge, runPlan, uncounted } from './parts.mjs'

export { byClosingLine, judge }

const scratch = mkdtempSync(join(tmpdir(), 'leasehold-test-'))
const simulator = '.sim/sim/main.js'
/** At most this many failed or repeated tests are named before the closing line. */
const MAX_DETAILS = 20
/** So many test files are named at the end that took the most CPU: a file that wastes it slows all others, and nothing else shows that. */
const MAX_EXPENSIVE = 12
const cpuTimes = join(scratch, 'cpu-times.txt') // written by test/support/cpu-times.ts
/**
 * Only ends a part that hangs, in seconds. It is the same for all parts and far above what any of them takes, because on a busy machine each may have to wait
 * for all others. .github/workflows/ci.yml allows more.
 */
const HANGING = 4_500
/** Each part yields this far to the tests that watch real time. A little is enough: on a busy machine a part that yields by much more comes last of all. */
const INSTALLING = 2
const TESTING = 3
const COMPUTING = 5

/** For parts that download nothing: Node reads the file that this variable names at every start (test/support/certificates.ts). */
const LOCAL = { NODE_EXTRA_CA_CERTS: undefined }

const style = { name: 'style', seconds: HANGING, command: ['npm', 'run', '--silent', 'style'], nice: COMPUTING, count: byExitCode }
const types = { name: 'types', seconds: HANGING, command: ['npm', 'run', '--silent', 'types'], nice: COMPUTING, count: byExitCode }

/** Test files of one of the groups in vitest.config.ts. */
function vitest(name, group, options = {}) {
  const report = join(scratch, `${group}.json`)
  const command = ['node_modules/.bin/vitest', 'run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
  const { count = byVitest, ...more } = options
  return {
    name,
    seconds: HANGING,
    command,
    env: { LEASEHOLD_TEST: group, LEASEHOLD_CPU_TIMES: cpuTimes },
    count: (ended, say) => count({ ...ended, report }, say),
    ...more,
  }
}

/** With a large young generation, as `npm run sim`: most objects of a simulated world are short-lived. */
function simulation(name, ...args) {
  const command = ['node', '--min-semi-space-size=32', '--max-semi-space-size=64', simulator, ...args]
  return { name, seconds: HANGING, needs: simulator, command, env: LOCAL, nice: COMPUTING, count: byClosingLine }
}

/** Without the check of types: the part `types` checks the same files, and all others. */
const build = { name: 'build', seconds: HANGING, command: ['node', 'scripts/build.mjs', '--noCheck'], live: true, count: byExitCode }
/** Engines, the browser and other programs, of Debian's packages. */
const programs = vitest('installation of programs', 'programs', { optional: true, count: uncounted })
/** Other people's clients are installed and compiled from the first second on: the first time, that takes as long as the tests. */
const installation = vitest('installation of clients', 'installation', { nice: INSTALLING, optional: true, count: uncounted })
/** Tests that start processes and open sockets, and then those of faces with other people's clients. */
const realTime = inTurn(vitest('tests', 'outer', { live: true }), vitest('clients', 'clients', { live: true, count: byClients }))
const python = {
  name: 'python',
  seconds: HANGING,
  needs: '.sim/conformance/run.js',
  command: ['node', 'scripts/python.mjs'],
  env: LOCAL,
  count: byClosingLine,
}
/** Tests that only compute; then the clients in Python, which mostly wait. */
const inner = inTurn(vitest('inner tests', 'inner', { nice: TESTING }), python)
const computing = inTurn(
  style,
  types,
  // All seeds of sim/suite.ts, and whether the features of leases met in pairs.
  simulation('simulation', '--pairs'),
  simulation('planted bugs', '--planted'),
)

const all = during(inTurn(beside(build, programs), beside(realTime, inner, computing)), installation)
const quick = inTurn(
  { name: 'build', seconds: HANGING, command: ['node', 'scripts/build.mjs', '--stale', '--package'], live: true, count: byExitCode },
  { ...style, live: true },
  { ...types, live: true },
  vitest('quick tests', 'quick', { live: true, count: byVitestWithoutSkipped }),
)

async function main(plan) {
  const total = { passed: 0, failed: 0, skipped: 0 }
  const failures = []
  const details = []
  const began = performance.now()
  const results = install() ? await runPlan(plan) : [{ name: 'install', passed: 0, failed: 1, skipped: 0 }]
  for (const { name, passed, failed, skipped, failing = [] } of results) {
    total.passed += passed
    total.failed += failed
    total.skipped += skipped
    if (failed > 0) failures.push(name)
    details.push(...failing)
  }
  if (process.env.CI === 'true' && total.skipped > 0) {
    failures.push(`${total.skipped} skipped, which CI does not allow`)
    total.failed += total.skipped
    total.skipped = 0
  }
  if (existsSync(cpuTimes)) console.log(`\nthe files that took the most CPU:\n${mostExpensive(readFileSync(cpuTimes, 'utf8')).join('\n')}`)
  if (details.length > 0) console.log(`\n${details.slice(0, MAX_DETAILS).join('\n')}`)
  if (failures.length > 0) console.log(`\nfailed: ${failures.join(', ')}`)
  console.log(`\nall of it took ${Math.round((performance.now() - began) / 1_000)} s`)
  console.log(`${total.passed} passed, ${total.failed} failed${total.skipped > 0 ? `, ${total.skipped} skipped` : ''}`)
  process.exitCode = total.failed > 0 ? 1 : 0
}

/** The most expensive of `SECONDS FILE` lines, as lines. */
export function mostExpensive(text) {
  const files = text
    .trim()
    .split('\n')
    .map(line => line.split(' '))
    .sort(([one], [other]) => other - one)
  return files.slice(0, MAX_EXPENSIVE).map(([seconds, file]) => `${seconds.padStart(7)} s  ${relative(root, file)}`)
}

function byVitest({ code, report }, say) {
  if (!existsSync(report)) return byExitCode({ code: code || 1 })
  const { testResults, numPassedTests, numFailedTests, numPendingTests, numTodoTests } = JSON.parse(readFileSync(report, 'utf8'))
  // A file that could not be loaded has failed without a failing test.
  const broken = testResults.filter(file => file.status === 'failed' && !file.assertionResults.some(test => test.status === 'failed'))
  for (const test of testResults.flatMap(file => file.assertionResults)) {
    if (['pending', 'skipped', 'todo', 'disabled'].includes(test.status)) say(`skipped: ${test.fullName}`)
  }
  return {
    passed: numPassedTests,
    failed: numFailedTests + broken.length,
    skipped: numPendingTests + numTodoTests,
    failing: [...failingTests(testResults, broken), ...secondAttempts(testResults)],
  }
}

/** The tests that failed and then passed: only other people's own suites are repeated (test/support/foreign-suites.ts). */
export function secondAttempts(testResults) {
  return testResults
    .flatMap(file => file.assertionResults)
    .filter(({ status, failureMessages }) => status === 'passed' && failureMessages.length > 0)
    .map(({ fullName, failureMessages }) => `passed in the second attempt: ${fullName}: ${failureMessages[0].split('\n')[0].slice(0, 300)}`)
}

/** Each failed test with the start of its message, to be repeated at the end: the report itself is thousands of lines earlier. */
export function failingTests(testResults, broken = []) {
  const tests = testResults.flatMap(({ name, assertionResults }) =>
    assertionResults
      .filter(({ status }) => status === 'failed')
      .map(({ fullName, failureMessages }) => [name, fullName, failureMessages.join('\n')]),
  )
  const files = broken.map(({ name, message }) => [name, 'the file could not be run', message ?? ''])
  return [...tests, ...files].map(([file, what, message]) => {
    const start = message
      .split('\n')
      .slice(0, 8)
      .map(line => `  ${line.slice(0, 300)}`)
    return [`${relative(root, file)} > ${what}`, ...start].join('\n')
  })
}

/** As `byVitest`, and prints which client of which face did what it should. */
function byClients(ended, say) {
  const counted = byVitest(ended, say)
  const { report } = ended
  if (existsSync(report)) for (const line of clientMatrix(JSON.parse(readFileSync(report, 'utf8')).testResults)) say(line)
  return counted
}

/** One line for each test with a foreign client or its own test suite: the face, the result, and what was tried. */
export function clientMatrix(testResults) {
  const rows = testResults.flatMap(({ name, assertionResults }) => {
    const [, face] =
      /test\/face\/(\w+)\/(?:clients|suites?|contention)\.test\.ts$/.exec(name) ?? /test\/face\/(scene)\.test\.ts$/.exec(name) ?? []
    return face === undefined ? [] : assertionResults.map(({ status, fullName }) => [face, status, fullName])
  })
  return rows.sort().map(([face, status, what]) => `${face.padEnd(12)}${status.padEnd(9)}${what}`)
}

/** The quick loop leaves slow tests out on purpose. */
function byVitestWithoutSkipped(ended, say) {
  return { ...byVitest(ended, say), skipped: 0 }
}

process.on('exit', () => {
  rmSync(scratch, { recursive: true, force: true })
})

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  exitOnSignals()
  await main(process.argv.includes('--quick') ? quick : all)
}
