/** How many processes use a store: counted after some minutes, until they leave. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { CAPACITY, countUser, usersOf } from '../../src/connect/store-users.ts'
import { STORES } from '../../src/store/modules.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { eventually } from '../support/eventually.ts'

function folder() {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-users-'))
  return { url: `file:${join(path, 'leases.db')}`, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

test('a process is counted after one to six minutes and until it leaves, and one too many is told', async () => {
  using here = folder()
  const clock = new ManualClock()
  const capacity = CAPACITY.file!
  const told: string[] = []
  const users = Array.from({ length: capacity + 1 }, () => new AbortController())
  for (const { signal } of users.slice(0, capacity))
    countUser(here.url, { clock, signal, rules: 1, crowded: message => told.push(message) })
  const count = async () => (await usersOf(here.url, clock))?.count
  await clock.advance(59_000)
  expect(await count()).toBe(0)
  await clock.advance(301_000)
  await eventually(async () => expect(await count()).toBe(capacity))
  expect(told).toEqual([])
  countUser(here.url, { clock, signal: users.at(-1)!.signal, rules: 1, crowded: message => told.push(message) })
  await clock.advance(361_000)
  await eventually(() => expect(told.length).toBeGreaterThan(0))
  expect(told[0]).toMatch(new RegExp(`^${capacity + 1} processes use file:.*via=server`))
  // They stay counted, and those that leave do not.
  for (let i = 0; i < 40; i++) {
    await clock.advance(60_000)
    await new Promise(resolve => setImmediate(resolve))
  }
  expect(await count()).toBe(capacity + 1)
  for (const user of users.slice(1)) user.abort()
  await eventually(async () => expect(await count()).toBe(1))
  users[0]!.abort()
})

test('every store that processes share has a capacity, and others are not counted', async () => {
  expect(Object.keys(CAPACITY).sort()).toEqual(
    STORES.filter(({ announcements }) => announcements !== undefined)
      .map(({ name }) => name)
      .sort(),
  )
  expect(await usersOf('memory:', new ManualClock())).toBeUndefined()
})
