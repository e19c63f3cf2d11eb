import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { TimerWheel, type WheelAlarm } from '../../src/replica/timer-wheel.ts'

class Item implements WheelAlarm {
  bucket: WheelAlarm['bucket'] = undefined
  place = 0
  /** When it is really due; kept by the user of the wheel. */
  due = 0
}

type Step =
  | { readonly kind: 'set'; readonly item: number; readonly in: number }
  | { readonly kind: 'remove'; readonly item: number }
  | { readonly kind: 'pass'; readonly ms: number }

const item = fc.nat({ max: 19 })
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('set' as const), item, in: fc.double({ min: -50, max: 5_000, noNaN: true }) }),
  fc.record({ kind: fc.constant('remove' as const), item }),
  fc.record({ kind: fc.constant('pass' as const), ms: fc.double({ min: 0, max: 700, noNaN: true }) }),
)

describe('a timer wheel', () => {
  test('returns at most as many as asked for, each once, and the rest with the next call', () => {
    const wheel = new TimerWheel<Item>()
    const items = Array.from({ length: 25 }, () => new Item())
    for (const [i, each] of items.entries()) wheel.set(each, i < 3 ? 10 : 1_000)
    const takes = [1, 2, 3, 4].map(() => wheel.take(1_000, 10))
    expect(takes.map(({ length }) => length)).toEqual([10, 10, 5, 0])
    expect(new Set(takes.flat())).toEqual(new Set(items))
    expect([wheel.size, wheel.next()]).toEqual([0, undefined])
  })

  test('returns what a sorted list would: nothing early, nothing later than its grain, everything once', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), fc.constantFrom(1, 10, 64), (steps, grain) => {
        const wheel = new TimerWheel<Item>(grain)
        const items = Array.from({ length: 20 }, () => new Item())
        const naive = new Map<Item, number>()
        let now = 1_000
        const look = () => {
          for (const taken of wheel.take(now)) {
            expect(taken.bucket).toBe(undefined)
            expect(naive.has(taken)).toBe(true)
            // It lay in an earlier bucket than it should by now: the user looks and sets it again.
            if (taken.due > now) wheel.set(taken, taken.due)
            else naive.delete(taken)
          }
          for (const [left, due] of naive) {
            expect(left.bucket).not.toBe(undefined)
            expect(due).toBeGreaterThan(now - grain)
          }
        }
        for (const one of steps) {
          if (one.kind === 'set') {
            const alarm = items[one.item]!
            alarm.due = now + one.in
            wheel.set(alarm, alarm.due)
            naive.set(alarm, alarm.due)
          } else if (one.kind === 'remove') {
            wheel.remove(items[one.item]!)
            naive.delete(items[one.item]!)
          } else {
            // As a timer that is armed for `next`, and once more at the end.
            const end = now + one.ms
            for (let next = wheel.next(); next !== undefined && next <= end; next = wheel.next()) {
              now = Math.max(now, next)
              look()
            }
            now = end
            look()
          }
          expect(wheel.size).toBe(naive.size)
          const next = wheel.next()
          expect(next === undefined).toBe(naive.size === 0)
          if (next !== undefined) expect(next).toBeLessThan(Math.min(...naive.values()) + grain)
        }
      }),
      { numRuns: 300 },
    )
  })

  test('never returns an alarm before its time, and at most one grain after it', () => {
    const wheel = new TimerWheel<Item>(10)
    for (let i = 0; i < 1_000; i++) {
      const alarm = new Item()
      const due = 5_000 + i * 3.7
      wheel.set(alarm, due)
      const at = wheel.next()!
      expect(at).toBeGreaterThanOrEqual(due)
      expect(at).toBeLessThan(due + 10)
      expect(wheel.take(due - 0.001)).toEqual([])
      expect(wheel.take(at)).toEqual([alarm])
    }
    expect(wheel.next()).toBe(undefined)
    expect(wheel.size).toBe(0)
  })

  test('leaves the alarm in its bucket when its deadline moves back: a renewal costs nothing', () => {
    const wheel = new TimerWheel<Item>(10)
    const alarm = new Item()
    wheel.set(alarm, 1_000)
    const { bucket } = alarm
    wheel.set(alarm, 50_000)
    expect(alarm.bucket).toBe(bucket)
    wheel.set(alarm, 500)
    expect(wheel.next()).toBe(500)
    expect(wheel.size).toBe(1)
  })
})
