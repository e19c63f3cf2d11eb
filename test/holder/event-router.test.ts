import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { LeaseError } from '../../src/errors.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { WatchOptions } from '../../src/lessor.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { SilentLessor, silentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { place } from '../support/resp-place.ts'

/** Counts the watches that are open. */
class CountingLessor extends SilentLessor {
  readonly prefixes: string[] = []
  open = 0

  override async *watch(prefix: string, options: WatchOptions) {
    this.prefixes.push(prefix)
    this.open++
    try {
      yield* super.watch(prefix, options)
    } finally {
      this.open--
    }
  }
}

/** A key that may not watch. */
class DeafLessor extends SilentLessor {
  watches = 0

  // biome-ignore lint/correctness/useYield: it never gets that far
  override async *watch() {
    this.watches++
    throw new LeaseError('FORBIDDEN', 'the key ci may not watch k')
  }
}

test('a revoke reaches every lease at once: with one name, with several, and without resources', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  const one = await leases.acquire('jobs/a', { ttl: '30s' })
  const two = await leases.acquire(['jobs/b', 'accounts/7'], { ttl: '30s' })
  const session = await leases.session({ ttl: '20m' })
  await clock.advance(300)
  for (const { id, signal } of [one, two, session]) {
    await leases.revoke({ lease: id })
    await clock.settle()
    expect(signal.aborted).toBe(true)
    expect(signal.reason).toMatchObject({ code: 'LOST', facts: { cause: 'revoked' } })
  }
})

test('a holder that is revoked, stolen from or recalled before it follows events learns of it within a moment', async () => {
  const first = silentLessor({ holder: 'a' })
  const { clock, log } = first
  const other = silentLessor({ holder: 'b', clock, log })
  await using a = first.leases
  await using b = other.leases
  const revoked = await a.acquire('k', { ttl: '30s' })
  const stolen = await a.acquire('l', { ttl: '30s' })
  const recalled = await a.acquire('m', { ttl: '30s' })
  await b.revoke({ lease: revoked.id })
  const stealing = b.acquire('l', { steal: true })
  await b.recall('m')
  await clock.advance(500)
  expect(revoked.signal.aborted).toBe(true)
  expect(stolen.signal.reason).toMatchObject({ facts: { cause: 'stolen', by: 'b' } })
  expect(recalled.recalled.aborted).toBe(true)
  await using thief = await stealing
  expect(thief.held).toBe(true)
})

test('one watch covers all held leases, is widened for new names, and ends with the last lease', async () => {
  const clock = new ManualClock()
  const lessor = new CountingLessor(clock)
  await using leases = new Leases(lessor, { clock })
  for (let i = 0; i < 20; i++) await leases.request('jobs/short', () => {})
  expect(lessor.prefixes).toEqual([])
  const held = [await leases.acquire('jobs/a/1'), await leases.acquire('jobs/a/2')]
  await clock.advance(300)
  expect(lessor.prefixes).toEqual(['jobs/a'])
  for (let i = 0; i < 50; i++) held.push(await leases.acquire(`jobs/b/${i}`))
  await clock.advance(300)
  expect(lessor.prefixes).toEqual(['jobs/a', 'jobs'])
  expect(lessor.open).toBe(1)
  await leases.revoke({ prefix: 'jobs/b/7' })
  await clock.settle()
  expect(held.filter(({ held }) => !held).map(({ resources }) => resources)).toEqual([['jobs/b/7']])
  await Promise.all(held.map(lease => lease.release()))
  await clock.advance(1_000)
  expect(lessor.open).toBe(0)
})

test('after a gap in the events, one renewal finds the leases that are gone', async () => {
  const clock = new ManualClock()
  let resync = () => {}
  class GappyLessor extends SilentLessor {
    override async *watch(_: string, { signal }: WatchOptions) {
      await new Promise<void>(resolve => {
        resync = resolve
        signal.addEventListener('abort', () => resolve())
      })
      yield [{ revision: 1_000, type: 'resync' as const, lease: 0, at: 0 }]
    }
  }
  const lessor = new GappyLessor(clock)
  await using leases = new Leases(lessor, { clock })
  const held = await Promise.all(Array.from({ length: 5 }, (_, i) => leases.acquire(`k/${i}`)))
  const session = await leases.session()
  await clock.advance(300)
  await leases.revoke({ lease: held[3]!.id })
  await leases.revoke({ lease: session.id })
  lessor.proposals.length = 0
  resync()
  await clock.settle()
  expect(lessor.proposals.filter(({ kind }) => kind === 'renew')).toHaveLength(1)
  expect(held.map(({ signal }) => signal.aborted)).toEqual([false, false, false, true, false])
  expect(session.active).toBe(false)
})

test('a waiter that may not watch learns of its grant within about a second', async () => {
  const first = silentLessor({ holder: 'a' })
  const { clock, log } = first
  await using a = first.leases
  const deaf = new DeafLessor(clock, log)
  await using b = new Leases(deaf, { clock, holder: 'b' })
  const held = await a.acquire('k')
  const pending = b.acquire('k', { ttl: '30s' })
  await clock.advance(3_000)
  await held.release()
  let granted = false
  void pending.then(() => (granted = true))
  await clock.advance(1_100)
  expect(granted).toBe(true)
  await (await pending).release()
  expect(deaf.watches).toBeLessThan(20)
})

test('if only single names may be watched, some held leases get a watch of their own', async () => {
  const clock = new ManualClock()
  class NarrowLessor extends SilentLessor {
    override async *watch(prefix: string, options: WatchOptions) {
      await Promise.resolve()
      if (!prefix.includes('/')) throw new LeaseError('FORBIDDEN', 'the key ci may not watch everything')
      yield* super.watch(prefix, options)
    }
  }
  await using leases = new Leases(new NarrowLessor(clock), { clock })
  const [a, b] = [await leases.acquire('a/1', { ttl: '30s' }), await leases.acquire('b/1', { ttl: '30s' })]
  await clock.advance(300)
  await leases.revoke({ lease: a.id })
  await clock.settle()
  expect([a.held, b.held]).toEqual([false, true])
})

test('a wake from suspend is noticed within a second', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  const lease = await leases.acquire('k', { ttl: '30s' })
  const { signal } = lease
  await clock.advance(300)
  clock.sleepMachine(60_000)
  await clock.advance(1_000)
  expect(signal.reason).toMatchObject({ facts: { cause: 'suspend' } })
})

test('with a key that may acquire but not watch, a waiter learns of its grant and a holder of its end at once', async () => {
  await using here = await place()
  const allow = (['acquire', 'renew', 'release', 'read'] as const).map(verb => ({ verb, prefix: 'jobs' }))
  await propose(here.lessor, { kind: 'key', name: 'ci', hash: hashSecret('ci'), allow })
  await propose(here.lessor, { kind: 'key', name: 'root', hash: hashSecret('root'), allow: [{ verb: 'admin', prefix: '' }] })
  await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
  const url = `leasehold://127.0.0.1:${here.port}`
  await using root = await connect(url, { apiKey: 'root' })
  await using ci = await connect(url, { apiKey: 'ci' })
  const before = await root.acquire('jobs/a', { ttl: '1h' })
  const pending = ci.acquire('jobs/a', { ttl: '1h' })
  await expect.poll(async () => (await root.query('jobs')).pending.length).toBe(1)
  await before.release()
  const lease = await pending // its next renewal would be in twenty minutes
  await using other = await ci.acquire('jobs/b', { ttl: '1h' })
  await using elsewhere = await ci.acquire('jobs/c/1', { ttl: '1h' })
  await expect.poll(() => here.server.guarded.watches).toBe(1)
  const lost = new Promise(resolve => lease.signal.addEventListener('abort', resolve))
  await root.revoke({ lease: lease.id })
  await lost
  expect(lease.signal.reason).toMatchObject({ facts: { cause: 'revoked' } })
  expect([other.held, elsewhere.held]).toEqual([true, true])
  const stop = new AbortController()
  for (const prefix of ['', 'secret'])
    await expect(ci.watch(prefix, { signal: stop.signal })[Symbol.asyncIterator]().next()).rejects.toMatchObject({ code: 'FORBIDDEN' })
})
