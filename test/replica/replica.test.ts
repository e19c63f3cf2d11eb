import { expect, test } from 'vitest'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

function granted(outcome: Outcome) {
  if (outcome.kind !== 'granted') throw new Error(`expected a grant, got ${JSON.stringify(outcome)}`)
  return outcome
}

for (const owned of [false, true]) {
  test(`a holder that dies loses its lease and the next waiter gets it (${owned ? 'owned' : 'shared'} log)`, async () => {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    await using replica = await Replica.open(new MemoryStore({ log, clock, ...(owned && { own: { name: 'test' } }) }), { clock, owned })
    const first = granted(await propose(replica, { kind: 'acquire', holder: 'a', ttl: 1_000, wants: [{ resource: 'k' }] }))
    const second = await propose(replica, { kind: 'acquire', holder: 'b', ttl: 10_000, wants: [{ resource: 'k' }], wait: true })
    expect(second.kind).toBe('queued')
    const refused = await propose(replica, { kind: 'acquire', holder: 'c', ttl: 1_000, wants: [{ resource: 'k' }] })
    expect(refused).toMatchObject({ kind: 'refused', code: 'HELD' })
    await clock.advance(990)
    expect((await replica.read({ kind: 'resource', resource: 'k' })).value.grants[0]?.lease).toBe(first.lease)
    await clock.advance(30)
    const { value } = await replica.read({ kind: 'resource', resource: 'k' })
    expect(value.grants[0]?.holder).toBe('b')
    expect(value.grants[0]!.token).toBeGreaterThan(first.tokens[0]!)
    expect(await propose(replica, { kind: 'renew', leases: [first.lease] })).toMatchObject({ ttls: [-1] })
  })
}

test('two replicas of one log reach the same state, and each lapses a lease whose holder used the other', async () => {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  await using a = await Replica.open(new MemoryStore({ log, clock }), { clock })
  await using b = await Replica.open(new MemoryStore({ log, clock }), { clock })
  granted(await propose(a, { kind: 'acquire', holder: 'a', ttl: 1_000, wants: [{ resource: 'k' }] }))
  expect(await propose(b, { kind: 'acquire', holder: 'b', ttl: 1_000, wants: [{ resource: 'k' }] })).toMatchObject({ code: 'HELD' })
  await clock.advance(1_100)
  granted(await propose(b, { kind: 'acquire', holder: 'b', ttl: 1_000, wants: [{ resource: 'k' }] }))
  await clock.settle()
  expect(a.hash()).toBe(b.hash())
})
