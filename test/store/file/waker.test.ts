/** How a process learns by a file of its own that something became of its leases. */
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { FileWaker } from '../../../src/store/file/waker.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

/** File systems with events, and without. */
function rig() {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-waker-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const clock = new ManualClock()
  const events = new Map<string, () => void>()
  const made: FileWaker[] = []
  onTestFinished(() => {
    for (const waker of made) waker.close()
  })
  const waker = (hasEvents = true) => {
    const watchFile = (path: string, changed: () => void) => {
      if (!hasEvents) throw new Error('too many watches')
      events.set(path, changed)
      return { close: () => events.delete(path) }
    }
    const one = new FileWaker({ path: join(folder, 'log.db'), clock, watchFile })
    made.push(one)
    return one
  }
  return { clock, waker, events, path: (name: string) => join(folder, 'log.db-wake', name) }
}

/** Listens, and counts how often it was told after it began. */
async function listening({ clock, waker }: ReturnType<typeof rig>, hasEvents = true) {
  const heard = { count: -1 }
  const listener = waker(hasEvents)
  listener.listen('one', () => heard.count++)
  await clock.settle()
  expect(heard.count).toBe(0)
  return { heard, listener }
}

test('with events a process looks when its file changes', async () => {
  const files = rig()
  const { heard } = await listening(files)
  files.waker().wake(['one'])
  await files.clock.settle()
  expect(heard.count).toBe(0) // no event has come yet
  files.events.get(files.path('one'))!()
  files.events.get(files.path('one'))!()
  await files.clock.settle()
  expect(heard.count).toBe(1)
  await files.clock.advance(10_000)
  expect(heard.count).toBe(1)
})

test.each([true, false])('a process is told within a second if no event comes (it has a watch: %s)', async hasEvents => {
  const files = rig()
  const { heard } = await listening(files, hasEvents)
  files.waker().wake(['one', 'another'])
  await files.clock.advance(1_000)
  expect(heard.count).toBe(1)
})

test('a file that was removed is made again, which counts as told', async () => {
  const files = rig()
  const { heard } = await listening(files)
  rmSync(files.path('one'))
  await files.clock.advance(1_000)
  expect(heard.count).toBe(1)
  expect(existsSync(files.path('one'))).toBe(true)
  files.waker().wake(['one'])
  await files.clock.advance(1_000)
  expect(heard.count).toBe(2)
})

test('files are private, go with their process, and those of killed processes go after a day', async () => {
  const files = rig()
  const { listener } = await listening(files)
  expect(statSync(files.path('one')).mode & 0o777).toBe(0o600)
  expect(statSync(files.path('')).mode & 0o777).toBe(0o700)
  for (const [name, hours] of [
    ['young', 23],
    ['old', 25],
  ] as const) {
    writeFileSync(files.path(name), '')
    const at = files.clock.wall() / 1_000 - hours * 3_600
    utimesSync(files.path(name), at, at)
  }
  files.waker().listen('two', () => {})
  expect(readdirSync(files.path('')).sort()).toEqual(['one', 'two', 'young'])
  listener.close()
  expect(readdirSync(files.path('')).sort()).toEqual(['two', 'young'])
})

test('nothing is written through a link, nor outside of the folder, nor for a process that does not listen', async () => {
  const files = rig()
  await listening(files)
  const outside = files.path('../outside')
  writeFileSync(outside, '', { mode: 0o600 })
  symlinkSync(outside, files.path('link'))
  files.waker().wake(['link', '../outside', 'silent'])
  await files.clock.settle()
  expect(statSync(outside).size).toBe(0)
  expect(existsSync(files.path('silent'))).toBe(false)
})

test('a folder that others may enter is not used', async () => {
  const files = rig()
  const { waker, clock, path } = files
  const { listener } = await listening(files)
  listener.close()
  rmSync(path(''), { recursive: true })
  symlinkSync(tmpdir(), path(''))
  let told = 0
  waker().listen('one', () => told++)
  await clock.advance(3_000)
  expect(told).toBe(0)
  expect(existsSync(join(tmpdir(), 'one'))).toBe(false)
})
