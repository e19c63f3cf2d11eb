/** Reservations of members of a pool: who takes them, and what they keep from others. */
import { expect, test } from 'vitest'
import { World } from '../../../support/kernel/world.ts'

/** A pool `g` with this many members. */
function poolWorld(members: number): World {
  const world = new World()
  const entries = Array.from({ length: members }, (_, i) => ({ key: `pool/g/m${i}`, value: '{}' }))
  world.acquire('host', [], { ttl: 86_400_000, entries })
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
