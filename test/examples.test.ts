import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

test('a killed holder is followed by the next one, with a greater token', { timeout: 60_000 }, async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(new URL('../examples/takeover.mjs', import.meta.url))])
  const [, first] = /holds jobs\/nightly, with token (\d+)/.exec(stdout) ?? []
  const [, second] = /has it, [\d.]+ s later, with token (\d+)/.exec(stdout) ?? []
  expect(Number(second)).toBeGreaterThan(Number(first))
})
