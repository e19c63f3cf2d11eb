/** The commands that read: ls, show, history and explain. */
import { expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { Place } from '../../support/cli.ts'

test('ls, show and history print tables or JSON, and only data on stdout', async () => {
  await using here = new Place()
  const empty = await here.answer(['ls'])
  expect(empty).toMatchObject({ code: 0, stdout: '', stderr: expect.stringMatching(/no resource is held/) })
  await using leases = await connect(here.url, { holder: 'alpha' })
  await using lease = await leases.acquire('jobs/a')
  await (await leases.acquire('jobs/b')).release()
  await using other = await connect(here.url, { holder: 'beta' })
  const stop = new AbortController()
  const waiting = other.acquire('jobs/a', { signal: stop.signal }).catch(() => {})
  while ((await leases.query('jobs')).pending.length === 0) await new Promise(resolve => setImmediate(resolve))

  const { stdout } = await here.answer(['ls', 'jobs'])
  expect(stdout).toMatch(/^RESOURCE +HOLDER +TOKEN .*WAITING\njobs\/a +alpha +\d+ +\d+ +1 +[\d.]+ s +[\d.]+ m?s +1\n$/)
  expect(await here.json('ls', 'other')).toEqual([])
  expect(await here.json('ls')).toMatchObject([
    { resource: 'jobs/a', capacity: 1, grants: [{ holder: 'alpha', token: lease.token }], queue: [{ holder: 'beta', position: 0 }] },
  ])
  expect(await here.json('show', 'jobs/a')).toMatchObject([{ resource: 'jobs/a', queue: [{ holder: 'beta' }] }])
  expect(await here.json('show', String(lease.id))).toMatchObject([{ lease: lease.id, holder: 'alpha', status: 'live' }])
  expect((await here.answer(['show', 'jobs/a'])).stdout).toMatch(/jobs\/a: held, 1 waiting[\s\S]*alpha[\s\S]*PLACE[\s\S]*1 +beta/)
  expect((await here.answer(['show', '179472132466001'])).code).toBe(1)
  expect(await here.json('history', 'jobs/b')).toMatchObject([{ holder: 'alpha', cause: 'released' }])
  expect((await here.answer(['explain', 'jobs/a'])).stdout).toMatch(
    /held by alpha \(lease \d+, token \d+\)[\s\S]*1 waiter: beta[\s\S]*leasehold revoke \d+/,
  )
  stop.abort()
  await waiting
})
