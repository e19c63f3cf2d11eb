import { describe, expect, test } from 'vitest'
import { World } from '../../support/kernel/world.ts'

describe('a fence', () => {
  test('never accepts a token after a newer one, and accepts the newest again', () => {
    const world = new World()
    const tokens = [1, 2, 3].map(() => {
      const { lease, tokens } = world.acquire('a', 'x')
      world.release(lease)
      return tokens[0]!
    })
    const show = (token: number) => world.do({ kind: 'fence', resource: 'x', token })
    expect(show(tokens[1]!)).toMatchObject({ kind: 'fenced', highest: tokens[1] })
    world.refused(show(tokens[0]!), 'STALE', 'older-token')
    expect(show(tokens[1]!)).toMatchObject({ kind: 'fenced' })
    expect(show(tokens[2]!)).toMatchObject({ kind: 'fenced' })
    expect(world.refused(show(tokens[1]!), 'STALE').facts).toMatchObject({ highest: tokens[2] })
    expect(world.do({ kind: 'fence', resource: 'y', token: tokens[0]! }), 'each resource for itself').toMatchObject({ kind: 'fenced' })
  })

  test('refuses a token that was never given, which would lock out all holders', () => {
    const world = new World()
    world.acquire('a', 'x')
    world.refused(world.do({ kind: 'fence', resource: 'x', token: 2 }), 'INVALID', 'never-given')
  })
})
