import { expect, test } from 'vitest'
import { encodeBatch } from '../../src/kernel/codec/batch.ts'
import { RULES } from '../../src/kernel/state.ts'
import { acquire, granted, Rig } from '../support/replica/rig.ts'

/** A log as builds of rules version 1 wrote it. */
async function oldLog(): Promise<Rig> {
  const rig = new Rig()
  const proposals = [{ command: acquire('ann', 'a') }]
  await rig.inject(encodeBatch({ proposer: 9, seq: 1, applied: 0, trail: [0, 0], wall: 1_700_000_000_000, rules: 1, proposals }))
  return rig
}

async function raised(rig: Rig): Promise<readonly number[]> {
  return (await rig.commands('upgrade')).map(({ rules }) => rules)
}

test('a new log begins with the newest rules, and its first record says so', async () => {
  const rig = new Rig()
  await using replica = await rig.open()
  granted(await replica.propose(acquire('ann', 'a')))
  expect((await rig.entries()).map(({ rules }) => rules)).toEqual([RULES])
  expect(await raised(rig)).toEqual([])
})

test('an owner raises the rules of a log that older builds wrote, version by version, and once', async () => {
  const rig = await oldLog()
  for (let life = 0; life < 2; life++) {
    await using owner = await rig.open({ owned: true })
    expect(owner.signal.aborted).toBe(false)
  }
  expect(await raised(rig)).toEqual(Array.from({ length: RULES - 1 }, (_, i) => i + 2))
})

test('a replica that shares a log with others leaves its rules as they are', async () => {
  const rig = await oldLog()
  await using replica = await rig.open()
  granted(await replica.propose(acquire('bob', 'b')))
  expect(await raised(rig)).toEqual([])
})

test('a release of several leases is written one by one where older builds read the log', async () => {
  const rig = await oldLog()
  await using replica = await rig.open()
  const parent = granted(await replica.propose(acquire('bob', 'b')))
  const child = granted(await replica.propose(acquire('bob', 'c', { parent: parent.lease })))
  expect(await replica.propose({ kind: 'release', lease: parent.lease, stopped: [child.lease] })).toMatchObject({ kind: 'done' })
  expect(await rig.commands('release')).toEqual([child, parent].map(({ lease }) => ({ kind: 'release', lease })))
  granted(await replica.propose(acquire('eve', 'c')))
  await replica.propose({ kind: 'upgrade', rules: 2 })
  const next = granted(await replica.propose(acquire('bob', 'd')))
  await replica.propose({ kind: 'release', lease: next.lease, stopped: [child.lease] })
  expect((await rig.commands('release')).at(-1)).toEqual({ kind: 'release', lease: next.lease, stopped: [child.lease] })
})
