/** The contract of a store: renewals that are appended behind renewals which their writer has not read. A store that does not offer it passes. */
import assert from 'node:assert/strict'
import type { Position, RenewalMark, Store } from '../../store.ts'
import { appendAll, appended, bytes, positionOf, readAll, texts } from './records.ts'
import type { StoreCases, StoreLog } from './store-log.ts'

/** A log with one record that both stores have read. Undefined: the stores do not pass. */
async function begun(log: StoreLog): Promise<{ readonly one: Store; readonly two: Store; readonly at: Position } | undefined> {
  const [one, two] = [await log.open(), await log.open()]
  if (one.passesRenewals !== true) return undefined
  const [at] = await appendAll(one, ['a'])
  return { one, two, at: at! }
}

const PLAIN: RenewalMark = { reads: false }
const READS: RenewalMark = { reads: true }

function past({ index }: Position, since = index): RenewalMark {
  return { reads: false, past: { read: index, since } }
}

export const passingCases: StoreCases = {
  'a renewal is appended behind renewals that its writer has not read, and they are not returned': async log => {
    const { one, two, at } = (await begun(log)) ?? {}
    if (one === undefined || two === undefined || at === undefined) return
    const { position: b } = appended(await two.append(bytes('b'), at, READS))
    await two.append(bytes('c'), b, PLAIN)
    const first = await one.append(bytes('d'), at, past(at))
    assert.equal(first.kind, 'passed')
    const position = positionOf(first)
    assert.equal(position.index, 4)
    // The next one follows its own last record, and still passes what was not read.
    assert.equal((await one.append(bytes('e'), position, past(at))).kind, 'passed')
    const records = await readAll(one)
    assert.deepEqual(texts(records), ['a', 'b', 'c', 'd', 'e'])
    assert.deepEqual(records[3]!.position, position)
  },

  'a renewal does not pass a record that is none, whichever store has appended it': async log => {
    const { one, two, at } = (await begun(log)) ?? {}
    if (one === undefined || two === undefined || at === undefined) return
    const { position: b } = appended(await two.append(bytes('b'), at, READS))
    const c = positionOf(await two.append(bytes('c'), b))
    await two.append(bytes('d'), c, READS)
    const answer = appended(await one.append(bytes('e'), at, past(at)))
    assert.deepEqual(texts(answer.missed), ['b', 'c', 'd'])
  },

  'a renewal does not pass while no writer reads the log, and what it missed is returned': async log => {
    const { one, two, at } = (await begun(log)) ?? {}
    if (one === undefined || two === undefined || at === undefined) return
    const { position: b } = appended(await two.append(bytes('b'), at, READS))
    const { position: c } = appended(await two.append(bytes('c'), b, PLAIN))
    const answer = appended(await one.append(bytes('d'), at, past(at, b.index)))
    assert.deepEqual(texts(answer.missed), ['b', 'c'])
    // The last reader counts, not the last renewal.
    await two.append(bytes('e'), c, READS)
    assert.equal((await one.append(bytes('f'), answer.position, past(answer.position, c.index))).kind, 'passed')
  },

  'a renewal at the end of what its writer has read is appended as any record': async log => {
    const { one, two, at } = (await begun(log)) ?? {}
    if (one === undefined || two === undefined || at === undefined) return
    const { position } = appended(await two.append(bytes('b'), at, READS))
    const answer = appended(await one.append(bytes('c'), position, past(position, 0)))
    assert.deepEqual(answer.missed, [])
  },

  'a renewal passes nothing on a log that does not contain the last record of its writer': async log => {
    const { one, two, at } = (await begun(log)) ?? {}
    if (one === undefined || two === undefined || at === undefined) return
    await two.append(bytes('b'), at, READS)
    const wrong = { index: at.index + 1, nonce: at.nonce ^ 1n }
    assert.equal((await one.append(bytes('c'), wrong, past(at))).kind, 'diverged')
    assert.deepEqual(texts(await readAll(one)), ['a', 'b'])
  },

  'a renewal passes on a log that was closed and opened since': async log => {
    const { two, at } = (await begun(log)) ?? {}
    if (two === undefined || at === undefined) return
    await two.append(bytes('b'), at, READS)
    await log.close()
    const later = await log.open()
    assert.equal((await later.append(bytes('c'), at, past(at))).kind, 'passed')
  },
}
