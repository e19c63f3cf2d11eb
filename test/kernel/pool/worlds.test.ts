/** Random labs under every discipline, in virtual time: what must hold whatever the jobs are. */
import { describe, expect, test } from 'vitest'
import { stateHash } from '../../../src/kernel/codec/snapshot.ts'
import type { PolicyRules } from '../../../src/kernel/command.ts'
import { Lab, type LabOptions, POOL } from '../../support/kernel/lab.ts'
import { random } from '../../support/kernel/stream.ts'
import { reload } from '../../support/kernel/world.ts'

const second = 1_000
const minute = 60 * second
const hour = 60 * minute
const ACCOUNTS = ['ann', 'bob', 'eve'] as const
const QUOTAS = { ann: { quotaUnits: 3, quotaBorrow: 2 }, bob: { quotaUnits: 2 }, eve: {} } as const

const DISCIPLINES: readonly PolicyRules[] = [
  { queue: 'fifo', preempt: 'marked' },
  { queue: 'fit', preempt: 'marked', aging: 10 * second },
  { queue: 'backfill' },
  { queue: 'backfill', preempt: 'marked', minHold: 2 * minute },
  { queue: 'fair' },
  { queue: 'fair', preempt: 'marked', minHold: minute },
  { queue: 'fair', preempt: 'marked', sharePenalty: 0 },
]

function lab(seed: number, rules: PolicyRules, more: Partial<LabOptions> = {}): Lab {
  const draw = random(seed)
  const members = Object.fromEntries(
    Array.from({ length: 3 + draw(4) }, (_, i) => [
      `m${i}`,
      { labels: { host: `h${i % 2}`, model: draw(2) === 0 ? 'a' : 'h' }, units: 1 + draw(2) },
    ]),
  )
  const notice = draw(3) * 10 * second
  const made = new Lab({ members, rules: { ...rules, preemptNotice: notice }, accounts: QUOTAS, tick: 10 * second, ...more })
  for (let i = 0; i < 40; i++) {
    const size = draw(4) === 0 ? { total: 1 + draw(2) } : { count: 1 + draw(2), ...(draw(2) === 0 && { units: 1 }) }
    const takes = 10 * second + draw(20) * minute
    const job = {
      account: ACCOUNTS[draw(3)]!,
      ...size,
      takes,
      preemptible: draw(2) === 0,
      again: 'rest' as const,
      ...(draw(3) > 0 && { priority: draw(3) }),
      ...(draw(2) === 0 && { expect: Math.ceil((takes * (50 + draw(100))) / 100) }),
      ...(draw(3) === 0 && { match: [{ label: 'model', test: 'in' as const, values: ['a'] }] }),
      ...(draw(4) === 0 && { near: 'host' }),
      ...(draw(2) === 0 && { stopsAfter: draw(15) * second }),
    }
    made.at(draw(60) * minute + i, () => void made.submit(job))
  }
  return made
}

describe.each(DISCIPLINES.map(rules => [JSON.stringify(rules), rules] as const))('under %s', { timeout: 900_000 }, (_, rules) => {
  test('quotas are never exceeded, and no job starves: all of them end, after a bounded number of preemptions', () => {
    for (let seed = 1; seed <= 4; seed++) {
      const world = lab(seed, rules, {
        each({ state }) {
          for (const { name, held } of state.pools.get(POOL)?.accounts.values() ?? []) {
            const { quotaUnits = 1e9, quotaBorrow = 0 }: PolicyRules = QUOTAS[name as 'ann'] ?? {}
            expect(held, `units of ${name}, seed ${seed}`).toBeLessThanOrEqual(quotaUnits + quotaBorrow)
          }
        },
      })
      world.runUntil(8 * hour)
      const unfinished = world.runs.filter(run => run.ended === undefined)
      expect(
        unfinished.map(run => JSON.stringify(run)),
        `seed ${seed}`,
      ).toEqual([])
      // 40 jobs of at most 20 minutes.
      expect(world.preemptions, `seed ${seed}`).toBeLessThan(400)
      expect(world.state.pools.get(POOL)!.noticed.size).toBe(0)
    }
  })

  test('all invariants hold after every command, and a copy through a snapshot goes on in the same way', () => {
    for (let seed = 11; seed <= 11; seed++) {
      const world = lab(seed, rules, { strict: true, tick: 20 * second })
      world.runUntil(40 * minute)
      const copy = reload(world.state)
      expect(stateHash(copy)).toBe(stateHash(world.state))
      world.follow(copy)
      world.runUntil(90 * minute)
      expect(stateHash(copy), `seed ${seed}`).toBe(stateHash(world.state))
    }
  })
})
