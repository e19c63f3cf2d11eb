/** The Python client makes its sentences from the table of src/wording.ts: the generated file is up to date, and both renderers agree. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
// @ts-expect-error a script without types
import { PYTHON_SENTENCES, pythonSentences } from '../../scripts/python-wording.mjs'
import { type Facts, REASON_ROWS } from '../../src/kernel/reason.ts'
import { knownSentence, SENTENCES } from '../../src/wording.ts'
import { describeWith, programs } from '../support/engine.ts'

test('the sentences of the Python client are those of src/wording.ts', () => {
  expect(readFileSync(PYTHON_SENTENCES, 'utf8')).toBe(pythonSentences(SENTENCES))
})

const full: Readonly<Record<string, Facts[string]>> = {
  text: 'jobs/{lease} [x]',
  number: 7,
  flag: true,
  texts: ['a', 'b', 'a'],
  numbers: [1, 2],
}
const one: Readonly<Record<string, Facts[string]>> = { text: 'é → ü', number: 1, flag: true, texts: ['a'], numbers: [1] }
const bare: Readonly<Record<string, Facts[string]>> = { text: '', number: 0, flag: false, texts: [], numbers: [] }

/** Every reason with all of its facts, with those that it must have, with empty ones, with one missing, and with facts of another type. */
const samples = Object.entries(REASON_ROWS).flatMap(([reason, { facts: types }]) => {
  const names = Object.entries(types)
  const of = (values: typeof full, chosen = names) =>
    [reason, Object.fromEntries(chosen.map(([name, type]) => [name, values[type.replace('?', '')]!]))] as const
  return [
    ...[of(full), of(one), of(bare), of(full, names.slice(1))],
    of(
      full,
      names.filter(([, type]) => !type.endsWith('?')),
    ),
    [reason, Object.fromEntries(names.map(([name]) => [name, 2.5]))] as const,
  ]
})

describeWith([programs.python3], 'with Python', () => {
  test('both languages make the same sentence of every reason, whatever its facts', () => {
    const script = [
      'import json, sys',
      'from leasehold_client._wording import sentence',
      'print(json.dumps([sentence(reason, facts) for reason, facts in json.load(sys.stdin)]))',
    ].join('\n')
    const { stdout, stderr, status } = spawnSync('python3', ['-c', script], {
      input: JSON.stringify([...samples, ['a-later-reason', { a: 1 }]]),
      env: { ...process.env, PYTHONPATH: fileURLToPath(new URL('../../clients/python/src', import.meta.url)), PYTHONIOENCODING: 'utf8' },
      encoding: 'utf8',
      timeout: 900_000,
    })
    expect([status, stderr]).toEqual([0, ''])
    const expected = samples.map(([reason, facts]) => knownSentence(reason, facts) ?? null)
    expect(JSON.parse(stdout)).toEqual([...expected, null])
    expect(expected.filter(text => text === null).length).toBeGreaterThan(0)
  })
})
