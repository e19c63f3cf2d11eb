import { expect, test } from 'vitest'
import { hostPortOf } from '../../../src/server/registry/host-port.ts'

test.each([
  ['http://10.0.0.7:8080/path', { host: '10.0.0.7', port: 8080 }],
  ['https://agent.example', { host: 'agent.example', port: 443 }],
  ['grpc://[2001:db8::1]:50051', { host: '2001:db8::1', port: 50_051 }],
  ['host:5000', { host: 'host', port: 5_000 }],
  ['tcp://host', undefined],
  ['', undefined],
])('%s is split into host and port', (address, expected) => {
  expect(hostPortOf(address)).toEqual(expected)
})
