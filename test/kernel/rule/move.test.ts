import { describe, expect, test } from 'vitest'
import { isInternal } from '../../../src/kernel/apply.ts'
import { timerId } from '../../../src/kernel/state/timers.ts'
import { World } from '../../support/kernel/world.ts'

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
      expect(world.refused(world.do(command), 'UNAVAILABLE', 'moving').facts).toEqual({ moving: true })
    world.refused(world.ask('bob', 'b'), 'UNAVAILABLE')
    expect(world.do({ kind: 'due', timer: timerId(held, 0), epoch: held.epoch }).kind).toBe('nothing')
    expect(world.state.leases.size).toBe(1)
  })

  test('reports where they are once that is known', () => {
    const world = new World()
    world.do({ kind: 'move' })
    world.do({ kind: 'move', to: 'redis://there' })
    expect(world.refused(world.ask('bob', 'b'), 'UNAVAILABLE', 'moved').facts).toEqual({ moved: 'redis://there' })
  })

  test('begins every timer anew when they stay after all', () => {
    const world = new World()
    world.acquire('ann', 'a', { maxLife: 60_000 })
    const held = world.state.leases.values().next().value!
    const [term, cap] = [held.epoch, held.extras!.timers!.map(timer => timer?.epoch)]
    world.do({ kind: 'move' })
    expect(world.do({ kind: 'move', stay: true }).kind).toBe('done')
    expect(world.do({ kind: 'due', timer: timerId(held, 0), epoch: term }).kind, 'as it ran before').toBe('nothing')
    expect(held.extras!.timers!.map(timer => timer?.epoch)).not.toEqual(cap)
    expect(world.ask('bob', 'b').kind).toBe('granted')
    world.refused(world.do({ kind: 'move', stay: true }), 'INVALID', 'not-moving')
  })

  test('has lost them for good: they cannot be called back or sent elsewhere, and a repetition changes nothing', () => {
    const world = new World()
    world.acquire('ann', 'a')
    world.do({ kind: 'move' })
    world.do({ kind: 'move', to: 'there' })
    const { revision } = world.state
    for (const more of [{}, { stay: true }, { to: 'elsewhere' }, { into: 'begin' }, { into: 'end' }] as const)
      world.refused(world.do({ kind: 'move', ...more }), 'INVALID')
    expect(world.refused(world.do({ kind: 'move', stay: true }), 'INVALID', 'moved-for-good', { moved: 'there' }).facts).toEqual({
      moved: 'there',
    })
    expect(world.do({ kind: 'move', to: 'there' }).kind).toBe('done')
    expect(world.state).toMatchObject({ moved: 'there', revision })
  })

  test('is left by one move at a time, which only its initiator can end', () => {
    const world = new World()
    world.refused(world.do({ kind: 'move', to: 'there' }), 'INVALID', 'move-called-off')
    const { revision: since } = world.do({ kind: 'move' })
    expect(world.refused(world.do({ kind: 'move' }), 'INVALID', 'moving-already').facts).toEqual({ moving: true })
    world.do({ kind: 'move', stay: true })
    const { revision } = world.do({ kind: 'move' }) // another's, who has a newer copy
    for (const late of [{ to: 'there' }, { stay: true }])
      world.refused(world.do({ kind: 'move', ...late, since }), 'INVALID', 'move-called-off')
    expect(world.do({ kind: 'move', to: 'elsewhere', since: revision }).kind).toBe('done')
    expect(world.state.moved).toBe('elsewhere')
  })

  test('can be made so by administrators only', () => {
    const world = new World()
    const key = world.key('k', 'acquire:', 'policy:')
    world.refused(world.do({ kind: 'move', to: 'b' }, { key }), 'FORBIDDEN')
    expect(world.state.moved).toBeUndefined()
  })
})

describe('a log that leases are moved into', () => {
  test('decides nothing before they have arrived, and clients cannot cancel that', () => {
    const world = new World()
    expect(world.do({ kind: 'move', into: 'begin' }).kind).toBe('done')
    expect(world.refused(world.ask('bob', 'b'), 'UNAVAILABLE', 'arriving').facts).toEqual({ moving: true })
    for (const more of [{}, { stay: true }, { to: 'there' }, { into: 'begin' }] as const)
      world.refused(world.do({ kind: 'move', ...more }), 'INVALID')
    expect(world.do({ kind: 'move', into: 'end' }).kind).toBe('done')
    expect(world.ask('bob', 'b').kind).toBe('granted')
    world.refused(world.do({ kind: 'move', into: 'end' }), 'INVALID', 'not-arriving')
  })

  test('must be empty, and its own leases must not have left it', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'a')
    world.refused(world.do({ kind: 'move', into: 'begin' }), 'INVALID', 'target-not-empty', { leases: 1 })
    world.release(lease)
    world.do({ kind: 'move' })
    world.refused(world.do({ kind: 'move', into: 'begin' }), 'INVALID', 'target-moved')
  })

  test('is closed and opened by the process that moves them, not by clients', () => {
    for (const into of ['begin', 'end'] as const) expect(isInternal({ kind: 'move', into })).toBe(true)
  })
})
