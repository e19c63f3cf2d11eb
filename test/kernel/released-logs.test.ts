/**
 * Logs that released versions wrote, as they are on disk (test/support/released, one file for each release). Every later version must read them and
 * come to the same state. `scripts/release.mjs` records the log of a new release with LEASEHOLD_RECORD; a file that is there is never written again.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { applyBatch, decodeBatch, encodeBatch } from '../../src/kernel/codec/batch.ts'
import { stateHash } from '../../src/kernel/codec/snapshot.ts'
import { createState, RULES, type State } from '../../src/kernel/state.ts'
import { Stream } from '../support/kernel/stream.ts'

const FOLDER = new URL('../support/released/', import.meta.url)
const LENGTH = 400
const nothing = { events: [], timer: () => undefined }

interface ReleasedLog {
  readonly version: string
  readonly rules: number
  /** Of the state after the last record. */
  readonly hash: string
  /** In base64. */
  readonly records: readonly string[]
}

function record(version: string): ReleasedLog {
  const state = createState()
  const stream = new Stream(2_026, { pools: true })
  const records: string[] = []
  for (let seq = 1; seq <= LENGTH; seq++) {
    const { index, decisionHashA, decisionHashB } = state
    const proposals = [stream.next(state), stream.next(state)]
    const about = {
      proposer: 1 + (seq % 3),
      seq,
      applied: index,
      decisionHash: [decisionHashA, decisionHashB] as const,
      wall: 1_700_000_000_000 + seq * 7,
    }
    const batch = { ...about, rules: RULES, proposals }
    records.push(Buffer.from(encodeBatch(batch)).toString('base64'))
    applyBatch(state, index + 1, batch, nothing)
  }
  return { version, rules: RULES, hash: stateHash(state), records }
}

function replay({ records }: ReleasedLog): State {
  const state = createState()
  for (const bytes of records) {
    const applied = applyBatch(state, state.index + 1, decodeBatch(Buffer.from(bytes, 'base64')), nothing)
    expect(applied.kind).toBe('applied')
  }
  return state
}

const version = process.env.LEASEHOLD_RECORD
const target = version === undefined ? undefined : new URL(`${version}.json`, FOLDER)
if (target !== undefined && !existsSync(target)) writeFileSync(target, `${JSON.stringify(record(version!), null, 1)}\n`)

const files = readdirSync(FOLDER).filter(file => file.endsWith('.json'))

test('every release has its log here', () => {
  const changelog = readFileSync(new URL('../../CHANGELOG.md', import.meta.url), 'utf8')
  const releases = [...changelog.matchAll(/^## \[(\d+\.\d+\.\d+)\]/gm)].map(([, release]) => `${release}.json`)
  expect(files).toEqual(expect.arrayContaining(releases))
  expect(files.length).toBeGreaterThan(0)
})

test.each(files)('the log %s leads to the state that its release had', file => {
  const released = JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8')) as ReleasedLog
  const state = replay(released)
  expect(released.records.length).toBe(LENGTH)
  expect(state.leases.size).toBeGreaterThan(3)
  expect(stateHash(state)).toBe(released.hash)
  expect(state.rules).toBe(released.rules)
})
