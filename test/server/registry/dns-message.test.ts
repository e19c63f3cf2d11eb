import { expect, test } from 'vitest'
import { aaaa } from '../../../src/server/registry/dns-message.ts'

test.each([
  ['::', '00000000000000000000000000000000'],
  ['::1', '00000000000000000000000000000001'],
  ['2001:db8::7', '20010db8000000000000000000000007'],
  ['1:2:3:4:5:6:7:8', '00010002000300040005000600070008'],
  ['::ffff:10.0.0.7', '00000000000000000000ffff0a000007'],
  ['fe80::', 'fe800000000000000000000000000000'],
])('the IPv6 address %s is encoded as %s', (text, hex) => {
  expect(aaaa(text).toString('hex')).toBe(hex)
})
