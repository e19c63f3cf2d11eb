/** `leasehold policy`. */
import { expect, test } from 'vitest'
import { Place } from '../../support/cli.ts'

test('policy set changes the named rules, shows them as they are typed, and removes rules without a value', async () => {
  await using here = new Place()
  await here.json('policy', 'set', 'jobs/', 'ttlMax=1h', 'capacity=4', 'lockDelay=10s')
  expect(await here.json('policy', 'set', 'jobs', 'capacity=', 'queue=fit')).toMatchObject([
    { prefix: 'jobs', rules: { ttlMax: 3_600_000, lockDelay: 10_000, queue: 'fit' } },
  ])
  expect((await here.answer(['policy', 'get', 'jobs/'])).stdout).toMatch(/ttlMax=1h.*lockDelay=10s|lockDelay=10s.*ttlMax=1h/)
  for (const bad of ['foo=1', 'ttlMax=5', 'capacity', 'capacity=many'])
    expect((await here.answer(['policy', 'set', 'jobs', bad])).code).toBe(64)
  expect((await here.answer(['policy', 'set', 'jobs', 'capactiy=3'])).stderr).toMatch(/there is no rule capactiy\. Did you mean capacity\?/)
  await here.json('policy', 'unset', 'jobs')
  expect(await here.json('policy', 'get')).toEqual([])
  expect((await here.answer(['help', 'policy', 'set'])).stdout).toMatch(/^Usage: leasehold policy set /)
})
