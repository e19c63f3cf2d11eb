import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { BatchWriter, decodeBatch, encodeBatch } from '../../../src/kernel/codec/batch.ts'
import { Damaged, Reader, Writer } from '../../../src/kernel/codec/bytes.ts'
import { stateHash } from '../../../src/kernel/codec/snapshot.ts'
import { reload, World } from '../../support/kernel/world.ts'

const edges = [0, 1, 63, 64, 127, 128, 16_383, 16_384, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 52 - 1, 2 ** 52, 2 ** 52 + 1, 2 ** 53 - 1]

function through<T>(write: (to: Writer) => void, read: (from: Reader) => T): T {
  const to = new Writer(1)
  write(to)
  const from = Reader.unseal(to.sealed())
  const value = read(from)
  from.finish()
  return value
}

describe('numbers and texts come back as they were written', () => {
  test.each(edges)('the whole number %d, with either sign', n => {
    expect(through(to => to.uint(n), from => from.uint())).toBe(n) // biome-ignore format: one thing
    for (const value of [n, n === 0 ? 0 : -n]) expect(through(to => to.int(value), from => from.int())).toBe(value) // biome-ignore format: one thing
  })

  test('every safe integer', () => {
    fc.assert(fc.property(fc.maxSafeInteger(), n => through(to => to.int(n), from => from.int()) === (n === 0 ? 0 : n))) // biome-ignore format: one thing
    fc.assert(fc.property(fc.maxSafeNat(), n => through(to => to.uint(n), from => from.uint()) === n)) // biome-ignore format: one thing
  })

  test('every text, short or long, plain or not', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), text => through(to => to.text(text), from => from.text()) === text), // biome-ignore format: one thing
    )
    for (const text of ['', '\ufeffmark', 'é'.repeat(64), 'x'.repeat(127), 'x'.repeat(128), '😀'.repeat(100)])
      expect(through(to => to.text(text), from => from.text())).toBe(text) // biome-ignore format: one thing
  })
})

test.each([Number.NaN, 1.5, -1, 2 ** 53, Number.POSITIVE_INFINITY, undefined, '7'])(
  '%s is not written as if it were a whole number',
  value => {
    expect(() => new Writer().uint(value as number)).toThrow(RangeError)
  },
)

describe('damage is found, and nothing else is thrown', () => {
  test.each<[string, number[], (from: Reader) => unknown]>([
    ['a number that never ends', [255, 255, 255, 255, 255, 255, 255, 255, 255, 1], from => from.uint()],
    ['a number above 2^53', [255, 255, 255, 255, 255, 255, 255, 127], from => from.uint()],
    ['a signed number above 2^53', [255, 255, 255, 255, 255, 255, 255, 255, 127], from => from.int()],
    ['a number cut off', [128], from => from.uint()],
    ['a text cut off', [5, 97, 98], from => from.text()],
    ['a text that is no UTF-8', [2, 0xc3, 0x28], from => from.text()],
    ['half of a surrogate pair', [3, 0xed, 0xa0, 0x80], from => from.text()],
    ['a list longer than what follows', [200, 1, 1], from => from.list(() => from.byte())],
    ['neither yes nor no', [2], from => from.bool()],
    ['something left over', [1, 1], from => [from.byte(), from.finish()]],
  ])('%s', (_, bytes, read) => {
    expect(() => read(new Reader(Uint8Array.from(bytes)))).toThrow(Damaged)
  })
})

test('half of a surrogate pair is refused, and not written as another character', () => {
  for (const text of ['\ud800', 'a\udc00b', `${'x'.repeat(200)}\ud83d`]) expect(() => new Writer().text(text)).toThrow(RangeError)
})

test('a proposal that cannot be encoded leaves no bytes in the record', () => {
  const header = { proposer: 1, seq: 1, applied: 0, decisionHash: [0, 0], wall: 0 } as const
  const writer = new BatchWriter()
  const good = { command: { kind: 'recall', resource: 'a' }, key: 0 } as const
  writer.add(good)
  expect(() => writer.add({ command: { kind: 'put', lease: 1, key: 'k', value: '\ud800' } })).toThrow(RangeError)
  expect(() => writer.add({ command: { kind: 'renew', leases: [1, 2, Number.NaN] } })).toThrow(RangeError)
  writer.add(good)
  expect(decodeBatch(writer.take(header).bytes).proposals).toEqual([good, good])
})

test('the largest number a client can send is read back from a log and from a kept answer', () => {
  const lease = Number.MAX_SAFE_INTEGER
  const header = { proposer: 1, seq: 1, applied: 0, decisionHash: [0, 0], wall: 0 } as const
  const proposals = [{ command: { kind: 'renew', leases: [lease, 0, lease] }, key: 0 }] as const
  expect(decodeBatch(encodeBatch({ ...header, proposals })).proposals).toEqual(proposals)
  const world = new World()
  world.entry([{ kind: 'release', lease }], { op: { session: 's', seq: 1, acked: 0 } })
  expect(stateHash(reload(world.state))).toBe(world.hash())
})
