/** How `npm test` judges its parts: a part passes only if it ran and reported its count. */
import { expect, test } from 'vitest'

const { judge, byClosingLine } = await import(new URL('../../scripts/test.mjs', import.meta.url).href)

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
  expect(await judge(part(script))).toEqual(counted)
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
