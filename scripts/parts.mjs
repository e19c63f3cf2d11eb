// Runs the parts of a test run, several beside each other, and judges them. Used by scripts/test.mjs.
//
// A part is `{ name, seconds, command, count }`, and optionally `needs` (a file that it cannot do without), `env`, `nice` (0 to 19: parts that compute yield to
// those that watch real time), `optional` (its exit code does not matter) and `live` (its lines are printed as they come). What other parts print is kept and printed when they end, so that a report is
// never cut into pieces. Nothing that a part starts outlives it, or this process.

import { spawn } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { root } from './build.mjs'

const closing = /^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/
/** So many of its last lines are repeated at the end of all, if a part failed that has no report of its own. */
const LAST_LINES = 15
/** The runner waits this many ms for the end of the output of a part that has exited. */
const OUTPUT_GRACE = 5_000
/** The unit of CPU times in /proc, per second. */
const TICKS = 100
/** The process groups of the parts under way, which must not outlive this process. */
const running = new Set()

process.on('exit', () => {
  for (const pid of running) endGroup(pid)
})

/** Ends this process, and so everything that its parts started, by a signal: Node alone would not run its exit handlers. */
export function exitOnSignals() {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1))
}

/** A plan is a part, or plans of which each begins when the one before it has ended, or plans that begin together, or a plan and a part that ends with it. */
export const inTurn = (...plans) => ({ inTurn: plans })
export const beside = (...plans) => ({ beside: plans })
export const during = (plan, part) => ({ plan, during: part })

/** Runs a plan. Returns its parts in the order of the plan, with what `judge` returned. */
export async function runPlan(plan) {
  if (plan.beside !== undefined) return (await Promise.all(plan.beside.map(runPlan))).flat()
  if (plan.during !== undefined) {
    const over = new AbortController()
    const part = judge(plan.during, over.signal)
    const results = await runPlan(plan.plan)
    over.abort()
    return [{ name: plan.during.name, ...(await part) }, ...results]
  }
  if (plan.inTurn === undefined) return [{ name: plan.name, ...(await judge(plan)) }]
  const results = []
  for (const each of plan.inTurn) results.push(...(await runPlan(each)))
  return results
}

/** Runs one part and returns its counts. The signal ends it. */
export async function judge(part, signal) {
  const lines = [`\n== ${part.name} (at most ${part.seconds} s)`]
  const say = line => (part.live ? console.log(line) : lines.push(line))
  if (part.live) console.log(lines[0])
  const counted = await judged(part, say, signal)
  if (!part.live) console.log(lines.join('\n'))
  return counted
}

async function judged(part, say, signal) {
  if (part.needs && !existsSync(join(root, part.needs))) {
    say(`${part.needs} does not exist: nothing was run`)
    return { passed: 0, failed: 1, skipped: 0 }
  }
  const began = performance.now()
  const ended = await run(part, say, signal)
  if (ended.overdue) say(`${part.name}: not finished after ${part.seconds} s, ended`)
  const counted = part.count(ended, say)
  // A part that counted its successes and then died has not passed.
  if (ended.code !== 0 && counted.failed === 0 && !part.optional) counted.failed = 1
  if (counted.failed > 0 && counted.failing === undefined && ended.lastLines.length > 0)
    counted.failing = [[`the end of ${part.name}:`, ...ended.lastLines].join('\n  ')]
  const verdict = counted.failed > 0 ? 'failed' : 'passed'
  say(
    `== ${part.name}: ${verdict} in ${Math.round((performance.now() - began) / 1_000)} s${ended.cpu > 0 ? `, ${Math.round(ended.cpu)} s of CPU` : ''}`,
  )
  return counted
}

/** Each part leads its own process group, so that everything it starts can be ended by that one id. */
function run({ name, command, env = {}, nice = 0, seconds }, say, signal) {
  return new Promise(resolve => {
    const [program, ...args] = nice > 0 ? ['nice', '-n', String(nice), ...command] : command
    const child = spawn(program, args, { cwd: root, env: { ...process.env, ...env }, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
    if (child.pid !== undefined) running.add(child.pid)
    if (nice > 0) lowerGroup(child.pid, nice)
    const ended = { code: 1, overdue: false, count: '', lastLines: [], cpu: 0 }
    const read = line => {
      if (closing.test(line)) ended.count = line
      else ended.lastLines = [...ended.lastLines.slice(1 - LAST_LINES), line]
      say(closing.test(line) ? `${name}: ${line}` : line) // only the last line of all may look like a closing line
    }
    for (const stream of [child.stdout, child.stderr]) createInterface({ input: stream }).on('line', read)
    const budget = setTimeout(() => {
      ended.overdue = true
      endGroup(child.pid)
    }, seconds * 1_000)
    signal?.addEventListener('abort', () => endGroup(child.pid))
    child.on('error', error => say(String(error)))
    const finish = code => {
      clearTimeout(budget)
      clearTimeout(output)
      ended.code = ended.overdue ? 1 : (code ?? 1)
      resolve(ended)
    }
    let output
    child.on('exit', code => {
      ended.cpu = cpuOfEnded()
      endGroup(child.pid) // processes that it left behind
      // One that left the group may hold the pipe open.
      output = setTimeout(() => finish(code), OUTPUT_GRACE)
    })
    child.on('close', finish)
  })
}

/** Where Linux shares the CPU among sessions (autogroup), a process's own priority counts only within its session. Each part is a session, so that has one too. */
function lowerGroup(pid, nice) {
  try {
    writeFileSync(`/proc/${pid}/autogroup`, String(nice))
  } catch {
    // There are no such groups here.
  }
}

let counted = 0

/** Seconds of CPU that the process which has just ended used, with the processes that it waited for. 0 where the system does not say. */
function cpuOfEnded() {
  if (!existsSync('/proc/self/stat')) return 0
  const stat = readFileSync('/proc/self/stat', 'utf8')
  const [user, system] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(13, 15) // of all children that have ended
  const before = counted
  counted = (Number(user) + Number(system)) / TICKS
  return counted - before
}

/** Ends the group, and what its processes started in groups of their own, as far as the system tells. */
function endGroup(pid) {
  running.delete(pid)
  for (const id of [-pid, ...descendants(pid)]) {
    try {
      process.kill(id, 'SIGKILL')
    } catch {
      // It has ended.
    }
  }
}

function descendants(pid) {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)
    return children.flatMap(child => [child, ...descendants(child)])
  } catch {
    return []
  }
}

export function byExitCode({ code }) {
  return { passed: code === 0 ? 1 : 0, failed: code === 0 ? 0 : 1, skipped: 0 }
}

/** For parts that end with a line like ours. Without that line it is unknown what was run, whatever the exit code. */
export function byClosingLine({ count }, say = console.log) {
  const counted = count.match(closing)
  if (!counted) {
    say('it ended without a count')
    return { passed: 0, failed: 1, skipped: 0 }
  }
  return { passed: Number(counted[1]), failed: Number(counted[2]), skipped: Number(counted[3] ?? 0) }
}

/** For a part that only prepares others: whether it succeeds, those show. */
export function uncounted({ code }, say) {
  if (code !== 0) say('it did not succeed: the tests that need it try again, and fail if they cannot')
  return { passed: 0, failed: 0, skipped: 0 }
}
