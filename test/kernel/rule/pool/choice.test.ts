/** The choice of members, compared with a search through all possible choices of small pools. */
import { expect, test } from 'vitest'
import { type Candidate, choose, type Needs } from '../../../../src/kernel/rule/pool/choice.ts'
import { random } from '../../../support/kernel/stream.ts'

const NOTHING: Needs = { count: 1, units: 0, total: 0, match: [], near: '' }

function member(name: string, room: number, capacity: number, labels: Readonly<Record<string, string>> = {}): Candidate {
  return { name, resource: `p/${name}`, room, capacity, labels: new Map(Object.entries(labels)) }
}

function ordered(members: readonly Candidate[]): Candidate[] {
  return members.filter(({ room }) => room > 0).sort((a, b) => a.room - b.room || (a.name < b.name ? -1 : 1))
}

function* subsets<T>(items: readonly T[]): Generator<T[]> {
  for (let bits = 0; bits < 2 ** items.length; bits++) yield items.filter((_, i) => (bits >> i) & 1)
}

/** The smallest number of members that any choice needs; undefined: there is none. */
function fewest(members: readonly Candidate[], { count, units, total, near }: Needs): number | undefined {
  let best: number | undefined
  for (const subset of subsets(members)) {
    if (subset.length === 0 || (near !== '' && new Set(subset.map(({ labels }) => labels.get(near))).size > 1)) continue
    if (near !== '' && subset.some(({ labels }) => !labels.has(near))) continue
    const able =
      total > 0
        ? subset.reduce((sum, { room }) => sum + room, 0) >= total
        : subset.length === count && subset.every(({ room, capacity }) => (units === 0 ? room === capacity : room >= units))
    if (able && (best === undefined || subset.length < best)) best = subset.length
  }
  return best
}

test('in every small pool a choice is found if and only if there is one, with as few members as possible', () => {
  const below = random(7)
  for (let round = 0; round < 4_000; round++) {
    const members = Array.from({ length: 1 + below(5) }, (_, i) => {
      const capacity = 1 + below(4)
      return member(`m${i}`, below(capacity + 1), capacity, below(3) > 0 ? { host: `h${below(2)}` } : {})
    })
    const total = below(3) === 0 ? 1 + below(8) : 0
    const needs: Needs = {
      ...NOTHING,
      total,
      count: total > 0 ? 0 : 1 + below(3),
      units: total > 0 ? 0 : below(3),
      near: below(2) === 0 ? 'host' : '',
    }
    const free = ordered(members)
    const chosen = choose(free, needs)
    const least = fewest(free, needs)
    expect(chosen === undefined, JSON.stringify({ members, needs })).toBe(least === undefined)
    if (chosen === undefined) continue
    if (needs.near === '') expect(chosen).toHaveLength(least!)
    expect(new Set(chosen.map(({ resource }) => resource)).size).toBe(chosen.length)
    for (const { resource, units } of chosen) expect(units).toBeLessThanOrEqual(free.find(one => one.resource === resource)!.room)
    if (total > 0) expect(chosen.reduce((sum, { units }) => sum + units, 0)).toBe(total)
    const hosts = new Set(chosen.map(({ resource }) => free.find(one => one.resource === resource)!.labels.get('host')))
    if (needs.near !== '') expect([hosts.size, hosts.has(undefined)]).toEqual([1, false])
  }
})

test('the least room that suffices is taken first, then the first name', () => {
  const free = ordered([member('b', 4, 4), member('a', 4, 4), member('c', 2, 4), member('d', 1, 4)])
  const names = (needs: Partial<Needs>) => choose(free, { ...NOTHING, ...needs })?.map(({ resource, units }) => `${resource}:${units}`)
  expect(names({ units: 2 })).toEqual(['p/c:2'])
  expect(names({})).toEqual(['p/a:4'])
  expect(names({ count: 2, units: 1 })).toEqual(['p/d:1', 'p/c:1'])
  expect(names({ count: 0, total: 5 })).toEqual(['p/a:4', 'p/d:1'])
  expect(names({ count: 0, total: 2 })).toEqual(['p/c:2'])
  expect(names({ count: 3 })).toBeUndefined()
})

test('near takes the group with the least room that suffices', () => {
  const free = ordered([
    ...['a', 'b', 'c'].map(name => member(name, 1, 1, { host: 'big' })),
    ...['d', 'e'].map(name => member(name, 1, 1, { host: 'small' })),
    member('f', 1, 1),
  ])
  expect(choose(free, { ...NOTHING, count: 2, near: 'host' })?.map(({ resource }) => resource)).toEqual(['p/d', 'p/e'])
  expect(choose(free, { ...NOTHING, count: 4, near: 'host' })).toBeUndefined()
})
