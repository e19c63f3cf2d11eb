import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { systemClock } from '../../../src/clock.ts'
import { Gateway } from '../../../src/store/etcd/gateway.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

test('an answer that arrived while the process was stalled is read before the endpoint counts as silent', async () => {
  const clock = new ManualClock()
  let asked = 0
  await using server = createServer((request, response) => {
    if (request.url === '/version') return response.end('{"etcdserver":"3.5.0"}')
    asked++
    response.end('{"here":true}')
    clock.stall(6_000)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const gateway = new Gateway({ endpoints: [`127.0.0.1:${(server.address() as AddressInfo).port}`], clock, timeout: 5_000 })
  expect(await gateway.call('/kv/txn', {})).toEqual({ here: true })
  expect(asked).toBe(1)
  gateway.close()
})

test('after an upgrade of etcd an open store uses the new path; an etcd without a gateway is UNSUPPORTED', async () => {
  let version = '3.3.0'
  let served = '/v3beta/'
  await using server = createServer((request, response) => {
    if (request.url === '/version') return response.end(JSON.stringify({ etcdserver: version }))
    if (!request.url!.startsWith(served)) return response.writeHead(404).end('Not Found')
    response.end('{"here":true}')
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const endpoints = [`127.0.0.1:${(server.address() as AddressInfo).port}`]
  const gateway = new Gateway({ endpoints, clock: systemClock, timeout: 5_000 })
  expect(await gateway.call('/kv/txn', {})).toEqual({ here: true })
  ;[version, served] = ['3.5.0', '/v3/']
  expect(await gateway.call('/kv/txn', {})).toEqual({ here: true })
  served = '/nowhere/'
  await expect(gateway.call('/kv/txn', {})).rejects.toMatchObject({ code: 'UNSUPPORTED', reason: 'gateway' })
  gateway.close()
})
