import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { SemaphoreOptions } from '../../src/leases.ts'
import { everywhere } from '../support/recipe-places.ts'

everywhere('a semaphore has as many holders at once as it has permits, over all processes', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  const [one, other] = [a.semaphore('downloads', { permits: 2, ttl: '5s' }), b.semaphore('downloads', { permits: 2, ttl: '5s' })]
  let inside = 0
  let most = 0
  const work = async () => {
    most = Math.max(most, ++inside)
    await Promise.resolve()
    expect(await other.tryAcquire({ units: 2 })).toBeUndefined()
    inside--
  }
  await Promise.all([one, other, one, other, one, other].map(semaphore => semaphore.run(work)))
  expect(most).toBe(2)
  await using both = await other.acquire({ units: 2 })
  expect(both.held).toBe(true)
  expect(await one.tryAcquire()).toBeUndefined()
})

everywhere('of different numbers of permits the smallest counts, and everyone can see who states what', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  const few = await a.semaphore('s', { permits: 2 }).acquire()
  const many = b.semaphore('s', { permits: 3 })
  await using _second = await many.acquire()
  expect(await many.tryAcquire()).toBeUndefined()
  const { value } = await b.read({ kind: 'resource', resource: 's' }, { consistent: true })
  expect(value).toMatchObject({ limit: 2, grants: [{ permits: 2 }, { permits: 3 }] })
  await few.release()
  await using _third = await many.acquire()
  await using _fourth = await many.acquire()
  expect(await many.tryAcquire()).toBeUndefined()
})

everywhere('a wait for a permit can be aborted, and holds nothing afterwards', async ({ open }) => {
  await using a = await open('a')
  const semaphore = a.semaphore('s', { permits: 1 })
  const held = await semaphore.acquire()
  const stop = new AbortController()
  const pending = semaphore.run(() => expect.unreachable(), { signal: stop.signal })
  stop.abort(new Error('enough'))
  await expect(pending).rejects.toThrow('enough')
  await held.release()
  await semaphore.run(lease => expect(lease.held).toBe(true))
})

test('a semaphore without a whole number of permits, or with options of a lock, is refused', async () => {
  await using leases = await connect('memory:semaphore-options')
  for (const permits of [undefined, 0, 1.5, Number.NaN, '3'])
    expect(() => leases.semaphore('s', { permits } as SemaphoreOptions), String(permits)).toThrow(/permits must be a whole number from 1/)
  expect(() => leases.semaphore('s', { permits: 2, mode: 'shared' } as SemaphoreOptions)).toThrow(/semaphore does not take|no option|mode/)
  expect(() => leases.semaphore('s', { permits: 2, unit: 2 } as SemaphoreOptions)).toThrow(/no option unit/)
})
