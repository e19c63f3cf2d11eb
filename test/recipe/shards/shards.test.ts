import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { replaceOnce } from '../../../sim/replace-once.ts'
import { connect } from '../../../src/connect/connect.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { planShards } from '../../../src/recipe/shards/shard-plan.ts'
import { hashSecret } from '../../../src/server/key-secret.ts'
import { silentLessor } from '../../../src/testing/in-memory.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { everywhere } from '../../support/recipe-places.ts'
import { place } from '../../support/resp-place.ts'
import { type Build, REST, ShardsWorld, TTL } from '../../support/shards-world.ts'

const source: Build = { ManualClock, silentLessor }

everywhere('members share the shards evenly, and a member that leaves gives its shards to the others', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  const off = { a: new AbortController(), b: new AbortController() }
  const groups = { a: a.shards('s', { count: 5 }), b: b.shards('s', { count: 5 }) }
  const seen: string[] = []
  const joined = (['a', 'b'] as const).map(name =>
    groups[name].join({
      signal: off[name].signal,
      onAssigned: ({ index }) => void seen.push(`${name}+${index}`),
      onRevoked: ({ index }) => void seen.push(`${name}-${index}`),
    }),
  )
  await expect.poll(() => [groups.a.owned.length, groups.b.owned.length].sort()).toEqual([2, 3])
  const owners = await groups.a.owners()
  for (const [shard, owner] of owners.entries()) expect(groups[owner as 'a' | 'b'].owned.map(({ index }) => index)).toContain(shard)
  const moved = groups.a.owned.map(({ index }) => index)
  off.a.abort()
  await joined[0]
  await expect.poll(() => groups.b.owned.length).toBe(5)
  expect(seen.filter(what => what.startsWith('a-')).sort()).toEqual(expect.arrayContaining(moved.map(index => `a-${index}`)))
  off.b.abort()
  await joined[1]
  expect(await groups.b.owners()).toEqual([undefined, undefined, undefined, undefined, undefined])
  expect((await b.query('shards')).held).toEqual([])
})

describe('the plan', () => {
  const group = fc.record({
    count: fc.integer({ min: 1, max: 60 }),
    names: fc.uniqueArray(fc.string({ minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 12 }),
    same: fc.boolean(),
  })
  const membersOf = (names: readonly string[], same = false) => names.map(id => ({ id, name: same ? 'one name' : id }))
  const owned = (plan: readonly (string | undefined)[]) => new Map([...plan.entries()].map(([shard, id]) => [shard, id!]))

  test('gives every member the same number of shards, or one more', () => {
    fc.assert(
      fc.property(group, fc.array(fc.tuple(fc.nat(59), fc.nat(11))), ({ count, names, same }, before) => {
        const owners = new Map(before.map(([shard, member]) => [shard, names[member] ?? 'a stranger']))
        const plan = planShards(count, membersOf(names, same), owners)
        for (const id of names) {
          const has = plan.filter(owner => owner === id).length
          expect(has === Math.floor(count / names.length) || has === Math.ceil(count / names.length)).toBe(true)
        }
      }),
    )
  })

  test('for fewer members moves only the shards of the member that is gone; for more, only shards to the new one', () => {
    fc.assert(
      fc.property(group, fc.nat(11), ({ count, names, same }, which) => {
        fc.pre(names.length > 1)
        const all = planShards(count, membersOf(names, same), new Map())
        const gone = names[which % names.length]!
        const rest = names.filter(name => name !== gone)
        const fewer = planShards(count, membersOf(rest, same), owned(all))
        for (const [shard, owner] of all.entries()) if (owner !== gone) expect(fewer[shard]).toBe(owner)
        const back = planShards(count, membersOf(names, same), owned(fewer))
        for (const [shard, owner] of fewer.entries()) if (back[shard] !== owner) expect(back[shard]).toBe(gone)
      }),
    )
  })

  test('does not change while it is carried out, in whatever order', () => {
    fc.assert(
      fc.property(group, fc.array(fc.tuple(fc.nat(59), fc.nat(11))), fc.array(fc.nat(59)), ({ count, names, same }, before, order) => {
        const members = membersOf(names, same)
        const owners = new Map(before.filter(([shard]) => shard < count).map(([shard, member]) => [shard, names[member % names.length]!]))
        const plan = planShards(count, members, owners)
        for (const shard of order) {
          if (shard >= count || owners.get(shard) === plan[shard]) continue
          // First given back, then taken.
          if (owners.has(shard)) owners.delete(shard)
          else owners.set(shard, plan[shard]!)
          expect(planShards(count, members, owners)).toEqual(plan)
        }
      }),
    )
  })

  test('of no members is empty', () => {
    expect(planShards(3, [], new Map())).toEqual([undefined, undefined, undefined])
  })
})

/** The life of a group: members join, leave, die and stall at random moments. */
const step = fc.record({
  what: fc.constantFrom('join', 'leave', 'kill', 'stall', 'wait'),
  who: fc.nat(9),
  ms: fc.integer({ min: 100, max: 15_000 }),
})
const life = fc.record({
  count: fc.integer({ min: 1, max: 12 }),
  stopTakes: fc.constantFrom(0, 400, 3_000),
  steps: fc.array(step, { minLength: 1, maxLength: 12 }),
})

async function live(
  build: Build,
  { count, stopTakes, steps }: { count: number; stopTakes: number; steps: readonly Step[] },
): Promise<string[]> {
  const world = new ShardsWorld(build, { count, stopTakes: () => stopTakes })
  let joined = 0
  world.join(`m${joined++}`)
  for (const { what, who, ms } of steps) {
    const { living } = world
    const member = living[who % Math.max(1, living.length)]
    if (what === 'join' && living.length < 6) world.join(`m${joined++}`)
    else if (member !== undefined && what === 'leave') world.leave(member.name)
    else if (member !== undefined && what === 'kill') world.kill(member.name)
    else if (member !== undefined && what === 'stall') world.stall(member.name, ms)
    await world.pass(ms)
  }
  await world.pass(REST)
  world.checkRest()
  return world.violations
}
interface Step {
  readonly what: string
  readonly who: number
  readonly ms: number
}

describe('a group of members', () => {
  test('that join, leave, die and stall: no shard has two owners, and every shard has one in the end', async () => {
    await fc.assert(
      fc.asyncProperty(life, async given => {
        expect(await live(source, given)).toEqual([])
      }),
      { numRuns: 25 },
    )
  })

  test('moves only the shards of a member that dies, within its ttl and a second', async () => {
    expect(await deathMovesOnly(source)).toEqual([])
  })

  test('moves shards only to a member that joins', async () => {
    const world = new ShardsWorld(source, { count: 24 })
    for (const name of ['a', 'b', 'c']) world.join(name)
    await world.pass(2_000)
    const before = world.owners
    world.join('d')
    await world.pass(2_000)
    world.checkRest()
    for (const [shard, { name, token }] of world.owners) if (name !== 'd') expect(before.get(shard)).toEqual({ name, token })
    expect(world.violations).toEqual([])
  })

  test('in which the work does not end in its budget gives the shard away after the budget', async () => {
    const world = new ShardsWorld(source, { count: 2, budget: 1_000, stopTakes: () => 1e9 })
    world.join('a')
    await world.pass(1_000)
    world.join('b')
    await world.pass(900)
    expect(world.members.get('b')!.working.size).toBe(0)
    await world.pass(600)
    expect(world.members.get('b')!.working.size).toBe(1)
    expect(world.violations).toEqual([])
  })

  test('gives a lost shard back to work under a new token once the old work has ended', async () => {
    const world = new ShardsWorld(source, { count: 1, stopTakes: () => 500 })
    const { working, lessor } = world.join('a')
    await world.pass(1_000)
    const first = working.get(0)!
    await propose(lessor, { kind: 'revoke', target: { lease: first.lease.id } })
    await world.pass(2_000)
    expect(working.get(0)!.token).toBeGreaterThan(first.token)
    expect(world.violations).toEqual([])
  })
})

/** Quiet, then a death: which other shards moved, and which rules were broken. */
async function deathMovesOnly(build: Build): Promise<string[]> {
  const found: string[] = []
  for (const count of [7, 24]) {
    const world = new ShardsWorld(build, { count })
    for (const name of ['a', 'b', 'c', 'd']) world.join(name)
    await world.pass(3_000)
    const before = world.owners
    world.kill('b')
    await world.pass(TTL + 1_000)
    world.checkRest()
    for (const [shard, { name, token }] of before)
      if (name !== 'b' && world.owners.get(shard)?.token !== token) found.push(`shard ${shard} of ${name} moved`)
    found.push(...world.violations)
  }
  return found
}

describe('joining', () => {
  const onAssigned = () => {}
  test.each([[{ count: 0 }], [{ count: 4_097 }], [{ count: 1.5 }], [{ count: 3, ttl: 'x' as never }], [{ count: 3, size: 4 } as never]])(
    '%j is refused with INVALID',
    options => {
      const { leases } = silentLessor()
      expect(() => leases.shards('s', options)).toThrow(expect.objectContaining({ code: 'INVALID' }))
    },
  )

  test('without a signal or a callback is refused with INVALID', async () => {
    const shards = silentLessor().leases.shards('s', { count: 1 })
    await expect(shards.join({ onAssigned } as never)).rejects.toMatchObject({ code: 'INVALID' })
    await expect(shards.join({ signal: new AbortController().signal } as never)).rejects.toMatchObject({ code: 'INVALID' })
  })

  test('ends with the error of a callback, and leaves nothing behind', async () => {
    const { leases, clock } = silentLessor()
    const shards = leases.shards('s', { count: 3 })
    const joined = shards.join({
      signal: new AbortController().signal,
      onAssigned: ({ index }) => {
        if (index === 1) throw new Error('no such partition')
      },
    })
    const failed = expect(joined).rejects.toThrow('no such partition')
    await clock.advance(1_000)
    await failed
    expect(shards.owned).toEqual([])
    expect((await leases.read({ kind: 'leases' })).value).toEqual([])
  })

  test('may do the work in onAssigned: it ends with the signal, and what it throws then is no failure', async () => {
    const { leases, clock } = silentLessor()
    const off = new AbortController()
    const ended: number[] = []
    const joined = leases.shards('s', { count: 2 }).join({
      signal: off.signal,
      onAssigned: async ({ index, signal }) => {
        await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))).finally(() => ended.push(index))
      },
    })
    await clock.advance(1_000)
    off.abort()
    await clock.advance(100)
    await joined
    expect(ended.sort()).toEqual([0, 1])
  })

  test('with a key that may not register is refused with FORBIDDEN', async () => {
    await using here = await place()
    const allow = [{ verb: 'acquire', prefix: 'shards' }] as const
    await propose(here.lessor, { kind: 'key', name: 'user', hash: hashSecret('user'), allow })
    await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
    await using user = await connect(`leasehold://127.0.0.1:${here.port}`, { apiKey: 'user' })
    const joined = user.shards('s', { count: 1 }).join({ onAssigned, signal: new AbortController().signal })
    await expect(joined).rejects.toMatchObject({ code: 'FORBIDDEN' })
  })
})

const MISTAKES = [
  {
    name: 'the plan forgets which member has a shard',
    file: 'recipe/shards/shard-plan.js',
    find: 'id === member.id && shard < count',
    put: 'false',
    seen: /of a moved|of c moved|of d moved|was assigned|has \d/,
  },
  {
    name: 'members have no quota',
    file: 'recipe/shards/shard-plan.js',
    find: 'if (room.get(member.id) === 0)',
    put: 'if (false)',
    seen: /has \d+ of \d+ shards/,
  },
  {
    name: 'a shard is released before the work on it has ended',
    file: 'recipe/shards/shards.js',
    find: 'await Promise.race([work.stop(',
    put: 'void Promise.race([work.stop(',
    seen: /before the work of \w+ had ended/,
  },
  {
    name: 'a shard is used without its lease',
    file: 'recipe/shards/shards.js',
    find: 'this.#leases.acquire(`',
    put: 'this.#leases.acquire(id + `',
    seen: /both have shard|while \w+ had it/,
  },
  {
    name: 'a member keeps shards that the plan gives to others',
    file: 'recipe/shards/shards.js',
    find: 'if (plan[shard] !== id && stopped === undefined)',
    put: 'if (false)',
    seen: /has \d+ of \d+ shards|have no owner/,
  },
] as const

describe('a mistake is noticed', () => {
  const built = fileURLToPath(new URL('../../../dist', import.meta.url))
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-shards-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test.each(MISTAKES)('$name', async ({ name, file, find, put, seen }) => {
    // Named as the build, so that Node loads it (`BUILT` in test/support/built-source.ts).
    const copy = join(folder, name.replaceAll(' ', '-'), 'dist')
    cpSync(built, copy, { recursive: true, filter: path => !/\.d\.ts$|\/dist\/(cli|dashboard|library)$/.test(path) })
    writeFileSync(join(copy, 'package.json'), '{"type":"module"}')
    replaceOnce(join(copy, file), find, put)
    const load = (module: string) => import(pathToFileURL(join(copy, 'testing', module)).href)
    const build = { ...(await load('in-memory.js')), ...(await load('manual-clock.js')) } as Build
    const steps = (what: readonly string[]) => what.map((one, who) => ({ what: one, who, ms: 3_000 }))
    const found = [
      ...(await deathMovesOnly(build)),
      ...(await live(build, { count: 7, stopTakes: 3_000, steps: steps(['join', 'join', 'kill', 'join', 'stall', 'leave']) })),
    ]
    expect(found.join('\n')).toMatch(seen)
  })
})
