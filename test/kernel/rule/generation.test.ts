import { describe, expect, test } from 'vitest'
import { findLease } from '../../../src/kernel/state/leases.ts'
import { agedOf } from '../../../src/kernel/state/timers.ts'
import { QUIET, RULES, SLOTS } from '../../../src/kernel/state.ts'
import { reload, World } from '../../support/kernel/world.ts'

const generation = { kind: 'generation', lease: 100, token: 200, revision: 300, quiet: 5_000 } as const

describe('after a log lost records', () => {
  test('ids, tokens and revisions go on above all that any survivor saw', () => {
    const world = new World()
    world.do({ ...generation, quiet: 0 })
    const { lease, tokens, revision } = world.acquire('a', 'x')
    expect(lease).toBeGreaterThan(100)
    expect(tokens[0]).toBeGreaterThan(200)
    expect(revision).toBeGreaterThan(300)
  })

  test('ids and tokens go on above the wall time too: no survivor may have read the last of the lost records', () => {
    const world = new World()
    const wall = 1_700_000_000_000
    world.entry([{ ...generation, lease: 0, token: 0, revision: 0, quiet: 0 }], { wall })
    const { lease, tokens } = world.acquire('a', 'x')
    expect(lease).toBeGreaterThan(wall)
    expect(tokens[0]).toBeGreaterThan(wall)
  })

  test('counters never go back', () => {
    const world = new World()
    for (let i = 0; i < 5; i++) world.release(world.acquire('a', 'x').lease)
    const { nextLease, nextToken, revision } = world.state
    world.do({ ...generation, lease: 0, token: 0, revision: 0 })
    expect(world.state).toMatchObject({ nextLease, nextToken, revision: revision + 1 })
  })

  test('nothing is granted in the quiet period; waiters are served when it is over', () => {
    const world = new World()
    world.do(generation)
    world.refused(world.ask('a', 'x'), 'UNAVAILABLE', 'quiet')
    const first = world.queue('a', 'x')
    world.queue('b', 'x')
    expect(world.ask('c', [])).toMatchObject({ kind: 'granted' })
    const { epoch } = world.state.quiet!
    expect(world.do({ kind: 'due', timer: QUIET, epoch: epoch - 1 })).toMatchObject({ kind: 'nothing' })
    world.do({ kind: 'due', timer: QUIET, epoch })
    expect(world.holders('x')).toEqual(['a'])
    expect(world.lease(first.lease)!.status).toBe(1)
    expect(world.do({ kind: 'due', timer: QUIET, epoch })).toMatchObject({ kind: 'nothing' })
  })

  test('it is quiet for the longest term ever granted, however short the quiet that was asked for', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { ttl: 3_600_000 })
    world.do({ ...generation, quiet: 0 })
    expect(world.state.quiet!.duration).toBe(30_000)
    world.renew(lease)
    world.do({ ...generation, quiet: 0 })
    expect(world.state.quiet!.duration).toBe(3_600_000)
  })

  test('a second loss does not cut the quiet short', () => {
    const world = new World()
    world.do({ ...generation, quiet: 60_000 })
    world.do({ ...generation, quiet: 1 })
    expect(world.state.quiet).toMatchObject({ duration: 60_000, epoch: 2 })
  })

  test('every term begins again: the renewal that it began with may be among what was lost', () => {
    const world = new World()
    const [held, frozen] = [world.acquire('a', 'x'), world.acquire('a', 'y')]
    world.do({ kind: 'revoke', target: { lease: frozen.lease } })
    world.do({ kind: 'aged', marks: [held, frozen].map(({ lease }) => ({ timer: lease * SLOTS, epoch: 1, ms: 9_000 })) })
    world.do(generation)
    for (const { lease } of [held, frozen]) {
      expect(world.lease(lease)).toMatchObject({ epoch: 2, aged: 0, term: 10_000 })
      expect(world.do({ kind: 'due', timer: lease * SLOTS, epoch: 1 })).toMatchObject({ kind: 'nothing' })
    }
  })

  test('a renewal in the quiet period does not shorten a term: the holder may rely on a lost renewal with a longer ttl', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { ttl: 1_000 })
    world.do({ ...generation, quiet: 60_000 })
    world.do({ kind: 'aged', marks: [{ timer: QUIET, epoch: 1, ms: 20_000 }] })
    expect(world.do({ kind: 'renew', leases: [lease] })).toMatchObject({ ttls: [1_000] })
    expect(world.lease(lease)!.term).toBe(40_000)
    expect(world.state.longest).toBe(1_000)
    world.do({ kind: 'due', timer: QUIET, epoch: 1 })
    world.do({ kind: 'renew', leases: [lease] })
    expect(world.lease(lease)!.term).toBe(1_000)
  })

  describe('a grant that no renewal had confirmed, and that may have lapsed in the lost records', () => {
    /** Ends the quiet period, and returns what a renewal is answered then. */
    const renewedAfterwards = (world: World, lease: number) => {
      world.do({ kind: 'due', timer: QUIET, epoch: world.state.quiet!.epoch })
      return world.renew(lease)
    }

    test('out of a queue is not confirmed before the quiet period is over, and goes on', () => {
      const world = new World()
      const first = world.acquire('a', 'x')
      const { lease } = world.queue('b', 'x')
      world.release(first.lease)
      world.do(generation)
      expect(world.renew(lease)).toBe(0)
      expect(world.lease(lease)).toMatchObject({ confirmed: false, term: 10_000 })
      expect(world.state.longest).toBe(10_000)
      expect(findLease(reload(world.state), lease)!.extras!.waited).toBe(true)
      expect(renewedAfterwards(world, lease)).toBe(10_000)
    })

    test('that was transferred is not confirmed either, and cannot be claimed', () => {
      const world = new World()
      const { lease } = world.acquire('a', 'x')
      const passed = world.do({ kind: 'transfer', lease, to: 'b', stopped: true }) as { id: number }
      world.do(generation)
      expect(world.renew(passed.id)).toBe(0)
      world.refused(world.do({ kind: 'claim', lease: passed.id }), 'UNAVAILABLE', 'quiet')
      expect(renewedAfterwards(world, passed.id)).toBe(10_000)
    })

    test('that was given at once is confirmed: its holder has counted its validity since the answer', () => {
      const world = new World()
      const { lease } = world.acquire('a', 'x')
      const session = world.acquire('b', [])
      world.do(generation)
      expect(world.renew(lease)).toBe(10_000)
      expect(world.renew(session.lease)).toBe(10_000)
    })

    test('out of a queue that was confirmed before the loss is renewed as before', () => {
      const world = new World()
      const first = world.acquire('a', 'x')
      const { lease } = world.queue('b', 'x')
      world.release(first.lease)
      world.renew(lease)
      world.do(generation)
      expect(world.renew(lease)).toBe(10_000)
    })
  })

  test('a log that never granted anything needs no quiet', () => {
    const world = new World()
    world.do({ ...generation, quiet: 0 })
    expect(world.state.quiet).toBeUndefined()
  })

  test('quiet ages by marks, each bit of time once', () => {
    const world = new World()
    world.do(generation)
    const age = () => agedOf(world.state, world.state.quiet!)
    const mark = (ms: number) => world.do({ kind: 'aged', marks: [{ timer: QUIET, epoch: 1, ms }] })
    mark(1_000)
    expect(age()).toBe(1_000)
    mark(500)
    expect(age()).toBe(1_000)
    world.do({ kind: 'run', owned: true })
    world.do({ kind: 'aged-together', run: 1, ms: 700 })
    expect(age()).toBe(1_700)
    mark(2_000)
    expect(age()).toBeLessThanOrEqual(2_000)
    world.do({ kind: 'aged-together', run: 1, ms: 1_100 })
    expect(age()).toBeLessThanOrEqual(2_100)
  })

  test.each([
    ['lease', 2 ** 53 - 1],
    ['token', 2 ** 52],
    ['revision', -1],
    ['quiet', 2 ** 53 - 1],
    ['quiet', Number.NaN],
    ['lease', 1.5],
  ])('a %s of %d is refused: nothing could come above it', (field, value) => {
    const world = new World()
    world.refused(world.do({ ...generation, [field]: value }), 'INVALID')
  })

  test('only an administrator may begin one', () => {
    const world = new World()
    const key = world.key('k', 'acquire:', 'policy:')
    world.refused(world.do(generation, { key }), 'FORBIDDEN')
  })
})

test('the rules version is raised one by one, by an administrator', () => {
  const world = new World()
  const key = world.key('k', 'acquire:')
  world.refused(world.do({ kind: 'upgrade', rules: RULES + 1 }, { key }), 'FORBIDDEN')
  for (const rules of [0, RULES, RULES + 2, Number.NaN])
    world.refused(world.do({ kind: 'upgrade', rules }), 'INVALID', 'wrong-rules', { rules: RULES })
  expect(world.do({ kind: 'upgrade', rules: RULES + 1 })).toMatchObject({ kind: 'done' })
  expect(world.state.rules).toBe(RULES + 1)
})

const LOSS = { kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 0 } as const

describe('in the quiet period after a loss', () => {
  test('a transferred lease is granted when the quiet period is over, before all waiters', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'x')
    world.do(LOSS)
    const waiter = world.queue('cid', 'x')
    const { nextToken } = world.state
    const heir = world.do({ kind: 'transfer', lease, to: 'bob', stopped: true }) as { id: number }
    expect(world.state.nextToken).toBe(nextToken)
    expect(world.holders('x')).toEqual([])
    expect(world.waiters('x')).toEqual(['bob', 'cid'])
    expect(world.renew(heir.id)).toBeGreaterThan(0)
    world.do({ kind: 'due', timer: 0, epoch: world.state.quietEpochs })
    expect(world.holders('x')).toEqual(['bob'])
    expect(world.lease(waiter.lease)!.grants).toEqual([])
  })
})

describe('the quiet period after a loss', () => {
  test('does not count a session that holds nothing', () => {
    const world = new World()
    world.acquire('ann', 'x')
    const { lease } = world.acquire('eve', [], { ttl: 1_200_000 })
    world.renew(lease)
    world.release(lease)
    world.do(LOSS)
    expect(world.state.quiet!.duration).toBe(10_000)
  })

  test('is as long as the longest term of a lease with grants', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'x', { ttl: 100_000 })
    world.renew(lease)
    world.release(lease)
    world.do(LOSS)
    expect(world.state.quiet!.duration).toBe(100_000)
  })
})
