/** Failures that a face words itself are counted as failures, with labels that no client can choose. */
import { expect, test } from 'vitest'
import { consulFace } from '../../src/face/consul/face.ts'
import { redisFace } from '../../src/face/redis/commands.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { place, Raw } from '../support/resp-place.ts'

test('refusals of faces are counted by their status or code, and answers as OK', async () => {
  await using here = await place({ faces: [redisFace(), consulFace()], http: httpListener() })
  const at = `http://127.0.0.1:${here.port}`
  expect((await fetch(`${at}/v1/kv/a`, { method: 'PUT', body: 'v' })).status).toBe(200)
  expect((await fetch(`${at}/v1/kv/b`)).status).toBe(404)
  expect((await fetch(`${at}/v1/kv/a?acquire=none`, { method: 'PUT', body: 'v' })).status).toBe(500)
  using raw = new Raw(here.port)
  await raw.ask('GET', 'k')
  await raw.ask('SET', 'k', 'v')
  await raw.ask('EVALSHA', 'f'.repeat(40), 0)
  await raw.ask('EVAL', 'return redis.error_reply("MINE of a client")', 0)
  const metrics = await (await fetch(`${at}/metrics`)).text()
  const count = (wire: string, asked: string, code: string) =>
    new RegExp(`^leasehold_requests_total\\{wire="${wire}",asked="${asked}",code="${code}"\\} (\\d+)$`, 'm').exec(metrics)?.[1]
  expect([count('http', 'face consul', 'OK'), count('http', 'face consul', 'HTTP_404'), count('http', 'face consul', 'HTTP_500')]).toEqual([
    '1',
    '1',
    '1',
  ])
  expect([
    count('resp', 'GET', 'OK'),
    count('resp', 'SET', 'ERR'),
    count('resp', 'EVALSHA', 'NOSCRIPT'),
    count('resp', 'EVAL', 'ERR'),
  ]).toEqual(['1', '1', '1', '1'])
  expect(metrics).not.toContain('MINE')
})
