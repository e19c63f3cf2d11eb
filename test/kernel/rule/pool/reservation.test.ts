/** Reservations of members of a pool: who takes them, and what they keep from others. */
import { expect, test } from 'vitest'
import { LIVE, TERM, WAITING } from '../../../../src/kernel/state.ts'
import { World } from '../../../support/kernel/world.ts'

/** A pool `g` with this many members. */
function poolWorld(members: number, strict = true): World {
  const world = new World({ strict })
  const entries = Array.from({ length: members }, (_, i) => ({ key: `pool/g/m${i}`, value: '{}' }))
  for (let i = 0; i < members; i += 50) world.acquire('host', [], { ttl: 86_400_000, entries: entries.slice(i, i + 50) })
  return world
}

test('a granted reservation that one process has renewed cannot be claimed by another process of its name', () => {
  const world = poolWorld(1)
  const { lease } = world.queue('ann', [], { ttl: 60_000, maxLife: 3_600_000, pool: { pool: 'g', from: 1_000 } })
  world.do({ kind: 'tick', n: 1, elapsed: 2_000 })
  expect(world.holders('g/m0')).toEqual(['ann'])
  // Only a confirmed lease is renewed in memory: the renewal that takes the reservation must be in the log.
  expect(world.lease(lease)).toMatchObject({ confirmed: false, term: 60_000 })
  expect(world.renew(lease)).toBe(60_000)
  world.refused(world.do({ kind: 'claim', lease, incarnation: lease }), 'HELD')
})

test('a reservation beyond the quota of its account is refused', () => {
  const world = poolWorld(4)
  world.policy('g/accounts/ann', { quotaUnits: 1 })
  expect(world.ask('ann', [], { wait: true, pool: { pool: 'g', count: 4 } })).toMatchObject({ kind: 'refused', code: 'LIMIT' })
  const reserved = world.ask('ann', [], { wait: true, maxLife: 60_000, pool: { pool: 'g', count: 4, from: 10_000 } })
  world.refused(reserved, 'LIMIT', 'pool-quota')
})

test('reservations of one account for the same time are within its quota together', () => {
  const world = poolWorld(4)
  world.policy('g/accounts/ann', { quotaUnits: 1, quotaBorrow: 1 })
  const reserve = (from: number, count = 1) => world.ask('ann', [], { wait: true, maxLife: 10_000, pool: { pool: 'g', count, from } })
  expect([reserve(10_000), reserve(15_000)].map(({ kind }) => kind)).toEqual(['queued', 'queued'])
  world.refused(reserve(12_000), 'LIMIT', 'pool-quota')
  expect(reserve(20_000).kind).toBe('queued')
})

test('a reservation ends only when its show-up time is over in the time of the log, and a term that is over sooner is prolonged', () => {
  const world = poolWorld(1)
  const { lease } = world.queue('ann', [], { ttl: 5_000, maxLife: 60_000, pool: { pool: 'g', from: 10_000 } })
  const due = () => world.due(lease, TERM)
  const tick = (elapsed: number) => world.do({ kind: 'tick', n: world.state.tick + 1, elapsed })
  due()
  expect(world.lease(lease)).toMatchObject({ status: WAITING, term: 15_000 })
  tick(9_000)
  due()
  expect(world.lease(lease)).toMatchObject({ status: WAITING, term: 6_000 })
  tick(2_000)
  expect(world.lease(lease)).toMatchObject({ status: LIVE, term: 5_000 })
  tick(4_500)
  due()
  expect(world.lease(lease)).toMatchObject({ status: LIVE, term: 1_000 })
  tick(500)
  due()
  expect(world.lease(lease)).toBeUndefined()
})

test('a log that lost its tail is quiet for the longest term that a holder relies on, not for the lead time of a reservation', () => {
  const world = poolWorld(1)
  const { lease } = world.queue('ann', [], { ttl: 5_000, maxLife: 60_000, pool: { pool: 'g', from: 36_000_000 } })
  for (let n = 1; n <= 8; n++) world.do({ kind: 'tick', n, elapsed: 5_000_000 })
  expect(world.holders('g/m0')).toEqual(['ann'])
  expect(world.renew(lease)).toBe(5_000)
  world.do({ kind: 'generation', lease: 0, token: 0, revision: 0, quiet: 5_000 })
  const { duration } = world.state.quiet!
  expect(duration).toBeLessThanOrEqual(30_000)
})

test('every waiter of a fit queue is tried in time, even if the work of one turn is not enough for all of them', () => {
  const members = 500
  const world = poolWorld(members, false)
  world.policy('g', { queue: 'fit' })
  const held = Array.from({ length: members }, (_, i) =>
    world.acquire(`h${i}`, [], { ttl: 86_400_000, maxLife: 500_000 + i, pool: { pool: 'g' } }),
  )
  for (let i = 0; i < 20; i++)
    world.queue(`r${i}`, [], { ttl: 1_000, maxLife: 50_000, pool: { pool: 'g', count: members / 20, from: 600_000 + i } })
  // Each of them would take a member from the reservations, and each needs something else.
  for (let i = 0; i < 400; i++)
    world.queue(`w${i}`, [], { ttl: 86_400_000, pool: { pool: 'g', match: [{ label: `l${i}`, test: 'absent' }] } })
  const last = world.queue('short', [], { ttl: 86_400_000, maxLife: 1_000, pool: { pool: 'g', match: [{ label: 'x', test: 'absent' }] } })
  world.do({ kind: 'release', lease: held[0]!.lease })
  expect(world.lease(last.lease)!.status, 'the work of the first turn is spent before').toBe(WAITING)
  for (let tick = 1; tick < 100 && world.lease(last.lease)!.status === WAITING; tick++) world.do({ kind: 'tick', n: tick, elapsed: tick })
  expect(world.lease(last.lease)!.status).toBe(LIVE)
})
