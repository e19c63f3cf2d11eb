// `npm test`: every part in turn, each within its budget, and one closing line.
//
// A part that hangs is killed and has failed; so has one that is missing or ends without its count. The last line is `N passed, N failed`
// (`, N skipped` when there are any) and the exit code agrees with it. With CI=true a skip is a failure.

import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { install, root } from './build.mjs'

const scratch = mkdtempSync(join(tmpdir(), 'leasehold-test-'))
const report = join(scratch, 'vitest.json')
const simulator = '.sim/sim/main.js'

// Two to four times what each part takes on two quiet cores: a busy machine must pass as well. Below an hour in all.
const parts = [
  { name: 'build', seconds: 120, command: ['npm', 'run', '--silent', 'build'], count: byExitCode },
  { name: 'style', seconds: 60, command: ['npm', 'run', '--silent', 'style'], count: byExitCode },
  { name: 'types', seconds: 120, command: ['npm', 'run', '--silent', 'types'], count: byExitCode },
  {
    name: 'tests',
    seconds: 1_900,
    command: ['node_modules/.bin/vitest', 'run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`],
    count: byVitest,
  },
  { name: 'simulation', seconds: 200, needs: simulator, command: ['node', simulator, '--seeds', '25'], count: byClosingLine },
  { name: 'planted bugs', seconds: 800, needs: simulator, command: ['node', simulator, '--planted'], count: byClosingLine },
]

const closing = /^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/
let running // the part under way: it must not outlive this process

async function main() {
  const total = { passed: 0, failed: 0, skipped: 0 }
  const failures = []
  if (!install()) {
    failures.push('install')
    total.failed++
  } else {
    for (const part of parts) {
      const { passed, failed, skipped } = await judge(part)
      total.passed += passed
      total.failed += failed
      total.skipped += skipped
      if (failed > 0) failures.push(part.name)
    }
  }
  if (process.env.CI === 'true' && total.skipped > 0) {
    failures.push(`${total.skipped} skipped, which CI does not allow`)
    total.failed += total.skipped
    total.skipped = 0
  }
  if (failures.length > 0) console.log(`\nfailed: ${failures.join(', ')}`)
  console.log(`${total.passed} passed, ${total.failed} failed${total.skipped > 0 ? `, ${total.skipped} skipped` : ''}`)
  process.exitCode = total.failed > 0 ? 1 : 0
}

export async function judge(part) {
  console.log(`\n== ${part.name}`)
  if (part.needs && !existsSync(join(root, part.needs))) {
    console.log(`${part.needs} does not exist: nothing was run`)
    return { passed: 0, failed: 1, skipped: 0 }
  }
  const ended = await run(part)
  if (ended.overdue) console.log(`${part.name}: not done after ${part.seconds} s, ended`)
  const counted = part.count(ended)
  // A part that exits with an error has failed, whatever it counted before.
  if (ended.code !== 0 && counted.failed === 0) counted.failed = 1
  return counted
}

/** A part leads a process group of its own, so that all it started can be ended by that one id. */
function run({ name, command: [program, ...args], seconds, count }) {
  return new Promise(resolve => {
    const reading = count === byClosingLine
    const child = spawn(program, args, {
      cwd: root,
      detached: true,
      stdio: ['ignore', reading ? 'pipe' : 'inherit', 'inherit'],
    })
    running = child.pid
    const ended = { code: 1, overdue: false, count: '' }
    if (reading) {
      createInterface({ input: child.stdout }).on('line', line => {
        if (closing.test(line)) ended.count = line
        console.log(closing.test(line) ? `${name}: ${line}` : line) // there is one closing line, and it is ours
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
    // no process is left
  }
}

function byExitCode({ code }) {
  return { passed: code === 0 ? 1 : 0, failed: code === 0 ? 0 : 1, skipped: 0 }
}

/** The part ends with a line like ours. Without it, it is unknown what was run, whatever the exit code. */
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
  return { passed: numPassedTests, failed: numFailedTests + broken.length, skipped: numPendingTests + numTodoTests }
}

process.on('exit', () => {
  if (running) endGroup(running)
  rmSync(scratch, { recursive: true, force: true })
})

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1))
  await main()
}
