import { expect, test } from 'vitest'
import { Replica } from '../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../src/store/memory.ts'
import { ManualClock } from '../src/testing/manual-clock.ts'

test('a replica that only finds a lease sees it lapse', async () => {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const open = () => Replica.open(new MemoryStore({ log, clock }), { clock })
  {
    await using first = await open()
    await first.propose({ kind: 'acquire', holder: 'ann', ttl: 1_000, wants: [{ resource: 'a' }] })
  }
  await using second = await open()
  await clock.advance(1_100)
  expect((await second.read({ kind: 'summary' })).value.leases).toBe(0)
})

test('what was overdue when a replica came is not put down to a stall', async () => {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const open = () => Replica.open(new MemoryStore({ log, clock }), { clock })
  {
    await using first = await open()
    await first.propose({ kind: 'acquire', holder: 'ann', ttl: 1_000, wants: [{ resource: 'a' }] })
  }
  await clock.advance(5_000)
  await using second = await open()
  await clock.advance(20)
  expect((await second.read({ kind: 'summary' })).value.leases).toBe(0)
  expect(second.timing.stalls).toBe(0)
})
