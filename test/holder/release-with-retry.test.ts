import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterEach, expect, test, vi } from 'vitest'
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

test('a lease whose handle was collected is released, its signal fires, and one warning is emitted', async () => {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  const warnings = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const { leases, clock } = silentLessor()
  const reasons: unknown[] = []
  await (async () => {
    for (const name of ['k', 'l']) {
      const { signal } = await leases.acquire(name)
      signal.addEventListener('abort', () => reasons.push(signal.reason))
    }
  })()
  for (let i = 0; i < 50 && reasons.length < 2; i++) {
    gc()
    await clock.settle()
  }
  expect(reasons).toMatchObject([{ facts: { cause: 'forgotten' } }, { facts: { cause: 'forgotten' } }])
  expect(warnings).toHaveBeenCalledTimes(1)
  await clock.settle()
  expect((await leases.query()).held).toEqual([])
})
