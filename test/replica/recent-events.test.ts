import { describe, expect, test } from 'vitest'
import { EVENT_TYPES, type Event } from '../../src/kernel/event.ts'
import { RecentEvents } from '../../src/replica/recent-events.ts'

describe('recent events', () => {
  const event = (revision: number) => ({ revision, type: 'granted', lease: 1, at: 0 }) as const

  test('are returned as one array per revision after the given one', () => {
    const recent = new RecentEvents(10)
    recent.push([event(11), event(11)])
    recent.push([event(13)])
    expect(recent.after(10)!.revisions).toEqual([[event(11), event(11)], [event(13)]])
    expect(recent.after(11)!.revisions).toEqual([[event(13)]])
    expect(recent.after(12)!.revisions).toEqual([[event(13)]])
    expect(recent.after(13)!.revisions).toEqual([])
    expect(recent.after(99)!.revisions).toEqual([])
  })

  test('have all their properties, whatever was written to their place before', () => {
    const recent = new RecentEvents(0, { limit: 100 })
    const optional = { holder: 'h', resource: 'r', token: 2 ** 52, key: 'k', value: 'v', cause: 'c', by: 'b' }
    const events: Event[] = Array.from({ length: 350 }, (_, i): Event => {
      const kept = Object.entries(optional).filter((_, nth) => (i >> (nth % 7)) % 2 === 1)
      return {
        revision: i + 1,
        type: EVENT_TYPES[i % EVENT_TYPES.length]!,
        lease: 2 ** 52 + i,
        at: i / 2,
        ...Object.fromEntries(kept),
      } satisfies Event
    }).filter(({ type }) => type !== 'generation' && type !== 'moved')
    const filtered: unknown[] = []
    for (const each of events) recent.push([each])
    const answer = recent.after(
      events.at(-60)!.revision - 1,
      ({ type, lease, resource, key }) => filtered.push({ type, lease, resource, key }) > 0,
    )
    expect(answer!.revisions).toEqual(events.slice(-60).map(each => [each]))
    expect(filtered).toEqual(events.slice(-60).map(({ type, lease, resource, key }) => ({ type, lease, resource, key })))
  })

  test('that were dropped are reported as a gap, never skipped', () => {
    const recent = new RecentEvents(10, { limit: 3 })
    expect(recent.after(9)).toBeUndefined()
    for (let revision = 11; revision <= 20; revision++) recent.push([event(revision)])
    expect(recent.after(16)).toBeUndefined()
    expect(recent.after(17)!.revisions.map(([first]) => first!.revision)).toEqual([18, 19, 20])
    recent.push([21, 21, 21, 21].map(event))
    expect(recent.after(20)).toBeUndefined()
    expect(recent.after(21)!.revisions).toEqual([])
  })

  test('are correct after the ring has been overwritten many times', () => {
    const recent = new RecentEvents(0, { limit: 10 })
    for (let revision = 1; revision <= 20_000; revision++) recent.push([event(revision)])
    expect(recent.after(19_995)!.revisions.map(([first]) => first!.revision)).toEqual([19_996, 19_997, 19_998, 19_999, 20_000])
    expect(recent.after(19_989)).toBeUndefined()
  })

  test('take bounded memory, however large each of them is', () => {
    const recent = new RecentEvents(0)
    const texts = { value: 'v'.repeat(16_384), key: 'k' } // one shared text: the test is about the counted bytes
    for (let revision = 1; revision <= 60_000; revision++) recent.push([{ ...event(revision), ...texts }])
    expect(recent.bytes).toBeLessThanOrEqual(64 << 20)
    expect(recent.bytes).toBeGreaterThan(60 << 20)
    expect(recent.after(57_000)).toBeUndefined()
    expect(recent.after(59_990)!.revisions.length).toBe(8) // of 32 KiB each: a watcher that never reads holds no more
    expect(recent.after(59_998)!.upTo).toBe(60_000)
  })

  test('are returned completely or not at all, whatever their sizes', () => {
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
        const lately = all.slice(-60 * 4)
        const given = recent.after(after)
        expect(recent.bytes).toBeLessThanOrEqual(Math.max(bytes, 2 * 900))
        if (given === undefined) {
          const since = lately.filter(one => one.revision >= after)
          expect(since.length >= limit || since.reduce((sum, { value }) => sum + 2 * value.length, 0) > bytes - 1_800).toBe(true)
        } else
          expect(given.revisions.flat().map(({ value }) => value)).toEqual(
            lately.filter(one => one.revision > after && one.revision <= given.upTo).map(({ value }) => value),
          )
      }
    }
  })
})
