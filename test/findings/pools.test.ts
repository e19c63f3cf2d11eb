/** Known findings: requests to pools and for numbered slots. */
import { expect } from 'vitest'
import type { PolicyRules, PoolRequest } from '../../src/kernel/command.ts'
import { WAITING } from '../../src/kernel/state.ts'
import { explainWaiter } from '../../src/pool/explain.ts'
import type { NumberedSlot } from '../../src/recipe/slots.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { World } from '../support/kernel/world.ts'
import { knownFinding } from '../support/known-finding.ts'

const DAY = 86_400_000

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

knownFinding(
  'fit-starved-waiter',
  'under `fit`, a waiter whose member is free is granted it, however many others do not fit',
  async claim => {
    const busy = Array.from({ length: 280 }, (_, i) => `m${i}`)
    const world = poolWorld({ queue: 'fit' }, [...busy, 'cpu'])
    for (const member of busy) world.acquire(`holder-${member}`, [], { pool: only(member) })
    const { lease: held } = world.acquire('holder-cpu', [], { pool: only('cpu') })
    for (const member of busy) world.queue(`waiter-${member}`, [], { pool: only(member) })
    const { lease: waiter } = world.queue('waiter-cpu', [], { pool: only('cpu') })
    world.release(held)
    for (let n = 1; n <= 20; n++) world.do({ kind: 'tick', n, elapsed: 1_000 })
    expect(
      world.state.pools
        .get('g')!
        .free.map(({ name }) => name)
        .concat(world.holders('g/cpu')),
    ).toHaveLength(1)
    await claim(() => expect(world.lease(waiter)!.status).not.toBe(WAITING))
  },
)

knownFinding(
  'fit-starved-waiter',
  'under `fit`, a waiter that ends before a reserved window overtakes 256 equal waiters that do not',
  async claim => {
    const world = poolWorld({ queue: 'fit' }, ['a'])
    const { lease: held } = world.acquire('holder', [], { pool: { pool: 'g' } })
    world.queue('reserver', [], { maxLife: 60_000, pool: { pool: 'g', from: 3_600_000 } })
    for (let i = 0; i < 256; i++) world.queue(`endless-${i}`, [], { pool: { pool: 'g' } })
    const { lease: waiter } = world.queue('short', [], { maxLife: 60_000, pool: { pool: 'g' } })
    world.release(held)
    expect(world.holders('g/a').filter(name => name !== 'short')).toEqual([])
    await claim(() => expect(world.lease(waiter)!.status).not.toBe(WAITING))
  },
)

knownFinding('pool-no-wait-refused', 'a request without `wait` borrows members, as the same request with `wait` does', async claim => {
  const request = (wait: boolean): string => {
    const world = poolWorld({}, ['a', 'b', 'c', 'd'])
    world.policy('g/accounts/ann', { quotaUnits: 1, quotaBorrow: 3 })
    world.acquire('ann', [], { pool: { pool: 'g' } })
    return world.ask('ann', [], { wait, pool: { pool: 'g' } }).kind
  }
  expect(request(true)).toBe('granted')
  const kind = request(false)
  await claim(() => expect(kind).toBe('granted'))
})

knownFinding(
  'pool-no-wait-refused',
  'under `backfill`, a request without `wait` gets a member that no waiter can use, as the same request with `wait` does',
  async claim => {
    const request = (wait: boolean): string => {
      const world = poolWorld({ queue: 'backfill' }, ['a', 'b'])
      world.acquire('holder', [], { pool: only('a') })
      world.queue('waiter', [], { pool: only('a') })
      return world.ask('newcomer', [], { wait, pool: only('b') }).kind
    }
    expect(request(true)).toBe('granted')
    const kind = request(false)
    await claim(() => expect(kind).toBe('granted'))
  },
)

knownFinding('slots-left-free', '260 simultaneous requests for one of 600 numbers get 260 numbers', async claim => {
  const { leases, clock } = silentLessor()
  await using _ = leases
  const got: NumberedSlot[] = []
  const requests = Array.from({ length: 260 }, () =>
    leases.slot('ports', { from: 0, to: 599, ttl: 60_000, wait: 2_000 }).then(
      slot => got.push(slot),
      () => {},
    ),
  )
  await clock.advance(1_000)
  const inTime = got.length
  await clock.advance(2_000)
  await Promise.all(requests)
  expect(got.every(({ held }) => held)).toBe(true)
  await claim(() => expect(inTime).toBe(260))
})

knownFinding(
  'backfill-forecast',
  'under `backfill`, a waiter that would delay the first one is not said to start before it',
  async claim => {
    const { leases, lessor, clock } = silentLessor()
    await using _ = leases
    await leases.setPolicy('g', { queue: 'backfill' })
    const pool = leases.pool('g')
    const offers = [await pool.offer('a'), await pool.offer('b')]
    const running = await pool.take(1, { expect: 30_000 })
    pool.take(2, { expect: 10_000 }).catch(() => {})
    await clock.settle()
    pool.take(1, { expect: 60_000 }).catch(() => {})
    await clock.settle()
    const { value } = await lessor.read({ kind: 'pool', pool: 'g' }, { consistent: true })
    const [first, second] = value!.queue
    expect([first?.request.count, second?.request.count]).toEqual([2, 1])
    const start = explainWaiter(value!, second!.lease)!.start!
    expect([running, ...offers].every(({ held }) => held)).toBe(true) // one member is free, and neither waiter has it
    await claim(() => expect(start.median).toBeGreaterThan(0))
  },
)
