/** A file after the server that owned it has stopped for good: clients that were connected to the server continue on the file itself. */
import { writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { eventually, Place } from '../support/cli.ts'

async function started(here: Place) {
  const server = here.start(['serve', '--listen', '127.0.0.1:0'])
  await server.printed(/http:/)
  return server
}

test.each(['SIGKILL', 'SIGTERM'] as const)('a command that runs under a lease keeps it when the server ends by %s', async signal => {
  await using here = new Place()
  const server = await started(here)
  const script = 'echo up; while [ ! -e stop ]; do sleep 0.05; done; exit 3'
  const running = here.start(['run', 'a', '--ttl', '20s', '--grace', '500ms', '--', 'sh', '-c', script])
  await running.printed(/up/)
  const { token } = await grantOf(here)
  server.process.kill(signal)
  await server.finished
  // The remaining time grows: the command renews in the file.
  let left = Number.POSITIVE_INFINITY
  await eventually('a renewal in the file', async () => {
    const grant = await grantOf(here)
    expect(grant).toMatchObject({ token, status: 'live' })
    const before = left
    left = grant.remaining
    return left > before
  })
  expect((await here.run(['run', 'a', '--no-wait', '--', 'true'])).code).toBe(75)
  writeFileSync(here.file('stop'), '')
  expect(await running.finished).toMatchObject({ code: 3 })
  expect(await here.json('ls')).toEqual([])
})

test('the leases of a program stay held, waiters are granted, and tokens grow', async () => {
  await using here = new Place()
  const server = await started(here)
  await using leases = await connect(here.url, { holder: 'program' })
  await using other = await connect(here.url, { holder: 'other' })
  expect(leases.lessor.profile.shared).toBe(false) // the server's
  const lease = await leases.acquire('a', { ttl: 20_000 })
  const waiting = other.acquire('a', { ttl: 20_000 })
  await expect.poll(async () => (await leases.query('a')).pending.length).toBe(1)
  const watched: string[] = []
  const stop = new AbortController()
  const watching = (async () => {
    for await (const events of other.watch('b', { signal: stop.signal })) watched.push(...events.map(({ type }) => type))
  })()
  server.process.kill('SIGKILL')
  await server.finished
  await lease.renew()
  expect(lease.held).toBe(true)
  await expect.poll(() => leases.lessor.profile.shared).toBe(true)
  await using more = await leases.acquire('b')
  expect(more.token).toBeGreaterThan(lease.token)
  await lease.release()
  await using next = await waiting
  expect(next.token).toBeGreaterThan(more.token)
  await expect.poll(() => watched.length).toBeGreaterThan(0)
  stop.abort()
  await watching
})

async function grantOf(here: Place): Promise<{ readonly token: number; readonly remaining: number }> {
  const [resource] = (await here.json('ls', 'a')) as unknown as [
    { readonly grants: [{ readonly token: number; readonly remaining: number }] },
  ]
  return resource.grants[0]
}
