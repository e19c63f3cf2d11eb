/**
 * How the rules of a log are raised, shown with a made-up next version: the same code loaded a second time, with RULES one higher. Two builds share a log
 * while a fleet is upgraded; the older one must stop when the rules are raised, and change nothing.
 */
import { expect, test, vi } from 'vitest'
import * as errors from '../../src/errors.ts'
import { encodeBatch } from '../../src/kernel/codec/batch.ts'
import { RULES } from '../../src/kernel/state.ts'
import { propose } from '../../src/lessor/propose.ts'
import { readBackup } from '../../src/replica/backup.ts'
import type { Replica } from '../../src/replica/replica.ts'
import { acquire, granted, Rig } from '../support/replica/rig.ts'

const NEXT = RULES + 1

vi.resetModules()
vi.doMock('../../src/kernel/state.ts', async original => ({ ...(await original<object>()), RULES: NEXT }))
// Both builds must share one LeaseError class, or `instanceof` would fail across them.
vi.doMock('../../src/errors.ts', () => errors)
const { Replica: NextReplica } = await import('../../src/replica/replica.ts')

/** A log that begins with the present rules. */
async function presentLog(): Promise<Rig> {
  const rig = new Rig()
  const proposals = [{ command: acquire('ann', 'a') }]
  await rig.inject(encodeBatch({ proposer: 9, seq: 1, applied: 0, decisionHash: [0, 0], wall: 1_700_000_000_000, proposals }))
  return rig
}

function openNext(rig: Rig, { owned = false } = {}): Promise<Replica> {
  return NextReplica.open(rig.store({ owned }), { clock: rig.clock, owned })
}

async function raised(rig: Rig): Promise<readonly number[]> {
  return (await rig.commands('upgrade')).map(({ rules }) => rules)
}

const UPGRADE = { kind: 'upgrade', rules: NEXT } as const
const REFUSED = { code: 'UNSUPPORTED', message: expect.stringMatching(new RegExp(`version ${NEXT}.*: upgrade`)) }

test('a new log begins with the newest rules that its first writer knows, and its first record says so', async () => {
  const [present, next] = [new Rig(), new Rig()]
  await using replica = await present.open()
  granted(await propose(replica, acquire('ann', 'a')))
  expect((await present.entries()).map(({ rules }) => rules)).toEqual([RULES])
  await using newer = await openNext(next)
  granted(await propose(newer, acquire('ann', 'a')))
  await expect(next.open()).rejects.toMatchObject(REFUSED)
  expect(next.log.head.index).toBe(1)
})

test('an owner raises the rules to the newest that it knows, once', async () => {
  const rig = await presentLog()
  for (let life = 0; life < 2; life++) {
    await using owner = await openNext(rig, { owned: true })
    expect(owner.signal.aborted).toBe(false)
    expect((await owner.read({ kind: 'summary' })).value.rules).toBe(NEXT)
  }
  expect(await raised(rig)).toEqual([NEXT])
})

test('a replica that shares a log with others leaves its rules as they are', async () => {
  const rig = await presentLog()
  await using newer = await openNext(rig)
  granted(await propose(newer, acquire('bob', 'b')))
  await using replica = await rig.open()
  granted(await propose(replica, acquire('cid', 'c')))
  expect(await raised(rig)).toEqual([])
})

test('a replica that does not know the next rules refuses to raise them', async () => {
  const rig = await presentLog()
  await using replica = await rig.open()
  expect(await propose(replica, UPGRADE)).toMatchObject({ kind: 'refused', code: 'INVALID' })
  expect(rig.log.head.index).toBe(1)
})

test('a replica stops when the rules are raised to a version that it does not know, and writes nothing after that', async () => {
  const rig = await presentLog()
  await using replica = await rig.open()
  await using newer = await openNext(rig)
  expect(await propose(newer, UPGRADE)).toMatchObject({ kind: 'done' })
  const { index } = rig.log.head
  await expect(propose(replica, acquire('bob', 'b'))).rejects.toMatchObject(REFUSED)
  expect(replica.signal.aborted).toBe(true)
  await expect(rig.open()).rejects.toMatchObject(REFUSED)
  expect(rig.log.head.index).toBe(index)
  granted(await propose(newer, acquire('bob', 'b')))
})

test('a backup under rules that a build does not know is refused', async () => {
  const rig = await presentLog()
  await using newer = await openNext(rig)
  await propose(newer, UPGRADE)
  await expect(readBackup(newer.backup())).rejects.toMatchObject({ code: 'UNSUPPORTED', message: expect.stringMatching(/newer/) })
})

test('an owner that holds the rules leaves them, and one that raises them reports it once', async () => {
  const rig = await presentLog()
  const reports: unknown[] = []
  const raised = (from: number, to: number) => reports.push([from, to])
  for (const holdRules of [true, false, false]) {
    await using owner = await NextReplica.open(rig.store({ owned: true }), { clock: rig.clock, owned: true, holdRules, raised })
    expect((await owner.read({ kind: 'summary' })).value.rules).toBe(holdRules ? RULES : NEXT)
  }
  expect(reports).toEqual([[RULES, NEXT]])
})

test('an idle replica on an empty log goes on when a newer one writes first that knows of it, and stops otherwise', async () => {
  for (const knows of [true, false]) {
    const rig = new Rig()
    await using replica = await rig.open()
    await using newer = await openNext(rig)
    if (knows) newer.beginWith(RULES)
    granted(await propose(newer, acquire('bob', 'b')))
    await rig.clock.advance(60_000)
    expect([knows, replica.signal.aborted]).toEqual([knows, !knows])
    if (knows) expect((await replica.read({ kind: 'summary' }, { consistent: true })).value).toMatchObject({ rules: RULES, leases: 0 })
  }
})
