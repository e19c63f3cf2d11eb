import { describe, expect, test } from 'vitest'
import {
  entryOf,
  type RegistrationInput,
  readCheck,
  readRegistration,
  readState,
  registrationOf,
  stateOf,
} from '../../src/registry/entry.ts'

const plain: RegistrationInput = { service: 'planner', instance: 'p-1', address: 'http://10.0.0.7:8080' }

/** An A2A agent card, as an agent publishes it. */
const card = {
  protocolVersion: '0.3.0',
  name: 'Planner <b>of</b> days',
  url: 'https://agents.example/planner',
  capabilities: { streaming: true, pushNotifications: false },
  skills: [{ id: 'plan', name: 'Plan', tags: ['plan', 'überblick'], examples: ['Plan my day\nplease'] }],
  'x-order': [3, 1, 2.5, -1e-7, null, { z: 1, a: 2 }],
}

describe('a registration', () => {
  test('is read back exactly as it was written, including an A2A agent card', () => {
    const given = {
      ...plain,
      ...{ capabilities: ['plan', 'estimate'], tags: ['blue'], metadata: card, weight: 3, zone: 'eu/fra/7', generation: 4 },
      check: { url: 'http://10.0.0.7:8080/healthz', interval: 5_000, fall: 3 },
    }
    const { key, value, generation } = entryOf(registrationOf(given))
    expect([key, generation]).toEqual(['services/planner/p-1', 4])
    const { address, ...rest } = given
    expect(readRegistration(key, value)).toEqual({ ...rest, addresses: [address] })
    expect(JSON.stringify(readRegistration(key, value)!.metadata)).toBe(JSON.stringify(card))
  })

  test('takes the durations of its check with a unit, and stores whole milliseconds', () => {
    const check = { url: 'http://10.0.0.7:8080/healthz', interval: '5s', timeout: '500ms', endAfter: '1h30m' } as const
    const stored = { ...check, interval: 5_000, timeout: 500, endAfter: 5_400_000 }
    const { key, value } = entryOf(registrationOf({ ...plain, check }))
    expect(JSON.parse(value).check).toEqual(stored)
    expect(readRegistration(key, value)!.check).toEqual(stored)
  })

  test('stores no default values', () => {
    expect(entryOf(registrationOf(plain))).toEqual({ key: 'services/planner/p-1', value: '{"addresses":["http://10.0.0.7:8080"]}' })
  })

  test('of the largest allowed size fits the limit of an entry', () => {
    const words = Array.from({ length: 12 }, (_, i) => `${i}`.padStart(128, 'w'))
    const full = registrationOf({ ...plain, metadata: 'm'.repeat(8_190), capabilities: words, tags: words })
    expect(Buffer.byteLength(entryOf(full).value)).toBeLessThan(16_384)
  })

  test.each([
    'http://10.0.0.7:8080',
    'https://agent.example/a2a/v1?x=1#y',
    'tcp://host:5000',
    'grpc://[2001:db8::1]:50051',
    'host:5000',
    '[::1]:80',
    'ws://münchen.example:1',
    'unix+http://box',
  ])('accepts the address %s', address => {
    expect(registrationOf({ ...plain, address }).addresses).toEqual([address])
  })
})

const deep = (levels: number): object => (levels === 0 ? {} : { a: deep(levels - 1) })

const wrong: readonly (readonly [string, object])[] = [
  ['an unknown field', { script: 'rm -rf /' }],
  ['no service', { service: undefined }],
  ['a service with a slash', { service: 'a/b' }],
  ['a service of dots', { service: '..' }],
  ['a service with a line feed', { service: 'a\nb' }],
  ['a service that is __proto__', { service: '__proto__' }],
  ['an instance that is constructor', { instance: 'constructor' }],
  ['an empty instance', { instance: '' }],
  ['an instance that is not a string', { instance: 7 }],
  ['names that are too long together', { service: 's'.repeat(300), instance: 'i'.repeat(300) }],
  ['half of a surrogate pair', { instance: '\ud800' }],
  ['both address and addresses', { addresses: ['a:1'] }],
  ['17 addresses', { address: undefined, addresses: Array.from({ length: 17 }, (_, i) => `h:${i + 1}`) }],
  ...[
    ...[
      'javascript:alert(1)',
      'data:text/html,x',
      'host',
      '/path',
      'http://',
      'http://user:secret@host',
      'host:0',
      'host:65536',
      'host:1/x',
    ],
    ...[
      'http://a b',
      'http://a\r\nHost: b',
      'http://<script>',
      `http://${'x'.repeat(600)}`,
      '',
      7,
      null,
      'http://[::1',
      'http://a:b:c',
      'http://a\u0000',
    ],
  ].map(address => [`the address ${String(address).slice(0, 30)}`, { address }] as const),
  ['capabilities that are not a list', { capabilities: 'plan' }],
  ['65 capabilities', { capabilities: Array.from({ length: 65 }, (_, i) => `c${i}`) }],
  ['a capability of 129 bytes', { capabilities: ['c'.repeat(129)] }],
  ['a capability with a control character', { capabilities: ['a\u001bb'] }],
  ['a tag that is __proto__', { tags: ['__proto__'] }],
  ['a tag that is an object', { tags: [{}] }],
  ['metadata of 8,193 bytes', { metadata: 'x'.repeat(8_191) }],
  ['metadata of many bytes in few characters', { metadata: '€'.repeat(2_731) }],
  ['metadata that is 17 deep', { metadata: deep(17) }],
  ['metadata with __proto__', { metadata: JSON.parse('{"a":[{"__proto__":{"admin":true}}]}') }],
  ['metadata with constructor', { metadata: { a: { constructor: 1 } } }],
  ['metadata with a function', { metadata: { a: () => 1 } }],
  ['metadata with a Map', { metadata: new Map() }],
  ['metadata with Infinity', { metadata: [Number.POSITIVE_INFINITY] }],
  ['metadata with undefined', { metadata: [undefined] }],
  ['a weight that is not whole', { weight: 0.5 }],
  ['a negative weight', { weight: -1 }],
  ['a zone with an empty segment', { zone: 'eu//fra' }],
  ['a generation that is not a safe integer', { generation: 2 ** 53 }],
  ['a host with an empty label', { address: 'http://a..b:80' }],
  ['a host that begins with a dot', { address: '.a:80' }],
  ['a host with a label of 64 bytes', { address: `http://${'x'.repeat(64)}.test:80` }],
  ['a host of 300 bytes', { address: `tcp://${'a.'.repeat(150)}b:80` }],
  ['a check of a host with an empty label', { check: 'http://a..b:80/' }],
  ['a check without a url', { check: {} }],
  ['a check by command', { check: { url: 'tcp://a:1', args: ['sh'] } }],
  ['a check of a file', { check: 'file:///etc/passwd' }],
  ['a check more often than ten times a second', { check: { url: 'tcp://a:1', interval: 99 } }],
  ['a check with a duration that is none', { check: { url: 'tcp://a:1', interval: '5 seconds' } }],
  ['a check with a timeout of more than a minute', { check: { url: 'tcp://a:1', timeout: '61s' } }],
]

describe('registrationOf refuses as INVALID', () => {
  test.each(wrong)('%s', (_, change) => {
    const input = { ...plain, ...change } as RegistrationInput
    expect(() => registrationOf(input)).toThrow(expect.objectContaining({ code: 'INVALID' }))
    expect(({} as { admin?: boolean }).admin).toBeUndefined()
  })

  test('only metadata that is deeper than 16 or longer than 8,192 bytes', () => {
    expect(registrationOf({ ...plain, metadata: deep(15) as never }).metadata).toEqual(deep(15))
    expect(registrationOf({ ...plain, metadata: 'x'.repeat(8_190) }).metadata).toHaveLength(8_190)
  })
})

describe('an entry written by any client', () => {
  test.each([
    ['not JSON', 'services/a/1', '{'],
    ['a number', 'services/a/1', '7'],
    ['a list', 'services/a/1', '[]'],
    ['null', 'services/a/1', 'null'],
    ['an unknown field', 'services/a/1', '{"addresses":[],"run":"sh"}'],
    ['a bad address', 'services/a/1', '{"addresses":["javascript:x"]}'],
    ['a __proto__ field', 'services/a/1', '{"addresses":[],"__proto__":{"x":1}}'],
    ['another key', 'pool/a/1', '{"addresses":[]}'],
    ['too short a key', 'services/a', '{"addresses":[]}'],
    ['too long a key', 'services/a/1/x', '{"addresses":[]}'],
  ])('is not listed: %s', (_, key, value) => {
    expect(readRegistration(key, value)).toBeUndefined()
  })

  test('takes the names from the key, not from the value', () => {
    expect(readRegistration('services/a/1', '{"service":"b","instance":"2","addresses":[]}')).toMatchObject({ service: 'a', instance: '1' })
  })

  test('counts as the default state, or as no check, if it cannot be parsed', () => {
    expect(readState('{"status":"fine"}')).toEqual({ status: 'passing', load: 0 })
    expect(readState('x')).toEqual({ status: 'passing', load: 0 })
    expect(readState('{"status":"draining","load":0.25}')).toEqual({ status: 'draining', load: 0.25 })
    expect(readCheck('{"status":"draining"}')).toBeUndefined()
    expect(readCheck('{"status":"critical","reason":"no answer"}')).toEqual({ status: 'critical', reason: 'no answer' })
  })

  test('must have a load that is a number and not negative', () => {
    for (const load of [-1, Number.NaN, '1', 1e10]) expect(() => stateOf({ load: load as number })).toThrow(/load/)
  })
})
