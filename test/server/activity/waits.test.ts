/** Waits: who waits, for how long, and who waited. */
import { expect, test } from 'vitest'
import { Waits } from '../../../src/server/activity/waits.ts'

const everything = () => true

test('the oldest wait of a prefix is the first that has not ended', () => {
  const waits = new Waits()
  waits.begin({ resource: 'db/a', lease: 1, holder: 'one', from: 10 })
  waits.begin({ resource: 'db/b', lease: 2, holder: 'two', from: 20 })
  waits.begin({ resource: 'web', lease: 3, holder: 'three', from: 5 })
  waits.end(1, 'db/a', 30, 'granted')
  expect(waits.oldest(everything, 9).map(({ prefix, holder }) => [prefix, holder])).toEqual([
    ['web', 'three'],
    ['db', 'two'],
  ])
  expect(waits.oldest(name => name !== 'web', 9)).toHaveLength(1)
})

test('the most contended names come first, and only as many as were asked for', () => {
  const waits = new Waits()
  for (let i = 0; i < 30; i++) for (let n = 0; n <= i % 7; n++) waits.begin({ resource: `r/${i}`, lease: i * 10 + n, holder: 'h', from: n })
  const found = waits.mostContended(everything, 3)
  expect(found.map(({ waiters }) => waiters)).toEqual([7, 7, 7])
  expect(waits.mostContended(everything, 100).map(({ waiters }) => waiters)).toEqual(
    Array.from({ length: 30 }, (_, i) => (i % 7) + 1).sort((a, b) => b - a),
  )
})

test('a place that is reported twice counts once, and one that is not known is no error', () => {
  const waits = new Waits()
  waits.begin({ resource: 'a', lease: 1, holder: 'h', from: 1 })
  waits.begin({ resource: 'a', lease: 1, holder: 'h', from: 1 })
  waits.end(7, 'a', 2, 'granted')
  expect(waits.mostContended(everything, 9)).toEqual([{ resource: 'a', waiters: 1 }])
  waits.end(1, 'a', 2, 'granted')
  expect(waits.mostContended(everything, 9)).toEqual([])
  expect(waits.of('a', 9)).toMatchObject([{ lease: 1, until: 2, ended: 'granted' }])
})
