/**
 * Objects that cross the boundary of a replica belong to the caller. A caller that changes a command after it was proposed, or an answer that it was
 * given, must not change the state of the replica: bytes are written when the command is proposed, so every other replica would decide otherwise.
 */
import { expect, test } from 'vitest'
import { turn } from '../../src/clock.ts'
import type { Command, PolicyRules } from '../../src/kernel/command.ts'
import { createState, type State } from '../../src/kernel/state.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import { readBackup } from '../../src/replica/backup.ts'
import type { Replica } from '../../src/replica/replica.ts'
import { Stream } from '../support/kernel/stream.ts'
import { acquire, granted, Line, Rig } from '../support/replica/rig.ts'

/** Changes everything in an object that can be changed in place. */
function scramble(value: unknown): void {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return
  for (const [name, item] of Object.entries(value)) {
    if (typeof item === 'object') scramble(item)
    else if (name !== 'kind') Reflect.set(value, name, typeof item === 'number' ? item + 1 : typeof item === 'string' ? `${item}x` : !item)
  }
  if (Array.isArray(value)) value.push(value[0])
}

/** The replica hears of its own entries by the answer of its append, and applies what it was given: its reads take longer. */
function slowReads({ ways }: Line): void {
  ways.read.push(...Array.from({ length: 40 }, () => 100))
}

test('a policy that its caller changes before the answer has one meaning on every replica', async () => {
  const rig = new Rig()
  const line = new Line()
  await using one = await rig.open({ line })
  await using other = await rig.open()
  granted(await propose(one, acquire('ann', 'b')))
  slowReads(line)
  const rules: { capacity: number } = { capacity: 1 }
  const answer = propose(one, { kind: 'policy', prefix: 'a', rules })
  rules.capacity = 2
  expect(await answer).toMatchObject({ kind: 'done' })
  const { value } = await one.read({ kind: 'resource', resource: 'a' })
  expect(value.capacity).toBe(1)
  await other.read({ kind: 'summary' }, { consistent: true })
  expect(other.hash()).toBe(one.hash())
  granted(await propose(other, acquire('ann', 'a')))
  await rig.clock.advance(1_000)
  expect([one.signal.reason, other.signal.reason]).toEqual([undefined, undefined])
})

test('an operation that its caller changes before the answer is remembered under the number that was written', async () => {
  const rig = new Rig()
  const line = new Line()
  await using one = await rig.open({ line })
  await using other = await rig.open()
  granted(await propose(one, acquire('ann', 'b')))
  slowReads(line)
  const op = { session: 's', seq: 1, acked: 0 }
  const answer = propose(one, acquire('ann', 'a'), { op })
  op.seq = 7
  op.session = 't'
  granted(await answer)
  await other.read({ kind: 'summary' }, { consistent: true })
  expect(other.hash()).toBe(one.hash())
})

test('a command that waits for the end of the log is decided as it was proposed', async () => {
  const rig = new Rig()
  const line = new Line()
  await using one = await rig.open()
  await using other = await rig.open({ line })
  const { lease } = granted(await propose(one, acquire('ann', 'a')))
  await other.read({ kind: 'summary' }, { consistent: true })
  slowReads(line)
  await propose(one, { kind: 'release', lease })
  // `other` has not read the release: it looks refused here, so the end of the log is read first.
  const wants = [{ resource: 'a' }]
  const answer = propose(other, { kind: 'acquire', holder: 'bob', ttl: 10_000, wants })
  wants[0]!.resource = 'b'
  await rig.clock.advance(1_000)
  expect(granted(await answer).resources).toEqual(['a'])
})

test.each([1, 2, 3])('whatever callers change after they proposed it, all replicas and a reopened log agree (seed %i)', async seed => {
  const rig = new Rig()
  let hash: string
  {
    await using one = await rig.open()
    await using other = await rig.open()
    const shadow: State = createState()
    const stream = new Stream(seed, { calm: seed === 2 })
    for (let i = 0; i < 150; i++) {
      const state = await stateOf(one, shadow)
      const { command, key = 0, op } = stream.next(state)
      const replica = i % 3 === 0 ? other : one
      const answer = propose(replica, command, { key, ...(op !== undefined && { op }) }).catch(() => undefined)
      scramble(command)
      scramble(op)
      const outcome = await answer
      scramble(outcome)
      await turn()
    }
    for (const replica of [one, other]) await replica.read({ kind: 'summary' }, { consistent: true }).catch(() => undefined)
    expect([one.signal.reason, other.signal.reason]).toEqual([undefined, undefined])
    hash = one.hash()
    expect(other.hash()).toBe(hash)
  }
  await using later = await rig.open()
  expect(later.revision).toBeGreaterThan(0)
  // Replicas mark what has aged when they leave; no time has passed here, so nothing was marked.
  expect(later.hash()).toBe(hash)
})

async function stateOf(replica: Replica, empty: State): Promise<State> {
  if (replica.index === 0) return empty
  try {
    return await readBackup(replica.backup())
  } catch {
    return empty
  }
}

test('an owner that reopens its log has the state it had, even if callers changed their objects', async () => {
  const rig = new Rig()
  const rules: { -readonly [K in keyof PolicyRules]: PolicyRules[K] } = { capacity: 3 }
  const labels: [string, string][] = [['zone', 'a']]
  {
    await using owner = await rig.open({ owned: true })
    const done = propose(owner, { kind: 'policy', prefix: 'p', rules })
    const taken = propose(owner, acquire('ann', 'p', { labels }))
    rules.capacity = 9
    labels[0]![1] = 'b'
    await Promise.all([done, taken])
    const { value } = await owner.read({ kind: 'leases' })
    expect(value[0]!.labels).toEqual([['zone', 'a']])
  }
  await using again = await rig.open({ owned: true })
  const { value } = await again.read({ kind: 'leases' })
  expect(value[0]!.labels).toEqual([['zone', 'a']])
  expect((await again.read({ kind: 'resource', resource: 'p' })).value.capacity).toBe(3)
})

test('changing a returned answer or view changes nothing in the state', async () => {
  const rig = new Rig()
  await using replica = await rig.open()
  const commands: readonly Command[] = [
    { kind: 'key', name: 'k', hash: '0'.repeat(64), allow: [{ verb: 'acquire', prefix: 'a' }] },
    { kind: 'policy', prefix: 'a', rules: { capacity: 2 } },
    acquire('ann', 'a', { labels: [['zone', 'a']], entries: [{ key: 'e', value: 'v' }] }),
    acquire('bob', 'a/b', { wait: true }),
    acquire('cid', 'a/b', { wait: true, labels: [['zone', 'b']] }),
  ]
  for (const [i, command] of commands.entries()) {
    const op = { session: 's', seq: i + 1, acked: 0 }
    const first = await propose(replica, command, { op })
    const copy = structuredClone(first)
    scramble(first)
    const again = await propose(replica, command, { op: { ...op, again: true } })
    expect(again).toEqual(copy)
    scramble(again)
    expect(await propose(replica, command, { op: { ...op, again: true } })).toEqual(copy)
  }
  await propose(replica, { kind: 'revoke', target: { holder: 'bob' } })
  const before = replica.hash()
  const { nextToken } = (await replica.read({ kind: 'summary' })).value
  for (const query of [
    { kind: 'summary' },
    { kind: 'leases' },
    { kind: 'lease', lease: nextToken! - 2 },
    { kind: 'resource', resource: 'a/b' },
    { kind: 'resources', prefix: '' },
    { kind: 'entries', prefix: '' },
    { kind: 'history', resource: 'a/b' },
    { kind: 'policies' },
    { kind: 'keys' },
  ] as const)
    scramble((await replica.read(query as { kind: 'keys' })).value)
  expect(replica.hash()).toBe(before)
})

test('a command that is not plain data is refused, and does not break the copy', async () => {
  const rig = new Rig()
  await using replica = await rig.open()
  const cyclic: Record<string, unknown> = { kind: 'policy', prefix: 'a' }
  cyclic.rules = cyclic
  expect(await propose(replica, cyclic as unknown as Command)).toMatchObject({ kind: 'refused', code: 'INVALID' })
  await using leases = new Leases(await rig.open(), { clock: rig.clock })
  await expect(leases.setPolicy('a', cyclic as PolicyRules)).rejects.toMatchObject({ code: 'INVALID' })
})
