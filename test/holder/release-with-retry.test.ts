import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { lossOf, rivals } from '../support/rivals.ts'
import { failingWith } from '../support/submitting.ts'

afterEach(() => vi.restoreAllMocks())

test('no timer is left once all leases are released', async () => {
  const { clock, leases } = silentLessor()
  const before = clock.waiting
  const lease = await leases.acquire('k')
  await clock.advance(20_000)
  await lease.release()
  await lease.release()
  await clock.settle()
  expect(leases.stats.leases).toBe(0)
  await leases[Symbol.asyncDispose]()
  expect(clock.waiting).toBeLessThanOrEqual(before)
})

test('a release that cannot be delivered rejects with UNKNOWN, and the lease is not held anyway', async () => {
  const { clock, leases, lessor } = silentLessor()
  const lease = await leases.acquire('k', { ttl: 2_000 })
  lessor.stopAnswering()
  const released = lease.release()
  expect(lease.held).toBe(false)
  const rejection = expect(released).rejects.toMatchObject({ code: 'UNKNOWN', facts: { ttl: 2_000 } })
  await clock.advance(2_000)
  await rejection
  lessor.answer()
})

test('a release that failed is retried, and resolves when it is done', async () => {
  await using both = rivals()
  const { clock, a, b } = both
  const lease = await a.leases.acquire('k', { ttl: 60_000 })
  const submit = vi.spyOn(a.lessor, 'submit')
  for (let i = 0; i < 3; i++) submit.mockImplementationOnce(failingWith(new LeaseError('UNAVAILABLE', 'no route')))
  const released = lease.release()
  await clock.advance(1_000)
  await released
  expect(submit).toHaveBeenCalledTimes(4)
  await using other = await b.leases.tryAcquire('k')
  expect(other?.held).toBe(true)
})

test('children end before their parent is released, and are released with it', async () => {
  const { leases, lessor } = silentLessor()
  const parent = await leases.grant({ ttl: 10_000 })
  const child = await leases.acquire('k', { parent })
  const grandchild = await leases.acquire('l', { parent: child })
  lessor.proposals.length = 0
  await parent.release()
  expect(lossOf(child)).toMatchObject({ code: 'LOST', cause: 'parent' })
  expect(lossOf(grandchild)).toMatchObject({ code: 'LOST', cause: 'parent' })
  expect(lessor.proposals).toEqual([{ kind: 'release', lease: parent.id, stopped: [grandchild.id, child.id] }])
  expect((await leases.query()).held).toEqual([]) // not frozen
})

describe('a lease to which the program keeps no reference', () => {
  /** The garbage collector, and what it leads to. */
  async function collect(clock: { settle(): Promise<void> }): Promise<void> {
    setFlagsFromString('--expose-gc')
    const gc = runInNewContext('gc') as () => void
    for (let i = 0; i < 5; i++) {
      gc()
      await clock.settle()
    }
  }

  test('is renewed until its Leases is closed', async () => {
    const { leases, lessor, clock } = silentLessor()
    const acquired = async () => {
      await leases.acquire('single-instance', { ttl: 1_000 })
    }
    await acquired()
    await collect(clock)
    await clock.advance(5_000)
    expect((await leases.query('single-instance')).held).toHaveLength(1)
    await leases.close()
    expect(lessor.proposals.filter(({ kind }) => kind === 'release')).toHaveLength(1)
  })

  test('is renewed while the program keeps only its signal, which fires when it is lost', async () => {
    const { leases, lessor, clock } = silentLessor()
    await using _ = leases
    const acquired = async () => {
      const { signal } = await leases.acquire('single-instance', { ttl: 1_000 })
      return signal
    }
    const signal = await acquired()
    await collect(clock)
    await clock.advance(5_000)
    expect(signal.aborted).toBe(false)
    lessor.stopAnswering()
    await clock.advance(1_000)
    expect(signal.reason).toMatchObject({ code: 'LOST', facts: { cause: 'unreachable' } })
    lessor.answer()
  })

  test('lets its session last, with everything under it', async () => {
    const { leases, clock } = silentLessor()
    await using _ = leases
    const begun = async () => {
      const session = await leases.session({ ttl: 1_000, renew: 'half' })
      await session.acquire('desk', { ttl: 1_000 })
    }
    await begun()
    await collect(clock)
    await clock.advance(5_000)
    expect((await leases.query('desk')).held).toHaveLength(1)
  })
})
