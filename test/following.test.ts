import { expect, test } from 'vitest'
import { turn } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import { Following } from '../src/following.ts'
import type { Acquire, Command } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { Leases } from '../src/leases.ts'
import type { ProposeOptions } from '../src/lessor.ts'
import { readBackup } from '../src/replica/backup.ts'
import { Replica } from '../src/replica/replica.ts'
import { settleIn } from '../src/replica/restore.ts'
import { MemoryLog, MemoryStore } from '../src/store/memory.ts'
import { ManualClock } from '../src/testing/manual-clock.ts'

const acquire = (holder: string, resource: string): Acquire => ({ kind: 'acquire', holder, ttl: 1_000, wants: [{ resource }] })

function houses() {
  const clock = new ManualClock()
  const [old, next] = [new MemoryLog({ clock }), new MemoryLog({ clock })]
  const replica = (log: MemoryLog) => Replica.open(new MemoryStore({ log, clock }), { clock })
  return {
    clock,
    next,
    replica: () => replica(old),
    following: async () => new Following(await replica(old), { clock, open: () => replica(next) }),
    async carry(from: Replica) {
      await from.propose({ kind: 'move' })
      await settleIn(new MemoryStore({ log: next, clock }), await readBackup(from.backup()), { clock })
    },
    there: () => replica(next),
  }
}

test('leases move to another log while they are held: tokens grow, nobody is granted what is held', async () => {
  const { clock, following, replica, carry, there } = houses()
  await using mover = await replica()
  await using leases = new Leases(await following(), { clock, holder: 'ann' })
  const lease = await leases.acquire('a', { ttl: 1_000 })
  await carry(mover)
  await mover.propose({ kind: 'move', to: 'next' })
  for (let i = 0; i < 50; i++) {
    await clock.advance(100)
    await turn()
    lease.assertHeld()
  }
  await using rival = await there()
  expect(await rival.propose(acquire('bob', 'a'))).toMatchObject({ kind: 'refused', code: 'HELD' })
  await lease.release()
  const granted = await rival.propose(acquire('bob', 'a'))
  expect(granted.kind === 'granted' && granted.tokens[0]! > lease.token).toBe(true)
})

test('what is asked while they are on their way is decided where they arrive', async () => {
  const { clock, following, replica, carry } = houses()
  await using mover = await replica()
  await using lessor = await following()
  await mover.propose({ kind: 'move' })
  const asked = lessor.propose(acquire('ann', 'a'))
  await clock.advance(500)
  await mover.propose({ kind: 'move', stay: true })
  await carry(mover)
  await mover.propose({ kind: 'move', to: 'next' })
  for (let i = 0; i < 5; i++) await clock.advance(100)
  expect((await asked).kind).toBe('granted')
})

test('a watch goes along and is told to begin anew', async () => {
  const { following, replica, carry } = houses()
  await using mover = await replica()
  await using lessor = await following()
  const stop = new AbortController()
  const seen: Event[] = []
  const watching = (async () => {
    for await (const events of lessor.watch('', { after: mover.revision, signal: stop.signal })) seen.push(...events)
  })()
  await mover.propose(acquire('ann', 'a'))
  await carry(mover)
  await mover.propose({ kind: 'move', to: 'next' })
  for (let i = 0; i < 20; i++) await turn()
  await lessor.propose(acquire('bob', 'b'))
  for (let i = 0; i < 20; i++) await turn()
  stop.abort()
  await watching
  expect(seen.map(({ type, resource }) => `${type} ${resource ?? ''}`.trim())).toEqual([
    'granted a',
    'moved',
    'moved',
    'resync',
    'granted b',
  ])
  for (const [i, { revision }] of seen.entries()) if (i > 0) expect(revision).toBeGreaterThan(seen[i - 1]!.revision)
})

test('who opens the old log later is led to the new one', async () => {
  const { following, replica, carry, there } = houses()
  await using mover = await replica()
  await mover.propose(acquire('ann', 'a'))
  await carry(mover)
  await mover.propose({ kind: 'move', to: 'next' })
  await using lessor = await following()
  for (let i = 0; i < 20; i++) await turn()
  await using direct = await there()
  await direct.propose(acquire('bob', 'b'))
  await lessor.read({ kind: 'summary' }, { consistent: true })
  expect((await lessor.read({ kind: 'resources', prefix: '' })).value.map(({ resource }) => resource)).toEqual(['a', 'b'])
})

test('a place that cannot be opened is told, and holders end by their own clocks', async () => {
  const { clock, replica, carry } = houses()
  await using mover = await replica()
  const open = () => Promise.reject(new Error('no route'))
  await using lessor = new Following(await replica(), { clock, open })
  await carry(mover)
  await mover.propose({ kind: 'move', to: 'next' })
  await expect(lessor.propose(acquire('ann', 'a'))).rejects.toMatchObject({ code: 'UNAVAILABLE', facts: { moved: 'next' } })
})

test('leases are not moved into a log that holds others', async () => {
  const { clock, replica, carry, there } = houses()
  await using mover = await replica()
  {
    await using other = await there()
    const command: Command = acquire('eve', 'x')
    await other.propose(command)
  }
  await expect(carry(mover)).rejects.toMatchObject({ code: 'INVALID' })
  expect((await mover.propose({ kind: 'move', stay: true })).kind).toBe('done')
  expect((await mover.propose(acquire('ann', 'a'))).kind).toBe('granted')
  void clock
})

/** One who was led to a server: a replica that can be cut off, and the place itself, which is owned until it is not. */
function led() {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const replica = () => Replica.open(new MemoryStore({ log, clock }), { clock })
  const place = { owned: true, tries: 0 }
  const open = async () => {
    const there = await replica()
    let reached = true
    let lost: ((reason: unknown) => void)[] = []
    const server = {
      get server() {
        return reached ? 'a server' : undefined
      },
      profile: there.profile,
      signal: there.signal,
      propose(command: Command, options?: ProposeOptions): Promise<Outcome> {
        if (reached) return there.propose(command, options)
        return new Promise((_, reject) => lost.push(reject))
      },
      read: there.read.bind(there),
      watch: there.watch.bind(there),
      async [Symbol.asyncDispose]() {
        for (const reject of lost.splice(0)) reject(new LeaseError('UNAVAILABLE', 'this server has stopped'))
        await there[Symbol.asyncDispose]()
      },
    }
    const cut = (cut: boolean) => {
      reached = !cut
      if (!cut) lost = []
    }
    const home = async () => {
      place.tries++
      if (place.owned) throw new LeaseError('UNAVAILABLE', 'it is owned')
      return replica()
    }
    return { cut, server, following: new Following(server, { clock, open: () => Promise.reject(new Error('nothing moves')), home }) }
  }
  return { clock, open, place }
}

test('a server that is away for less than a sixth of the shortest ttl is waited for', async () => {
  const { clock, open, place } = led()
  const { cut, server, following } = await open()
  await using leases = new Leases(following, { clock, holder: 'ann' })
  await using lease = await leases.acquire('a', { ttl: 12_000 })
  cut(true)
  place.owned = false
  await clock.advance(1_900)
  cut(false)
  await clock.advance(5_000)
  expect([place.tries, following.here === server, lease.held]).toEqual([0, true, true])
})

test('one that stays away while its place is owned may come back; then the place is gone on with, and what was asked is answered', async () => {
  const { clock, open, place } = led()
  const { cut, server, following } = await open()
  await using leases = new Leases(following, { clock, holder: 'ann' })
  await using lease = await leases.acquire('a', { ttl: 12_000 })
  cut(true)
  const asked = leases.acquire('b', { ttl: 12_000 })
  await clock.advance(4_000)
  expect(place.tries).toBeGreaterThan(1)
  expect(following.here).toBe(server)
  place.owned = false
  await clock.advance(1_000)
  expect(following.here).not.toBe(server)
  await using other = await asked
  expect(other.token).toBeGreaterThan(lease.token)
  for (let i = 0; i < 30; i++) {
    await clock.advance(1_000)
    lease.assertHeld()
  }
})
