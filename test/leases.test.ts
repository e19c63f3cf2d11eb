/** The library as a user calls it: the examples of the documentation, and what tests of a user need. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expect, test } from 'vitest'
import { connect } from '../src/index.ts'
import { ManualClock, MemoryLog, silentLessor } from '../src/testing/index.ts'

/** A user's code, as the README shows it. */
const db = {
  rows: [] as unknown[],
  async write(rows: unknown[], { fence, signal }: { fence: number; signal: AbortSignal }) {
    signal.throwIfAborted()
    this.rows.push(...rows.map(row => ({ row, fence })))
  },
}

test('the examples of the library run as they are written', async () => {
  await using leases = await connect('memory:examples', { holder: 'billing-7' })
  const { signal } = new AbortController()

  await leases.request('jobs/nightly', { ttl: '30s', wait: '5m' }, async lease => {
    await db.write(['a'], { fence: lease.token, signal: lease.signal })
  })
  expect(db.rows).toHaveLength(1)

  {
    await using lease = await leases.acquire(['account/1', 'account/2'], { ttl: '10s', signal })
    lease.assertHeld()
    const maybe = await leases.tryAcquire('account/1')
    expect(maybe).toBeUndefined()
  }

  const stop = new AbortController()
  for await (const term of leases.election('scheduler', { ttl: '10s' }).terms({ signal: stop.signal })) {
    expect(term.token).toBeGreaterThan(0)
    stop.abort()
  }

  await using _one = await leases.pool('gpu').offer('0', { labels: { model: 'A100' } })
  await using _two = await leases.pool('gpu').offer('1', { labels: { model: 'A100' } })
  const gpus = leases.pool('gpu', { match: { model: 'A100' } })
  await using two = await gpus.take(2, { wait: '1h', expect: '20m' })
  expect([...two.resources].sort()).toEqual(['gpu/0', 'gpu/1'])

  await using session = await leases.session({ ttl: '20m', renew: 'on-activity' })
  session.touch()
  expect(session.active).toBe(true)

  const values = new Map([['a', 1]])
  const config = leases.cache('config/', {
    load: (key: string) => values.get(key),
    save: (key: string, value: number | undefined) => void values.set(key, value!),
    ttl: '1m',
  })
  expect(await config.get('a')).toBe(1)
  await config.write('a', 2)
  expect(await config.get('a')).toBe(2)
})

test('a user can test code of their own without sleeping', async () => {
  const { clock, leases, lessor } = silentLessor()
  let stopped = false
  const working = leases.request('k', { ttl: '10s' }, async lease => {
    await new Promise(resolve => lease.signal.addEventListener('abort', resolve, { once: true }))
    stopped = true
  })
  await clock.advance(60_000)
  expect(stopped).toBe(false)
  lessor.stopAnswering()
  await clock.advance(10_000)
  expect(stopped).toBe(true)
  lessor.answer()
  await working
})

test('two clients in a test share one log and one clock', async () => {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const [a, b] = [silentLessor({ clock, log, holder: 'a' }), silentLessor({ clock, log, holder: 'b' })]
  await using _held = await a.leases.acquire('k')
  expect(await b.leases.tryAcquire('k')).toBeUndefined()
})

test('diagnostics channels publish what happens to leases', async () => {
  const published: string[] = []
  const listeners = ['acquired', 'queued', 'renewed', 'jeopardy', 'lost', 'released'].map(name => {
    const listen = (message: unknown) => published.push(`${name} ${(message as { resource?: string }).resource ?? ''}`.trim())
    subscribe(`leasehold:${name}`, listen)
    return () => unsubscribe(`leasehold:${name}`, listen)
  })
  try {
    const { clock, leases, lessor } = silentLessor()
    const lease = await leases.acquire('k', { ttl: 10_000 })
    await clock.advance(6_000)
    await lease.release()
    const lost = await leases.acquire('l', { ttl: 10_000 })
    lessor.stopAnswering()
    await clock.advance(10_000)
    expect(lost.held).toBe(false)
    lessor.answer()
  } finally {
    for (const stop of listeners) stop()
  }
  expect(published).toEqual(['acquired k', 'renewed', 'released k', 'acquired l', 'jeopardy l', 'lost l'])
})
