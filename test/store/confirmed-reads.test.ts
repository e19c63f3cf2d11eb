/** What an engine with a synchronous standby shows is confirmed by a commit of our own before it counts. */
import { expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { ConfirmedReads } from '../../src/store/confirmed-reads.ts'
import type { Appended, Read } from '../../src/store.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

const NONCE = 7n
const OTHER = 8n
const LONG = 1_000

const records = (...nonces: readonly bigint[]): Read => ({
  kind: 'records',
  records: nonces.map((nonce, i) => ({ position: { index: i + 1, nonce }, bytes: Uint8Array.of(1), age: 0 })),
})
const appended: Appended = { kind: 'appended', position: { index: 1, nonce: NONCE }, missed: [] }

/** Commits are counted; `duringCommit` happens while one is under way. */
async function connected() {
  const clock = new ManualClock()
  const engine = { commits: 0, duringCommit: () => {} }
  const commit = async () => {
    engine.commits++
    engine.duringCommit()
  }
  const reads = new ConfirmedReads({ clock, longWait: LONG, server: 'engine', commit })
  await reads.confirmed(async () => {})
  engine.commits = 0
  return { clock, engine, reads }
}

test('the first read after a connection was made is confirmed, and later ones are not', async () => {
  const { engine, reads } = await connected()
  reads.distrust()
  await reads.read(async () => records(OTHER))
  await reads.read(async () => records(OTHER))
  expect(engine.commits).toBe(1)
})

test('a record of our own is confirmed before it is shown, if its append failed with UNKNOWN', async () => {
  const { engine, reads } = await connected()
  const failing = async () => {
    throw new LeaseError('UNKNOWN', 'no answer')
  }
  await expect(reads.append(NONCE, failing)).rejects.toMatchObject({ code: 'UNKNOWN' })
  await reads.read(async () => records(OTHER))
  expect(engine.commits).toBe(0)
  await reads.read(async () => records(NONCE))
  expect(engine.commits).toBe(1)
})

test('a record of our own is confirmed before it is shown, if a read finds it before its append is answered', async () => {
  const { engine, reads } = await connected()
  let answer = (_: Appended) => {}
  const appending = reads.append(NONCE, () => new Promise(resolve => (answer = resolve)))
  await reads.read(async () => records(NONCE))
  expect(engine.commits).toBe(1)
  answer(appended)
  await appending
})

test('an append that was answered at once is not confirmed, nor is a read of its record', async () => {
  const { engine, reads } = await connected()
  await reads.append(NONCE, async () => appended)
  await reads.read(async () => records(NONCE))
  expect(engine.commits).toBe(0)
})

test('an append that took long is acknowledged only after a commit that did not', async () => {
  const { clock, engine, reads } = await connected()
  const slow = async () => {
    clock.block(LONG)
    return appended
  }
  expect(await reads.append(NONCE, slow)).toEqual(appended)
  expect(engine.commits).toBe(1)
  engine.duringCommit = () => clock.block(LONG) // its wait may have been cancelled, too
  await expect(reads.append(NONCE, slow)).rejects.toMatchObject({ code: 'UNKNOWN' })
})

test('a commit does not confirm what was read on an earlier connection', async () => {
  const { engine, reads } = await connected()
  reads.distrust()
  engine.duringCommit = () => reads.distrust()
  await expect(reads.read(async () => records(OTHER))).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  engine.duringCommit = () => {}
  const changing = async () => {
    reads.distrust()
    return records(OTHER)
  }
  await expect(reads.read(changing)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await reads.read(async () => records(OTHER))
})

test('a read whose connection was made or lost while it was confirmed is done again', async () => {
  const { engine, reads } = await connected()
  reads.distrust()
  engine.duringCommit = () => {
    if (engine.commits === 1) reads.distrust()
  }
  let count = 0
  await reads.read(async () => records(...(++count === 1 ? [OTHER] : [OTHER, NONCE])))
  expect({ count, commits: engine.commits }).toEqual({ count: 2, commits: 2 })
})
