import { describe, expect, test } from 'vitest'
import { RecentEvents } from '../../src/kernel/event.ts'
import { rule, ruledBy } from '../../src/kernel/policy.ts'
import { World } from '../support/kernel/world.ts'

describe('a policy', () => {
  test('each rule is taken from the longest prefix that has it, by whole segments', () => {
    const world = new World()
    world.policy('', { capacity: 2, ttlMax: 50_000 })
    world.policy('gpu/', { capacity: 4 })
    world.policy('gpu/a100', { lockDelay: 7 })
    const rules = (name: string) => [
      rule(world.state, name, 'capacity'),
      rule(world.state, name, 'lockDelay'),
      rule(world.state, name, 'ttlMax'),
    ]
    expect(rules('gpu/a100/3')).toEqual([4, 7, 50_000])
    expect(rules('gpu/a100')).toEqual([4, 7, 50_000])
    expect(rules('gpu/a1000')).toEqual([4, 0, 50_000])
    expect(rules('gpus')).toEqual([2, 0, 50_000])
    expect(ruledBy(world.state, 'gpu/a100/3', 'capacity')).toBe('gpu')
    expect(ruledBy(world.state, 'gpu/a100/3', 'grace')).toBeUndefined()
  })

  test('is replaced as a whole, and can be taken away', () => {
    const world = new World()
    world.policy('x', { capacity: 3, lockDelay: 5 })
    world.policy('x/', { capacity: 2 })
    expect([rule(world.state, 'x', 'capacity'), rule(world.state, 'x', 'lockDelay')]).toEqual([2, 0])
    expect(world.do({ kind: 'policy', prefix: 'x' })).toMatchObject({ kind: 'done' })
    expect(rule(world.state, 'x', 'capacity')).toBe(1)
    world.refused(world.do({ kind: 'policy', prefix: 'x' }), 'NOT_FOUND', /for x/)
    world.refused(world.do({ kind: 'policy', prefix: '' }), 'NOT_FOUND', /for everything/)
  })

  test('bounds the ttl of what is asked for, and never shortens one that was acknowledged', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { ttl: 60_000 })
    world.renew(lease)
    world.policy('x', { ttlMin: 1_000, ttlMax: 5_000 })
    expect(world.lease(lease)!.term).toBe(60_000)
    expect(world.renew(lease)).toBe(60_000)
    world.refused(world.ask('b', 'x/2', { ttl: 5_001 }), 'INVALID', /1000 to 5000 ms.*x\/2/)
    world.refused(world.ask('b', ['y', 'x/2'], { ttl: 999 }), 'INVALID')
    world.refused(world.ask('b', [], { ttl: 999, entries: [{ key: 'x/e', value: '' }] }), 'INVALID')
    world.acquire('b', 'x/2', { ttl: 5_000 })
    world.policy('x/3', { ttlMin: 700, ttlMax: 700 })
    world.acquire('b', 'x/3', { ttl: 700 })
  })

  test('is told to those who watch', () => {
    const world = new World()
    world.policy('x', { capacity: 2 })
    expect(world.events).toMatchObject([{ type: 'policy', key: 'x', lease: 0 }])
  })
})

describe('a fence', () => {
  test('never accepts a token after a newer one, and accepts the newest again', () => {
    const world = new World()
    const tokens = [1, 2, 3].map(() => {
      const { lease, tokens } = world.acquire('a', 'x')
      world.release(lease)
      return tokens[0]!
    })
    const show = (token: number) => world.do({ kind: 'fence', resource: 'x', token })
    expect(show(tokens[1]!)).toMatchObject({ kind: 'fenced', highest: tokens[1] })
    world.refused(show(tokens[0]!), 'STALE', /already seen/)
    expect(show(tokens[1]!)).toMatchObject({ kind: 'fenced' })
    expect(show(tokens[2]!)).toMatchObject({ kind: 'fenced' })
    expect(world.refused(show(tokens[1]!), 'STALE').facts).toMatchObject({ highest: tokens[2] })
    expect(world.do({ kind: 'fence', resource: 'y', token: tokens[0]! }), 'each resource for itself').toMatchObject({ kind: 'fenced' })
  })

  test('cannot be locked with a token that was never given', () => {
    const world = new World()
    world.acquire('a', 'x')
    world.refused(world.do({ kind: 'fence', resource: 'x', token: 2 }), 'INVALID', /never given/)
  })
})

describe('recent events', () => {
  const event = (revision: number) => ({ revision, type: 'granted', lease: 1, at: 0 }) as const

  test('are given one array per revision after the one that is named', () => {
    const recent = new RecentEvents(10)
    recent.push([event(11), event(11)])
    recent.push([event(13)])
    expect(recent.after(10)!.revisions).toEqual([[event(11), event(11)], [event(13)]])
    expect(recent.after(11)!.revisions).toEqual([[event(13)]])
    expect(recent.after(12)!.revisions).toEqual([[event(13)]])
    expect(recent.after(13)!.revisions).toEqual([])
    expect(recent.after(99)!.revisions).toEqual([])
  })

  test('that are no longer known are never passed over in silence', () => {
    const recent = new RecentEvents(10, { limit: 3 })
    expect(recent.after(9)).toBeUndefined()
    for (let revision = 11; revision <= 20; revision++) recent.push([event(revision)])
    expect(recent.after(16)).toBeUndefined()
    expect(recent.after(17)!.revisions.map(([first]) => first!.revision)).toEqual([18, 19, 20])
    recent.push([21, 21, 21, 21].map(event))
    expect(recent.after(20)).toBeUndefined()
    expect(recent.after(21)!.revisions).toEqual([])
  })

  test('stay right over many thousands', () => {
    const recent = new RecentEvents(0, { limit: 10 })
    for (let revision = 1; revision <= 20_000; revision++) recent.push([event(revision)])
    expect(recent.after(19_995)!.revisions.map(([first]) => first!.revision)).toEqual([19_996, 19_997, 19_998, 19_999, 20_000])
    expect(recent.after(19_989)).toBeUndefined()
  })

  test('take bounded memory, however large each of them is', () => {
    const recent = new RecentEvents(0)
    const texts = { value: 'v'.repeat(16_384), key: 'k' } // one text that is shared: what is counted counts
    for (let revision = 1; revision <= 60_000; revision++) recent.push([{ ...event(revision), ...texts }])
    expect(recent.bytes).toBeLessThanOrEqual(64 << 20)
    expect(recent.bytes).toBeGreaterThan(60 << 20)
    expect(recent.after(57_000)).toBeUndefined()
    expect(recent.after(59_990)!.revisions.length).toBe(8) // of 32 KiB each: a watcher that never reads keeps no more
    expect(recent.after(59_998)!.upTo).toBe(60_000)
  })

  test('are all that came after a revision, or none, whatever their sizes', () => {
    let seed = 1
    const random = (below: number) => {
      seed = (seed * 48_271) % 2_147_483_647
      return seed % below
    }
    for (const [limit, bytes] of [
      [50, 1e9],
      [1_000, 4_000],
      [200, 10_000],
    ] as const) {
      const recent = new RecentEvents(0, { limit, bytes })
      const all: { readonly revision: number; readonly value: string }[] = []
      for (let revision = 1; revision <= 3_000; revision++) {
        const made = Array.from({ length: 1 + random(4) }, () => ({
          ...event(revision),
          value: 'x'.repeat(random(3) === 0 ? random(900) : 3),
        }))
        recent.push(made)
        all.push(...made)
        const after = Math.max(0, revision - random(60))
        const given = recent.after(after)
        expect(recent.bytes).toBeLessThanOrEqual(Math.max(bytes, 2 * 900))
        if (given === undefined) {
          const since = all.filter(one => one.revision >= after)
          expect(since.length >= limit || since.reduce((sum, { value }) => sum + 2 * value.length, 0) > bytes - 1_800).toBe(true)
        } else
          expect(given.revisions.flat().map(({ value }) => value)).toEqual(
            all.filter(one => one.revision > after && one.revision <= given.upTo).map(({ value }) => value),
          )
      }
    }
  })
})

describe('objects of the asker', () => {
  test('are not part of the state: it may go on to use them', () => {
    const world = new World()
    const rules = { capacity: 1 }
    world.do({ kind: 'policy', prefix: 'pool', rules })
    rules.capacity = 4
    expect(rule(world.state, 'pool', 'capacity')).toBe(1)
    const labels: [string, string][] = [['team', 'a']]
    const { lease } = world.acquire('ann', 'pool', { labels })
    labels[0]![1] = 'b'
    expect(world.lease(lease)!.rare!.labels).toEqual([['team', 'a']])
  })

  test('of several mistakes everyone names the same, whatever the order they were written in', () => {
    const said = [
      { flapHalfLife: 5, ttlMin: 0 },
      { ttlMin: 0, flapHalfLife: 5 },
    ].map(rules => new World().refused(new World().do({ kind: 'policy', prefix: 'a', rules }), 'INVALID').message)
    expect(said[0]).toBe(said[1])
  })
})
