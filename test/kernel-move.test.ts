import { describe, expect, test } from 'vitest'
import { timerId } from '../src/kernel/state.ts'
import { World } from './kernel/world.ts'

describe('a log whose leases have left', () => {
  test('decides nothing, renews nothing and lapses nothing', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'a')
    expect(world.do({ kind: 'move' }).kind).toBe('done')
    const held = world.state.leases.values().next().value!
    for (const command of [
      { kind: 'renew', leases: [lease] },
      { kind: 'release', lease },
      { kind: 'put', lease, key: 'k', value: '' },
      { kind: 'revoke', target: { lease } },
      { kind: 'break', resource: 'a' },
      { kind: 'policy', prefix: 'a', rules: {} },
      { kind: 'fence', resource: 'a', token: 1 },
    ] as const)
      expect(world.refused(world.do(command), 'UNAVAILABLE', /on their way/).facts).toEqual({ moving: true })
    world.refused(world.ask('bob', 'b'), 'UNAVAILABLE')
    expect(world.do({ kind: 'due', timer: timerId(held, 0), epoch: held.epoch }).kind).toBe('nothing')
    expect(world.state.leases.size).toBe(1)
  })

  test('tells where they are once that is known', () => {
    const world = new World()
    world.do({ kind: 'move' })
    world.do({ kind: 'move', to: 'redis://there' })
    expect(world.refused(world.ask('bob', 'b'), 'UNAVAILABLE', /redis:\/\/there/).facts).toEqual({ moved: 'redis://there' })
  })

  test('begins every timer anew when they stay after all', () => {
    const world = new World()
    world.acquire('ann', 'a', { maxLife: 60_000 })
    const held = world.state.leases.values().next().value!
    const [term, cap] = [held.epoch, held.rare!.timers!.map(timer => timer?.epoch)]
    world.do({ kind: 'move' })
    expect(world.do({ kind: 'move', stay: true }).kind).toBe('done')
    expect(world.do({ kind: 'due', timer: timerId(held, 0), epoch: term }).kind, 'as it ran before').toBe('nothing')
    expect(held.rare!.timers!.map(timer => timer?.epoch)).not.toEqual(cap)
    expect(world.ask('bob', 'b').kind).toBe('granted')
    world.refused(world.do({ kind: 'move', stay: true }), 'INVALID', /nothing has left/)
  })

  test('is made so by administrators only', () => {
    const world = new World()
    const key = world.key('k', 'acquire:', 'policy:')
    world.refused(world.do({ kind: 'move', to: 'b' }, { key }), 'FORBIDDEN')
    expect(world.state.moved).toBeUndefined()
  })
})
