/** Errors from servers of other versions, and from programs that are no server at all. */
import { expect, test } from 'vitest'
import { codeFrom, errorFrom, factsFrom, parseRespError, reasonFrom } from '../../src/wire/received-error.ts'

test('a reason that this version does not know is kept, with the message that came', () => {
  const error = errorFrom('HELD', 'jobs/a waits for the tide', { reason: 'low-tide', resource: 'jobs/a', depth: 3 })
  expect(error).toMatchObject({
    code: 'HELD',
    reason: 'low-tide',
    message: 'jobs/a waits for the tide',
    facts: { resource: 'jobs/a', depth: 3 },
  })
})

test('a server of an earlier version sends no reason: the message and the facts stay', () => {
  const error = errorFrom('GONE', 'lease 7 has ended', { lease: 7 })
  expect([error.code, error.reason, error.message, error.facts]).toEqual(['GONE', undefined, 'lease 7 has ended', { lease: 7 }])
  expect('reason' in error).toBe(false)
})

test('a code that this version does not know becomes UNKNOWN, and one that only HTTP has its own', () => {
  expect([codeFrom('TIDE'), codeFrom('TOO_LARGE'), codeFrom('HELD'), codeFrom('__proto__'), codeFrom('')]).toEqual([
    ...['UNKNOWN', 'LIMIT', 'HELD', 'UNKNOWN', 'UNKNOWN'],
  ])
})

test('facts that are too large, too many or of another type are left out', () => {
  const facts = factsFrom({
    ...{ kept: 'a', number: 1, flag: false, names: ['a', 'b'], numbers: [1, 2], none: [] },
    ...{ long: 'x'.repeat(4_097), list: Array.from({ length: 1_025 }, () => 1), mixed: ['a', 1], nested: { a: 1 }, lists: [['a']] },
    ...{ nothing: null, endless: Number.POSITIVE_INFINITY, code: 'X', message: 'y', reason: 'z', ['n'.repeat(65)]: 1 },
  })
  expect(facts).toEqual({ kept: 'a', number: 1, flag: false, names: ['a', 'b'], numbers: [1, 2], none: [] })
  expect(Object.keys(factsFrom(Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`f${i}`, i]))))).toHaveLength(64)
  for (const other of [undefined, null, 5, 'text', ['a'], true]) expect(factsFrom(other)).toEqual({})
  expect(factsFrom(JSON.parse('{"__proto__": "a", "b": 1}'))).toEqual({ b: 1 })
})

test('a reason that cannot be one is left out', () => {
  for (const reason of [7, null, '', 'Held by ann', 'a'.repeat(65), ['held'], 'a\nb']) expect(reasonFrom({ reason })).toBeUndefined()
  expect(reasonFrom(undefined)).toBeUndefined()
})

test('an error of RESP is its code, its message, and an object after a tab', () => {
  expect(parseRespError('HELD k is held\t{"reason":"held","lease":4}')).toEqual({
    code: 'HELD',
    message: 'k is held',
    rest: { reason: 'held', lease: 4 },
  })
  expect(parseRespError('ERR unknown command')).toEqual({ code: 'ERR', message: 'unknown command', rest: {} })
  expect(parseRespError('NOPROTO')).toEqual({ code: 'NOPROTO', message: 'NOPROTO', rest: {} })
  expect(parseRespError('what is\tthis')).toEqual({ code: '', message: 'what is', rest: {} })
})
