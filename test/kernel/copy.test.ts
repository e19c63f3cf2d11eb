import { describe, expect, test } from 'vitest'
import { rule } from '../../src/kernel/rule/policy.ts'
import { World } from '../support/kernel/world.ts'

describe('the objects of a command', () => {
  test('are copied into the state: the caller may change them afterwards', () => {
    const world = new World()
    const rules = { capacity: 1 }
    world.do({ kind: 'policy', prefix: 'pool', rules })
    rules.capacity = 4
    expect(rule(world.state, 'pool', 'capacity')).toBe(1)
    const labels: [string, string][] = [['team', 'a']]
    const { lease } = world.acquire('ann', 'pool', { labels })
    labels[0]![1] = 'b'
    expect(world.lease(lease)!.extras!.labels).toEqual([['team', 'a']])
  })
})
