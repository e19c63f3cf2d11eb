/** Announcements beside a log, the same on every store that has them. */
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import type { Announcements } from '../../src/store/announcements.ts'
import { FileAnnouncements } from '../../src/store/file/announcements.ts'
import { storeModule } from '../../src/store/modules.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { describeEngine, engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'

const open = (url: string): Promise<Announcements> => storeModule(url.slice(0, url.indexOf(':')))!.announcements!(url, systemClock)

/** `url` names a log; `other` another log on the same engine. */
async function promises(url: string, other: string): Promise<void> {
  await using one = await open(url)
  await using two = await open(url)
  await using elsewhere = await open(other)
  expect(await one.list('server/')).toEqual(new Map())
  expect(await one.take('server/a')).toBeUndefined()
  await Promise.all([one.put('server/a', 'first é', 60_000), two.put('server/b', 'second', 60_000), two.put('challenge/a', 'c', 60_000)])
  await one.put('server/a', 'again é', 60_000)
  expect(await two.list('server/')).toEqual(
    new Map([
      ['server/a', 'again é'],
      ['server/b', 'second'],
    ]),
  )
  expect(await elsewhere.list('server/')).toEqual(new Map())
  // Of several that take one, one gets it.
  const taken = await Promise.all([one, two, one, two].map(each => each.take('challenge/a')))
  expect(taken.filter(text => text !== undefined)).toEqual(['c'])
  expect((await one.list('server/')).size).toBe(2)
  // The term is counted by the engine. A second is the shortest that etcd knows.
  await one.put('server/b', 'short', 1)
  await eventually(async () => expect([...(await two.list('server/')).keys()]).toEqual(['server/a']))
  expect(await two.take('server/b')).toBeUndefined()
  await expect(two.take('server/../x')).rejects.toThrow(RangeError)
}

describeEngine('postgres', 'announcements', () => {
  test('are put, listed, taken once, and end by themselves', async () => {
    await using server = await engine('postgres')
    await promises(server.url, `${server.url}?name=other`)
    await promises(`${server.url}?schema=elsewhere&name=a`, `${server.url}?schema=elsewhere&name=b`)
  })
})

describeEngine('redis', 'announcements', () => {
  test('are put, listed, taken once, and end by themselves', async () => {
    await using server = await engine('redis')
    await promises(server.url, `${server.url}?name=other`)
  })
})

describeEngine('etcd', 'announcements', () => {
  test('are put, listed, taken once, and end by themselves', async () => {
    await using server = await engine('etcd')
    await promises(server.url, `${server.url}?name=leasehold2`)
  })
})

describe('announcements beside a file', () => {
  function folder() {
    const path = mkdtempSync(join(tmpdir(), 'leasehold-announced-'))
    return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
  }

  test('are put, listed, taken once, and end by themselves', async () => {
    using here = folder()
    await promises(`file:${join(here.path, 'a.db')}`, `file:${join(here.path, 'b.db')}`)
  })

  test('are private, and what processes that were killed left behind is removed', async () => {
    using here = folder()
    const clock = new ManualClock()
    const announcements = new FileAnnouncements(join(here.path, 'a.db'), clock)
    await announcements.put('server/a', 'secret', 1_000)
    const [file] = readdirSync(join(here.path, 'a.db-announced'))
    expect(statSync(join(here.path, 'a.db-announced')).mode & 0o777).toBe(0o700)
    expect(statSync(join(here.path, 'a.db-announced', file!)).mode & 0o777).toBe(0o600)
    await clock.advance(1_001)
    expect(await announcements.list('server/')).toEqual(new Map())
    expect(readdirSync(join(here.path, 'a.db-announced'))).toEqual([])
  })
})
