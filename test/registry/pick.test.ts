import { describe, expect, test } from 'vitest'
import type { RegistrationInput } from '../../src/registry/entry.ts'
import type { PickStrategy } from '../../src/registry/pick.ts'
import { DirectoryFeed } from '../support/directory-feed.ts'
import { random } from '../support/kernel/stream.ts'

describe('a pick', () => {
  function filled(
    n: number,
    each: (i: number) => Partial<RegistrationInput> = () => ({}),
  ): { feed: DirectoryFeed; count: (strategy: PickStrategy, picks: number) => number[] } {
    const feed = new DirectoryFeed()
    for (let i = 0; i < n; i++) feed.register({ service: 's', instance: `${i}`, ...each(i) })
    const draw = random(7)
    const view = feed.directory.view({}, () => draw(1 << 30) / 2 ** 30)
    const count = (strategy: PickStrategy, picks: number) => {
      const counts = new Array<number>(n).fill(0)
      for (let i = 0; i < picks; i++) counts[Number(view.pick({ strategy, key: `k${i}` })!.instance)]!++
      return counts
    }
    return { feed, count }
  }

  test('by round-robin picks each instance equally often', () => {
    expect(filled(5).count('round-robin', 50)).toEqual([10, 10, 10, 10, 10])
  })

  test('by weight picks each instance in proportion, and one of weight 0 never', () => {
    const counts = filled(3, i => ({ weight: [0, 1, 3][i]! })).count('weighted', 20_000)
    expect(counts[0]).toBe(0)
    expect(counts[2]! / counts[1]!).toBeGreaterThan(2.8)
    expect(counts[2]! / counts[1]!).toBeLessThan(3.2)
  })

  test('by weight picks all instances alike if all weights are 0', () => {
    expect(Math.min(...filled(4, () => ({ weight: 0 })).count('weighted', 4_000))).toBeGreaterThan(850)
  })

  test('by least-loaded uses the latest loads, and instances of equal load take turns', () => {
    const { feed, count } = filled(4)
    for (let i = 0; i < 4; i++) feed.state(`s/${i}`, { status: 'passing', load: [5, 1, 9, 1][i] }, i + 1)
    expect(count('least-loaded', 100)).toEqual([0, expect.any(Number), 0, expect.any(Number)])
    expect(count('least-loaded', 100)[1]).toBeGreaterThan(20)
    feed.state('s/2', { status: 'passing', load: 0 }, 3)
    expect(count('least-loaded', 10)).toEqual([0, 0, 10, 0])
  })

  test('by two-choices never picks the most loaded instance, and the least loaded most often', () => {
    const { feed, count } = filled(5)
    for (let i = 0; i < 5; i++) feed.state(`s/${i}`, { status: 'passing', load: i }, i + 1)
    const counts = count('two-choices', 5_000)
    expect(counts[4]).toBe(0)
    expect(counts[0]).toBeGreaterThan(1_800)
    expect(counts.slice(0, 4).every((n, i) => i === 0 || n < counts[i - 1]!)).toBe(true)
  })

  test('by hash gives shares in proportion to the weights, and moves only the keys of an instance that comes or goes', () => {
    for (const weights of [() => 1, (i: number) => 1 + (i % 3)]) {
      const feed = new DirectoryFeed()
      const n = 20
      for (let i = 0; i < n; i++) feed.register({ service: 's', instance: `${i}`, weight: weights(i) })
      const view = feed.directory.view({}, () => 0)
      const keys = Array.from({ length: 20_000 }, (_, i) => `user-${i}`)
      const where = () => keys.map(key => view.pick({ key })!.instance)
      const before = where()
      const total = Array.from({ length: n }, (_, i) => weights(i)).reduce((a, b) => a + b, 0)
      for (let i = 0; i < n; i++) {
        const share = before.filter(instance => instance === `${i}`).length / ((keys.length * weights(i)) / total)
        expect(share).toBeGreaterThan(0.8)
        expect(share).toBeLessThan(1.2)
      }
      feed.apply(['deleted', 'services/s/7', { lease: 8 }])
      const without = where()
      expect(keys.filter((_, i) => before[i] !== without[i] && before[i] !== '7')).toEqual([])
      feed.register({ service: 's', instance: '7', weight: weights(7) })
      expect(where()).toEqual(before)
      feed.register({ service: 's', instance: 'new' })
      const after = where()
      expect(keys.filter((_, i) => before[i] !== after[i] && after[i] !== 'new')).toEqual([])
    }
  })

  test('never returns a draining, maintenance or critical instance, and a suspect or suppressed one only if none is healthy', () => {
    const { feed } = filled(6)
    const view = feed.directory.view({}, () => 0)
    const picked = () => [...new Set(Array.from({ length: 24 }, () => view.pick()?.instance))].sort().join('')
    for (const [i, status] of ['draining', 'maintenance', 'critical'].entries()) feed.state(`s/${i}`, { status, load: 0 }, i + 1)
    expect(picked()).toBe('345')
    feed.apply(['suspected', 'services/s/3'], ['suppressed', 'services/s/4'])
    expect(picked()).toBe('5')
    feed.apply(['deleted', 'services/s/5'])
    expect(picked()).toBe('3')
    feed.apply(['deleted', 'services/s/3'])
    expect(picked()).toBe('4')
    feed.apply(['deleted', 'services/s/4'])
    expect(picked()).toBe('')
  })

  test('returns only the nearest instances, and farther ones when those cannot be picked', () => {
    const { feed } = filled(3, i => ({ zone: ['eu/fra', 'eu/ber', 'us/nyc'][i]! }))
    const view = feed.directory.view({ zone: 'eu/fra' }, () => 0)
    expect(view.pick()!.zone).toBe('eu/fra')
    feed.apply(['suspected', 'services/s/0'])
    expect(view.pick()!.zone).toBe('eu/ber')
    feed.apply(['recovered', 'services/s/0'])
    expect(view.pick()!.zone).toBe('eu/fra')
  })
})
