import { describe, expect, test } from 'vitest'
import type { EntryView } from '../../src/lessor.ts'
import { DirectoryFeed } from '../support/directory-feed.ts'

describe('a directory', () => {
  test('shows the declared status first, then the check result, then a missed renewal, then flapping', () => {
    const feed = new DirectoryFeed()
    const lease = feed.register({ service: 's', instance: '1' })
    const status = () => feed.directory.get('s', '1')!.status
    feed.apply(['put', 'services/s/1/check', { value: '{"status":"warning"}' }])
    expect(status()).toBe('warning')
    feed.apply(['suppressed', 'services/s/1'])
    expect(status()).toBe('suppressed')
    feed.apply(['suspected', 'services/s/1'])
    expect(status()).toBe('suspect')
    feed.apply(['put', 'services/s/1/check', { value: '{"status":"critical","reason":"no answer"}' }])
    expect(feed.directory.get('s', '1')).toMatchObject({ status: 'critical', reason: 'no answer' })
    feed.state('s/1', { status: 'maintenance', load: 0 }, lease)
    expect(status()).toBe('maintenance')
    feed.apply(
      ['deleted', 'services/s/1/check'],
      ['deleted', 'services/s/1/state'],
      ['recovered', 'services/s/1'],
      ['reused', 'services/s/1'],
    )
    expect(status()).toBe('passing')
  })

  test('ignores the state and suspicion of a predecessor', () => {
    const feed = new DirectoryFeed()
    const old = feed.register({ service: 's', instance: '1' })
    feed.state('s/1', { status: 'draining', load: 9 }, old)
    feed.apply(['suspected', 'services/s/1'])
    feed.register({ service: 's', instance: '1' })
    expect(feed.directory.get('s', '1')).toMatchObject({ status: 'passing', load: 0 })
    feed.state('s/1', { status: 'critical', load: 9 }, old)
    expect(feed.directory.get('s', '1')).toMatchObject({ status: 'passing', load: 0 })
  })

  test('is empty after all instances were removed', () => {
    const feed = new DirectoryFeed()
    for (const instance of ['1', '2']) {
      feed.register({ service: 's', instance, capabilities: ['c'], tags: ['t'] })
      feed.state(`s/${instance}`, { status: 'warning', load: 1 })
      feed.apply(['deleted', `services/s/${instance}`], ['deleted', `services/s/${instance}/state`])
    }
    expect([feed.names(), feed.directory.size, feed.directory.services()]).toEqual([[], 0, []])
  })

  test('knows which services are in self-preservation, and why', () => {
    const feed = new DirectoryFeed()
    feed.apply(['preserving', 'services/s', { cause: 'suspect 4/20' }])
    expect([...feed.directory.preserved]).toEqual([['s', '4 of 20 missed a renewal: lapses are slowed']])
    feed.apply(['relaxed', 'services/s'])
    expect(feed.directory.preserved.size).toBe(0)
  })

  test('reports only differences when it is loaded again', () => {
    const feed = new DirectoryFeed()
    feed.register({ service: 's', instance: '1' })
    feed.register({ service: 's', instance: '2' })
    feed.register({ service: 's', instance: '3' })
    const changes: string[] = []
    feed.directory.listen((_, before, after) =>
      changes.push(`${before?.status ?? '-'} ${after?.status ?? '-'} ${(after ?? before)!.instance}`),
    )
    const entry = (instance: string, lease: number, more: Partial<EntryView> = {}): EntryView => ({
      ...{ key: `services/s/${instance}`, value: '{"addresses":["h:1"]}', lease, holder: 'h', incarnation: 1, status: 'live', revision: 1 },
      ...{ created: 1, version: 1, generation: 0, suppressed: false, remaining: 1, ...more },
    })
    feed.directory.load([entry('1', 1), entry('2', 2, { status: 'suspect' }), entry('4', 4)], 9)
    expect(changes).toEqual(['passing - 3', 'passing suspect 2', '- passing 4'])
    expect(feed.directory.revision).toBe(9)
  })
})
