import { expect, test } from 'vitest'
import { detectWire } from '../../src/server/wire-detection.ts'

test('the first bytes of a connection tell HTTP from RESP, as soon as they can', () => {
  for (const text of [
    'GET / HTTP/1.1\r\n',
    'POST /v1/leases',
    'OPTIONS * HTTP/1.1\r\n',
    'DELETE /v1/leases/5',
    'GET http://a/ HTTP/1.1',
    'GET /',
    'A /',
    'patch /x',
    'ping /',
    'LEASE.LIST /',
    '~odd-1 /x',
    `${'A'.repeat(2_000)} /x`,
    'CONNECT localhost:80 HTTP/1.1\r\n',
  ])
    expect(detectWire(Buffer.from(text)), text).toBe('http')
  for (const text of [
    '*1\r\n',
    '*1 /x HTTP/1.1\r\n',
    'PING\r\n',
    'ping\r\n',
    'ECHO a\r\n',
    'ECHO hello\r\n',
    'LEASE.ACQUIRE http-lock TTL 1000\r\n',
    '\r\n',
    '\0',
    '\x16\x03\x01',
    '$',
    'x'.repeat(5_000),
  ])
    expect(detectWire(Buffer.from(text, 'latin1')), text).toBe('resp')
  for (const text of ['', 'G', 'GET', 'GET ', 'PING', 'OPTIONS ', 'AUTH h', 'ECHO a'])
    expect(detectWire(Buffer.from(text)), text).toBe(undefined)
})
