/** Reads that wait for a change. */
import { expect, test } from 'vitest'
import { type World, world } from '../../support/http-world.ts'

const acquire = (here: World, resource: string) => here.ask('POST', '/v1/leases', { resources: [resource], holder: 'ann', ttl: '30s' })

test('a read with wait is answered by the first change, and not by changes elsewhere', async () => {
  await using here = await world()
  const { revision } = (await here.ask('GET', '/v1/resources/jobs/a')).json
  const waiting = here.ask('GET', `/v1/resources/jobs/a?wait=1m&after=${revision}`)
  await expect.poll(() => here.server.guarded.watches).toBe(1)
  await acquire(here, 'jobs/b')
  expect(here.server.guarded.watches).toBe(1)
  await acquire(here, 'jobs/a')
  const answer = (await waiting).json
  expect(answer.grants).toMatchObject([{ holder: 'ann' }])
  expect(answer.revision).toBeGreaterThan(revision)
  expect(here.server.guarded.watches).toBe(0)
})

test('a change between two reads is answered at once', async () => {
  await using here = await world()
  const { revision } = (await here.ask('GET', '/v1/resources?prefix=jobs')).json
  await acquire(here, 'jobs/a')
  expect((await here.ask('GET', `/v1/resources?prefix=jobs&wait=1m&after=${revision}`)).json.resources).toHaveLength(1)
})

test('a read with wait is answered unchanged when the time is over', async () => {
  await using here = await world()
  const waiting = here.ask('GET', '/v1/entries?wait=10s')
  await expect.poll(() => here.server.guarded.watches).toBe(1)
  await here.clock.advance(10_000)
  expect((await waiting).json.entries).toEqual([])
  expect(here.server.guarded.watches).toBe(0)
})

test('a wait that is too long, or a revision without a wait, is refused', async () => {
  await using here = await world()
  for (const query of ['wait=10m', 'after=7', 'wait=soon']) {
    const { status, json } = await here.ask('GET', `/v1/resources/a?${query}`)
    expect([status, json.error.code]).toEqual([400, 'INVALID'])
  }
})
