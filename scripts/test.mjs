// `npm test` runs every part in turn, each within its time budget. `npm run test:quick` runs the parts that need no engine, no browser and no network.
//
// A part that exceeds its budget is ended and has failed. A part that is missing, or that ends without its count, has failed. The last line is
// `N passed, N failed` (with `, N skipped` if there are any), and the exit code agrees with it. With CI=true a skipped test is a failure.

import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { install, root } from './build.mjs'

const scratch = mkdtempSync(join(tmpdir(), 'leasehold-test-'))
const report = join(scratch, 'vitest.json')
const simulator = '.sim/sim/main.js'
/** Tests of faces with other people's clients. */
const CLIENTS = 'test/face/**'
/** At most this many failed or repeated tests are named before the closing line. */
const MAX_DETAILS = 20

const style = { name: 'style', seconds: 40, command: ['npm', 'run', '--silent', 'style'], count: byExitCode }
const types = { name: 'types', seconds: 60, command: ['npm', 'run', '--silent', 'types'], count: byExitCode }
const vitest = ['node_modules/.bin/vitest', 'run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`]

// Budgets are well above what each part takes on two idle cores, because a busy machine must pass as well: the tests take about 1,500 s there, the clients
// about 500 s with nothing installed, and the others less than half of their budget. The sum is below an hour.
const allParts = [
  { name: 'build', seconds: 80, command: ['npm', 'run', '--silent', 'build'], count: byExitCode },
  style,
  types,
  { name: 'tests', seconds: 2_070, command: [...vitest, '--exclude', CLIENTS], count: byVitest },
  // Installs and compiles clients in four languages, which takes longer than the tests.
  { name: 'clients', seconds: 780, command: [...vitest, 'test/face/'], count: byClients },
  { name: 'python', seconds: 170, needs: '.sim/conformance/run.js', command: ['node', 'scripts/python.mjs'], count: byClosingLine },
  { name: 'simulation', seconds: 70, needs: simulator, command: ['node', simulator, '--seeds', '25'], count: byClosingLine },
  {
    name: 'simulation of agents',
    seconds: 50,
    needs: simulator,
    command: ['node', simulator, '--profile', 'agents', '--seeds', '5'],
    count: byClosingLine,
  },
  { name: 'planted bugs', seconds: 260, needs: simulator, command: ['node', simulator, '--planted'], count: byClosingLine },
]
const quickParts = [
  { name: 'build', seconds: 120, command: ['node', 'scripts/build.mjs', '--stale', '--package'], count: byExitCode },
  style,
  types,
  { name: 'quick tests', seconds: 600, command: vitest, env: { LEASEHOLD_TEST: 'quick' }, count: byVitestWithoutSkipped },
]

const closing = /^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/
let running // the process group of the part under way, which must not outlive this process

async function main(parts) {
  const total = { passed: 0, failed: 0, skipped: 0 }
  const failures = []
  const details = []
  if (!install()) {
    failures.push('install')
    total.failed++
  } else {
    for (const part of parts) {
      const { passed, failed, skipped, failing = [] } = await judge(part)
      total.passed += passed
      total.failed += failed
      total.skipped += skipped
      if (failed > 0) failures.push(part.name)
      details.push(...failing)
    }
  }
  if (process.env.CI === 'true' && total.skipped > 0) {
    failures.push(`${total.skipped} skipped, which CI does not allow`)
    total.failed += total.skipped
    total.skipped = 0
  }
  if (details.length > 0) console.log(`\n${details.slice(0, MAX_DETAILS).join('\n')}`)
  if (failures.length > 0) console.log(`\nfailed: ${failures.join(', ')}`)
  console.log(`${total.passed} passed, ${total.failed} failed${total.skipped > 0 ? `, ${total.skipped} skipped` : ''}`)
  process.exitCode = total.failed > 0 ? 1 : 0
}

/** Runs one part and returns its counts. */
export async function judge(part) {
  console.log(`\n== ${part.name} (at most ${part.seconds} s)`)
  if (part.needs && !existsSync(join(root, part.needs))) {
    console.log(`${part.needs} does not exist: nothing was run`)
    return { passed: 0, failed: 1, skipped: 0 }
  }
  const began = performance.now()
  const ended = await run(part)
  if (ended.overdue) console.log(`${part.name}: not finished after ${part.seconds} s, ended`)
  const counted = part.count(ended)
  // A part that counted its successes and then died has not passed.
  if (ended.code !== 0 && counted.failed === 0) counted.failed = 1
  if (counted.failed > 0 && ended.lastLines.length > 0) counted.failing = [[`the end of ${part.name}:`, ...ended.lastLines].join('\n  ')]
  console.log(`== ${part.name}: ${counted.failed > 0 ? 'failed' : 'passed'} in ${Math.round((performance.now() - began) / 1_000)} s`)
  return counted
}

/** Each part leads its own process group, so that everything it starts can be ended by that one id. */
function run({ name, command: [program, ...args], env = {}, seconds, count }) {
  return new Promise(resolve => {
    const readLines = count === byClosingLine
    const child = spawn(program, args, {
      cwd: root,
      env: { ...process.env, ...env },
      detached: true,
      stdio: ['ignore', readLines ? 'pipe' : 'inherit', 'inherit'],
    })
    running = child.pid
    const ended = { code: 1, overdue: false, count: '', lastLines: [] }
    if (readLines) {
      createInterface({ input: child.stdout }).on('line', line => {
        if (closing.test(line)) ended.count = line
        else ended.lastLines = [...ended.lastLines.slice(-14), line]
        console.log(closing.test(line) ? `${name}: ${line}` : line) // only the last line of all may look like a closing line
      })
    }
    const budget = setTimeout(() => {
      ended.overdue = true
      endGroup(child.pid)
    }, seconds * 1000)
    child.on('error', error => console.log(String(error)))
    child.on('close', code => {
      clearTimeout(budget)
      endGroup(child.pid) // processes that it left behind
      running = undefined
      ended.code = ended.overdue ? 1 : (code ?? 1)
      resolve(ended)
    })
  })
}

function endGroup(pid) {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // The group is empty.
  }
}

function byExitCode({ code }) {
  return { passed: code === 0 ? 1 : 0, failed: code === 0 ? 0 : 1, skipped: 0 }
}

/** For parts that end with a line like ours. Without that line it is unknown what was run, whatever the exit code. */
export function byClosingLine({ count }) {
  const counted = count.match(closing)
  if (!counted) {
    console.log('it ended without a count')
    return { passed: 0, failed: 1, skipped: 0 }
  }
  return { passed: Number(counted[1]), failed: Number(counted[2]), skipped: Number(counted[3] ?? 0) }
}

function byVitest({ code }) {
  if (!existsSync(report)) return byExitCode({ code: code || 1 })
  const { testResults, numPassedTests, numFailedTests, numPendingTests, numTodoTests } = JSON.parse(readFileSync(report, 'utf8'))
  // A file that could not be loaded has failed without a failing test.
  const broken = testResults.filter(file => file.status === 'failed' && !file.assertionResults.some(test => test.status === 'failed'))
  for (const test of testResults.flatMap(file => file.assertionResults)) {
    if (['pending', 'skipped', 'todo', 'disabled'].includes(test.status)) console.log(`skipped: ${test.fullName}`)
  }
  return {
    passed: numPassedTests,
    failed: numFailedTests + broken.length,
    skipped: numPendingTests + numTodoTests,
    failing: [...failingTests(testResults, broken), ...secondAttempts(testResults)],
  }
}

/** The tests that failed and then passed: some that start programs are tried twice (test/support/second-attempt.ts, foreign-clients.ts). */
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
function byClients(ended) {
  const counted = byVitest(ended)
  if (existsSync(report)) for (const line of clientMatrix(JSON.parse(readFileSync(report, 'utf8')).testResults)) console.log(line)
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
function byVitestWithoutSkipped(ended) {
  return { ...byVitest(ended), skipped: 0 }
}

process.on('exit', () => {
  if (running) endGroup(running)
  rmSync(scratch, { recursive: true, force: true })
})

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1))
  await main(process.argv.includes('--quick') ? quickParts : allParts)
}
