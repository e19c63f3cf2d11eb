import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { decodeBatch, encodeBatch } from '../../../src/kernel/codec/batch.ts'
import { checksum, Damaged, NewerFormatError, OlderFormatError } from '../../../src/kernel/codec/bytes.ts'
import { FORMAT } from '../../../src/kernel/codec/format.ts'
import { StateLoader, saveState, stateHash } from '../../../src/kernel/codec/snapshot.ts'
import type { Proposal } from '../../../src/kernel/command.ts'
import { RULES, type State } from '../../../src/kernel/state.ts'
import { Stream } from '../../support/kernel/stream.ts'
import { World } from '../../support/kernel/world.ts'

function sample(seed: number, length = 60): { state: State; proposals: Proposal[] } {
  const world = new World({ strict: false })
  const stream = new Stream(seed, { calm: length > 60 })
  const proposals: Proposal[] = []
  for (let i = 0; i < length; i++) {
    proposals.push(stream.next(world.state))
    world.entry([], { proposals: [proposals.at(-1)!] })
  }
  return { state: world.state, proposals }
}

const header = { proposer: 12_345, seq: 7, applied: 3, decisionHash: [1, 2], wall: 1_700_000_000_000 } as const
const record = encodeBatch({ ...header, proposals: sample(3).proposals.slice(0, 50) })
const chunks = [...saveState(sample(5, 200).state)]

/** Why it was not read; undefined when it was. Anything else is a crash. */
function trouble(read: () => unknown): 'damaged' | 'past' | 'future' | undefined {
  try {
    read()
    return undefined
  } catch (error) {
    if (error instanceof Damaged) return 'damaged'
    if (error instanceof OlderFormatError) return 'past'
    if (error instanceof NewerFormatError) return 'future'
    throw error
  }
}

function load(list: readonly Uint8Array[]): State {
  const loader = new StateLoader()
  for (const chunk of list) loader.add(chunk)
  return loader.finish()
}

const readers: readonly (readonly [what: string, bytes: Uint8Array, read: (bytes: Uint8Array) => unknown])[] = [
  ['a record', record, decodeBatch],
  ...chunks.map((chunk, i) => [`chunk ${i} of a snapshot`, chunk, (bytes: Uint8Array) => load(chunks.with(i, bytes))] as const),
]

test('the samples are large enough and intact', () => {
  expect(chunks).toHaveLength(5)
  for (const bytes of [record, ...chunks.slice(0, -1)]) expect(bytes.length).toBeGreaterThan(40)
  for (const [, bytes, read] of readers) expect(trouble(() => read(bytes))).toBeUndefined()
})

describe.each(readers)('%s', (_, bytes, read) => {
  test('with any single bit flipped is not read', () => {
    const copy = bytes.slice()
    for (let i = 0; i < bytes.length; i++) {
      for (let bit = 0; bit < 8; bit++) {
        copy[i]! ^= 1 << bit
        if (trouble(() => read(copy)) === undefined) throw new Error(`bit ${bit} of byte ${i} went unnoticed`)
        copy[i]! ^= 1 << bit
      }
    }
  })

  test('cut off anywhere is reported as damaged', () => {
    for (let length = 0; length < bytes.length; length++) expect(trouble(() => read(bytes.subarray(0, length)))).toBe('damaged')
  })

  test('with extra bytes after it is reported as damaged', () => {
    for (const more of [[0], [0, 0, 0, 0], [...bytes]]) expect(trouble(() => read(Uint8Array.from([...bytes, ...more])))).toBe('damaged')
  })

  test('of a later format is reported as newer, before it is called damaged', () => {
    const later = bytes.slice()
    later[1]! += bytes === record ? 2 : 16
    expect(trouble(() => read(later))).toBe('future')
    expect(trouble(() => read(sealed(later.subarray(0, -4))))).toBe('future')
  })

  test('with other contents under a valid checksum is read, or refused in one of the two ways', () => {
    const runs = fc.tuple(fc.nat(bytes.length - 7), fc.uint8Array({ minLength: 1, maxLength: 3 }), fc.integer({ min: -3, max: 3 }))
    fc.assert(
      fc.property(fc.array(runs, { minLength: 1, maxLength: 4 }), changes => {
        const body = [...bytes.subarray(0, -4)]
        for (const [at, by, longer] of changes) body.splice(at + 2, Math.max(0, by.length - longer), ...by)
        trouble(() => read(sealed(Uint8Array.from(body))))
      }),
      { numRuns: 1_500 },
    )
  })
})

function sealed(body: Uint8Array): Uint8Array {
  const sum = checksum(body, 0, body.length)
  return Uint8Array.from([...body, sum & 255, (sum >>> 8) & 255, (sum >>> 16) & 255, sum >>> 24])
}

test('random bytes are reported as damaged, older or newer, and throw no other error', () => {
  const begun = fc.constantFrom(
    [],
    [0x4c, 2],
    [0x4c, FORMAT],
    [0x4c, FORMAT, 1],
    [0x53, 17],
    ...Array.from({ length: 16 }, (_, kind) => [0x53, FORMAT, kind]),
  )
  fc.assert(
    fc.property(begun, fc.uint8Array({ maxLength: 200 }), fc.boolean(), (start, rest, seal) => {
      const bytes = Uint8Array.from([...start, ...rest])
      const given = seal ? sealed(bytes) : bytes
      const outcome = trouble(() => decodeBatch(given))
      if (!seal) expect(outcome).toBeDefined()
      trouble(() => load([given]))
      trouble(() => load([chunks[0]!, given]))
      trouble(() => load([chunks[0]!, given, ...chunks.slice(2)]))
    }),
    { numRuns: 3_000 },
  )
})

test('missing, repeated or reordered chunks are refused', () => {
  const [tables, history, answered, leases, end] = chunks as [Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array]
  const between = [history, answered, leases]
  for (const list of [
    [],
    [tables],
    [end],
    [...between, end],
    [leases, tables, history, answered, end],
    [tables, tables, ...between, end],
    [tables, ...between, end, end],
    [tables, ...between, end, leases],
    [tables, ...between, record, end],
    ...chunks.map((_, i) => chunks.toSpliced(i, 1)),
    ...between.map(chunk => [tables, chunk, ...between, end]),
    ...between.map(chunk => [tables, ...between.filter(other => other !== chunk), end, chunk]),
  ])
    expect(
      trouble(() => load(list)),
      String(list.map(chunk => chunk.length)),
    ).toBe('damaged')
  expect(stateHash(load([tables, ...between, end]))).toBe(stateHash(load(chunks)))
})

test('a snapshot of newer rules is reported as newer', () => {
  const { state } = sample(5)
  state.rules = RULES + 1
  expect(trouble(() => load([...saveState(state)]))).toBe('future')
})
