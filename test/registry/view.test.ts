import { expect, test } from 'vitest'
import type { Filter, Instance } from '../../src/registry/match.ts'
import { DirectoryFeed } from '../support/directory-feed.ts'
import { random } from '../support/kernel/stream.ts'

test('a view and a search return the same as a naive search, after any events', () => {
  const filters: Filter[] = [
    {},
    { service: 's1' },
    { capability: 'c1' },
    { capabilities: { any: ['c0', 'c2'] } },
    { tag: 't1', status: 'passing' },
  ]
  for (let seed = 1; seed <= 20; seed++) {
    const draw = random(seed)
    const feed = new DirectoryFeed()
    const views = filters.map(filter => feed.directory.view(filter, () => 0))
    for (let i = 0; i < 300; i++) {
      const name = { service: `s${draw(3)}`, instance: `${draw(6)}` }
      const key = `services/${name.service}/${name.instance}`
      const dice = draw(10)
      const lease = feed.directory.get(name.service, name.instance)?.lease ?? 0
      if (dice < 4)
        feed.register({
          ...name,
          capabilities: ['c0', 'c1', 'c2'].filter(() => draw(2) === 0),
          tags: ['t0', 't1'].filter(() => draw(2) === 0),
        })
      else if (dice < 6) feed.apply(['deleted', key, { lease }])
      else if (dice < 8) feed.state(`${name.service}/${name.instance}`, { status: ['passing', 'warning'][draw(2)], load: draw(9) }, lease)
      else feed.apply([(['suspected', 'recovered', 'suppressed', 'reused'] as const)[draw(4)]!, key, { lease }])
      for (const [n, filter] of filters.entries()) {
        const naive = feed.directory.list().filter(instance => matchesNaively(filter, instance))
        expect(feed.directory.list(filter)).toEqual(naive)
        expect(views[n]!.list()).toEqual(naive)
      }
    }
  }
})

function matchesNaively(filter: Filter, { service, capabilities, tags, status }: Instance): boolean {
  const { any = [] } = (filter.capabilities ?? {}) as { any?: readonly string[] }
  if (filter.service !== undefined && filter.service !== service) return false
  if (filter.capability !== undefined && !capabilities.includes(filter.capability as string)) return false
  if (any.length > 0 && !any.some(capability => capabilities.includes(capability))) return false
  return (filter.tag === undefined || tags.includes(filter.tag as string)) && (filter.status === undefined || filter.status === status)
}
