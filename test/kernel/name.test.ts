import { describe, expect, test } from 'vitest'
import { commonPrefixes, underAny } from '../../src/kernel/name.ts'

describe('prefixes', () => {
  test('a set of prefixes matches what its members match, whether they are few or many', () => {
    const names = ['', 'a', 'a/b', 'ab', 'b/c/d', 'b/c', 'x/y']
    const filler = Array.from({ length: 20 }, (_, i) => `filler/${i}`)
    for (const prefixes of [[], ['a'], ['a/'], ['b/c'], ['a/b', 'b'], ['']]) {
      const few = names.filter(underAny(prefixes))
      expect(names.filter(underAny([...prefixes, ...filler]))).toEqual(few)
    }
    expect(names.filter(underAny(['a/', 'b/c']))).toEqual(['a', 'a/b', 'b/c/d', 'b/c'])
  })

  test('the common prefixes of two sets are under both, without duplicates', () => {
    expect(commonPrefixes([''], ['a/', 'a/b', 'c'])).toEqual(['a', 'c'])
    expect(commonPrefixes(['a/b', 'x'], ['a', 'y'])).toEqual(['a/b'])
    expect(commonPrefixes(['a'], ['a/b', 'a/c', 'ab'])).toEqual(['a/b', 'a/c'])
    expect(commonPrefixes(['a'], [])).toEqual([])
    expect(commonPrefixes([''], [''])).toEqual([''])
  })
})
