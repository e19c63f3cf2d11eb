/** Refusals as bytes: every reason is read back as it was written, and bytes that no build of this format writes are refused. */
import { describe, expect, test } from 'vitest'
import { Damaged, NewerFormatError, Reader, Writer } from '../../../src/kernel/codec/bytes.ts'
import { readOutcome, writeOutcome } from '../../../src/kernel/codec/encode.ts'
import { boundedFacts } from '../../../src/kernel/fact.ts'
import { NAME_BYTES, utf8Length } from '../../../src/kernel/name.ts'
import type { Refused } from '../../../src/kernel/outcome.ts'
import { type Fact, MAX_FACT_ITEMS, REASON_ROWS, type Reason } from '../../../src/kernel/reason.ts'
import { refuse } from '../../../src/kernel/rule/refuse.ts'

const VALUES: Readonly<Record<string, Fact>> = { text: 'té', number: -7, flag: true, texts: ['a', 'b'], numbers: [1, 2 ** 50] }

/** A refusal for each reason, with all facts and with those alone that it must have. */
function samples(): Refused[] {
  return Object.entries(REASON_ROWS).flatMap(([reason, { facts }]) =>
    [true, false].map(all => {
      const given = Object.entries(facts).filter(([, type]) => all || !type.endsWith('?'))
      return refuse(
        { revision: 3 },
        reason as Reason,
        Object.fromEntries(given.map(([name, type]) => [name, VALUES[type.replace('?', '')]!])) as never,
      )
    }),
  )
}

function written(outcome: Refused): Uint8Array {
  const to = new Writer()
  writeOutcome(to, outcome)
  return to.view()
}

test('every reason has a number and a code of its own table row, and none is used twice', () => {
  const numbers = Object.values(REASON_ROWS).map(({ number }) => number)
  expect(new Set(numbers).size).toBe(numbers.length)
})

test('every refusal is read back as it was written', () => {
  for (const outcome of samples()) {
    const from = new Reader(written(outcome))
    expect(readOutcome(from), outcome.reason).toStrictEqual(outcome)
    from.finish()
  }
})

describe('bytes that no build writes', () => {
  const bytes = (fill: (to: Writer) => void): Reader => {
    const to = new Writer()
    to.byte(7)
    to.uint(1)
    fill(to)
    return new Reader(to.view().slice())
  }

  test('with an unknown reason are of a newer build', () => {
    expect(() => readOutcome(bytes(to => to.uint(9_999)))).toThrow(NewerFormatError)
  })

  test('with a text or a list that is too long are damaged', () => {
    const long = 'x'.repeat(NAME_BYTES + 1)
    const { number } = REASON_ROWS['no-entry']!
    expect(() =>
      readOutcome(
        bytes(to => {
          to.uint(number)
          to.text(long)
        }),
      ),
    ).toThrow(Damaged)
    expect(() =>
      readOutcome(
        bytes(to => {
          to.uint(REASON_ROWS.deadlock!.number)
          to.list(new Array(MAX_FACT_ITEMS + 1).fill('r'), item => to.text(item))
        }),
      ),
    ).toThrow(Damaged)
  })
})

test('facts are cut to their bounds before they are kept, never within a character', () => {
  const facts = boundedFacts({ a: '😀'.repeat(400), b: new Array(500).fill('é'.repeat(600)), c: undefined, d: Number.NaN, e: 'x\ud800' })
  expect(utf8Length(facts.a as string)).toBeLessThanOrEqual(NAME_BYTES)
  expect((facts.a as string).isWellFormed()).toBe(true)
  expect(facts.b).toHaveLength(MAX_FACT_ITEMS)
  for (const item of facts.b as readonly string[]) expect(utf8Length(item)).toBeLessThanOrEqual(NAME_BYTES)
  expect(Object.keys(facts)).toEqual(['a', 'b', 'd', 'e'])
  expect([facts.d, facts.e]).toEqual([0, 'x'])
})
