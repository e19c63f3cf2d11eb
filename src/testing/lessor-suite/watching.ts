/** The contract of a lessor: watches. */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import type { Event } from '../../kernel/event.ts'
import { propose } from '../../lessor/propose.ts'
import { within } from '../suite-case.ts'
import { acquire, done, granted, types } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const watchingCases: LessorCases = {
  'a watch yields every change once, in order, one array for each revision': async log => {
    const lessor = await log.open()
    const { revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
    await using watcher = log.watch(lessor, '', revision)
    const last = await log.busyLife(lessor)
    await watcher.at(last)
    const revisions = watcher.seen.map(events => events[0]!.revision)
    for (const [i, events] of watcher.seen.entries()) {
      assert.ok(events.length > 0)
      for (const event of events) assert.equal(event.revision, revisions[i])
      if (i > 0) assert.equal(revisions[i], revisions[i - 1]! + 1)
    }
    assert.equal(revisions.at(-1), last)
  },

  'a watch can resume after any revision, on any lessor, and misses nothing': async log => {
    const [a, b] = await log.pair()
    granted(await propose(a, acquire('first', ['first'])))
    const { revision } = await a.read({ kind: 'summary' }, { consistent: true })
    await using full = log.watch(a, '', revision)
    const last = await log.busyLife(a)
    await full.at(last)
    for (let i = 0; i < full.seen.length; i++) {
      await using resumed = log.watch(i % 2 === 0 ? b : a, '', full.seen[i]![0]!.revision)
      if (i < full.seen.length - 1) await resumed.at(last)
      assert.deepEqual(resumed.seen, full.seen.slice(i + 1))
    }
  },

  'a watch without a revision begins with the next change': async log => {
    const lessor = await log.open()
    granted(await propose(lessor, acquire('ann', ['a'])))
    await using watcher = log.watch(lessor, '')
    await watcher.begun(lessor)
    const { revision } = granted(await propose(lessor, acquire('ann', ['b'])))
    await watcher.at(revision)
    assert.ok(!watcher.seen.some(events => events.some(event => event.resource === 'a')))
  },

  'a watch sees the names under its prefix, by whole segments': async log => {
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('x', ['x'])))
    await using slash = log.watch(lessor, 'jobs/', revision)
    await using bare = log.watch(lessor, 'jobs', revision)
    granted(await propose(lessor, acquire('ann', ['jobs', 'jobsuite'])))
    granted(await propose(lessor, acquire('ann', ['jobs/a', 'other'])))
    granted(await propose(lessor, acquire('ann', ['jobsuite/b'])))
    const last = granted(await propose(lessor, acquire('ann', ['jobs/a/b'])))
    for (const watcher of [slash, bare]) {
      await watcher.at(last.revision)
      assert.deepEqual(
        watcher.seen.map(events => events.map(({ resource }) => resource)),
        [['jobs'], ['jobs/a'], ['jobs/a/b']],
      )
    }
  },

  'a watch sees only the types it asked for': async log => {
    const lessor = await log.open()
    const { revision, lease } = granted(await propose(lessor, acquire('ann', ['jobs/a', 'other'])))
    await using watcher = log.watch(lessor, 'jobs', revision, ['released', 'granted'])
    done(await propose(lessor, { kind: 'put', lease, key: 'jobs/entry', value: '' }))
    done(await propose(lessor, { kind: 'release', lease }))
    const last = granted(await propose(lessor, acquire('bob', ['jobs/b'])))
    await watcher.at(last.revision)
    assert.deepEqual(
      watcher.seen.map(events => events.map(({ type, resource }) => `${type} ${resource}`)),
      [['released jobs/a'], ['granted jobs/b']],
    )
  },

  'a watch ends with its signal and leaves no listener on it': async log => {
    const lessor = await log.open()
    const controller = new AbortController()
    const events = lessor.watch('', { signal: controller.signal, after: (await lessor.read({ kind: 'summary' })).revision })
    const iterator = events[Symbol.asyncIterator]()
    const first = iterator.next()
    granted(await propose(lessor, acquire('ann', ['a'])))
    assert.equal((await within(first)).done, false)
    const second = iterator.next()
    controller.abort()
    assert.equal((await within(second)).done, true)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    for await (const _ of lessor.watch('', { signal: controller.signal })) assert.fail('it was over before it began')
  },

  'a watch that is left in the middle leaves no listener on its signal': async log => {
    const lessor = await log.open()
    const controller = new AbortController()
    const { revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
    granted(await propose(lessor, acquire('ann', ['a'])))
    granted(await propose(lessor, acquire('ann', ['b'])))
    for await (const _ of lessor.watch('', { signal: controller.signal, after: revision })) break
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
  },

  'a slow watcher delays no other client, and either sees everything or gets a resync': async log => {
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('x', ['x'])))
    const controller = new AbortController()
    const slow = lessor.watch('', { signal: controller.signal, after: revision })[Symbol.asyncIterator]()
    const first = slow.next()
    await using quick = log.watch(lessor, '', revision)
    const last = await log.pour(lessor, 300)
    await quick.at(last)
    let at = revision
    for (let next = await within(first); ; next = await within(slow.next())) {
      assert.equal(next.done, false)
      const event: Event = next.value![0]!
      if (event.type !== 'resync') assert.equal(event.revision, at + 1)
      assert.ok(event.revision > at)
      at = event.revision
      if (at >= last) break
    }
    controller.abort()
    assert.equal((await within(slow.next())).done, true)
  },

  'a watch from a revision that is no longer kept begins with a resync, and continues without a gap': async log => {
    const { keeps } = log.fixture
    if (keeps === undefined) return
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('x', ['x'])))
    const poured = await log.pour(lessor, keeps + 50)
    await using watcher = log.watch(lessor, 'nothing/ever', revision)
    await watcher.at(poured)
    assert.deepEqual(
      watcher.seen.map(events => events.map(({ type, lease }) => [type, lease])),
      [[['resync', 0]]],
    )
    await using later = log.watch(lessor, '', watcher.seen[0]![0]!.revision)
    const next = granted(await propose(lessor, acquire('ann', ['nothing/ever'])))
    assert.deepEqual(types(await watcher.at(next.revision)), ['granted nothing/ever ann'])
    await later.at(next.revision)
    assert.equal(later.seen.length, next.revision - poured)
  },

  'a watch from a revision that the log never reached gets a resync': async log => {
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('x', ['x'])))
    await using watcher = log.watch(lessor, '', revision + 1_000_000)
    await watcher.begun(lessor)
    const next = granted(await propose(lessor, acquire('ann', ['a'])))
    await watcher.at(next.revision)
    assert.equal(watcher.seen[0]?.[0]?.type, 'resync')
    assert.ok(watcher.seen[0][0].revision <= next.revision)
  },
}
