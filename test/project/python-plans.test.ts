/** Members and holders of both languages share shards and slots: the plan of shards and the order of slots are the same, number for number. */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { planShards } from '../../src/recipe/shards/shard-plan.ts'
import { draw, hash } from '../../src/registry/rendezvous.ts'
import { describeWith, programs } from '../support/engine.ts'

const group = fc
  .record({
    count: fc.integer({ min: 1, max: 40 }),
    names: fc.array(fc.constantFrom('a', 'b', 'member-3', 'é→ü', '𝒳'), { maxLength: 6 }),
    owned: fc.array(fc.tuple(fc.nat(39), fc.nat(7)), { maxLength: 30 }),
  })
  .map(({ count, names, owned }) => ({
    count,
    members: names.map((name, i) => ({ id: `id-${i}`, name })),
    owners: owned.map(([shard, i]) => [shard, `id-${i}`] as const),
  }))

describeWith([programs.python3], 'with Python', () => {
  test('both languages plan the same shards, and draw the same numbers', () => {
    const groups = fc.sample(group, { numRuns: 300, seed: 7 })
    const texts = fc.sample(fc.string({ unit: 'grapheme' }), { numRuns: 100, seed: 7 })
    const script = [
      'import json, sys',
      'from leasehold_client._rendezvous import draw, hash_of',
      'from leasehold_client._shard_plan import ShardMember, plan_shards',
      'groups, texts = json.load(sys.stdin)',
      'plans = [plan_shards(g["count"], [ShardMember(**m) for m in g["members"]], dict(g["owners"])) for g in groups]',
      'print(json.dumps([plans, [draw(hash_of(text), hash_of("7")) for text in texts]]))',
    ].join('\n')
    const { stdout, stderr, status } = spawnSync('python3', ['-c', script], {
      input: JSON.stringify([groups, texts]),
      env: { ...process.env, PYTHONPATH: fileURLToPath(new URL('../../clients/python/src', import.meta.url)), PYTHONIOENCODING: 'utf8' },
      encoding: 'utf8',
      timeout: 900_000,
    })
    expect([status, stderr]).toEqual([0, ''])
    const plans = groups.map(({ count, members, owners }) => planShards(count, members, new Map(owners)).map(id => id ?? null))
    expect(plans.some(plan => new Set(plan).size > 2)).toBe(true)
    expect(JSON.parse(stdout)).toEqual([plans, texts.map(text => draw(hash(text), hash('7')))])
  })
})
