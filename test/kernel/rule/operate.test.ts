/** Announced breaks: which of them have an effect, and how many one lease takes. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { BREAK } from '../../../src/kernel/state.ts'
import { World } from '../../support/kernel/world.ts'

describe('an announced break', () => {
  function broken(world: World): number {
    const { lease } = world.acquire('ann', 'x', { ttl: 100_000 })
    for (let i = 0; i < 5; i++) world.do({ kind: 'break', resource: 'x', after: 10_000 - i })
    return lease
  }

  test('is refused if it would be the sixth and the shortest, and not ignored', () => {
    const world = new World()
    const lease = broken(world)
    world.refused(world.do({ kind: 'break', resource: 'x', after: 1_000 }), 'LIMIT', 'too-many-breaks', { resource: 'x' })
    // One that could change nothing needs no room.
    expect(world.do({ kind: 'break', resource: 'x', after: 20_000 }).kind).toBe('done')
    expect(world.do({ kind: 'break', resource: 'x' }).kind).toBe('done')
    expect(world.holders('x')).toEqual(['ann*'])
    expect(world.lease(lease)!.status).toBe(3)
  })

  test('changes no holder if one of them has no free slot for it', () => {
    const world = new World()
    world.policy('x', { capacity: 2 })
    const lease = broken(world)
    const other = world.acquire('bob', 'x')
    world.refused(world.do({ kind: 'break', resource: 'x', after: 1_000 }), 'LIMIT')
    expect(world.lease(other.lease)!.extras?.timers).toBeUndefined()
    world.release(lease)
    expect(world.do({ kind: 'break', resource: 'x', after: 1_000 }).kind).toBe('done')
    expect(world.lease(other.lease)!.extras!.timers![BREAK]!.duration).toBe(1_000)
  })

  test('is over in time if it was accepted, and would have been if it was refused', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 2_000 }), { maxLength: 20 }), announced => {
        const world = new World({ strict: false })
        const { lease } = world.acquire('ann', 'x', { ttl: 100_000 })
        let soonest = Number.POSITIVE_INFINITY
        for (const after of announced) {
          const isDone = world.do({ kind: 'break', resource: 'x', after }).kind === 'done'
          expect(isDone || after < soonest).toBe(true)
          if (isDone) soonest = Math.min(soonest, after)
          const running = world
            .lease(lease)!
            .extras!.timers!.slice(BREAK)
            .map(timer => timer?.duration ?? Number.POSITIVE_INFINITY)
          expect(Math.min(...running)).toBe(soonest)
        }
      }),
    )
  })
})
