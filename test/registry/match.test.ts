import { describe, expect, test } from 'vitest'
import type { Filter } from '../../src/registry/match.ts'
import { DirectoryFeed } from '../support/directory-feed.ts'

describe('a filter', () => {
  test('selects by service, by all or any of several capabilities, by tag and by status', () => {
    const feed = new DirectoryFeed()
    feed.register({ service: 'a', instance: '1', capabilities: ['plan', 'review'], tags: ['blue'] })
    feed.register({ service: 'a', instance: '2', capabilities: ['plan'] })
    feed.register({ service: 'b', instance: '1', capabilities: ['review', 'test'], tags: ['blue', 'new'] })
    feed.state('a/2', { status: 'draining', load: 1 }, 2)
    expect(feed.names()).toEqual(['a/1', 'a/2', 'b/1'])
    expect(feed.names({ service: 'a' })).toEqual(['a/1', 'a/2'])
    expect(feed.names({ capability: 'review' })).toEqual(['a/1', 'b/1'])
    expect(feed.names({ capability: ['review', 'plan'] })).toEqual(['a/1'])
    expect(feed.names({ capabilities: ['review', 'plan'] })).toEqual(['a/1'])
    expect(feed.names({ capabilities: { any: ['test', 'plan'] } })).toEqual(['a/1', 'a/2', 'b/1'])
    expect(feed.names({ capabilities: { all: ['review'], any: ['test'] } })).toEqual(['b/1'])
    expect(feed.names({ tag: ['blue', 'new'] })).toEqual(['b/1'])
    expect(feed.names({ status: 'draining' })).toEqual(['a/2'])
    expect(feed.names({ status: ['passing', 'warning'] })).toEqual(['a/1', 'b/1'])
    expect(feed.names({ service: 'c' })).toEqual([])
    expect(feed.directory.services()).toEqual([
      { service: 'a', instances: 2 },
      { service: 'b', instances: 1 },
    ])
    expect(() => feed.names({ unknown: 1 } as Filter)).toThrow(/no filter unknown/)
    expect(() => feed.names({ status: 'fine' as never })).toThrow(/no status fine/)
  })

  test('with a zone sorts the nearest instances first', () => {
    const feed = new DirectoryFeed()
    for (const [instance, zone] of [
      ['1', 'us/nyc/1'],
      ['2', 'eu/fra/2'],
      ['3', 'eu/fra/1'],
      ['4', 'eu/ber/1'],
      ['5', ''],
    ] as const)
      feed.register({ service: 's', instance, zone })
    expect(feed.names({ zone: 'eu/fra/1' })).toEqual(['s/3', 's/2', 's/4', 's/1', 's/5'])
  })
})
