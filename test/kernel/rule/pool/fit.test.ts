/** The discipline `fit`: a waiter that fits is served, whatever waits before it. */
import { expect, test } from 'vitest'
import type { PolicyRules, PoolRequest } from '../../../../src/kernel/command.ts'
import { LIVE } from '../../../../src/kernel/state.ts'
import { World } from '../../../support/kernel/world.ts'

const DAY = 86_400_000
/** With preemption, turns are planned. */
const RULES: readonly PolicyRules[] = [{ queue: 'fit' }, { queue: 'fit', preempt: 'marked' }]

/** A pool `g` whose members have their own name as the label `n`. Large, so the state is not hashed at every step. */
function poolWorld(rules: PolicyRules, members: readonly string[]): World {
  const world = new World({ strict: false })
  world.policy('g', rules)
  for (let from = 0; from < members.length; from += 50) {
    const entries = members.slice(from, from + 50).map(name => ({ key: `pool/g/${name}`, value: `{"labels":{"n":"${name}"}}` }))
    world.acquire('host', [], { ttl: DAY, entries })
  }
  return world
}

function only(member: string): PoolRequest {
  return { pool: 'g', match: [{ label: 'n', test: 'in', values: [member] }] }
}

test.each(RULES)('a waiter whose member is free is granted it, however many others do not fit, with %j', rules => {
  const busy = Array.from({ length: 280 }, (_, i) => `m${i}`)
  const world = poolWorld(rules, [...busy, 'cpu'])
  for (const member of busy) world.acquire(`holder-${member}`, [], { pool: only(member) })
  const { lease: held } = world.acquire('holder-cpu', [], { pool: only('cpu') })
  for (const member of busy) world.queue(`waiter-${member}`, [], { pool: only(member) })
  const { lease: waiter } = world.queue('waiter-cpu', [], { pool: only('cpu') })
  world.release(held)
  expect([world.holders('g/cpu'), world.lease(waiter)!.status]).toEqual([['waiter-cpu'], LIVE])
})

test.each(RULES)('a waiter that ends before a reserved window overtakes 256 equal waiters that do not, with %j', rules => {
  const world = poolWorld(rules, ['a'])
  const { lease: held } = world.acquire('holder', [], { pool: { pool: 'g' } })
  world.queue('reserver', [], { maxLife: 60_000, pool: { pool: 'g', from: 3_600_000 } })
  for (let i = 0; i < 256; i++) world.queue(`endless-${i}`, [], { pool: { pool: 'g' } })
  const { lease: waiter } = world.queue('short', [], { maxLife: 60_000, pool: { pool: 'g' } })
  world.release(held)
  expect(world.holders('g/a').filter(name => name !== 'short')).toEqual([])
  expect(world.lease(waiter)!.status).toBe(LIVE)
})
