/** Protobuf bodies and patches: what is read is what was written, and bytes of strangers are refused before they cost anything. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decodeObject, encodeObject } from '../../../src/face/kubernetes/messages.ts'
import { checkDepth, jsonPatch, mergePatch } from '../../../src/face/kubernetes/patch.ts'
import { type JsonObject, ProtobufError } from '../../../src/face/kubernetes/protobuf.ts'

const text = fc.string({ unit: 'grapheme', maxLength: 40 })
const int32 = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 })
const microtime = fc
  .tuple(fc.integer({ min: 0, max: 4_000_000_000 }), fc.integer({ min: 0, max: 999_999 }))
  .map(([seconds, micros]) => `${new Date(seconds * 1_000).toISOString().slice(0, 19)}.${String(micros).padStart(6, '0')}Z`)
const lease = fc.record({
  kind: fc.constant('Lease'),
  apiVersion: fc.constant('coordination.k8s.io/v1'),
  metadata: fc.record(
    {
      name: text,
      resourceVersion: text,
      generation: fc.maxSafeInteger(),
      creationTimestamp: microtime.map(time => `${time.slice(0, 19)}Z`),
      labels: fc.dictionary(fc.constantFrom('a', 'b/c', '__proto__', 'toString'), text, { minKeys: 1 }),
      ownerReferences: fc.array(fc.record({ uid: text, controller: fc.boolean() }), { minLength: 1, maxLength: 3 }),
      finalizers: fc.array(text, { minLength: 1, maxLength: 3 }),
    },
    { requiredKeys: [] },
  ),
  spec: fc.record(
    { holderIdentity: text, leaseDurationSeconds: int32, renewTime: microtime, leaseTransitions: int32, strategy: text },
    { requiredKeys: [] },
  ),
})

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value))

describe('protobuf', () => {
  test('an object that was encoded is decoded to the same object', () => {
    fc.assert(
      fc.property(lease, object => {
        expect(plain(decodeObject(encodeObject(object as unknown as JsonObject)))).toEqual(plain(object))
      }),
    )
  })

  test('a body is the four bytes of Kubernetes, the kind, and the object', () => {
    const bytes = encodeObject({
      kind: 'Lease',
      apiVersion: 'coordination.k8s.io/v1',
      metadata: { name: 'a' },
      spec: { holderIdentity: 'h' },
    })
    expect(bytes.toString('latin1')).toBe(
      'k8s\0\x0a\x1f\x0a\x16coordination.k8s.io/v1\x12\x05Lease\x12\x0a\x0a\x03\x0a\x01a\x12\x03\x0a\x01h\x1a\x00"\x00',
    )
  })

  test('a list of any size that was encoded is decoded to the same list', () => {
    for (const count of [1, 20, 200, 500, 2_000]) {
      const items = Array.from({ length: count }, (_, i) => ({ metadata: { name: `lease-${i}` }, spec: { holderIdentity: `holder-${i}` } }))
      const list = { kind: 'LeaseList', apiVersion: 'coordination.k8s.io/v1', metadata: { resourceVersion: '7' }, items }
      expect(plain(decodeObject(encodeObject(list)))).toEqual(list)
    }
  })

  test('every cut and every changed byte is refused or read, and nothing else happens', () => {
    fc.assert(
      fc.property(lease, fc.nat(), fc.nat({ max: 255 }), (object, at, byte) => {
        const bytes = encodeObject(object as unknown as JsonObject)
        const changed = Buffer.from(bytes)
        changed[at % bytes.length] = byte
        for (const tried of [bytes.subarray(0, at % bytes.length), changed])
          try {
            decodeObject(tried)
          } catch (error) {
            expect(error).toBeInstanceOf(ProtobufError)
          }
      }),
    )
  })

  test('a length that is longer than the body is refused without room being made for it', () => {
    const huge = Buffer.concat([Buffer.from('k8s\0', 'latin1'), Buffer.from([0x12, 0xff, 0xff, 0xff, 0xff, 0x0f])])
    expect(() => decodeObject(huge)).toThrow('longer than its message')
    const endless = Buffer.concat([Buffer.from('k8s\0', 'latin1'), Buffer.alloc(20, 0xff)])
    expect(() => decodeObject(endless)).toThrow(ProtobufError)
  })
})

describe('patches', () => {
  test('a JSON patch adds, replaces, removes, tests, copies and moves', () => {
    const target = { metadata: { labels: { a: '1' } }, spec: { leaseTransitions: 1 }, list: [1, 2] }
    expect(
      plain(
        jsonPatch(target, [
          { op: 'test', path: '/spec', value: { leaseTransitions: 1 } },
          { op: 'add', path: '/metadata/labels/b~1c', value: 'x' },
          { op: 'replace', path: '/spec/leaseTransitions', value: 2 },
          { op: 'copy', from: '/metadata/labels/a', path: '/metadata/labels/d' },
          { op: 'move', from: '/metadata/labels/a', path: '/metadata/labels/e' },
          { op: 'add', path: '/list/-', value: 3 },
          { op: 'remove', path: '/list/0' },
        ]),
      ),
    ).toEqual({ metadata: { labels: { 'b/c': 'x', d: '1', e: '1' } }, spec: { leaseTransitions: 2 }, list: [2, 3] })
    expect(target.spec.leaseTransitions).toBe(1)
    for (const bad of [
      [{ op: 'test', path: '/spec/leaseTransitions', value: 2 }],
      [{ op: 'remove', path: '/absent' }],
      [{ op: 'add', path: '/absent/deeper', value: 1 }],
      [{ op: 'replace', path: '/list/9', value: 1 }],
      [{ op: 'nothing', path: '/spec' }],
      { op: 'add' },
    ])
      expect(() => jsonPatch(target, bad)).toThrow()
  })

  test('a patch cannot make a document grow without bound, nor reach a prototype', () => {
    const doubling = Array.from({ length: 60 }, (_, i) => ({ op: 'copy', from: '', path: `/c${i}` }))
    expect(() => jsonPatch({ note: 'x'.repeat(100) }, doubling)).toThrow('more than 65536 characters')
    const patch = JSON.parse('{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}')
    mergePatch({}, patch)
    jsonPatch({}, [{ op: 'add', path: '/__proto__/polluted', value: true }].slice(1))
    expect(() => jsonPatch({}, [{ op: 'add', path: '/__proto__/polluted', value: true }])).toThrow()
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
    expect(() => checkDepth(JSON.parse('['.repeat(5_000) + ']'.repeat(5_000)))).toThrow('nested deeper')
  })

  test('a strategic merge patch merges owners and finalizers, and a merge patch replaces them', () => {
    const target = { metadata: { finalizers: ['a'], ownerReferences: [{ uid: '1', name: 'n' }] } }
    const patch = { metadata: { finalizers: ['b'], ownerReferences: [{ uid: '1', kind: 'k' }, { uid: '2' }] } }
    expect(plain(mergePatch(target, patch, true))).toEqual({
      metadata: { finalizers: ['a', 'b'], ownerReferences: [{ uid: '1', name: 'n', kind: 'k' }, { uid: '2' }] },
    })
    expect(plain(mergePatch(target, patch))).toEqual(patch)
    expect(plain(mergePatch(target, { metadata: { '$deleteFromPrimitiveList/finalizers': ['a'] } }, true))).toMatchObject({
      metadata: { finalizers: [] },
    })
  })
})
