import fc from 'fast-check'
import { expect, test } from 'vitest'
import { formatMatch, parseMatch } from '../../src/board/match.ts'
import { POOL_TESTS, type PoolCondition } from '../../src/kernel/command.ts'

test.each([
  ['model in (a100,h100)', [{ label: 'model', test: 'in', values: ['a100', 'h100'] }]],
  ['model = a100', [{ label: 'model', test: 'in', values: ['a100'] }]],
  ['model==a100', [{ label: 'model', test: 'in', values: ['a100'] }]],
  ['model!=a100', [{ label: 'model', test: 'not-in', values: ['a100'] }]],
  ['model NOT IN ( k80 )', [{ label: 'model', test: 'not-in', values: ['k80'] }]],
  ['mem>=40', [{ label: 'mem', test: 'at-least', values: ['40'] }]],
  ['mem > 39.5', [{ label: 'mem', test: 'more', values: ['39.5'] }]],
  ['!reserved', [{ label: 'reserved', test: 'absent' }]],
  ['nvlink', [{ label: 'nvlink', test: 'present' }]],
  ['name="NVIDIA A100, 40 GB"', [{ label: 'name', test: 'in', values: ['NVIDIA A100, 40 GB'] }]],
  [
    'model in (a,b), mem<80 and mem<=79 && !x',
    [
      { label: 'model', test: 'in', values: ['a', 'b'] },
      { label: 'mem', test: 'less', values: ['80'] },
      { label: 'mem', test: 'at-most', values: ['79'] },
      { label: 'x', test: 'absent' },
    ],
  ],
])('%s', (text, conditions) => {
  expect(parseMatch(text)).toEqual(conditions)
})

test.each([
  ['', /a label is missing/],
  ['model in a100', /come in brackets/],
  ['model in (a100', /not closed/],
  ['model in ()', /is missing before \)/],
  ['mem>=lots', /compares numbers/],
  ['mem>=', /the value of mem is missing/],
  ['a b', /a comma is missing before b/],
  ['a,', /a label is missing/],
  ['a & b', /cannot be read/],
  ['a="open', /cannot be read/],
  [Array.from({ length: 20 }, (_, i) => `l${i}`).join(), /more than 16 conditions/],
  [`a in (${Array.from({ length: 65 }, (_, i) => i).join()})`, /more than 64 values/],
  ['x'.repeat(20_000), /longer than/],
])('%j is refused with what is wrong', (text, why) => {
  expect(() => parseMatch(text)).toThrow(why)
})

test('conditions that are written as text are read back the same', () => {
  const label = fc.stringMatching(/^[a-z][a-z0-9._-]{0,8}$/).filter(text => !['in', 'not', 'and'].includes(text))
  const value = fc.string({ minLength: 1, maxLength: 8 }).filter(text => !text.includes('"'))
  const number = fc.integer({ min: -1_000, max: 1_000 }).map(String)
  const condition = fc.constantFrom(...POOL_TESTS).chain((test): fc.Arbitrary<PoolCondition> => {
    if (test === 'absent' || test === 'present') return label.map(label => ({ label, test }))
    const values = test === 'in' || test === 'not-in' ? fc.array(value, { minLength: 1, maxLength: 4 }) : fc.tuple(number)
    return fc.record({ label, values }).map(({ label, values }) => ({ label, test, values }))
  })
  fc.assert(
    fc.property(fc.array(condition, { minLength: 1, maxLength: 6 }), conditions => {
      expect(parseMatch(formatMatch(conditions))).toEqual(conditions)
    }),
  )
})
