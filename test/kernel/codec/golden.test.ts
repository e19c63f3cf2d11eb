/** The bytes and the refusals of commands, as the build before the command table wrote them. Logs on disk depend on these bytes. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { Damaged, NewerFormatError, Reader, Writer } from '../../../src/kernel/codec/bytes.ts'
import { readProposal, writeProposal } from '../../../src/kernel/codec/encode.ts'
import { malformed, malformedAsker } from '../../../src/kernel/codec/form.ts'
import type { Command, Operation, Proposal } from '../../../src/kernel/command.ts'
import type { Facts, Flaw } from '../../../src/kernel/reason.ts'

/** One line of the golden file has the fields of one of the tests below. */
interface Line {
  readonly command?: Command
  readonly proposal?: Proposal
  readonly hex?: string
  /** What decoding gives, where it differs from what was encoded. */
  readonly read?: object
  readonly damaged?: string
  readonly future?: string
  readonly refused?: unknown
  /** The reason, and the field. */
  readonly flaw?: string
  readonly key?: number
  readonly op?: Operation
}

const lines: readonly Line[] = readFileSync(new URL('../../support/kernel/commands.golden.jsonl', import.meta.url), 'utf8')
  .trim()
  .split('\n')
  .map(line => JSON.parse(line))

function encoded(proposal: Proposal): string {
  const to = new Writer(8)
  writeProposal(to, proposal)
  return Buffer.from(to.view()).toString('hex')
}

function decoded(hex: string): Proposal {
  const from = new Reader(Buffer.from(hex, 'hex'))
  const proposal = readProposal(from)
  from.finish()
  return proposal
}

function briefly(flaw: Flaw | undefined): string | undefined {
  return flaw && [flaw.reason, (flaw.facts as Facts).field].join(' ').trim()
}

function only<K extends keyof Line>(field: K): (Line & Required<Pick<Line, K>>)[] {
  const found = lines.filter((line): line is Line & Required<Pick<Line, K>> => field in line)
  expect(found.length).toBeGreaterThan(0)
  return found
}

test('every command is encoded to the same bytes, with each of its optional fields', () => {
  for (const { command, hex } of only('command')) expect(encoded({ command }), JSON.stringify(command)).toBe(hex)
  for (const { proposal, hex } of only('proposal')) expect(encoded(proposal)).toBe(hex)
})

test('the bytes of every command are decoded to the same command', () => {
  for (const { command, hex, read = command } of only('command')) expect(decoded(hex!), hex).toStrictEqual({ command: read, key: 0 })
  for (const { hex, read } of only('proposal')) expect(decoded(hex!)).toStrictEqual(read)
})

test('what was decoded is encoded to the bytes that it came from', () => {
  for (const { hex } of only('command')) expect(encoded(decoded(hex!))).toBe(hex)
})

test('bytes that are cut off or changed are Damaged, and bytes of newer builds are NewerFormatError', () => {
  for (const { damaged } of only('damaged')) expect(() => decoded(damaged), damaged).toThrow(Damaged)
  for (const { future } of only('future')) expect(() => decoded(future), future).toThrow(NewerFormatError)
})

test('a malformed command is refused for the same reason, and the same field is named', () => {
  for (const { refused, flaw } of only('refused')) expect(briefly(malformed(refused as Command)), JSON.stringify(refused)).toBe(flaw)
})

test('a malformed key or operation is refused for the same reason', () => {
  const askers = lines.filter(line => 'flaw' in line && !('refused' in line))
  expect(askers.length).toBeGreaterThan(0)
  for (const { key, op, flaw } of askers) expect(briefly(malformedAsker(key!, op))).toBe(flaw)
})

test('what the golden file encodes is well-formed, and covers every kind of command', () => {
  const kinds = new Set<string>()
  for (const { command } of only('command')) {
    expect(malformed(command)).toBeUndefined()
    kinds.add(command.kind)
  }
  expect(kinds.size).toBe(27)
})
