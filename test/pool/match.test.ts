import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { POOL_TESTS } from '../../src/kernel/command.ts'
import { matchText, parseMatch } from '../../src/pool/match.ts'

test('every form of a condition is read', () => {
  expect(
    parseMatch('model in (a100, h100), mem>=40, mem<80.5, !spot, rack, zone=b, zone!=c, os not in ("win 11"), cpu<=8, cpu > 2'),
  ).toEqual([
    { label: 'model', test: 'in', values: ['a100', 'h100'] },
    { label: 'mem', test: 'at-least', values: ['40'] },
    { label: 'mem', test: 'less', values: ['80.5'] },
    { label: 'spot', test: 'absent' },
    { label: 'rack', test: 'present' },
    { label: 'zone', test: 'in', values: ['b'] },
    { label: 'zone', test: 'not-in', values: ['c'] },
    { label: 'os', test: 'not-in', values: ['win 11'] },
    { label: 'cpu', test: 'at-most', values: ['8'] },
    { label: 'cpu', test: 'more', values: ['2'] },
  ])
  expect(parseMatch('')).toEqual([])
  expect(parseMatch({ model: 'A100' })).toEqual([{ label: 'model', test: 'in', values: ['A100'] }])
})

test.each([
  ['model in', /without a list/],
  ['model in (a', /closing bracket/],
  ['model in ()', /lacks a value/],
  ['model not a', /without "in"/],
  ['mem >', /lacks a number at its end/],
  ['a b', /comma is missing/],
  [',', /lacks the name of a label/],
  ['"open', /quote that is not closed/],
  ['x'.repeat(20_000), /longer than/],
])('%s is refused with what is wrong', (text, message) => {
  expect(() => parseMatch(text)).toThrow(message)
})

test('conditions that are written as text are read back', () => {
  const text = fc.string({ minLength: 1, maxLength: 8 })
  const condition = fc.oneof(
    fc.record({
      label: text,
      test: fc.constantFrom('in' as const, 'not-in' as const),
      values: fc.array(text, { minLength: 1, maxLength: 3 }),
    }),
    fc.record({ label: text, test: fc.constantFrom('absent' as const, 'present' as const) }),
    fc.record({
      label: text,
      test: fc.constantFrom('less' as const, 'at-most' as const, 'more' as const, 'at-least' as const),
      values: fc.integer().map(n => [String(n)]),
    }),
  )
  fc.assert(
    fc.property(fc.array(condition, { minLength: 1, maxLength: 4 }), conditions => {
      expect(parseMatch(matchText(conditions))).toEqual(conditions)
    }),
    { numRuns: 300 },
  )
  expect(POOL_TESTS).toHaveLength(8)
})
