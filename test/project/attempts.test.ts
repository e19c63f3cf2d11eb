/** A test of ours passes or fails in its first attempt, and its verdict does not depend on how fast the machine is. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))
/** Other people's own suites, by name: the one place that may repeat a test. */
const SUITES = 'test/support/foreign-suites.ts'

/** What repeats a test in vitest and in pytest, and on the command line of each. */
const REPEATED =
  /\bretry['"]?\s*(?::\s*(?:\d|[A-Z]|\w+[.([])|=(?!=|>))|\{[^{}]*\bretry\b\s*[,}]|--retry\b|--reruns\b|\bmark\.flaky\b|\brerunfailures\b/
/** A poll with a bound of its own. */
const BOUND_OF_ITS_OWN = /\.(?:poll|waitFor|waitUntil)\((?:(?!\n\n|\.poll\()[\s\S])*?\{\s*(?:interval: [\w.]+,\s*)?timeout: /

function sources(): readonly { readonly file: string; readonly text: string }[] {
  const under = (folder: string, name: RegExp) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter(path => name.test(path) && !path.includes('node_modules'))
      .map(path => join(folder, path))
  const files = [
    'package.json',
    'vitest.config.ts',
    'clients/python/pyproject.toml',
    ...under('scripts', /\.mjs$/),
    ...under('test', /\.(ts|mjs)$/),
    ...under('conformance', /\.ts$/),
    ...under('clients/python/tests', /\.py$/),
    ...under('.github', /\.ya?ml$/),
  ]
  return files.map(file => ({ file, text: readFileSync(join(root, file), 'utf8') }))
}

test("only other people's own suites are repeated, by name", () => {
  const repeated = sources().filter(({ file, text }) => REPEATED.test(text) && file !== 'test/project/attempts.test.ts')
  expect(repeated.map(({ file }) => file)).toEqual([SUITES])
  expect(readFileSync(join(root, SUITES), 'utf8')).toContain('retry: REPEATS[name]')
})

test('polls wait for as long as test/support/bounds.ts says', () => {
  const own = sources().filter(({ file, text }) => file.endsWith('.ts') && BOUND_OF_ITS_OWN.test(text))
  expect(own.map(({ file }) => file)).toEqual(['test/project/attempts.test.ts', 'test/support/eventually.ts'])
})

test('no test waits by vi.waitFor, whose bound is one second', () => {
  const waiting = sources().filter(({ text }) => /\bvi\.wait(?:For|Until)\(/.test(text))
  expect(waiting.map(({ file }) => file)).toEqual(['test/support/eventually.ts'])
})

describe('the searches find', () => {
  test.each([
    "test('a', { retry: 1 }, f)",
    'test("a", { timeout: 5, retry: 0 }, f)',
    'vi.setConfig({ retry: 2 })',
    "describe('a', { retry }, f)",
    'vitest run --retry=2',
    '@pytest.mark.flaky(reruns=2)',
  ])('%s', text => expect(text).toMatch(REPEATED))

  test.each(["{ 'retry-after': '1' }", 'dcs: { retry_timeout: 5 }', 'function retry(delay) {', "'../../src/replica/retry.ts'"])(
    'nothing in %s',
    text => expect(text).not.toMatch(REPEATED),
  )

  test.each(['expect.poll(() => a, { timeout: 5_000 })', 'expect.poll(async () => {\n  f()\n}, { interval: 1, timeout: 5 })'])('%s', text =>
    expect(text).toMatch(BOUND_OF_ITS_OWN),
  )

  test('nothing in a poll without a bound', () => expect('expect.poll(() => a, { interval: 5 })').not.toMatch(BOUND_OF_ITS_OWN))
})
