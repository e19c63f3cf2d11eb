/** Requests that do not wait, from processes that open the store, ask once and end, as a job of cron does. */
import { expect, test } from 'vitest'
import type { LeaseError } from '../../src/errors.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import type { Store } from '../../src/store.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { AgelessStore } from '../support/ageless-store.ts'
import { granted } from '../support/replica/rig.ts'

const TTL = 2_000
const MINUTE = 60_000

interface Place {
  readonly clock: ManualClock
  readonly log: MemoryLog
  /** A store that does not know the ages of records. */
  readonly ageless: () => AgelessStore
}

function place(): Place {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  return { clock, log, ageless: () => new AgelessStore({ log, clock }) }
}

/** A holder acquires the name and renews it once. */
async function holder({ clock, ageless }: Place, ttl = TTL): Promise<{ renew(): Promise<unknown>; kill(): void }> {
  const store = ageless()
  const replica = await Replica.open(store, { clock })
  const { lease } = granted(await propose(replica, { kind: 'acquire', holder: 'dead', ttl, wants: [{ resource: 'nightly' }] }))
  const renew = () => propose(replica, { kind: 'renew', leases: [lease] })
  await renew()
  return { renew, kill: () => store.kill() }
}

interface Try {
  readonly answer: 'granted' | 'held' | LeaseError
  /** How long the process stayed. */
  readonly stayed: number
}

/** A process that tries once, and lives until it has an answer. */
async function tryOnce(clock: ManualClock, store: Store, confirm?: number): Promise<Try> {
  await using leases = new Leases(await Replica.open(store, { clock }), { clock, holder: 'cron' })
  let answer: Try['answer'] | undefined
  const began = clock.now()
  leases.tryAcquire('nightly', { ttl: TTL, ...(confirm !== undefined && { advanced: { confirm } }) }).then(
    lease => {
      answer = lease === undefined ? 'held' : 'granted'
    },
    error => {
      answer = error
    },
  )
  await clock.settle()
  for (let waited = 0; answer === undefined && waited < MINUTE; waited += 50) await clock.advance(50)
  expect(answer).toBeDefined()
  return { answer: answer!, stayed: clock.now() - began }
}

test('on a store without ages, the first try gets the name of a dead holder when it has counted its term', async () => {
  const here = place()
  const { kill } = await holder(here)
  kill()
  await here.clock.advance(9 * MINUTE)
  const { answer, stayed } = await tryOnce(here.clock, here.ageless())
  expect(answer).toBe('granted')
  expect(stayed).toBeGreaterThanOrEqual(TTL)
  expect(stayed).toBeLessThan(TTL + 500)
})

test('on a store with ages, the first try after the term of a dead holder gets its name at once', async () => {
  const { clock, log, ...here } = place()
  const { kill } = await holder({ clock, log, ...here })
  kill()
  await clock.advance(9 * MINUTE)
  expect(await tryOnce(clock, new MemoryStore({ log, clock }))).toEqual({ answer: 'granted', stayed: 0 })
})

test('a holder that was heard of within its term is alive, and the try is answered at once', async () => {
  const here = place()
  await holder(here)
  await here.clock.advance(TTL / 4)
  expect(await tryOnce(here.clock, here.ageless())).toEqual({ answer: 'held', stayed: 0 })
})

test('a holder that seems to be dead and renews while the process stays is alive', async () => {
  const here = place()
  const { renew } = await holder(here, 10_000)
  // Both were suspended, and only the wall clock went on. Its lease is still valid for the holder.
  here.clock.stepWall(MINUTE)
  const trying = tryOnce(here.clock, here.ageless())
  for (let i = 0; i < 20; i++) await Promise.resolve()
  await here.clock.advance(1_000)
  await renew()
  const { answer, stayed } = await trying
  expect(answer).toBe('held')
  expect(stayed).toBeLessThan(2_000)
})

test('when a clock was set back, the process stays: the age of the last renewal is not known', async () => {
  const here = place()
  const { kill } = await holder(here)
  kill()
  here.clock.stepWall(-MINUTE)
  const { answer, stayed } = await tryOnce(here.clock, here.ageless())
  expect(answer).toBe('granted')
  expect(stayed).toBeGreaterThanOrEqual(TTL)
})

test('a process that cannot stay long enough says so, and the next one continues its count', async () => {
  const here = place()
  const { kill } = await holder(here, 10_000)
  kill()
  await here.clock.advance(9 * MINUTE)
  const { answer, stayed } = await tryOnce(here.clock, here.ageless(), 300)
  expect(stayed).toBeLessThanOrEqual(400)
  expect(answer).toMatchObject({ code: 'UNCONFIRMED', facts: { resource: 'nightly', holder: 'dead', ttl: 10_000, silence: 540_300 } })
  expect((answer as LeaseError).message).toBe(
    'nightly is held by dead, which was not heard of for 9 min; its term is 10 s. That it has ended was not confirmed within 300 ms',
  )
  let tries = 1
  for (let last: Try['answer'] = answer; last !== 'granted'; tries++) {
    last = (await tryOnce(here.clock, here.ageless(), 300)).answer
    expect(tries).toBeLessThan(60)
  }
  expect(tries).toBeGreaterThanOrEqual(10_000 / 400)
})

test('with confirm: 0 the process does not stay, and a dead holder is not reported as alive', async () => {
  const here = place()
  const { kill } = await holder(here)
  kill()
  await here.clock.advance(9 * MINUTE)
  expect(await tryOnce(here.clock, here.ageless(), 0)).toMatchObject({ answer: { code: 'UNCONFIRMED' }, stayed: 0 })
})

test('of two names, one that is held by a living holder is enough to be refused at once', async () => {
  const here = place()
  const { kill } = await holder(here)
  kill()
  await here.clock.advance(9 * MINUTE)
  const alive = await Replica.open(here.ageless(), { clock: here.clock })
  granted(await propose(alive, { kind: 'acquire', holder: 'alive', ttl: TTL, wants: [{ resource: 'other' }] }))
  await using leases = new Leases(await Replica.open(here.ageless(), { clock: here.clock }), { clock: here.clock })
  expect(await leases.tryAcquire(['nightly', 'other'])).toBeUndefined()
  const any = leases.tryAcquire(['nightly', 'other'], { advanced: { any: 1 } })
  await here.clock.advance(TTL + 500)
  expect((await any)?.resources).toEqual(['nightly'])
  await alive[Symbol.asyncDispose]()
})

test('closing ends a stay', async () => {
  const here = place()
  const { kill } = await holder(here)
  kill()
  await here.clock.advance(9 * MINUTE)
  const leases = new Leases(await Replica.open(here.ageless(), { clock: here.clock }), { clock: here.clock })
  const trying = leases.tryAcquire('nightly').catch(error => error.code)
  await here.clock.settle()
  await leases.close()
  expect(await trying).toBe('UNAVAILABLE')
})
