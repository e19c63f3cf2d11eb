/** When a process that waits for the records of others looks at the file. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { LogChanges, type LogChangesOptions, type WatchFile } from '../../../src/store/file/log-changes.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'

/** A log that another process appends to. `events`: whether the file system has events. */
function changesOf({ events = true, more = {} }: { readonly events?: boolean; readonly more?: Partial<LogChangesOptions> } = {}) {
  const clock = new ManualClock()
  const seen = { looks: 0, changes: 0, watched: 0, touched: 0, failures: [] as unknown[] }
  const log = { version: 0, known: 0, needed: true, silent: !events, error: undefined as Error | undefined }
  const watchers = new Set<() => void>()
  const watchFile: WatchFile = (_path, changed) => {
    seen.watched++
    watchers.add(changed)
    return { close: () => watchers.delete(changed) }
  }
  const tell = () => {
    if (!log.silent) for (const changed of watchers) changed()
  }
  const changes = new LogChanges({
    clock,
    path: 'PATH-head',
    moved: () => {
      seen.looks++
      if (log.error !== undefined) throw log.error
      const moved = log.version !== log.known
      log.known = log.version
      return moved
    },
    changed: () => seen.changes++,
    failed: error => seen.failures.push(error),
    isNeeded: () => log.needed,
    watchFile,
    touch: () => {
      seen.touched++
      clock.after(0, tell)
    },
    ...more,
  })
  const append = ({ quietly = false } = {}) => {
    log.version++
    if (!quietly) tell()
  }
  return { clock, changes, seen, log, append, watchers }
}

test('with file events the log is checked once a second, and an append is seen at once', async () => {
  const { clock, changes, seen, append } = changesOf()
  changes.begin()
  await clock.advance(10)
  seen.looks = 0
  await clock.advance(10_000)
  expect(seen.looks).toBe(10)
  append()
  await clock.advance(0)
  expect(seen.changes).toBe(1)
})

test('without file events the log is polled every 20 ms, and more often while others append', async () => {
  const { clock, changes, seen, append } = changesOf({ events: false })
  changes.begin()
  await clock.advance(2_000)
  seen.looks = 0
  await clock.advance(1_000)
  expect(seen.looks).toBe(50)
  append()
  await clock.advance(20)
  expect(seen.changes).toBe(1)
  seen.looks = 0
  await clock.advance(800)
  expect(seen.looks).toBe(100)
})

test('a file that cannot be watched is polled', async () => {
  const watchFile = () => {
    throw new Error('too many watches')
  }
  const { clock, changes, seen, append } = changesOf({ more: { watchFile } })
  changes.begin()
  await clock.advance(1_000)
  append()
  await clock.advance(20)
  expect(seen.changes).toBe(1)
})

test('an append whose event is lost is found by the check, and the file is polled from then on until events pass a test again', async () => {
  const { clock, changes, seen, append, log } = changesOf()
  changes.begin()
  await clock.advance(10)
  append({ quietly: true })
  await clock.advance(1_000)
  expect(seen.changes).toBe(1)
  await clock.advance(1_200)
  seen.looks = 0
  await clock.advance(1_000)
  expect(seen.looks).toBe(50)
  await clock.advance(60_000)
  seen.looks = 0
  await clock.advance(10_000)
  expect(seen.looks).toBe(10)
  expect(log.known).toBe(log.version)
})

test('a check that comes before the event of an append does not end the trust in events', async () => {
  const { clock, changes, seen, append, watchers } = changesOf()
  changes.begin()
  await clock.advance(10)
  append({ quietly: true })
  await clock.advance(1_000) // the check finds the record
  for (const changed of watchers) changed() // and the process that appended writes PATH-head
  await clock.advance(200)
  seen.looks = 0
  await clock.advance(10_000)
  expect(seen.looks).toBe(10)
})

test('while no read waits the file is not watched, and the next read begins with a test', async () => {
  const { clock, changes, seen, log, watchers } = changesOf()
  changes.begin()
  await clock.advance(10)
  log.needed = false
  await clock.advance(1_000)
  expect(watchers.size).toBe(0)
  seen.looks = 0
  await clock.advance(60_000)
  expect(seen.looks).toBe(0)
  log.needed = true
  changes.begin()
  await clock.advance(10)
  seen.looks = 0
  await clock.advance(5_000)
  expect([seen.watched, seen.touched, seen.looks]).toEqual([2, 2, 5])
})

test('an error of the file is reported, and the file is looked at again', async () => {
  const { clock, changes, seen, log, append } = changesOf({ events: false })
  changes.begin()
  log.error = new Error('no such file')
  await clock.advance(20)
  expect(seen.failures.length).toBeGreaterThan(0)
  log.error = undefined
  append()
  await clock.advance(20)
  expect(seen.changes).toBe(1)
})

test('the operating system tells of an append', { timeout: EVENT_TIMEOUT }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, 'head')
  writeFileSync(path, 'one')
  const told = { looks: 0, next: () => {} }
  const look = () => new Promise<void>(resolve => (told.next = resolve))
  const changes = new LogChanges({
    clock: new ManualClock(), // no timer fires, so that only an event can cause a look
    path,
    moved: () => {
      told.next()
      return false
    },
    changed: () => {},
    failed: () => {},
    isNeeded: () => true,
  })
  onTestFinished(() => changes.close())
  const tested = look()
  changes.begin()
  await tested
  const appended = look()
  writeFileSync(path, 'two')
  await appended
})
