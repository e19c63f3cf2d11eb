/** Keys that were read: ranges of them are right, and what many ranges cost is counted. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { KeyView } from '../../../src/face/etcd/key-view.ts'
import { inSpan, type KeySpan, nameOf } from '../../../src/face/etcd/names.ts'
import { transact } from '../../../src/face/etcd/txn.ts'
import { type FaceCaller, SAME_NAMES } from '../../../src/face/face.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

/** A caller whose server has these keys. */
function callerWith(keys: readonly string[]): FaceCaller {
  const value = keys.map(key => ({ key: nameOf(key), value: '', lease: 0, created: 1, revision: 1, version: 1 }))
  const lessor = { read: async () => ({ revision: 1, value }) } as unknown as FaceCaller['lessor']
  return { lessor, key: 0, holder: 'client', clock: new ManualClock(), names: SAME_NAMES, signal: new AbortController().signal }
}

const range = (span: KeySpan) => ({
  ...{ kind: 'range', span, limit: 0, revision: 0, order: 'NONE', target: 'KEY' },
  ...{ keysOnly: false, countOnly: false, serializable: false, minMod: 0, maxMod: 0, minCreate: 0, maxCreate: 0 },
})

describe('keys that were read', () => {
  test('are found by every span that they are in, in order', async () => {
    const key = fc
      .string({ unit: fc.constantFrom('a', 'b', 'c', '/'), minLength: 1, maxLength: 4 })
      .filter(text => !/^\/|\/$|\/\//.test(text))
    const span = fc.oneof(
      key.map(single => ({ key: single })),
      fc.tuple(key, fc.oneof(key, fc.constant('\0'))).map(([from, end]) => ({ key: from, end })),
    )
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(key, { maxLength: 30 }), fc.array(span, { minLength: 1, maxLength: 8 }), async (keys, spans) => {
        const view = await KeyView.read(callerWith(keys), spans)
        for (const asked of spans) {
          const expected = keys.filter(each => inSpan(asked, each)).sort()
          expect(view.within(asked).map(found => found.key)).toEqual(expected)
          expect(view.within(asked, 2).map(found => found.key)).toEqual(expected.slice(0, 2))
        }
      }),
    )
  })

  test('are compared with a few of many spans, not with each', async () => {
    let compared = 0
    const counted = (from: string, end: string): KeySpan => ({
      get key() {
        compared++
        return from
      },
      end,
    })
    const keys = Array.from({ length: 5_000 }, (_, i) => `k/${i}`)
    const spans = Array.from({ length: 120 }, (_, i) => counted(`x/${1_000 + 2 * i}`, `x/${1_001 + 2 * i}`))
    await KeyView.read(callerWith(keys), spans)
    expect(compared).toBeLessThan(5_000 * 20)
  })
})

describe('a transaction', () => {
  const keys = Array.from({ length: 2_000 }, (_, i) => `k/${i}`)
  const txn = (spans: readonly KeySpan[]) =>
    transact(callerWith(keys), { kind: 'txn', compare: [], success: spans.map(range), failure: [] } as never)

  test('with ranges of more keys than it may look at is refused at the first, before the others are looked at', async () => {
    let looked = 0
    const second: KeySpan = {
      key: 'k',
      get end() {
        looked++
        return '\0'
      },
    }
    await expect(txn([{ key: 'a', end: '\0' }, ...Array<KeySpan>(100).fill(second)])).rejects.toThrow('too many operations')
    expect(looked).toBeLessThan(20 * (keys.length + 100))
  })

  test('that finds the same keys again and again is refused, since all of them would be in the answer', async () => {
    const hundred: KeySpan = { key: 'k/10', end: 'k/11' } // k/10, k/100 to k/109, k/1000 to k/1099
    expect((await txn([hundred])).responses).toHaveLength(1)
    await expect(txn(Array<KeySpan>(20).fill(hundred))).rejects.toThrow('too many operations')
  })
})
