import { describe, expect, test } from 'vitest'
import { ProbeRules, plainAddress } from '../../../src/server/registry/probe-rules.ts'

describe('the rules for probes:', () => {
  test.each([
    ['nothing is allowed without a rule', [], 'example.com', '93.184.216.34', 80, false],
    ['a host by its name, at a public address', ['example.com:80'], 'example.com', '93.184.216.34', 80, true],
    ['another port', ['example.com:80'], 'example.com', '93.184.216.34', 81, false],
    ['a name that resolves to a private address', ['example.com:80'], 'example.com', '10.0.0.1', 80, false],
    ['a name that resolves to the metadata service', ['*.example.com:*'], 'a.example.com', '169.254.169.254', 80, false],
    ['a mapped address', ['example.com:80'], 'example.com', '::ffff:127.0.0.1', 80, false],
    ['a mapped address in hex', ['example.com:80'], 'example.com', '::ffff:7f00:1', 80, false],
    ['a translated address', ['example.com:80'], 'example.com', '64:ff9b::a9fe:a9fe', 80, false],
    ['6to4', ['example.com:80'], 'example.com', '2002:7f00:1::', 80, false],
    ['loopback of IPv6', ['example.com:80'], 'example.com', '::1', 80, false],
    ['link-local with a zone', ['example.com:80'], 'example.com', 'fe80::1%eth0', 80, false],
    ['a private network that a rule names', ['10.0.0.0/8:8000-8999'], 'any', '10.1.2.3', 8080, true],
    ['and its mapped form', ['10.0.0.0/8:8000-8999'], 'any', '::ffff:10.1.2.3', 8080, true],
    ['IPv6 networks', ['[fd00::/8]:*'], 'any', 'fd00::7', 1, true],
    ['a star matches whole labels only', ['*.example.com:*'], 'evilexample.com', '93.184.216.34', 80, false],
    ['a star does not match the name itself', ['*.example.com:*'], 'example.com', '93.184.216.34', 80, false],
  ] as const)('%s', (_, rules, host, address, port, allowed) => {
    expect(new ProbeRules(rules).refusal(host, address, port) === undefined).toBe(allowed)
  })

  test.each(['example.com', '10.0.0.0/33:80', '10.0.0.1:0', '10.0.0.1:9-2', '*:80', 'a*b.com:80', 'http://a:80'])(
    '%s is not a rule',
    rule => {
      expect(() => new ProbeRules([rule])).toThrow(/not a rule for checks/)
    },
  )

  test.each([
    ['::ffff:127.0.0.1', '127.0.0.1'],
    ['::127.0.0.1', '127.0.0.1'],
    ['2002:a00:1::', '10.0.0.1'],
    ['::1', '::1'],
    ['2001:db8::1', '2001:db8::1'],
  ])('%s means %s', (written, meant) => {
    expect(plainAddress(written)).toBe(meant)
  })
})
