import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { Gateway } from '../src/store/etcd-gateway.ts'
import { ManualClock } from '../src/testing/manual-clock.ts'

test('an answer that came while this process stood still is read before the endpoint is given up', async () => {
  const clock = new ManualClock()
  let asked = 0
  await using server = createServer((request, response) => {
    if (request.url === '/version') return response.end('{"etcdserver":"3.5.0"}')
    asked++
    response.end('{"here":true}')
    clock.stall(6_000)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const gateway = new Gateway({ endpoints: [`127.0.0.1:${(server.address() as AddressInfo).port}`], clock, patience: 5_000 })
  expect(await gateway.call('/kv/txn', {})).toEqual({ here: true })
  expect(asked).toBe(1)
  gateway.close()
})
