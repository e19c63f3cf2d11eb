/** Requests of the HTTP client to routes that are no part of a Lessor. */
import { expect, test } from 'vitest'
import { HttpLessor } from '../../../src/wire/http/client.ts'
import { world } from '../../support/http-world.ts'

test('a request is answered with JSON, or with nothing, and fails with the error of the server', async () => {
  await using here = await world()
  await using lessor = await HttpLessor.open(here.url)
  const granted = (await lessor.request('POST', '/v1/leases', { resources: ['a'], holder: 'ann' })) as { lease: number }
  expect(await lessor.request('GET', '/v1/resources/a')).toMatchObject({ grants: [{ holder: 'ann' }] })
  expect(await lessor.request('DELETE', `/v1/leases/${granted.lease}`)).toBeUndefined()
  await expect(lessor.request('GET', '/v1/leases/999')).rejects.toMatchObject({ code: 'GONE' })
  await expect(lessor.request('GET', '/v1/resources/a', undefined, AbortSignal.abort(new Error('given up')))).rejects.toThrow('given up')
})

test('a request carries the key, and is refused without one', async () => {
  await using here = await world()
  const key = await here.key('reader', [{ verb: 'read', prefix: '' }])
  await using lessor = await HttpLessor.open(here.url, { key })
  expect(await lessor.request('GET', '/v1/whoami')).toMatchObject({ name: 'reader', open: false })
  await expect(lessor.request('PUT', '/v1/policies/jobs', { capacity: 2 })).rejects.toMatchObject({ code: 'FORBIDDEN' })
})
