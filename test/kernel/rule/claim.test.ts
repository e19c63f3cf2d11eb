import { describe, expect, test } from 'vitest'
import { World } from '../../support/kernel/world.ts'

const given = (world: World, more = {}) => {
  const { lease } = world.acquire('ann', 'seat')
  return (world.do({ kind: 'transfer', lease, to: 'bob', stopped: true, ...more }) as { readonly id: number }).id
}

describe('what was transferred to a name', () => {
  test('belongs to the first process that claims it', () => {
    const world = new World()
    const [first, second] = [world.acquire('bob', 'x').lease, world.acquire('bob', 'y').lease]
    const heir = given(world)
    expect(world.do({ kind: 'claim', lease: heir, incarnation: first })).toMatchObject({ kind: 'done', id: heir })
    expect(world.lease(heir)).toMatchObject({ holder: { name: 'bob' }, incarnation: first })
    world.refused(world.do({ kind: 'claim', lease: heir, incarnation: second }), 'HELD')
    world.refused(world.do({ kind: 'claim', lease: heir }), 'HELD')
  })

  test('is taken once a process has renewed it', () => {
    const world = new World()
    const heir = given(world)
    world.renew(heir)
    world.refused(world.do({ kind: 'claim', lease: heir }), 'HELD')
  })

  test('cannot be claimed once it has ended, nor by an incarnation that never was', () => {
    const world = new World()
    const heir = given(world)
    world.refused(world.do({ kind: 'claim', lease: heir, incarnation: 10 ** 15 }), 'INVALID')
    world.release(heir)
    world.refused(world.do({ kind: 'claim', lease: heir }), 'GONE')
  })
})

test('what was acquired, or transferred to one process, cannot be claimed', () => {
  const world = new World()
  const bob = world.acquire('bob', 'x').lease
  world.refused(world.do({ kind: 'claim', lease: bob }), 'HELD')
  world.refused(world.do({ kind: 'claim', lease: given(world, { incarnation: bob }) }), 'HELD')
})
