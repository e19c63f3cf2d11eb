/** Random programs with all features together: the kernel does what the naive model says, and the features meet. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { newReport, play } from '../support/kernel/program.ts'
import { NOT_REACHED, PROGRAM_FEATURES } from '../support/kernel/program-features.ts'
import { PROGRAM_EXAMPLES, programs } from '../support/kernel/program-steps.ts'
import { World } from '../support/kernel/world.ts'

/** For each seed. More are run with LEASEHOLD_PROGRAMS. */
const PROGRAMS = Number(process.env.LEASEHOLD_PROGRAMS ?? 450)
/** With another seed the programs are others, and may miss a pair. */
const isFixedSeed = process.env.LEASEHOLD_PROPERTY_SEED === undefined
/** Together, the programs of these seeds make every pair of features meet. */
const SEEDS: readonly { readonly seed?: number }[] = isFixedSeed ? [{ seed: 8 }, { seed: 10 }] : [{}]

describe('random programs', { timeout: 900_000 }, () => {
  const report = newReport()

  test('with all features together, the kernel does what the naive model says', async () => {
    for (const seed of SEEDS)
      await fc.assert(
        fc.asyncProperty(programs(120), program => play(program, report)),
        { ...seed, numRuns: PROGRAMS + PROGRAM_EXAMPLES.length, examples: PROGRAM_EXAMPLES.map(program => [program]) },
      )
  })

  test.runIf(isFixedSeed)('in these programs every pair of features meets, except those that cannot', () => {
    const pairs = PROGRAM_FEATURES.flatMap(first => PROGRAM_FEATURES.map(second => `${first} ${second}`))
    expect(pairs.filter(pair => !report.pairs.counts.has(pair) && !(pair in NOT_REACHED))).toEqual([])
    expect(Object.keys(NOT_REACHED).filter(pair => report.pairs.counts.has(pair))).toEqual([])
  })
})

describe('a crowded pool under `fit`', { timeout: 900_000 }, () => {
  test('a waiter whose member has become free is served, however many wait for others', () => {
    fc.assert(
      fc.property(
        fc.record({ before: fc.constantFrom(0, 3, 200, 255, 256, 290), after: fc.nat(5), reserved: fc.boolean(), preempt: fc.boolean() }),
        crowd => {
          const { before, after, reserved, preempt } = crowd
          const world = new World({ strict: false })
          world.policy('g', { queue: 'fit', preempt: preempt ? 'marked' : 'none' })
          const members = ['busy', 'free'].map(n => ({ key: `pool/g/${n}`, value: JSON.stringify({ labels: { n } }) }))
          world.do({ kind: 'acquire', holder: 'host', ttl: 60_000, wants: [], entries: members })
          const take = (holder: string, values: readonly string[], more: object = {}) =>
            world.do({
              kind: 'acquire',
              holder,
              ttl: 60_000,
              wants: [],
              pool: { pool: 'g', match: [{ label: 'n', test: 'in', values }] },
              ...more,
            })
          take('a', ['busy'])
          const held = take('b', ['free'])
          const window = {
            kind: 'acquire',
            holder: 'c',
            ttl: 60_000,
            wants: [],
            wait: true,
            maxLife: 1_000,
            pool: { pool: 'g', from: 9_000 },
          } as const
          if (reserved) world.do(window)
          const wait = { wait: true, maxLife: 1_000 }
          for (let i = 0; i < before; i++) take(`w${i}`, ['busy', `other${i}`], wait)
          const waiter = take('waiter', ['free'], wait)
          for (let i = 0; i < after; i++) take(`v${i}`, ['busy', `another${i}`], wait)
          if (held.kind !== 'granted' || waiter.kind !== 'queued') throw new Error(`${held.kind}, ${waiter.kind}`)
          world.release(held.lease)
          const isServed = world.lease(waiter.lease)?.grants.length === 1
          expect(isServed, JSON.stringify(crowd)).toBe(true)
        },
      ),
      { numRuns: 14 },
    )
  })
})
