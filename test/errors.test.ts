import { expect, test } from 'vitest'
import { type AnyLeaseError, LeaseError } from '../src/errors.ts'

const held: unknown = new LeaseError('HELD', 'k is held by ann', { facts: { resource: 'k', holder: 'ann', remaining: 900 } })

test('LeaseError.is narrows an error to its code, and the facts to those of the code', () => {
  if (!LeaseError.is(held, 'HELD')) throw held
  const holder: string | undefined = held.facts.holder
  const remaining: number | undefined = held.facts.remaining
  // @ts-expect-error the holder is a text
  const wrong: number | undefined = held.facts.holder
  expect([holder, remaining, wrong]).toEqual(['ann', 900, 'ann'])
})

test('LeaseError.is is true for the named codes, or for any LeaseError', () => {
  expect(LeaseError.is(held, 'HELD', 'TIMEOUT')).toBe(true)
  expect(LeaseError.is(held, 'TIMEOUT')).toBe(false)
  expect(LeaseError.is(held)).toBe(true)
  expect(LeaseError.is(new Error('HELD'))).toBe(false)
  expect(LeaseError.is({ code: 'HELD' }, 'HELD')).toBe(false)
})

test('instanceof narrows too, and the compiler knows every code', () => {
  if (!(held instanceof LeaseError)) throw held
  // @ts-expect-error there is no such code
  expect(held.code === 'WAITED').toBe(false)
  if (held.code !== 'HELD') throw held
  const since: number | undefined = held.facts.since
  expect(since).toBeUndefined()
  const any: AnyLeaseError = held
  expect(any).toBeInstanceOf(Error)
})

test('an error carries its cause, its facts and the result of the work', () => {
  const cause = new Error('why')
  const error = new LeaseError('LOST', 'k is lost', { cause, facts: { lease: 7 }, result: 'done' })
  expect(error).toMatchObject({ name: 'LeaseError', code: 'LOST', cause, facts: { lease: 7 }, result: 'done' })
  expect('result' in new LeaseError('GONE', 'k is gone')).toBe(false)
})
