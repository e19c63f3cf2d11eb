/** How `npm test` judges its parts: a part passes only if it ran and reported its count. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test, vi } from 'vitest'
import { alive, eventually } from '../support/cli.ts'

const { judge, byClosingLine, clientMatrix, failingTests, mostExpensive, secondAttempts } = await import(
  new URL('../../scripts/test.mjs', import.meta.url).href
)
const parts = new URL('../../scripts/parts.mjs', import.meta.url).href
const { beside, during, inTurn, runPlan, uncounted } = await import(parts)
const { byPytest } = await import(new URL('../../scripts/python.mjs', import.meta.url).href)

const part = (script: string, more: object = {}) => ({
  name: 'a part',
  seconds: 300,
  command: [process.execPath, '-e', script],
  count: byClosingLine,
  ...more,
})

test.each([
  [
    'reports counts is counted as reported',
    'console.log("3 passed, 1 failed, 2 skipped"); process.exitCode = 1',
    { passed: 3, failed: 1, skipped: 2 },
  ],
  ['succeeds without a report has failed', '', { passed: 0, failed: 1, skipped: 0 }],
  ['fails without a report has failed', 'process.exitCode = 3', { passed: 0, failed: 1, skipped: 0 }],
  [
    'reports only successes and exits with an error has failed',
    'console.log("3 passed, 0 failed"); process.exitCode = 1',
    { passed: 3, failed: 1, skipped: 0 },
  ],
])('a part that %s', async (_, script, counted) => {
  expect(await judge(part(script))).toMatchObject(counted)
})

test.each([
  ['224 passed in 116.54s (0:01:56)', { passed: 224, failed: 0, skipped: 0 }],
  ['1 failed, 223 passed, 2 skipped, 1 error in 3.00s', { passed: 223, failed: 2, skipped: 2 }],
  ['no tests ran in 0.01s', { passed: 0, failed: 1, skipped: 0 }],
  ['Segmentation fault', { passed: 0, failed: 1, skipped: 0 }],
])('Python tests that end with %s', (last, counted) => {
  expect(byPytest({ output: `...F.\n3 passed in the past\n${last}\n` })).toEqual(counted)
})

test('the last lines of a part that failed are repeated at the end', async () => {
  const { failing } = await judge(part('console.log("seed 7 failed\\n0 passed, 1 failed"); process.exitCode = 1'))
  expect(failing).toEqual(['the end of a part:\n  seed 7 failed'])
})

test('suites that passed in the second attempt are named with what failed first', () => {
  const assertionResults = [
    { status: 'passed', fullName: 'works', failureMessages: [] },
    { status: 'passed', fullName: 'stalled', failureMessages: ['expected 210 to be below 200\n    at here'] },
    { status: 'failed', fullName: 'fails', failureMessages: ['expected 1 to be 2'] },
  ]
  expect(secondAttempts([{ assertionResults }])).toEqual(['passed in the second attempt: stalled: expected 210 to be below 200'])
})

test('failed tests are repeated at the end with the start of their messages', () => {
  const file = {
    name: new URL('../../test/a.test.ts', import.meta.url).pathname,
    assertionResults: [
      { status: 'passed', fullName: 'works', failureMessages: [] },
      { status: 'failed', fullName: 'also works', failureMessages: ['expected 1 to be 2\n    at here'] },
    ],
  }
  const broken = { name: new URL('../../test/b.test.ts', import.meta.url).pathname, message: 'no such module', assertionResults: [] }
  expect(failingTests([file, broken], [broken])).toEqual([
    'test/a.test.ts > also works\n  expected 1 to be 2\n      at here',
    'test/b.test.ts > the file could not be run\n  no such module',
  ])
})

test('a part whose program is missing has failed', async () => {
  const missing = part('console.log("1 passed, 0 failed")', { needs: 'dist/no-such-file.js' })
  expect(await judge(missing)).toEqual({ passed: 0, failed: 1, skipped: 0 })
})

test('a part that hangs is killed, and has failed', async () => {
  expect(await judge(part('console.log("1 passed, 0 failed"); setInterval(() => {}, 1_000)', { seconds: 1.5 }))).toMatchObject({
    failed: 1,
  })
})

/** A program that makes one file, and passes when the other one is there. */
function meeting(mine: string, other: string): string {
  return `require('fs').writeFileSync(${JSON.stringify(mine)}, '')
    const look = () => require('fs').existsSync(${JSON.stringify(other)}) ? console.log('1 passed, 0 failed') : setTimeout(look, 10)
    look()`
}

test('parts of a plan run beside each other or in turn, and are reported in its order', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-plan-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const [a, b] = [join(folder, 'a'), join(folder, 'b')]
  const seen = `require('fs').existsSync(${JSON.stringify(b)})`
  const plan = inTurn(
    part(`process.exitCode = ${seen} ? 1 : 0; console.log('1 passed, 0 failed')`, { name: 'before' }),
    beside(part(meeting(a, b), { name: 'one' }), part(meeting(b, a), { name: 'two', nice: 1 })),
    part(`console.log(${seen} ? '2 passed, 0 failed' : '0 passed, 1 failed')`, { name: 'after' }),
  )
  expect(await runPlan(plan)).toMatchObject([
    { name: 'before', passed: 1, failed: 0 },
    { name: 'one', passed: 1, failed: 0 },
    { name: 'two', passed: 1, failed: 0 },
    { name: 'after', passed: 2, failed: 0 },
  ])
})

test('what a part prints beside others is printed in one piece, with its name and its verdict', async () => {
  const printed: string[] = []
  const log = vi.spyOn(console, 'log').mockImplementation(text => void printed.push(text))
  await judge(part('console.error("first"); console.log("second\\n1 passed, 0 failed")'))
  log.mockRestore()
  expect(printed).toHaveLength(1)
  expect(printed[0]).toMatch(
    /^\n== a part \(at most 300 s\)\n(first\nsecond|second\nfirst)\na part: 1 passed, 0 failed\n== a part: passed in \d+ s/,
  )
})

test('a part that only prepares others counts for nothing, even if it fails', async () => {
  const counted = await judge(part('process.exitCode = 1', { count: uncounted, optional: true }))
  expect(counted).toMatchObject({ passed: 0, failed: 0, skipped: 0 })
})

test('a part that runs during a plan is ended with it', async () => {
  const hangs = part('setInterval(() => {}, 1_000)', { name: 'prepares', count: uncounted, optional: true })
  expect(await runPlan(during(part('console.log("1 passed, 0 failed")'), hangs))).toMatchObject([
    { name: 'prepares', passed: 0, failed: 0 },
    { name: 'a part', passed: 1, failed: 0 },
  ])
})

test.each(['SIGINT', 'SIGTERM'] as const)('%s ends every part that is under way', async signal => {
  const child = 'console.log("at work:" + process.pid); setInterval(() => {}, 1_000)'
  // One in the group of its part, and one in a group of its own.
  const hangs = part(
    `require('child_process').spawn(process.execPath, ['-e', ${JSON.stringify(child)}], { detached: true, stdio: ['ignore', 'inherit', 'ignore'] }); ${child}`,
    { live: true },
  )
  const { count: _, ...plain } = hangs
  const script = `import { beside, byClosingLine, exitOnSignals, runPlan } from ${JSON.stringify(parts)}
    const part = { ...${JSON.stringify(plain)}, count: byClosingLine }
    exitOnSignals()
    await runPlan(beside(part, part))`
  const run = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => void run.kill('SIGKILL'))
  let said = ''
  run.stdout.on('data', chunk => (said += chunk))
  const pids = () => [...said.matchAll(/at work:(\d+)\n/g)].map(([, pid]) => Number(pid))
  await eventually('both parts are at work, with their children', () => pids().length === 4)
  const exited = once(run, 'exit')
  run.kill(signal)
  expect(await exited).toEqual([1, null])
  await eventually('all have ended', () => !pids().some(alive))
})

test('the matrix of foreign clients has a line for each test with one, by face', () => {
  const result = (name: string, ...tests: readonly [status: string, fullName: string][]) => ({
    name: `/work/test/face/${name}`,
    assertionResults: tests.map(([status, fullName]) => ({ status, fullName })),
  })
  const results = [
    result('redis/clients.test.ts', ['passed', 'redlock 5 locks'], ['failed', 'redlock 4 locks']),
    result('consul/suite.test.ts', ['passed', 'TestAPI_LockOneShot']),
    result('redis/commands.test.ts', ['passed', 'SET is answered']),
  ]
  expect(clientMatrix(results)).toEqual([
    'consul      passed   TestAPI_LockOneShot',
    'redis       failed   redlock 4 locks',
    'redis       passed   redlock 5 locks',
  ])
})

test('the files that took the most CPU are named, the most expensive first', () => {
  const lines = Array.from({ length: 20 }, (_, i) => `${i}.5 ${fileURLToPath(new URL(`../${i}.test.ts`, import.meta.url))}`)
  const named = mostExpensive(`${lines.join('\n')}\n`)
  expect(named).toHaveLength(12)
  expect(named[0]).toBe('   19.5 s  test/19.test.ts')
  expect(named.at(-1)).toBe('    8.5 s  test/8.test.ts')
})
