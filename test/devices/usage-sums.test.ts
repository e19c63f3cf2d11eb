import { expect, test } from 'vitest'
import { holderLabels } from '../../src/devices/attribution.ts'
import type { DeviceListing } from '../../src/devices/device.ts'
import { DeviceOffer, type DeviceOfferEvent, type DeviceOfferOptions } from '../../src/devices/device-offer.ts'
import { dayOf, dayOfKey, KEPT_DAYS, parseSums, sumsKey, sumsPrefix, totalSums, UsageSums } from '../../src/devices/usage-sums.ts'
import type { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'

function options(more: Partial<DeviceOfferOptions> = {}): DeviceOfferOptions {
  const discover = async (): Promise<DeviceListing> => ({
    devices: [
      { id: 'g0', labels: { model: 'a100' }, utilisation: 90, processes: [] },
      { id: 'g1', labels: { model: 'h100' }, utilisation: 0, processes: [] },
    ],
    problems: [],
  })
  return { host: 'a', discover, processes: { find: () => undefined, variable: () => undefined, userName: () => 'ann' }, ...more }
}

async function sums(leases: Leases) {
  const { value } = await leases.read({ kind: 'entries', prefix: sumsPrefix('gpus') })
  return value.map(({ key, value, lease }) => ({ key, lease, ...parseSums(value)! }))
}

test('a host keeps sums by account, user and kind in entries that stay when it is gone, and a restart goes on with those of the day', async () => {
  const { leases, clock } = silentLessor({ holder: 'a' })
  await using _ = leases
  const offer = await DeviceOffer.start(leases, 'gpus', options())
  const labels = holderLabels({ user: 'ann', host: 'a', pid: 1, started: 1 })
  await using _lease = await leases.pool('gpus').take(2, { account: 'vision', labels })
  await clock.advance(600_000)
  await offer[Symbol.asyncDispose]()
  const [first, ...others] = await sums(leases)
  expect(others).toEqual([])
  expect(first).toMatchObject({ key: sumsKey('gpus', 'a', dayOf(clock.wall())), lease: 0, host: 'a' })
  const held = (kind: string) => first!.sums.find(sum => sum.kind === kind)!
  expect(held('a100')).toMatchObject({ account: 'vision', user: 'ann', unleased: 0 })
  expect(held('a100').held).toBeGreaterThanOrEqual(570)
  expect(held('a100').busy).toBe(held('a100').held)
  expect(held('h100').busy).toBe(0)
  await clock.advance(120_000) // the lease of the offer has long ended
  const again = await DeviceOffer.start(leases, 'gpus', options())
  await clock.advance(600_000)
  await again[Symbol.asyncDispose]()
  const [grown] = await sums(leases)
  expect(grown!.sums.find(({ kind }) => kind === 'a100')!.held).toBeGreaterThanOrEqual(held('a100').held + 570)
})

test('a lease that took members by name counts for the account that it names, as adopt does', async () => {
  const { leases, clock } = silentLessor({ holder: 'a' })
  await using _ = leases
  const offer = await DeviceOffer.start(leases, 'gpus', options())
  const labels = { ...holderLabels({ user: 'ann', host: 'a', pid: 1, started: 1 }), account: 'robots' }
  await using _lease = await leases.acquire('gpus/g0', { labels })
  await clock.advance(60_000)
  await offer[Symbol.asyncDispose]()
  const [day] = await sums(leases)
  expect(day!.sums).toMatchObject([{ account: 'robots', user: 'ann', kind: 'a100' }])
})

test('sums of a host that are older than a year are removed, and a week later those of hosts that never came back', async () => {
  const { leases, clock } = silentLessor({ holder: 'a' })
  await using _ = leases
  const today = dayOf(clock.wall())
  await leases.setPolicy('leasehold/usage', { freeEntries: 100 })
  const kept = [sumsKey('gpus', 'a', today - KEPT_DAYS + 1), sumsKey('gpus', 'b', today - KEPT_DAYS - 6), sumsKey('cpus', 'b', today - 400)]
  const old = [sumsKey('gpus', 'a', today - KEPT_DAYS), sumsKey('gpus', 'a', today - 900), sumsKey('gpus', 'b', today - KEPT_DAYS - 7)]
  await propose(leases.lessor, { kind: 'transaction', success: [...kept, ...old].map(key => ({ key, value: '{}' })) })
  const offer = await DeviceOffer.start(leases, 'gpus', options())
  await using _lease = await leases.acquire('gpus/g0')
  await clock.advance(60_000)
  await offer[Symbol.asyncDispose]()
  const { value } = await leases.read({ kind: 'entries', prefix: 'leasehold/usage' })
  expect(value.map(({ key }) => key).sort()).toEqual([...kept, sumsKey('gpus', 'a', today)].sort())
})

test('where a policy allows no sums, the host says so once and goes on', async () => {
  const { leases, clock } = silentLessor({ holder: 'a' })
  await using _ = leases
  await leases.setPolicy('leasehold/usage', { freeEntries: 0 })
  const events: DeviceOfferEvent[] = []
  await using offer = await DeviceOffer.start(leases, 'gpus', options({ onEvent: event => void events.push(event) }))
  await using _lease = await leases.acquire('gpus/g0')
  await clock.advance(1_200_000)
  expect(offer.members).toEqual(['g0', 'g1'])
  expect(events.filter(({ message }) => message.startsWith('sums of usage are not kept'))).toHaveLength(1)
})

test('the rows of a day are bounded, whatever names users choose, and fit into an entry', () => {
  const counted = new UsageSums()
  for (let i = 0; i < 1_000; i++)
    counted.add(7, { account: `${i}-${'ä'.repeat(60)}`, user: `u${i}`, kind: 'a100' }, { held: 86_400_000, busy: 86_400_000 })
  const value = counted.format(7, 'a')
  expect(Buffer.byteLength(value)).toBeLessThan(16_384)
  const { sums } = parseSums(value)!
  expect(sums).toHaveLength(61)
  expect(sums.reduce((sum, { held }) => sum + held, 0)).toBe(1_000 * 86_400)
  expect(sums.at(-1)).toMatchObject({ account: 'others', held: 940 * 86_400 })
})

test('totals are for each account, user, host or kind, from a day on', () => {
  const row = (account: string, user: string, kind: string, held: number) => ({ account, user, kind, held, busy: 1, unleased: 0 })
  const days = [
    { host: 'a', day: 9, sums: [row('x', 'ann', 'a100', 100)] },
    { host: 'a', day: 10, sums: [row('x', 'ann', 'a100', 10), row('y', 'ben', 'h100', 20)] },
    { host: 'b', day: 11, sums: [row('x', 'cid', '', 15)] },
  ]
  const totals = (by: Parameters<typeof totalSums>[2]) => totalSums(days, 10, by).map(({ name, held }) => [name, held / 1_000])
  expect(totals('account')).toEqual([
    ['x', 25],
    ['y', 20],
  ])
  expect(totals('user')).toEqual([
    ['ben', 20],
    ['cid', 15],
    ['ann', 10],
  ])
  expect(totals('host')).toEqual([
    ['a', 30],
    ['b', 15],
  ])
  expect(totals('kind')).toEqual([
    ['h100', 20],
    ['(none)', 15],
    ['a100', 10],
  ])
})

test.each(['', '{', '{}', '[]', '{"host":"a","day":1}', '{"host":1,"day":1,"sums":[]}'])('%j are no sums', value => {
  expect(parseSums(value)).toBeUndefined()
})

test('rows that are wrong are left out', () => {
  const good = ['x', 'ann', 'a100', 10, 20, 0]
  const bad = [[], ['x'], ['x', 'ann', 'a100', -1, 0, 0], ['x', 1, 'a100', 1, 0, 0], ['x', 'ann', 'a100', 2 ** 60, 0, 0]]
  expect(parseSums(JSON.stringify({ host: 'a', day: 1, sums: [...bad, good] }))?.sums).toEqual([
    { account: 'x', user: 'ann', kind: 'a100', held: 10, busy: 10, unleased: 0 },
  ])
  expect(dayOfKey('leasehold/usage/gpus/a/19000')).toBe(19_000)
  expect(dayOfKey('leasehold/usage/gpus/a')).toBeNaN()
})
