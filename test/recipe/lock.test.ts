import { expect } from 'vitest'
import { everywhere } from '../support/recipe-places.ts'

everywhere('a lock has one holder at a time, or several that share it', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  const [lock, same] = [a.lock('repo/main', { ttl: '5s' }), b.lock('repo/main', { ttl: '5s' })]
  const order: string[] = []
  await Promise.all([
    lock.run(async () => {
      order.push('a in')
      expect(await same.tryAcquire()).toBeUndefined()
      expect((await same.show()).held).toEqual(['a'])
      order.push('a out')
    }),
    same.run(() => void order.push('b in')).then(() => order.push('b out')),
  ])
  expect([order.join(), order.slice(2).concat(order.slice(0, 2)).join()]).toContain('a in,a out,b in,b out')
  await lock.share(() => same.share(lease => expect(lease.held).toBe(true)))
})

everywhere('several names are locked at once, and two lockers with another order do not deadlock', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  let inside = 0
  const work = async () => {
    expect(++inside).toBe(1)
    await Promise.resolve()
    inside--
  }
  await Promise.all(Array.from({ length: 10 }, (_, i) => (i % 2 ? a.lock(['x', 'y', 'z']) : b.lock(['z', 'y', 'x'])).run(work)))
})

everywhere('a wait for a lock can be aborted', async ({ open }) => {
  await using a = await open('a')
  const stop = new AbortController()
  await using _held = await a.lock('k').acquire()
  const pending = a.lock('k').acquire({ signal: stop.signal })
  stop.abort(new Error('enough'))
  await expect(pending).rejects.toThrow('enough')
})
