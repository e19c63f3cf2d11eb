/** The scenes of the playground show what they claim, and the simulator's referee agrees. */
import { describe, expect, test } from 'vitest'
import { SCENES, sceneNamed } from '../../playground/scenes.ts'
import { judged } from '../support/playground.ts'

describe.each(SCENES.map(scene => [scene.title, scene] as const))('%s', (_, { settings, acts, length, claims, text }) => {
  test('shows what it claims, and the referee finds no violation of the lease', async () => {
    const { world, violations, commands } = await judged(settings, acts, length)
    expect(violations).toEqual([])
    expect(commands).toBeGreaterThan(3)
    expect(claims.filter(({ holds }) => !holds(world)).map(claim => claim.text)).toEqual([])
  })

  test('has a text of at most 80 words', () => {
    expect(text.split(/\s+/).length).toBeLessThanOrEqual(80)
  })

  test('cannot show what it claims before anything has happened', async () => {
    const { world } = await judged(settings, [], 500)
    expect(claims.filter(({ holds }) => !holds(world)).length).toBeGreaterThan(0)
  })
})

test('without fencing, the late write of the zombie overwrites newer work under the lease as well', async () => {
  const { settings, acts, length, claims } = sceneNamed('zombie-writer')!
  const { world, violations } = await judged({ ...settings, fencing: 0 }, acts, length)
  expect(violations).toEqual([expect.stringMatching(/^S2: a write of a with token \d+ to jobs\/nightly: overwrote$/)])
  expect(world.history.count('lease', 'overwrote')).toBe(1)
  expect(claims.map(({ holds }) => holds(world))).toEqual([false, false, true])
})

test('a clock that runs far slower than leases allow for gives two holders, and the referee says so', async () => {
  const { settings, acts, length } = sceneNamed('split-brain')!
  const slow = [{ at: 300, act: 'fast', who: 0, amount: -50 } as const, ...acts]
  const { world, violations } = await judged(settings, slow, length)
  expect(violations.some(violation => violation.startsWith('S1:'))).toBe(true)
  expect(world.verdicts.some(({ side }) => side === 'lease')).toBe(true)
})

test('a plain lock that is not cut off has one holder at a time', async () => {
  const { settings, acts, length } = sceneNamed('split-brain')!
  const { world } = await judged(
    settings,
    acts.filter(({ act }) => act === 'acquire'),
    length,
  )
  expect(world.verdicts).toEqual([])
  expect(world.history.count('plain', 'overwrote')).toBe(0)
})
