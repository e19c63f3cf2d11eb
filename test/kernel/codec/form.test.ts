import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { apply } from '../../../src/kernel/apply.ts'
import { decodeBatch, encodeBatch } from '../../../src/kernel/codec/batch.ts'
import { malformed } from '../../../src/kernel/codec/form.ts'
import type { Command } from '../../../src/kernel/command.ts'
import { badName } from '../../../src/kernel/name.ts'
import type { Outcome, Refused } from '../../../src/kernel/outcome.ts'
import { refuseFlaw } from '../../../src/kernel/rule/refuse.ts'
import { RULES } from '../../../src/kernel/state.ts'
import { sentenceOf } from '../../../src/wording.ts'
import { World } from '../../support/kernel/world.ts'

/** A world with something to be wrong about: lease 1 holds x, lease 2 waits for it, lease 3 registers, key 1 exists. */
function peopled(): World {
  const world = new World()
  world.acquire('a', 'x')
  world.queue('b', 'x')
  world.acquire('c', [], { entries: [{ key: 'svc/c', value: '1' }] })
  world.key('k', 'acquire:')
  return world
}

/** As a replica judges: first the form, then the rules. */
function judge(world: World, command: Command): Outcome {
  const wrong = malformed(command)
  const before = world.hash()
  if (wrong !== undefined) return refuseFlaw({ revision: 0 }, wrong)
  const outcome = apply(world.state, { command }, world.effects)
  if (outcome.kind === 'refused') expect(world.hash()).toBe(before)
  return outcome
}

const badNames: readonly (readonly [what: string, name: unknown])[] = [
  ['nothing', ''],
  ['a leading slash', '/a'],
  ['only a slash', '/'],
  ['a slash at the end', 'a/'],
  ['an empty segment', 'a//b'],
  ['a parent segment', 'a/../b'],
  ['a parent segment first', '../b'],
  ['a parent segment last', 'a/..'],
  ['a segment that is a dot', 'a/./b'],
  ['a control character', 'a\u0000b'],
  ['a line feed', 'a\nb'],
  ['delete', 'a\u007f'],
  ['a C1 control character', 'a\u0085'],
  ['513 bytes', 'x'.repeat(513)],
  ['513 bytes of longer characters', `${'é'.repeat(256)}x`],
  ['half of a surrogate pair', 'a\ud800'],
  ['the other half', '\udc00a'],
  ['a number', 7],
  ['null', null],
  ['an object', {}],
  ['a list', ['a']],
]

const badNumbers = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -1, 1.5, 2 ** 53, '7', null, {}, [7], true]

const acquire = { kind: 'acquire', holder: 'h', ttl: 1_000, wants: [{ resource: 'free' }] }

/** Every place where a name stands. */
const named: readonly (readonly [what: string, command: (name: unknown) => object])[] = [
  ['the holder', name => ({ ...acquire, holder: name })],
  ['a resource', name => ({ ...acquire, wants: [{ resource: 'ok' }, { resource: name }] })],
  ['an entry', name => ({ ...acquire, entries: [{ key: name, value: '' }] })],
  ['an entry put', name => ({ kind: 'put', lease: 1, key: name, value: '' })],
  ['a recipient', name => ({ kind: 'transfer', lease: 1, to: name })],
  ['what to break', name => ({ kind: 'break', resource: name })],
  ['what to recall', name => ({ kind: 'recall', resource: name })],
  ['what to fence', name => ({ kind: 'fence', resource: name, token: 1 })],
  ['whom to revoke', name => ({ kind: 'revoke', target: { holder: name } })],
  ['a key', name => ({ kind: 'key', name, hash: '0'.repeat(64), allow: [] })],
]

const prefixed: readonly (readonly [what: string, command: (prefix: unknown) => object])[] = [
  ['what to revoke', prefix => ({ kind: 'revoke', target: { prefix } })],
  ['a policy', prefix => ({ kind: 'policy', prefix, rules: { capacity: 2 } })],
  ['a scope', prefix => ({ kind: 'key', name: 'n', hash: '0'.repeat(64), allow: [{ verb: 'acquire', prefix }] })],
]

const numbered: readonly (readonly [what: string, command: (n: unknown) => object, alsoBad: readonly unknown[]])[] = [
  ['ttl', ttl => ({ ...acquire, ttl }), [0, 99, 86_400_001, undefined]],
  ['units', units => ({ ...acquire, wants: [{ resource: 'free', units }] }), [0, 2]],
  ['any', any => ({ ...acquire, any }), [0, 2]],
  ['priority', priority => ({ ...acquire, priority: priority === -1 ? -1_001 : priority }), [1_001, -1_001]],
  ['grace', grace => ({ ...acquire, grace }), [2 ** 52]],
  ['maxLife', maxLife => ({ ...acquire, maxLife }), [0, 2 ** 52]],
  ['incarnation', incarnation => ({ ...acquire, incarnation }), [0, 4, 2 ** 52]],
  ['parent', parent => ({ ...acquire, parent }), [0, 4, 2 ** 52]],
  ['holding', n => ({ ...acquire, holding: [1, n] }), []],
  ['a lease to renew', n => ({ kind: 'renew', leases: [1, n] }), []],
  ['a lease to release', lease => ({ kind: 'release', lease }), [0]],
  ['a lease to put on', lease => ({ kind: 'put', lease, key: 'k', value: '' }), [0]],
  ['the lease of an entry', lease => ({ kind: 'delete', key: 'svc/c', lease }), [0]],
  ['a lease to revoke', lease => ({ kind: 'revoke', target: { lease } }), [0]],
  ['a lease to transfer', lease => ({ kind: 'transfer', lease, to: 'b' }), [0]],
  ["a recipient's incarnation", incarnation => ({ kind: 'transfer', lease: 1, to: 'b', incarnation }), [0, 4]],
  ['after', after => ({ kind: 'break', resource: 'x', after }), [2 ** 52]],
  ['a token', token => ({ kind: 'fence', resource: 'x', token }), [0, 2, 2 ** 52]],
  ['rules', rules => ({ kind: 'upgrade', rules }), [0, 1, RULES, RULES + 2]],
  ['quiet', quiet => ({ kind: 'generation', lease: 0, token: 0, revision: 0, quiet }), [2 ** 52]],
  ...['ttlMin', 'ttlMax', 'capacity', 'lockDelay', 'grace', 'maxLife', 'maxHold', 'quota', 'waiters', 'aging', 'leases'].map(
    rule => [`the rule ${rule}`, (n: unknown) => ({ kind: 'policy', prefix: 'p', rules: { [rule]: n } }), [2 ** 52]] as const,
  ),
]

const wrong: readonly (readonly [what: string, command: unknown])[] = [
  ['nothing at all', undefined],
  ['a text', 'acquire'],
  ['no kind', {}],
  ['an unknown kind', { kind: 'unlock' }],
  ['a kind that every object has', { kind: 'toString' }],
  ['an unknown field', { ...acquire, timeout: 5 }],
  ['no holder', { kind: 'acquire', ttl: 1_000, wants: [] }],
  ['wants that are no list', { ...acquire, wants: 'x' }],
  ['wants that are null', { ...acquire, wants: null }],
  ['a want that is a text', { ...acquire, wants: ['x'] }],
  ['a want that is null', { ...acquire, wants: [null] }],
  ['a want with an unknown field', { ...acquire, wants: [{ resource: 'x', count: 1 }] }],
  ['the same resource twice', { ...acquire, wants: [{ resource: 'y' }, { resource: 'y', shared: true }] }],
  ['257 resources', { ...acquire, wants: Array.from({ length: 257 }, (_, i) => ({ resource: `r${i}` })) }],
  ['shared units', { ...acquire, wants: [{ resource: 'y', shared: true, units: 2 }] }],
  ['shared that is a text', { ...acquire, wants: [{ resource: 'y', shared: 'yes' }] }],
  ['wait that is a number', { ...acquire, wait: 5_000 }],
  ['waiting for nothing', { ...acquire, wants: [], wait: true }],
  ['a steal of another kind', { ...acquire, wait: true, steal: 'now' }],
  ['the same entry twice', { ...acquire, entries: [1, 2].map(() => ({ key: 'k', value: '' })) }],
  ['65 entries', { ...acquire, entries: Array.from({ length: 65 }, (_, i) => ({ key: `k${i}`, value: '' })) }],
  ['an entry without a value', { ...acquire, entries: [{ key: 'k' }] }],
  ['a value of 16,385 bytes', { ...acquire, entries: [{ key: 'k', value: 'x'.repeat(16_385) }] }],
  ['a generation of 0', { ...acquire, entries: [{ key: 'k', value: '', generation: 0 }] }],
  ['half a generation', { kind: 'put', lease: 1, key: 'k', value: '', generation: 1.5 }],
  ['a share above all', { kind: 'policy', prefix: 'services', rules: { preserveShare: 101 } }],
  ['reuse above suppression', { kind: 'policy', prefix: 'services', rules: { flapReuse: 2_001 } }],
  ['a value with half of a surrogate pair', { ...acquire, entries: [{ key: 'k', value: '\ud800' }] }],
  ['33 labels', { ...acquire, labels: Array.from({ length: 33 }, (_, i) => [`l${i}`, '']) }],
  ['a label without a value', { ...acquire, labels: [['l']] }],
  ['a label that is a text', { ...acquire, labels: ['ab'] }],
  ['a label that is too long', { ...acquire, labels: [['x'.repeat(129), '']] }],
  ['257 leases held', { ...acquire, wait: true, holding: Array.from({ length: 257 }, (_, i) => i) }],
  ['renewals that are no list', { kind: 'renew', leases: 5 }],
  ['a release of an empty name', { kind: 'release', lease: 1, resource: '' }],
  ['a target of two kinds', { kind: 'revoke', target: { lease: 1, holder: 'a' } }],
  ['a target of no kind', { kind: 'revoke', target: {} }],
  ['a target that is null', { kind: 'revoke', target: null }],
  ['a target that is given and undefined', { kind: 'revoke', target: { lease: undefined } }],
  ['an operator with a name too long', { kind: 'revoke', target: { lease: 1 }, by: 'x'.repeat(513) }],
  ['rules that are null', { kind: 'policy', prefix: '', rules: null }],
  ['an unknown rule', { kind: 'policy', prefix: '', rules: { ttl: 5 } }],
  ['a queue of another kind', { kind: 'policy', prefix: '', rules: { queue: 'lifo' } }],
  ['bounds the wrong way round', { kind: 'policy', prefix: '', rules: { ttlMin: 5_000, ttlMax: 4_000 } }],
  ['a hash that is none', { kind: 'key', name: 'n', hash: 'secret', allow: [] }],
  ['a hash in capitals', { kind: 'key', name: 'n', hash: 'A'.repeat(64), allow: [] }],
  ['scopes that are no list', { kind: 'key', name: 'n', hash: '0'.repeat(64), allow: 'all' }],
  ['a scope that is null', { kind: 'key', name: 'n', hash: '0'.repeat(64), allow: [null] }],
  ['an unknown verb', { kind: 'key', name: 'n', hash: '0'.repeat(64), allow: [{ verb: 'destroy', prefix: '' }] }],
  ['257 scopes', { kind: 'key', name: 'n', hash: '0'.repeat(64), allow: new Array(257).fill({ verb: 'read', prefix: '' }) }],
  ['nothing to transfer', { kind: 'transfer', lease: 3, to: 'b' }],
]

describe('what is wrong is refused as INVALID, says why, and changes nothing', () => {
  const world = peopled()
  const before = world.hash()
  const refuses = (command: unknown) => {
    const outcome = judge(world, command as Command)
    expect(outcome).toMatchObject({ kind: 'refused', code: 'INVALID' })
    const said = sentenceOf(outcome as Refused)
    expect(said).not.toMatch(/^refused/)
    expect(said).not.toMatch(/undefined \(reading|is not a function|\[object/)
    expect(world.hash()).toBe(before)
  }

  test.each(badNames)('a name with %s', (_, name) => {
    expect(badName(name)).toBeDefined()
    for (const [, command] of named) refuses(command(name))
    // `a/` and the empty prefix mean something.
    if (name !== '' && name !== 'a/') for (const [, command] of prefixed) refuses(command(name))
  })

  test.each(numbered)('%s that is no number in range', (_, command, alsoBad) => {
    for (const n of [...badNumbers, ...alsoBad]) refuses(command(n))
  })

  test.each(wrong)('%s', (_, command) => refuses(command))
})

test('names of 512 bytes, with spaces, dots and any script are fine', () => {
  for (const name of ['x'.repeat(512), 'é'.repeat(256), 'a b', '...', '.a', 'a/.b', '日本語/😀', 'host:123', 'a\u00a0b'])
    expect(badName(name)).toBeUndefined()
})

test('what has a form is applied the same by who proposed it and by all who read it from the log', () => {
  const odd = fc.constantFrom<unknown>(undefined, 0, 1, 2, 3, 4, -1, 1.5, 2 ** 53 - 1, '', 'x', 'svc/c', true, false, null)
  const list = fc.oneof(fc.constant(undefined), fc.array(odd, { maxLength: 3 }))
  const want = fc.record({ resource: fc.constantFrom('x', 'y', 'z'), units: odd, shared: odd })
  const kinds = fc.oneof(
    fc.record({
      kind: fc.constant('acquire'),
      holder: fc.constantFrom('a', 'h'),
      ttl: fc.constantFrom(1_000, 0),
      wants: fc.array(want, { maxLength: 2 }),
      any: odd,
      wait: odd,
      priority: odd,
      parent: odd,
      grace: odd,
      maxLife: odd,
      incarnation: odd,
      holding: list,
      labels: fc.constantFrom(undefined, [], [['a', '']]),
      entries: fc.constantFrom(undefined, [], [{ key: 'svc/d', value: '' }]),
      steal: fc.constantFrom(undefined, 'after', 'force', ''),
      recall: odd,
    }),
    fc.record({ kind: fc.constant('renew'), leases: list, waiting: odd }),
    fc.record({ kind: fc.constant('release'), lease: odd, resource: odd }),
    fc.record({ kind: fc.constant('put'), lease: odd, key: odd, value: odd }),
    fc.record({ kind: fc.constant('delete'), key: odd, lease: odd }),
    fc.record({ kind: fc.constant('revoke'), target: fc.record({ lease: odd }), force: odd, by: odd }),
    fc.record({ kind: fc.constant('transfer'), lease: odd, to: odd, incarnation: odd, stopped: odd }),
    fc.record({ kind: fc.constant('break'), resource: odd, after: odd, by: odd }),
    fc.record({ kind: fc.constant('recall'), resource: odd, by: odd }),
    fc.record({ kind: fc.constant('policy'), prefix: odd, rules: fc.oneof(odd, fc.record({ capacity: odd, queue: odd, ttlMin: odd })) }),
    fc.record({ kind: fc.constant('fence'), resource: odd, token: odd }),
    fc.record({ kind: fc.constant('unkey'), id: odd }),
  )
  const sparse = kinds.map(command => Object.fromEntries(Object.entries(command).filter(([, value]) => value !== undefined)))
  fc.assert(
    fc.property(sparse, fc.boolean(), (odds, kept) => {
      const command = odds as unknown as Command
      if (malformed(command) !== undefined) return
      const [own, other] = [peopled(), peopled()]
      const proposals = [{ command, key: 0, ...(kept && { op: { session: 's', seq: 1, acked: 0 } }) }]
      const header = { proposer: 1, seq: 1, applied: 0, decisionHash: [0, 0], wall: 0 } as const
      const read = decodeBatch(encodeBatch({ ...header, proposals }))
      const before = own.hash()
      expect(other.entry([], { proposals: read.proposals })).toEqual(own.entry([], { proposals }))
      expect(other.hash(), JSON.stringify(command)).toBe(own.hash())
      expect(before).not.toBe(own.hash())
    }),
    { numRuns: 1_500 },
  )
})
