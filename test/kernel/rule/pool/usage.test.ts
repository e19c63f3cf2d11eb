import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MAX_USAGE, usageAt } from '../../../../src/kernel/rule/pool/usage.ts'

const HALF_LIFE = 16_000
const hours = 3_600_000

/** The definition, with real numbers: each piece of constant holding decays from its end on. */
function exact(pieces: readonly { readonly ms: number; readonly held: number }[], halfLife: number): number {
  const rate = Math.LN2 / halfLife
  return pieces.reduce((usage, { ms, held }) => usage * Math.exp(-rate * ms) + (held / rate) * (1 - Math.exp(-rate * ms)), 0)
}

/** The same, brought up to date after every piece and, within pieces, every `stride` ms. */
function stepped(
  pieces: readonly { readonly ms: number; readonly held: number }[],
  halfLife: number,
  stride = Number.POSITIVE_INFINITY,
): number {
  let [usage, at] = [0, 0]
  for (const { ms, held } of pieces) {
    const end = at + ms
    while (at < end) {
      const now = Math.min(end, at + stride)
      usage = usageAt({ usage, at, held }, now, halfLife)
      at = now
    }
  }
  return usage
}

const piece = fc.record({ ms: fc.integer({ min: 1, max: 100_000 }), held: fc.integer({ min: 0, max: 1_000 }) })

describe('usage', () => {
  test('halves in each half-life without use', () => {
    const account = { usage: 64_000, at: 0, held: 0 }
    expect([1, 2, 3, 6].map(n => usageAt(account, n * HALF_LIFE, HALF_LIFE))).toEqual([32_000, 16_000, 8_000, 1_000])
    expect(usageAt(account, 53 * HALF_LIFE, HALF_LIFE)).toBe(0)
  })

  test('grows with the units held, and not beyond what a unit held for ever is worth', () => {
    expect(usageAt({ usage: 0, at: 0, held: 3 }, 500, HALF_LIFE)).toBe(1_500)
    const forEver = usageAt({ usage: 0, at: 0, held: 1 }, 1_000 * HALF_LIFE, HALF_LIFE)
    expect(forEver / (HALF_LIFE / Math.LN2)).toBeGreaterThan(0.975)
    expect(forEver / (HALF_LIFE / Math.LN2)).toBeLessThan(1.025)
  })

  test('stays as it is when log time did not advance', () => {
    expect(usageAt({ usage: 77, at: 5_000, held: 9 }, 5_000, HALF_LIFE)).toBe(77)
    expect(usageAt({ usage: 77, at: 5_000, held: 9 }, 4_000, HALF_LIFE)).toBe(77)
  })

  test('differs from the definition by at most 4.5 %, with the half-life rounded down to a multiple of 16 ms', () => {
    fc.assert(
      fc.property(
        fc.array(piece, { minLength: 1, maxLength: 20 }),
        fc.constantFrom(1_000, 16_000, 100_000, 7 * 24 * hours),
        (pieces, halfLife) => {
          const [actual, defined] = [stepped(pieces, halfLife), exact(pieces, halfLife - (halfLife % 16))]
          // Each update rounds down twice.
          expect(actual).toBeGreaterThanOrEqual(defined * 0.955 - 2 * pieces.length - 1)
          expect(actual).toBeLessThanOrEqual(defined * 1.045 + 1)
        },
      ),
      { numRuns: 500 },
    )
  })

  test('does not depend on how often it is brought up to date', () => {
    fc.assert(
      fc.property(fc.array(piece, { minLength: 1, maxLength: 6 }), fc.integer({ min: 100, max: 20_000 }), (pieces, stride) => {
        const [often, seldom] = [stepped(pieces, HALF_LIFE, stride), stepped(pieces, HALF_LIFE)]
        // Each update rounds down once in each of its parts, and rounded factors multiply.
        const updates = pieces.reduce((sum, { ms }) => sum + Math.ceil(ms / stride), 0)
        expect(Math.abs(often - seldom)).toBeLessThanOrEqual(3 * updates + seldom * 0.001)
      }),
      { numRuns: 300 },
    )
  })

  test('is a whole number, never negative and never above its cap, for every input', () => {
    const big = fc.integer({ min: 0, max: 2 ** 52 })
    const input = fc.record({ usage: big, at: big, held: fc.integer({ min: 0, max: 1e12 }) })
    fc.assert(
      fc.property(input, big, fc.integer({ min: 1, max: 31_536_000_000 }), (account, more, halfLife) => {
        const usage = usageAt(account, account.at + more, halfLife)
        expect(Number.isSafeInteger(usage) && usage >= 0 && usage <= MAX_USAGE).toBe(true)
      }),
      { numRuns: 1_000 },
    )
  })
})
