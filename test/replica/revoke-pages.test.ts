/** Revoking many leases takes several commands, and other commands come in between. */
import { expect, test } from 'vitest'
import type { Done } from '../../src/kernel/outcome.ts'
import { propose } from '../../src/lessor/propose.ts'
import { acquire, granted, leases, Rig, until } from '../support/replica/rig.ts'

const MANY = 2_500

async function many(rig: Rig) {
  const replica = await rig.open()
  await Promise.all(Array.from({ length: MANY }, (_, i) => propose(replica, acquire(`h${i % 2}`, `jobs/${i}`))))
  await propose(replica, acquire('other', 'else'))
  return replica
}

test('a revocation by prefix ends the leases in commands of a thousand, and says how many', async () => {
  const rig = new Rig()
  await using replica = await many(rig)
  const outcome = await propose(replica, { kind: 'revoke', target: { prefix: 'jobs' }, force: true })
  expect(outcome).toMatchObject({ kind: 'done', id: MANY })
  expect(await leases(replica)).toEqual(['other'])
  expect((await rig.commands('revoke')).map(({ among }) => among!.length)).toEqual([1_000, 1_000, 500])
})

test('a revocation by holder ends the leases of that holder only', async () => {
  const rig = new Rig()
  await using replica = await many(rig)
  expect(await propose(replica, { kind: 'revoke', target: { holder: 'h1' }, force: true })).toMatchObject({ kind: 'done', id: MANY / 2 })
  expect((await leases(replica)).filter(holder => holder === 'h1')).toEqual([])
  expect((await leases(replica)).length).toBe(MANY / 2 + 1)
})

test('leases that come after a revocation has begun stay, and a repetition with the same operation gets the same answer', async () => {
  const rig = new Rig()
  await using replica = await many(rig)
  const command = { kind: 'revoke', target: { prefix: 'jobs' }, force: true } as const
  const op = { session: 's', seq: 1, acked: 0 }
  const first = propose(replica, command, { op })
  await until(() => replica.stats.commands > MANY + 1)
  const late = await propose(replica, acquire('late', 'jobs/late'))
  expect(await first).toMatchObject({ kind: 'done', id: MANY })
  expect(await propose(replica, command, { op: { ...op, again: true } })).toEqual(await first)
  expect(await leases(replica)).toEqual(['other', 'late'])
  granted(late)
})

test('a revocation that finds nothing is refused, and so is its repetition', async () => {
  const rig = new Rig()
  await using replica = await rig.open()
  const op = { session: 's', seq: 1, acked: 0 }
  const command = { kind: 'revoke', target: { prefix: 'jobs' } } as const
  expect(await propose(replica, command, { op })).toMatchObject({ kind: 'refused', reason: 'no-match' })
  await propose(replica, acquire('ann', 'jobs/1'))
  expect(await propose(replica, command, { op })).toMatchObject({ kind: 'refused', reason: 'no-match' })
})

test('a key revokes the leases that it may, and no others', async () => {
  const rig = new Rig()
  await using replica = await rig.open()
  const allow = [{ verb: 'revoke' as const, prefix: 'jobs/a' }]
  const { id } = (await propose(replica, { kind: 'key', name: 'k', hash: 'a'.repeat(64), allow })) as Done
  for (const name of ['jobs/a', 'jobs/a/1', 'jobs/b']) await propose(replica, acquire(name, name))
  const outcome = await propose(replica, { kind: 'revoke', target: { prefix: 'jobs' }, force: true }, { key: id! })
  expect(outcome).toMatchObject({ kind: 'done', id: 2 })
  expect(await leases(replica)).toEqual(['jobs/b'])
})

test('a family larger than a page ends in one revision', async () => {
  const rig = new Rig()
  await using replica = await rig.open()
  const parents = [1, 2].map(async i => granted(await propose(replica, { ...acquire(`p${i}`, ''), wants: [] })).lease)
  for (const parent of await Promise.all(parents))
    await Promise.all(Array.from({ length: 1_200 }, (_, i) => propose(replica, acquire('child', `jobs/${parent}/${i}`, { parent }))))
  const outcome = await propose(replica, { kind: 'revoke', target: { holder: 'p1' }, force: true })
  expect(outcome).toMatchObject({ kind: 'done', id: 1_201 })
  expect((await rig.commands('revoke')).length).toBe(1)
})

test('a renewal of many leases is written as commands of a thousand, and answered as one', async () => {
  const rig = new Rig()
  await using replica = await many(rig)
  const ids = (await replica.read({ kind: 'leases' })).value.map(({ lease }) => lease)
  ids[1_500] = 999
  const outcome = await propose(replica, { kind: 'renew', leases: ids })
  if (outcome.kind !== 'renewed') throw new Error(outcome.kind)
  expect(outcome.ttls.length).toBe(MANY + 1)
  expect(outcome.ttls.map((ttl, i) => [ttl, i]).filter(([ttl]) => ttl! <= 0)).toEqual([[-1, 1_500]])
  expect((await rig.commands('renew')).map(({ leases: renewed }) => renewed.length)).toEqual([1_000, 1_000, 501])
})

test('a renewal of more leases than a request may have is refused', async () => {
  const rig = new Rig()
  await using replica = await rig.open()
  const outcome = await propose(replica, { kind: 'renew', leases: Array.from({ length: 10_001 }, (_, i) => i + 1) })
  expect(outcome).toMatchObject({ kind: 'refused', reason: 'too-many-renewals' })
})

test('a key without rights writes nothing but its refusal', async () => {
  const rig = new Rig()
  await using replica = await many(rig)
  const key = (await propose(replica, { kind: 'key', name: 'k', hash: 'a'.repeat(64), allow: [] })) as Done
  const outcome = await propose(replica, { kind: 'revoke', target: { prefix: '' } }, { key: key.id! })
  expect(outcome).toMatchObject({ kind: 'refused', reason: 'no-match' })
  expect((await rig.commands('revoke')).map(({ among }) => among)).toEqual([[]])
})
