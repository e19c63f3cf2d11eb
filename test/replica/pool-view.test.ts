/** The view of a pool with a long queue: pages, and what explains one waiter. */
import { describe, expect, test } from 'vitest'
import { apply } from '../../src/kernel/apply.ts'
import type { Command, PolicyRules } from '../../src/kernel/command.ts'
import { createState, type State } from '../../src/kernel/state.ts'
import { MAX_POOL_PAGE } from '../../src/lessor.ts'
import { explainWaiter } from '../../src/pool/explain.ts'
import { poolView } from '../../src/replica/pool-view.ts'

const POOL = 'gpus'
const WAITERS = 1_500

/** Two members, both taken, and a queue in which each waiter is of its own account. */
function crowd(queue: PolicyRules['queue'] & string, waiters = WAITERS): State {
  const state = createState()
  state.index = 1
  const propose = (command: Command) => apply(state, { command }, { events: [], timer() {} })
  propose({ kind: 'policy', prefix: POOL, rules: { queue } })
  const members = ['m0', 'm1'].map(name => ({ key: `pool/${POOL}/${name}`, value: '{"units":1,"labels":{"host":"h"}}' }))
  propose({ kind: 'acquire', holder: 'host', ttl: 60_000, wants: [], entries: members })
  for (let i = 0; i < waiters + 2; i++)
    propose({ kind: 'acquire', holder: `u${i}`, ttl: 60_000, wants: [], wait: true, pool: { pool: POOL, expect: 60_000 } })
  return state
}

describe.each(['fifo', 'fair'] as const)('a %s queue of 1,500', queue => {
  const state = crowd(queue)

  test('is given in pages that together are the whole queue, with the count of all waiters', () => {
    const first = poolView(state, POOL)
    expect([first.waiting, first.queue.length]).toEqual([WAITERS, MAX_POOL_PAGE])
    const rest = poolView(state, POOL, { skip: MAX_POOL_PAGE, limit: 10_000 })
    const leases = [...first.queue, ...rest.queue].map(({ lease }) => lease)
    expect(new Set(leases).size).toBe(WAITERS)
    expect([...first.queue, ...rest.queue].map(({ position }) => position)).toEqual([...leases.keys()])
    expect(poolView(state, POOL, { skip: 5, limit: 2 }).queue.map(({ lease }) => lease)).toEqual(leases.slice(5, 7))
    expect(poolView(state, POOL, { skip: WAITERS }).queue).toEqual([])
  })

  test('has the accounts of the page and of the holders', () => {
    const { accounts } = poolView(state, POOL, { limit: 3 })
    expect(accounts.map(({ account }) => account)).toEqual(['u0', 'u1', 'u2', 'u3', 'u4'])
    const none = poolView(state, POOL, { limit: 0 })
    expect([none.waiting, none.queue, none.accounts.map(({ account }) => account)]).toEqual([WAITERS, [], ['u0', 'u1']])
  })

  test('explains a waiter in the middle from a part of the queue as from the whole', () => {
    const { lease } = poolView(state, POOL, { skip: 900, limit: 1 }).queue[0]!
    const part = poolView(state, POOL, { lease })
    expect(part.queue.length).toBeLessThan(200)
    expect(part.queue.at(-1)).toMatchObject({ lease, position: 900 })
    const [short, whole] = [explainWaiter(part, lease)!, explainWaiter(poolView(state, POOL), lease)!]
    expect(short.text[0]).toBe(`${short.holder} is number 901 of ${WAITERS} waiting for ${POOL}.`)
    expect([short.position, short.reasons]).toEqual([whole.position, whole.reasons])
    // 900 jobs of about a minute, two at a time.
    expect(short.start!.median / whole.start!.median).toBeCloseTo(1, 1)
  })

  test('has no place for a lease that does not wait for the pool', () => {
    const { lease } = poolView(state, POOL, { limit: 0 }).members[0]!.grants[0]!
    expect(poolView(state, POOL, { lease }).queue).toEqual([])
    expect(explainWaiter(poolView(state, POOL, { lease: 999_999 }), 999_999)).toBeUndefined()
  })
})

test('an account shows its quotas for the week and for kinds, and only those that it has', () => {
  const state = createState()
  state.index = 1
  const propose = (command: Command) => apply(state, { command }, { events: [], timer() {} })
  propose({ kind: 'policy', prefix: `${POOL}/accounts/u0`, rules: { quotaWeek: 1_000 } })
  propose({ kind: 'policy', prefix: `${POOL}/kinds/h/accounts`, rules: { quotaUnits: 2 } })
  const entries = ['m0', 'm1'].map(name => ({ key: `pool/${POOL}/${name}`, value: '{"labels":{"kind":"h"}}' }))
  propose({ kind: 'acquire', holder: 'host', ttl: 60_000, wants: [], entries })
  for (const holder of ['u0', 'u1']) propose({ kind: 'acquire', holder, ttl: 60_000, wants: [], pool: { pool: POOL } })
  propose({ kind: 'tick', n: 1, elapsed: 1_500 })
  const kinds = [{ kind: 'h', held: 1, quota: 2 }]
  const [limited, other] = poolView(state, POOL).accounts
  expect(limited).toMatchObject({ week: { used: 1_500, quota: 1_000, again: 626_400_000 - 1_500 }, kinds })
  expect(other).toMatchObject({ kinds })
  expect(other).not.toHaveProperty('week')
})
