/** What a person can do to a world of the playground, and what it withstands. */
import { describe, expect, test } from 'vitest'
import { Player } from '../../playground/player.ts'
import type { Act } from '../../playground/settings.ts'
import { judged } from '../support/playground.ts'

const HELD: readonly Act[] = [
  { at: 500, act: 'acquire', who: 0 },
  { at: 1_500, act: 'acquire', who: 1 },
]

/** Which process held the lease, in order. */
async function holders(acts: readonly Act[], length: number, settings = {}): Promise<string> {
  const { world, violations } = await judged({ processes: 2, plain: 0, ...settings }, [...HELD, ...acts], length)
  expect(violations).toEqual([])
  return world.history.tenures.map(({ lane }) => lane).join(' ')
}

describe('an act', () => {
  test('is left out: the first process keeps the lease', async () => {
    expect(await holders([], 20_000)).toBe('a')
  })

  test.each<[string, readonly Act[], string]>([
    ['release', [{ at: 6_000, act: 'release', who: 0 }], 'a b'],
    ['transfer', [{ at: 6_000, act: 'transfer', who: 0, amount: 1 }], 'a b'],
    ['revoke', [{ at: 6_000, act: 'revoke', who: 0 }], 'a b'],
    ['kill', [{ at: 6_000, act: 'kill', who: 0 }], 'a b'],
    ['pause', [{ at: 6_000, act: 'pause', who: 0, amount: 12_000 }], 'a b'],
    ['a pause that is shorter than the ttl', [{ at: 6_000, act: 'pause', who: 0, amount: 1_500 }], 'a'],
    ['suspend', [{ at: 6_000, act: 'suspend', who: 0, amount: 12_000 }], 'a b'],
    ['cut', [{ at: 6_000, act: 'cut', who: 0 }], 'a b'],
    [
      'cut and heal in time',
      [
        { at: 6_000, act: 'cut', who: 0 },
        { at: 7_000, act: 'heal', who: 0 },
      ],
      'a',
    ],
    ['stopping the stores, which ends the lease and grants nothing', [{ at: 6_000, act: 'stopLog' }], 'a'],
    [
      'stopping the stores for a while',
      [
        { at: 6_000, act: 'stopLog' },
        { at: 7_000, act: 'startLog' },
      ],
      'a',
    ],
    ['a clock 1 % fast, which makes its holder careful', [{ at: 600, act: 'fast', who: 0, amount: 1 }], 'a'],
  ])('%s', async (_, acts, expected) => {
    expect(await holders(acts, 20_000)).toBe(expected)
  })

  test('restart: the process that was killed queues again', async () => {
    const acts: readonly Act[] = [
      { at: 6_000, act: 'kill', who: 0 },
      { at: 8_000, act: 'restart', who: 0 },
      { at: 18_000, act: 'release', who: 1 },
    ]
    expect(await holders(acts, 26_000)).toBe('a b a')
  })

  test('grace: a holder that was cut off keeps its place longer', async () => {
    const cut: readonly Act[] = [{ at: 9_000, act: 'cut', who: 0 }]
    const at = async (acts: readonly Act[]) => {
      const { world } = await judged(
        { processes: 2, plain: 0 },
        [...acts, ...HELD.map(act => ({ ...act, at: act.at + 2_000 })), ...cut],
        40_000,
      )
      return world.history.tenures.find(({ lane }) => lane === 'b')!.at
    }
    const [without, graceful, delayed] = [
      await at([]),
      await at([{ at: 1_000, act: 'grace', amount: 8_000 }]),
      await at([{ at: 1_000, act: 'lockDelay', amount: 8_000 }]),
    ]
    expect(graceful - without).toBeGreaterThan(6_000)
    expect(delayed - without).toBeGreaterThan(6_000)
  })

  test('ttl: the next lease has it, and a holder that dies blocks the others for longer', async () => {
    const killed: readonly Act[] = [{ at: 10_000, act: 'kill', who: 0 }]
    const at = async (ttl: number) => {
      const { world } = await judged({ processes: 2, plain: 0 }, [{ at: 100, act: 'ttl', amount: ttl }, ...HELD, ...killed], 60_000)
      return world.history.tenures.find(({ lane }) => lane === 'b')!.at
    }
    expect((await at(20_000)) - (await at(3_000))).toBeGreaterThan(5_000)
  })
})

test('the same settings and acts give the same events', async () => {
  const digest = async () => {
    const player = new Player({ processes: 3, loss: 10 }, [...HELD, { at: 9_000, act: 'kill', who: 0 }])
    await player.run(20_000)
    return player.world.timeline.digest
  }
  expect(await digest()).toBe(await digest())
})

test('a bar ends when its holder released the lease, or when its own clock ended it, however far the world is moved at once', async () => {
  const acts: readonly Act[] = [
    { at: 15_000, act: 'release', who: 0 },
    { at: 25_000, act: 'pause', who: 1, amount: 15_000 },
  ]
  const player = new Player({ processes: 2, plain: 0 }, [...HELD, ...acts])
  await player.run(45_000)
  const [released, lost] = player.world.history.bars.filter(({ state }) => state === 'held')
  expect(released!.ended).toBeGreaterThan(15_000)
  expect(released!.deadline).toBeGreaterThan(released!.ended!)
  expect(lost!.ended).toBeGreaterThan(39_000)
  expect(lost!.deadline).toBeGreaterThan(25_000)
  expect(lost!.deadline).toBeLessThan(25_000 + 6_000)
})

test('an act of a person is carried out at the time at which it was done, and recorded', async () => {
  const player = new Player({ processes: 2 }, HELD)
  await player.run(6_000)
  expect(player.do({ act: 'kill', who: 0 })).toBe(true)
  await player.run(20_000)
  const again = new Player(player.settings, player.acts)
  await again.run(20_000)
  expect(player.world.history.tenures.map(({ lane, side }) => `${lane} ${side}`)).toContain('b lease')
  expect(again.world.timeline.digest).toBe(player.world.timeline.digest)
})

test('a world that runs for an hour keeps a bounded history and a short log, and its lease never has two holders', async () => {
  const player = new Player({ processes: 2 }, HELD)
  await player.run(600_000)
  const after = { size: player.world.history.size, leases: player.world.reading.state.leases.size }
  await player.run(3_600_000)
  const { history, reading, shared, verdicts, log } = player.world
  expect(history.size).toBeLessThan(after.size * 1.5)
  expect(reading.state.leases.size).toBe(after.leases)
  expect(shared.parked.size).toBeLessThan(10)
  expect(log.head.index - log.snapshot!.position.index).toBeLessThan(500)
  expect(verdicts).toEqual([])
})

test.each([
  [12, 300, 24_000],
  [50, 10, 14_000],
])(
  'of %i processes that queue, with messages of %i ms, one dies while it holds the lease, and the next one gets it',
  async (processes, delay, length) => {
    const acts = Array.from({ length: processes }, (_, who): Act => ({ at: 500 + who * 100, act: 'acquire', who }))
    const { world, violations } = await judged({ processes, delay }, [...acts, { at: 8_000, act: 'kill', who: 0 }], length)
    expect(violations).toEqual([])
    expect(world.history.tenures.filter(({ side }) => side === 'lease').map(({ lane }) => lane)).toEqual(['a', 'b'])
  },
)
