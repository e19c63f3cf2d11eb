/** Records as text: cases append and read them, and check the answers. */
import assert from 'node:assert/strict'
import { LeaseError } from '../../errors.ts'
import { type Appended, type LogRecord, type Position, type Read, START, type Store } from '../../store.ts'

export function appended(answer: Appended): Extract<Appended, { kind: 'appended' }> {
  assert.ok(answer.kind === 'appended', `expected to be appended, got ${answer.kind}`)
  return answer
}

/** Where the record is, whatever else the answer tells. */
export function positionOf(answer: Appended): Position {
  assert.ok('position' in answer, `expected to be in the log, got ${answer.kind}`)
  return answer.position
}

export function entriesOf(read: Read): readonly LogRecord[] {
  assert.ok(read.kind === 'records', `expected entries, got ${read.kind}`)
  return read.records
}

export async function appendAll(store: Store, words: readonly string[], after: Position = START): Promise<Position[]> {
  const positions: Position[] = []
  for (const word of words) {
    after = appended(await store.append(bytes(word), after)).position
    positions.push(after)
  }
  return positions
}

export async function readAll(store: Store, after: Position = START): Promise<LogRecord[]> {
  const all: LogRecord[] = []
  for (;;) {
    const entries = entriesOf(await store.read(all.at(-1)?.position ?? after))
    if (entries.length === 0) return all
    all.push(...entries)
  }
}

export function failureOf(error: unknown): LeaseError {
  assert.ok(error instanceof LeaseError, String(error))
  return error
}

export async function* chunks(pieces: readonly (string | Uint8Array)[]): AsyncGenerator<Uint8Array> {
  for (const piece of pieces) yield typeof piece === 'string' ? bytes(piece) : piece
}

export async function* interrupted(pieces: readonly Uint8Array[], accident: Error): AsyncGenerator<Uint8Array> {
  yield* pieces
  throw accident
}

export async function collect(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = []
  for await (const piece of pieces) all.push(piece)
  return Buffer.concat(all)
}

export function bytes(word: string): Uint8Array {
  return new TextEncoder().encode(word)
}

export function text(entry: Uint8Array): string {
  return new TextDecoder().decode(entry)
}

export function texts(entries: readonly LogRecord[]): string[] {
  return entries.map(entry => text(entry.bytes))
}

/** Bytes that do not compress and are the same for the same seed. */
export function noise(length: number, seed: number): Uint8Array {
  const all = new Uint8Array(length)
  let state = seed * 2_654_435_761 + 1
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    all[i] = state >>> 24
  }
  return all
}
