import { expect, test } from 'vitest'
import { type Duration, inWords, milliseconds, parseDuration } from '../src/duration.ts'

test('a duration is whole milliseconds, or a text with units', () => {
  const durations: readonly (readonly [Duration, number])[] = [
    [0, 0],
    [250, 250],
    ['250ms', 250],
    ['30s', 30_000],
    ['1.5s', 1_500],
    ['5m', 300_000],
    ['1h30m', 5_400_000],
    ['7d', 604_800_000],
  ]
  for (const [duration, ms] of durations) expect(milliseconds(duration, 'ttl')).toBe(ms)
})

test('the compiler refuses a text that is no duration', () => {
  const lengths = (...durations: readonly Duration[]) => durations.length
  // @ts-expect-error there is no unit sec
  lengths('30sec')
  // @ts-expect-error a unit is missing
  lengths('30')
  // @ts-expect-error a text that was read at run time goes through parseDuration
  lengths(String(process.env.TTL))
  expect(lengths('30s', '1h30m', 500)).toBe(3)
})

test('a text from outside that is no duration is INVALID, with the name of the option', () => {
  for (const text of ['30sec', '', 's', '-1s', '1 s', '1e3s', 'forever', '1.0001x'])
    expect(() => parseDuration(text, '--ttl'), text).toThrow(
      expect.objectContaining({ code: 'INVALID', message: expect.stringContaining('--ttl') }),
    )
  expect(() => parseDuration('30', '--ttl')).toThrow(/--ttl '30' has no unit: write '30s' for seconds or '30ms' for milliseconds/)
  for (const number of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) expect(() => parseDuration(number)).toThrow(/whole milliseconds/)
})

test('messages round durations', () => {
  expect([350, 4_200, 180_000, 9_000_000].map(inWords)).toEqual(['350 ms', '4.2 s', '3 min', '2.5 h'])
})
