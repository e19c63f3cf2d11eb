/** Rates: per second and per minute, in rings of a fixed size. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { MINUTES, RateHistory, SECONDS } from '../../../src/server/activity/rate-history.ts'

const START = 1_700_000_040_000

test('steps without events have zero counts and the last level, and steps before the first are unknown', () => {
  const rates = new RateHistory()
  rates.count('granted', START)
  rates.level('live', START, 7)
  const { from, series } = rates.view('second', START + 3_000, 5)
  expect(from).toBe(START - 1_000)
  expect(series.granted).toEqual([null, 1, 0, 0, 0])
  expect(series.live).toEqual([null, 7, 7, 7, 7])
  expect(series.waiting).toEqual([null, null, null, null, null])
})

test('a clock that is set back adds to the newest step', () => {
  const rates = new RateHistory()
  rates.count('lost', START)
  rates.count('lost', START - 60_000)
  expect(rates.view('second', START - 60_000, 1)).toMatchObject({ from: START, series: { lost: [2] } })
})

test('an absence longer than the ring leaves nothing of what was before', () => {
  const rates = new RateHistory()
  rates.count('queued', START, 9)
  rates.level('live', START, 3)
  const { series } = rates.view('second', START + 10 * SECONDS * 1_000, SECONDS)
  expect(series.queued.every(count => count === 0)).toBe(true)
  expect(series.live.every(level => level === null)).toBe(true)
})

test('both resolutions agree with a plain list of events, whatever the times', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(400_000), { minLength: 1, maxLength: 60 }), fc.nat(200_000), (gaps, after) => {
      const rates = new RateHistory()
      const times: number[] = []
      let now = START
      for (const gap of gaps) {
        now += gap
        times.push(now)
        rates.count('granted', now)
      }
      now += after
      for (const [unit, ms, size] of [
        ['second', 1_000, SECONDS],
        ['minute', 60_000, MINUTES],
      ] as const) {
        const { from, series } = rates.view(unit, now, size)
        const expected = Array.from({ length: size }, (_, i) => {
          const begin = from + i * ms
          if (begin + ms <= times[0]!) return null
          return times.filter(time => time >= begin && time < begin + ms).length
        })
        // Steps before the first event are unknown, unless the ring has moved on over them.
        expect(series.granted.map(value => value ?? 0)).toEqual(expected.map(value => value ?? 0))
        expect(from + size * ms).toBeGreaterThan(now)
      }
    }),
    { seed: 18, numRuns: 200 },
  )
})

test('saved minutes come back where they were, without those older than a day or in the future', () => {
  const rates = new RateHistory()
  for (let minute = 0; minute < 30; minute++) rates.count('granted', START + minute * 60_000, minute + 1)
  const saved = rates.view('minute', START + 29 * 60_000, MINUTES)
  const later = START + 40 * 60_000
  const again = new RateHistory()
  again.restore(saved, later)
  again.count('granted', later, 5)
  expect(again.view('minute', later, 12).series.granted).toEqual([30, null, null, null, null, null, null, null, null, null, null, 5])
  const tomorrow = new RateHistory()
  tomorrow.restore(saved, START + (MINUTES + 10) * 60_000)
  expect(tomorrow.view('minute', START + (MINUTES + 10) * 60_000, MINUTES).series.granted.slice(0, 20)).toEqual(
    Array.from({ length: 20 }, (_, i) => (i + 12 > 30 ? null : i + 12)),
  )
  const past = new RateHistory()
  past.restore(saved, START + 60_000)
  expect(past.view('minute', START + 60_000, 2).series.granted).toEqual([1, 2])
})
