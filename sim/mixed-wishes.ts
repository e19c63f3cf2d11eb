/** The names of the combined world, its policies, and requests that combine the features of leases at random. */

import { CLASS_LABEL } from '../src/holder/learned-terms.ts'
import type { Acquire, Command, Want } from '../src/kernel/command.ts'
import { type Feature, MARKS_LABEL } from './features.ts'
import { POOL } from './pools.ts'
import type { Dice } from './world.ts'

/** Few names, so that features meet on them. Members of the pool are asked for by name as well. */
export const NAMES = ['x/0', 'x/1', 'x/2', `${POOL}/m0`, `${POOL}/m1`] as const
/** Three units. */
export const UNITS = 'p/0'
/** The name for which the face's clients compete. */
export const FACE_NAME = 'kubernetes/default/ctl'
export const TTLS = [300, 900, 2_000, 4_000] as const
const ACCOUNTS = ['a', 'b', 'c'] as const

export function mixedPolicies(dice: Dice): Command[] {
  return [
    { kind: 'policy', prefix: 'p', rules: { capacity: 3 } },
    { kind: 'policy', prefix: 'x', rules: { quota: 40 } },
    { kind: 'policy', prefix: 'x/1', rules: { lockDelay: 150 } },
    { kind: 'policy', prefix: `${POOL}/m1`, rules: { lockDelay: 100 } },
    { kind: 'policy', prefix: 'e/short', rules: { ttlMax: 3_000 } },
    {
      kind: 'policy',
      prefix: POOL,
      rules: {
        queue: dice.pick(['fifo', 'fit', 'backfill', 'fair'] as const),
        preempt: 'marked',
        preemptNotice: dice.pick([150, 400]),
        minHold: 0,
        ...{ shareHalfLife: 4_000, sharePenalty: dice.pick([0, 200]) },
      },
    },
    { kind: 'policy', prefix: `${POOL}/accounts/a`, rules: { quotaUnits: 1, quotaBorrow: 2 } },
    { kind: 'policy', prefix: `${POOL}/accounts/b`, rules: { quotaUnits: 2, quotaBorrow: 1 } },
  ]
}

/** A label that tells the referee what the kernel cannot see of a request. */
export function marks(...features: readonly Feature[]): readonly [string, string] {
  return [MARKS_LABEL, features.join(' ')]
}

function someWants(dice: Dice): Want[] {
  const name = () => ({ resource: dice.pick(NAMES) })
  const units = { resource: UNITS, units: dice.whole(2, 3) }
  const shared = { resource: dice.chance(0.5) ? UNITS : dice.pick(NAMES), shared: true }
  const wants = dice.pick([
    [name()],
    [name()],
    [name(), name()],
    [name(), units],
    [units],
    [shared],
    [shared, name()],
    [{ resource: FACE_NAME }, name()],
  ])
  return wants.filter(({ resource }, i) => wants.findIndex(other => other.resource === resource) === i)
}

/** Any features of a request for names. */
export function mixedWish(dice: Dice, base: Pick<Acquire, 'kind' | 'holder' | 'ttl' | 'incarnation'>, own: string): Acquire {
  const wants = someWants(dice)
  const any = dice.chance(0.15)
    ? { any: 1, wants: [...new Set([...wants.map(({ resource }) => resource), ...NAMES.slice(0, 2)])].map(resource => ({ resource })) }
    : { wants }
  return {
    ...base,
    ...any,
    ...(dice.chance(0.7) && { wait: true }),
    ...(dice.chance(0.25) && { entries: [{ key: `e/${dice.chance(0.3) ? 'short' : 'long'}/${own}`, value: own }] }),
    ...(dice.chance(0.2) && { grace: 200 }),
    ...(dice.chance(0.2) && { maxLife: dice.whole(400, 3_000) }),
    ...(dice.chance(0.04) && { wait: true, steal: 'after' as const }),
    ...(dice.chance(0.2) && { priority: dice.whole(-1, 2) }),
    ...(dice.chance(0.15) && { labels: [[CLASS_LABEL, 'x'] as const] }),
  }
}

/** Any features of a request to the pool: an offer, a reservation, or members. */
export function mixedPoolWish(dice: Dice, base: Pick<Acquire, 'kind' | 'holder' | 'ttl' | 'incarnation'>, own: string): Acquire {
  if (dice.chance(0.3)) {
    const members = dice.chance(0.5) ? [0, 1] : [dice.whole(0, 3)]
    const entries = members.map(i => ({ key: `pool/${POOL}/m${i}`, value: '{"units":1}' }))
    return { ...base, ttl: 4_000, wants: [], entries, ...(dice.chance(0.3) && { grace: 300 }) }
  }
  const pool = { pool: POOL, count: dice.whole(1, 2), account: dice.pick(ACCOUNTS), ...(dice.chance(0.6) && { preemptible: true }) }
  const extra = {
    ...(dice.chance(0.25) && { entries: [{ key: `e/long/${own}`, value: own }] }),
    ...(dice.chance(0.2) && { grace: 200 }),
    ...(dice.chance(0.2) && { priority: dice.whole(-1, 2) }),
  }
  if (dice.chance(0.12))
    return { ...base, wants: [], wait: true, maxLife: dice.whole(400, 1_500), pool: { ...pool, from: dice.whole(100, 1_200) } }
  return {
    ...{ ...base, ...extra, wants: [], pool: { ...pool, ...(dice.chance(0.5) && { expect: dice.whole(20, 800) }) } },
    ...(dice.chance(0.75) && { wait: true }),
    ...(dice.chance(0.4) && { maxLife: dice.whole(500, 2_500) }),
  }
}
