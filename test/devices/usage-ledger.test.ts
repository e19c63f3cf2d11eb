import { expect, test } from 'vitest'
import { formatUsage, parseUsage, totalUsage, UsageLedger } from '../../src/devices/usage-ledger.ts'
import { VALUE_BYTES } from '../../src/kernel/name.ts'

const HOUR = 3_600_000
const DAY = 24 * HOUR

test('usage is added up for each user, from the quarter of a day that contains the start', () => {
  const ledger = new UsageLedger('a')
  ledger.add(1 * HOUR, 'ann', { held: 30_000, busy: 10_000 })
  ledger.add(2 * HOUR, 'ann', { held: 30_000 })
  ledger.add(7 * HOUR, 'ben', { held: 5_000, busy: 5_000 })
  ledger.add(DAY + HOUR, 'ben', { unleased: 7_000 })
  const days = ledger.publish()
  expect(days.map(({ day, since }) => [day, since])).toEqual([
    [0, HOUR],
    [1, HOUR],
  ])
  expect(totalUsage(days, 0, 'user')).toEqual([
    { name: 'ann', held: 60_000, busy: 10_000, unleased: 0 },
    { name: 'ben', held: 5_000, busy: 5_000, unleased: 7_000 },
  ])
  expect(totalUsage(days, 6.5 * HOUR, 'user')).toEqual([{ name: 'ben', held: 5_000, busy: 5_000, unleased: 7_000 }])
  expect(totalUsage(days, DAY, 'host')).toEqual([{ name: 'a', held: 0, busy: 0, unleased: 7_000 }])
  expect(ledger.publish()).toEqual([])
})

test('records reach back as far after a restart as they did before: not to the beginning of their quarter of a day', () => {
  const ledger = new UsageLedger('a')
  const began = 40 * DAY + 5 * HOUR
  ledger.add(began, 'ann', { held: 60_000 })
  const again = new UsageLedger('a')
  again.load(ledger.save(), began + HOUR)
  expect(again.publish({ all: true }).map(({ since }) => since)).toEqual([began])
})

test('records say no longer that they reach back to days that were dropped', () => {
  const ledger = new UsageLedger('a')
  for (let day = 0; day <= 60; day++) ledger.add(day * DAY + HOUR, 'ann', { held: 60_000 })
  const days = ledger.publish({ all: true })
  const oldest = Math.min(...days.map(({ day }) => day))
  expect(oldest).toBe(26)
  expect(new Set(days.map(({ since }) => since))).toEqual(new Set([oldest * DAY]))
})

test('what was saved is loaded again, except by another host and days that have not come', () => {
  const ledger = new UsageLedger('a')
  ledger.add(DAY, 'ann', { held: 60_000, busy: 60_000 })
  ledger.add(40 * DAY, 'ann', { held: 60_000 })
  const text = ledger.save()
  expect(ledger.publish({ all: true }).map(({ day }) => day)).toEqual([40])
  const again = new UsageLedger('a')
  again.load(text, 41 * DAY)
  expect(again.publish({ all: true })).toEqual(ledger.publish({ all: true }))
  const early = new UsageLedger('a')
  early.load(text, 3 * DAY)
  const foreign = new UsageLedger('b')
  foreign.load(text, 41 * DAY)
  expect([early.publish({ all: true }), foreign.publish({ all: true })]).toEqual([[], []])
})

const odd = JSON.stringify({ host: 'a', day: 1, since: 0, at: 5, users: { x: [1], y: [-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], z: null } })

test.each(['', 'null', '[7]', '["7"]', JSON.stringify([odd]), JSON.stringify(['{"host":"a"}'])])('a file with %s adds nothing', text => {
  const ledger = new UsageLedger('a')
  ledger.load(text, 10 * DAY)
  expect(totalUsage(ledger.publish({ all: true }), 0, 'user')).toEqual([])
})

test('a day of many users with long names fits into an entry, and the rest is added up as others', () => {
  const ledger = new UsageLedger('a')
  for (let i = 0; i < 500; i++)
    for (const hour of [0, 6, 12, 18]) ledger.add(hour * HOUR, `user-${i}-with-a-long-name`, { held: 6 * HOUR, busy: HOUR, unleased: HOUR })
  const [day] = ledger.publish()
  const text = formatUsage(day!)
  expect(Buffer.byteLength(text)).toBeLessThanOrEqual(VALUE_BYTES)
  const totals = totalUsage([parseUsage(text)!], 0, 'user')
  expect(totals.reduce((sum, { held }) => sum + held, 0)).toBe(500 * DAY)
  expect(totals[0]!.name).toBe('others')
})
