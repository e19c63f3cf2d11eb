/** How `npm test` judges its parts: a part passes only if it ran and reported its count. */
import { expect, test } from 'vitest'

const { judge, byClosingLine, clientMatrix, failingTests, secondAttempts } = await import(
  new URL('../../scripts/test.mjs', import.meta.url).href
)
const { byPytest } = await import(new URL('../../scripts/python.mjs', import.meta.url).href)

const part = (script: string, more: object = {}) => ({
  name: 'a part',
  seconds: 30,
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

test('tests that passed in the second attempt are named with what failed first', () => {
  const assertionResults = [
    { status: 'passed', fullName: 'works', failureMessages: [] },
    { status: 'passed', fullName: 'stalled', failureMessages: ['expected 210 to be below 200\n    at here'] },
    { status: 'failed', fullName: 'fails', failureMessages: ['expected 1 to be 2'] },
  ]
  expect(secondAttempts([{ assertionResults }])).toEqual(['passed in the second attempt: stalled: expected 210 to be below 200'])
})

test('in CI, tests in this folder get a second attempt, unless they say otherwise', ({ task }) => {
  expect(task.retry ?? 0).toBe(process.env.CI === 'true' ? 1 : 0)
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
