/** The pool of a simulated world: its discipline, and what holders offer and ask of it. */
import type { Acquire, Command, PolicyRules } from '../src/kernel/command.ts'
import type { Dice } from './world.ts'

/** The holders of this world offer members of one unit, and ask for a number of them without conditions. */
export const POOL = 'g'
/** Only these have quotas. An account may always hold what one request asks for. */
const ACCOUNTS = ['a', 'b', 'c'] as const

/** The policies of the pool: every discipline, with and without preemption and quotas. */
export function poolPolicies(dice: Dice): Command[] {
  const rules: PolicyRules = {
    queue: dice.pick(['fifo', 'fit', 'backfill', 'fair'] as const),
    ...(dice.chance(0.8) && { preempt: 'marked' }),
    preemptNotice: dice.pick([0, 150, 150]),
    minHold: dice.pick([0, 0, 100]),
    // The log is too short for half-lives of days.
    ...{ shareHalfLife: 4_000, sharePenalty: dice.pick([0, 200]) },
    ...(dice.chance(0.3) && { aging: 700 }),
  }
  const policies: Command[] = [{ kind: 'policy', prefix: POOL, rules }]
  if (dice.chance(0.5)) policies.push({ kind: 'policy', prefix: `${POOL}/accounts/a`, rules: { quotaUnits: 2, quotaBorrow: 1 } })
  if (dice.chance(0.3)) policies.push({ kind: 'policy', prefix: `${POOL}/accounts/b`, rules: { quotaUnits: 1, quotaBorrow: 1 } })
  if (dice.chance(0.4))
    policies.push({ kind: 'policy', prefix: `${POOL}/kinds/h/accounts/${dice.pick(ACCOUNTS)}`, rules: { quotaUnits: 2 } })
  // For some of the time that these worlds take.
  if (dice.chance(0.2)) policies.push({ kind: 'policy', prefix: `${POOL}/accounts/c`, rules: { quotaWeek: dice.whole(1_000, 10_000) } })
  return policies
}

/** Three of five members are of one kind. */
function memberValue(index: number): string {
  return JSON.stringify({ units: 1, ...(index < 3 && { labels: { kind: 'h' } }) })
}

/** Offers members, or asks for some. */
export function poolWish(dice: Dice, holder: string, ttl: number, incarnation: number | undefined): Acquire {
  const base = { kind: 'acquire', holder, ttl, wants: [], ...(incarnation !== undefined && { incarnation }) } as const
  if (dice.chance(0.35)) {
    const members = dice.chance(0.3) ? [0, 1] : [dice.whole(0, 4)]
    const entries = members.map(i => ({ key: `pool/${POOL}/m${i}`, value: memberValue(i) }))
    return { ...base, entries, ...(dice.chance(0.3) && { grace: 300 }) }
  }
  const pool = { pool: POOL, count: dice.whole(1, 2), account: dice.pick(ACCOUNTS), ...(dice.chance(0.5) && { preemptible: true }) }
  if (dice.chance(0.06)) return { ...base, wait: true, maxLife: dice.whole(100, 500), pool: { ...pool, from: dice.whole(100, 1_500) } }
  return {
    ...base,
    pool: { ...pool, ...(dice.chance(0.6) && { expect: dice.whole(20, 800) }) },
    ...(dice.chance(0.8) && { wait: true }),
    ...(dice.chance(0.15) && { priority: dice.whole(-1, 2) }),
    ...(dice.chance(0.2) && { maxLife: dice.whole(200, 1_500) }),
  }
}
