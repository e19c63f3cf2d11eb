import { describe, expect, test } from 'vitest'
import { levelsOf, MAX_CLASSES } from '../../../src/kernel/rule/learn.ts'
import { BINS, EDGES } from '../../../src/kernel/state/durations.ts'
import { reload, World } from '../../support/kernel/world.ts'

const learn = (name: string) => [['learn', name] as const]

describe('a renewal with a ttl', () => {
  test('lengthens the term, and a late copy of an earlier one does not shorten it', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    expect(world.do({ kind: 'renew', leases: [lease], ttl: 60_000 })).toMatchObject({ ttls: [60_000] })
    expect(world.do({ kind: 'renew', leases: [lease], ttl: 20_000 })).toMatchObject({ ttls: [60_000] })
    expect(world.renew(lease)).toBe(60_000)
    expect(world.state.longest).toBe(60_000)
  })

  test('goes no further than the policies of all its resources allow', () => {
    const world = new World()
    world.policy('x', { ttlMax: 40_000 })
    const { lease } = world.acquire('a', ['x', 'y'])
    expect(world.do({ kind: 'renew', leases: [lease], ttl: 60_000 })).toMatchObject({ ttls: [40_000] })
    const free = world.acquire('b', [])
    expect(world.do({ kind: 'renew', leases: [free.lease], ttl: 1e12 })).toMatchObject({ ttls: [86_400_000] })
  })
})

describe('the end of a lease with a class', () => {
  test('counts for each level of the class, with the duration that its holder says', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'jobs/1', { labels: learn('jobs/model=a100') })
    world.do({ kind: 'release', lease, ran: 1_234 })
    expect([...world.state.durations.keys()]).toEqual(['', 'jobs', 'jobs/model=a100'])
    expect(world.state.durations.get('jobs')).toMatchObject({ ended: 1, died: 0 })
    expect([...reload(world.state).durations]).toEqual([...world.state.durations])
  })

  test('by a lapse counts as a death, not much longer than its holder lived', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'jobs/1', { labels: learn('jobs') })
    world.state.wall += 100_000
    world.due(lease)
    const { ended, died, sums, counts } = world.state.durations.get('jobs')!
    expect([ended, died]).toEqual([1, 1])
    expect(counts.filter(count => count !== undefined)).toEqual([1])
    expect(sums.filter(sum => sum !== undefined)).toHaveLength(1)
  })

  test.each([0, 10_000])('by a lapse with a grace period of %i ms counts as long as its holder lived', grace => {
    const world = new World()
    const { lease } = world.acquire('a', 'jobs/1', { ttl: 600_000, labels: learn('jobs'), ...(grace > 0 && { grace }) })
    world.renew(lease) // then the holder dies
    world.state.wall += 600_000
    world.due(lease)
    world.state.wall += grace
    if (grace > 0) world.due(lease)
    expect(world.lease(lease)).toBeUndefined()
    const { sums } = world.state.durations.get('jobs')!
    const bin = sums.findIndex(sum => sum !== undefined)
    expect(EDGES[bin % BINS]! + sums[bin]!).toBe(150_000)
  })

  test('by a revocation counts nothing: the work was not over', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'jobs/1', { labels: learn('jobs') })
    world.do({ kind: 'revoke', target: { lease }, force: true })
    expect(world.state.durations.size).toBe(0)
  })

  test('counts only for classes that begin like one of its resources', () => {
    const world = new World()
    for (const name of ['gpu', '', 'job', 'jobs'.repeat(100)]) {
      const { lease } = world.acquire('a', 'jobs/1', { labels: learn(name) })
      world.do({ kind: 'release', lease, ran: 5 })
    }
    expect(world.state.durations.size).toBe(0)
  })

  test('forgets the class in which nothing ended for longest, and never all work', () => {
    const world = new World({ strict: false })
    for (let i = 0; i < MAX_CLASSES + 50; i++) {
      const { lease } = world.acquire('a', 'jobs/1', { labels: learn(`jobs/${i}`) })
      world.do({ kind: 'release', lease, ran: 5 })
    }
    expect(world.state.durations.size).toBe(MAX_CLASSES)
    expect(world.state.durations.get('')!.ended).toBe(MAX_CLASSES + 50)
    expect(world.state.durations.has('jobs/0')).toBe(false)
    expect(world.state.durations.has('jobs')).toBe(true)
  })

  test('has levels from all work to the class itself', () => {
    expect(levelsOf('')).toEqual([''])
    expect(levelsOf('a/b')).toEqual(['', 'a', 'a/b'])
    expect(levelsOf('a/b/c/d/e/f')).toEqual(['', 'a', 'a/b', 'a/b/c', 'a/b/c/d/e/f'])
  })
})
