/** Forecasts of starts: simple pools whose answer is known, and the share of starts that the interval contains. */
import { describe, expect, test } from 'vitest'
import { type DurationModel, logLogistic, statedDuration, UNKNOWN_DURATION } from '../../src/pool/duration-model.ts'
import { forecastStart as forecast } from '../../src/pool/forecast.ts'
import type { ForecastInput, ForecastRequest } from '../../src/pool/forecast-input.ts'

type Known = Omit<ForecastInput, 'waiter'> & { readonly queue: readonly ForecastRequest[] }

function forecastStart({ queue, ...input }: Known, position: number) {
  return forecast({ ...input, waiter: at => queue[at]! }, position)
}

/** Work that always takes exactly this long. */
const exactly = (ms: number): DurationModel => ({ remaining: age => () => Math.max(0, ms - age) })

const members = (count: number) => Array.from({ length: count }, (_, member) => member)

function request(changes: Partial<ForecastRequest> = {}): ForecastRequest {
  return { matching: members(2), count: 1, each: 0, total: 0, duration: exactly(1_000), ...changes }
}

function busy(changes: Partial<Known> = {}): Known {
  return {
    units: [1, 1],
    running: [
      { takes: [{ member: 0, units: 1 }], age: 0, duration: exactly(1_000) },
      { takes: [{ member: 1, units: 1 }], age: 400, duration: exactly(1_000) },
    ],
    queue: [request(), request(), request({ count: 2 }), request()],
    discipline: 'fifo',
    ...changes,
  }
}

describe('a forecast', () => {
  test('plays the queue in its order when durations are certain', () => {
    for (const [position, start] of [600, 1_000, 2_000, 3_000].entries())
      expect(Math.round(forecastStart(busy(), position).median / 100)).toBe(start / 100)
  })

  test('lets a waiter that fits go first where overtaking is allowed', () => {
    const input = busy({ queue: [request({ count: 2 }), request()], discipline: 'fit' })
    expect(Math.round(forecastStart(input, 1).median / 100)).toBe(6)
    expect(Math.round(forecastStart({ ...input, discipline: 'fifo' }, 1).median / 100)).toBe(20)
  })

  test('under `backfill`, lets a waiter overtake that says it ends before the head starts, and no other', () => {
    const running = [{ takes: [{ member: 0, units: 1 }], age: 400, duration: exactly(1_000), expect: 1_000 }]
    const starts = (changes: Partial<ForecastRequest>) => {
      const queue = [request({ count: 2 }), request(changes)]
      return Math.round(forecastStart({ ...busy({ running, queue }), discipline: 'backfill' }, 1).median / 100)
    }
    expect(starts({ expect: 500 })).toBe(0)
    expect(starts({ expect: 700 })).toBe(16)
    expect(starts({})).toBe(16)
    expect(starts({ preemptible: true })).toBe(0)
  })

  test('under `backfill`, ends leases that overtook as soon as the head would fit without them', () => {
    const running = [
      { takes: [{ member: 0, units: 1 }], age: 0, duration: exactly(500), expect: 500 },
      { takes: [{ member: 1, units: 1 }], age: 0, duration: exactly(9_000), expect: 500, yields: true },
    ]
    const input = busy({ running, queue: [request({ count: 2 })], discipline: 'backfill' })
    expect(Math.round(forecastStart(input, 0).median / 100)).toBe(5)
  })

  test('under `fair`, lets a waiter go past one that cannot use the same members', () => {
    const running = [{ takes: [{ member: 0, units: 1 }], age: 0, duration: exactly(1_000) }]
    const queue = [request({ matching: [0] }), request({ matching: [1] })]
    expect(forecastStart(busy({ running, queue, discipline: 'fair' }), 1).median).toBe(0)
    expect(forecastStart(busy({ running, queue, discipline: 'fifo' }), 1).median).toBeGreaterThan(0)
  })

  test('says now for a waiter that fits, and Infinity for one that can never start', () => {
    expect(forecastStart(busy({ running: [] }), 0)).toEqual({ low: 0, median: 0, high: 0 })
    expect(forecastStart(busy({ queue: [request({ count: 3 })] }), 0).high).toBe(Number.POSITIVE_INFINITY)
  })

  test('counts a hard end before the distribution', () => {
    const running = busy().running.map(use => ({ ...use, duration: UNKNOWN_DURATION, atMost: 250 }))
    expect(forecastStart(busy({ running, queue: [request({ count: 2 })] }), 0).high).toBeLessThanOrEqual(250)
  })

  test('takes units of several members, and members of one group only', () => {
    const units = [4, 4, 4, 4]
    const running = [0, 2].map(member => ({ takes: [{ member, units: 3 }], age: 0, duration: exactly(100 + member) }))
    const total = request({ matching: members(4), total: 10 })
    expect(forecastStart({ units, running, queue: [total], discipline: 'fifo' }, 0).median).toBe(0)
    const near = request({ matching: members(4), count: 2, groups: [0, 1, 0, 1] })
    const wholeFirst = { units, running: [...running, { takes: [{ member: 1, units: 1 }], age: 0, duration: exactly(500) }] }
    expect(forecastStart({ ...wholeFirst, queue: [near], discipline: 'fifo' }, 0).median).toBe(102)
  })

  test('sums up the work of a long queue', () => {
    const queue = Array.from({ length: 5_000 }, () => request({ matching: members(2) }))
    const { low, median, high } = forecastStart(busy({ queue }), 4_999)
    expect(median).toBeGreaterThan(2_400_000)
    expect(median).toBeLessThan(2_600_000)
    expect(low).toBeLessThanOrEqual(median)
    expect(high).toBeGreaterThanOrEqual(median)
  })

  test('gives the same answer to the same question', () => {
    const input = busy({ running: busy().running.map(use => ({ ...use, duration: logLogistic(5_000, 1.2) })) })
    expect(forecastStart(input, 3)).toEqual(forecastStart(input, 3))
  })

  test('contains about 80 % of the starts when durations follow the model', () => {
    const model = logLogistic(10_000, 1.5)
    const shared = members(4)
    const queue = Array.from({ length: 6 }, () => request({ matching: shared, duration: model }))
    let inside = 0
    const worlds = 200
    for (let seed = 1; seed <= worlds; seed++) {
      const random = chances(seed)
      const ages = shared.map(() => 20_000 * random())
      const input: Known = {
        units: [1, 1, 1, 1],
        running: shared.map(member => ({ takes: [{ member, units: 1 }], age: ages[member]!, duration: model })),
        queue,
        discipline: 'fifo',
      }
      const { low, high } = forecastStart(input, 5)
      // What really happens: every lease draws its duration once.
      const drawn = (age: number) => exactly(age + model.remaining(age)(random()))
      const real: Known = {
        ...input,
        running: input.running.map(use => ({ ...use, duration: drawn(use.age) })),
        queue: queue.map(waiter => ({ ...waiter, duration: drawn(0) })),
      }
      const start = forecastStart(real, 5).median
      if (start >= low && start <= high) inside++
    }
    expect(inside / worlds).toBeGreaterThan(0.7)
    expect(inside / worlds).toBeLessThan(0.9)
  })
})

describe('a duration model', () => {
  test('expects work that has run long to run longer', () => {
    const young = UNKNOWN_DURATION.remaining(0)(0.5)
    const old = UNKNOWN_DURATION.remaining(3_600_000)(0.5)
    expect(young).toBeCloseTo(60_000)
    expect(old).toBeGreaterThan(3_600_000)
  })

  test('puts half of the work before 0.7 of its stated duration', () => {
    expect(statedDuration(10_000).remaining(0)(0.5)).toBeCloseTo(7_000)
  })
})

function chances(seed: number): () => number {
  let state = seed * 2_654_435_761
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return (state + 0.5) / 4_294_967_296
  }
}
