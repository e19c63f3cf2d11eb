import { describe, expect, test } from 'vitest'
import type { Command } from '../../../src/kernel/command.ts'
import { timerOf } from '../../../src/kernel/state/timers.ts'
import { BREAK, CAP, HOLD, SLOTS } from '../../../src/kernel/state.ts'
import { World } from '../../support/kernel/world.ts'

/** Every way to end a holder that may still believe. */
const ends: readonly (readonly [how: string, end: (world: World, lease: number) => void])[] = [
  ['a revoke of the lease', (world, lease) => void world.do({ kind: 'revoke', target: { lease }, by: 'ops' })],
  ['a revoke of the holder', world => void world.do({ kind: 'revoke', target: { holder: 'a' } })],
  ['a revoke of the prefix', world => void world.do({ kind: 'revoke', target: { prefix: 'svc/' } })],
  ["a parent's revoke", world => void world.do({ kind: 'revoke', target: { holder: 'parent' } })],
  ["a parent's release", world => void world.release(1)],
  ["a parent's lapse", world => void world.due(1)],
  ['a break at once', world => void world.do({ kind: 'break', resource: 'jobs/x' })],
  [
    'a break that is due',
    (world, lease) => {
      world.do({ kind: 'break', resource: 'jobs/x', after: 500 })
      world.due(lease, BREAK)
    },
  ],
  ['a steal', world => void world.release((world.ask('thief', 'jobs/x', { steal: 'after', wait: true }) as { lease: number }).lease)],
  ['the cap on its life', (world, lease) => void world.due(lease, CAP)],
  ['the maximum hold', (world, lease) => void world.due(lease, HOLD)],
  ['a transfer that an operator asked for', (world, lease) => void world.do({ kind: 'transfer', lease, to: 'heir' })],
]

function held(grace = 0) {
  const world = new World()
  world.policy('jobs', { maxHold: 1_000 })
  const parent = world.acquire('parent', 'p').lease
  const { lease, tokens } = world.acquire('a', 'jobs/x', {
    parent,
    maxLife: 60_000,
    entries: [{ key: 'svc/a', value: '1' }],
    ...(grace > 0 && { grace }),
  })
  world.renew(lease)
  const waiter = world.queue('b', 'jobs/x').lease
  return { world, lease, token: tokens[0]!, waiter }
}

describe.each(ends)('after %s', (how, end) => {
  const next = how.startsWith('a transfer') ? 'heir' : 'b'

  test('the holder can renew no more and its entries are gone, but its units are frozen until its running term is due', () => {
    const { world, lease, token } = held()
    const { epoch, term } = world.lease(lease)!
    end(world, lease)
    expect(world.holders('jobs/x')).toEqual(['a*'])
    expect(world.entries()).toEqual([])
    expect(world.renew(lease)).toBe(-1)
    world.refused(world.do({ kind: 'put', lease, key: 'svc/a', value: '2' }), 'GONE')
    world.refused(world.do({ kind: 'transfer', lease, to: 'c' }), 'GONE')
    world.refused(world.ask('c', 'jobs/x'), 'HELD')
    expect(world.lease(lease), 'the timer that runs is the one that ran').toMatchObject({ epoch, term })
    for (let slot = 1; slot < SLOTS; slot++) expect(timerOf(world.lease(lease)!, slot as 1)).toBeUndefined()
    world.do({ kind: 'due', timer: lease * SLOTS, epoch })
    expect(world.holders('jobs/x')).toEqual([next])
    expect(world.state.resources.get('jobs/x')!.grants[0]!.token).toBeGreaterThan(token)
  })

  test('a release by the holder, however late, frees them at once', () => {
    const { world, lease } = held()
    end(world, lease)
    expect(world.release(lease)).toMatchObject({ kind: 'done' })
    expect(world.holders('jobs/x')).toEqual([next])
    world.refused(world.release(lease), 'GONE')
  })

  test('the holder of a suspect lease has stopped: nothing is frozen', () => {
    if (how.startsWith('a transfer')) return // a suspect has nothing to give
    const { world, lease } = held(5_000)
    world.due(lease)
    expect(world.holders('jobs/x')).toEqual(['a?'])
    end(world, lease)
    expect(world.holders('jobs/x')).toEqual(['b'])
  })

  test('history shows the holder and how the lease ended', () => {
    const { world, lease, token } = held()
    end(world, lease)
    const past = world.state.history.get('jobs/x')!
    expect(past.at(-1)).toMatchObject({ lease, holder: 'a', token })
    expect(past.at(-1)!.cause).toMatch(/revoked|parent|break|stolen|cap|hold|transferred/)
  })
})

test('history is kept for a limited number of names: the oldest name is dropped first', () => {
  const world = new World({ strict: false })
  const names = Array.from({ length: 16_384 + 2 }, (_, i) => `n/${i}`)
  for (const name of names) world.release(world.acquire('a', name).lease)
  expect([...world.state.history.keys()]).toEqual(names.slice(2))
})

describe('force', () => {
  test('a forced revoke frees units at once, also frozen ones', () => {
    const { world, lease } = held()
    world.do({ kind: 'revoke', target: { lease } })
    expect(world.holders('jobs/x')).toEqual(['a*'])
    world.do({ kind: 'revoke', target: { lease }, force: true })
    expect(world.holders('jobs/x')).toEqual(['b'])
    expect(world.eventsSince(-2)).toEqual(['thawed jobs/x revoked', 'granted jobs/x'])
  })

  test('revoking again without force changes nothing', () => {
    const { world, lease } = held()
    world.do({ kind: 'revoke', target: { lease } })
    const hash = world.hash()
    expect(world.do({ kind: 'revoke', target: { lease } })).toMatchObject({ kind: 'done' })
    expect(world.hash()).toBe(hash)
  })
})

describe('release', () => {
  test('of one grant keeps the lease and the others', () => {
    const world = new World()
    const { lease } = world.acquire('a', ['x', 'y'])
    world.queue('b', 'x')
    world.release(lease, 'x')
    expect([world.holders('x'), world.holders('y')]).toEqual([['b'], ['a']])
    expect(world.eventsSince(3)).toEqual(['released x released', 'granted x'])
    world.refused(world.release(lease, 'x'), 'GONE', 'not-held', { resource: 'x' })
    world.release(lease, 'y')
    expect(world.renew(lease), 'it holds nothing and lives').toBe(10_000)
  })

  test('of one grant of a frozen lease thaws that one; of the last, the lease is gone', () => {
    const world = new World()
    const { lease } = world.acquire('a', ['x', 'y'])
    world.do({ kind: 'revoke', target: { lease } })
    world.release(lease, 'x')
    expect([world.holders('x'), world.holders('y')]).toEqual([[], ['a*']])
    world.release(lease, 'y')
    expect(world.lease(lease)).toBeUndefined()
  })

  test('that comes late touches nothing of a successor', () => {
    const world = new World()
    const first = world.acquire('a', 'x')
    world.due(first.lease)
    world.acquire('b', 'x')
    world.refused(world.release(first.lease), 'GONE')
    world.refused(world.release(first.lease, 'x'), 'GONE')
    expect(world.renew(first.lease)).toBe(-1)
    expect(world.holders('x')).toEqual(['b'])
  })
})

describe('revoke', () => {
  test('by prefix ends every lease that holds, wants or registers a name under it, by whole segments', () => {
    const world = new World()
    world.acquire('holds', 'jobs/1')
    world.queue('wants', 'jobs/1')
    world.acquire('registers', [], { entries: [{ key: 'jobs/e', value: '' }] })
    world.acquire('other', 'jobsite')
    world.do({ kind: 'revoke', target: { prefix: 'jobs' } })
    expect([...world.state.leases.values()].map(lease => lease.holder.name)).toEqual(['holds', 'other'])
    expect(world.holders('jobs/1')).toEqual(['holds*'])
    expect(world.renew(4)).toBe(10_000)
  })

  test('of a missing lease is refused', () => {
    const world = new World()
    world.refused(world.do({ kind: 'revoke', target: { holder: 'absent' } }), 'NOT_FOUND')
    world.refused(world.do({ kind: 'revoke', target: { prefix: 'nothing' } }), 'NOT_FOUND')
    world.refused(world.do({ kind: 'revoke', target: { lease: 7 } }), 'GONE')
  })
})

describe('break', () => {
  const broken = (after: number): Command => ({ kind: 'break', resource: 'x', after, by: 'ops' })

  test('a second break may only shorten: both run, and whichever is due first ends the holder', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    world.do(broken(10_000))
    expect(world.eventsSince(1)).toEqual(['recalled x break'])
    const hash = world.hash()
    world.do(broken(10_000))
    world.do(broken(20_000))
    expect(world.hash(), 'longer ones change nothing').toBe(hash)
    world.do(broken(4_000))
    expect([timerOf(world.lease(lease)!, BREAK), timerOf(world.lease(lease)!, 4)]).toMatchObject([
      { duration: 10_000 },
      { duration: 4_000 },
    ])
    world.due(lease, BREAK)
    expect(world.revisionEvents[0]).toMatchObject({ type: 'revoked', cause: 'break', by: 'ops' })
  })

  test('concerns every sharer, except frozen ones', () => {
    const world = new World()
    const [a] = [world.acquire('a', 'x~'), world.acquire('b', 'x~')]
    world.do({ kind: 'revoke', target: { lease: a!.lease } })
    world.do({ kind: 'break', resource: 'x' })
    expect(world.holders('x')).toEqual(['a*', 'b*'])
    world.refused(world.do({ kind: 'break', resource: 'x' }), 'NOT_FOUND', 'no-holder', { resource: 'x' })
    world.refused(world.do({ kind: 'break', resource: 'y', after: 5 }), 'NOT_FOUND')
  })

  test('an epoch of a break that was cancelled is never that of another', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { grace: 1_000 })
    world.do(broken(10_000))
    expect(world.do({ kind: 'due', timer: lease * SLOTS + BREAK, epoch: 2 })).toMatchObject({ kind: 'nothing' })
    expect(world.holders('x')).toEqual(['a'])
  })
})

describe('transfer', () => {
  test('moves the grants at once when the giver has stopped: new lease, new tokens, no overtaking', () => {
    const world = new World()
    const giver = world.acquire('a', ['x', 'y~'], { ttl: 60_000, grace: 3_000 })
    world.queue('b', 'x', { priority: 9 })
    const outcome = world.do({ kind: 'transfer', lease: giver.lease, to: 'c', stopped: true }) as { id: number }
    expect(world.revisionEvents.map(({ type, lease, resource }) => [type, lease, resource])).toEqual([
      ['transferred', giver.lease, 'x'],
      ['transferred', giver.lease, 'y'],
      ['granted', outcome.id, 'x'],
      ['granted', outcome.id, 'y'],
    ])
    const heir = world.lease(outcome.id)!
    expect(heir).toMatchObject({ ttl: 60_000, term: 30_000, confirmed: false })
    expect(heir.extras).toMatchObject({ grace: 3_000 })
    expect(heir.grants.map(grant => grant.token)).toEqual([3, 4])
    expect(world.waiters('x')).toEqual(['b'])
    expect(world.renew(giver.lease)).toBe(-1)
    world.refused(world.release(giver.lease), 'GONE')
    world.refused(world.do({ kind: 'transfer', lease: giver.lease, to: 'd', stopped: true }), 'GONE')
    expect(world.renew(outcome.id)).toBe(60_000)
  })

  test('asked for by an operator gives what can be had beside the giver at once: in a pool with room, or shared', () => {
    const world = new World()
    world.policy('pool', { capacity: 2 })
    const giver = world.acquire('a', ['pool', 's~'])
    world.do({ kind: 'transfer', lease: giver.lease, to: 'b' })
    expect([world.holders('pool'), world.holders('s')]).toEqual([
      ['a*', 'b'],
      ['a*', 'b'],
    ])
  })

  test('takes the entries and children of the giver with it into nothing', () => {
    const world = new World()
    const giver = world.acquire('a', 'x', { entries: [{ key: 'svc/a', value: '' }] })
    world.acquire('child', 'y', { parent: giver.lease })
    world.do({ kind: 'transfer', lease: giver.lease, to: 'c', stopped: true })
    expect(world.entries()).toEqual([])
    expect(world.holders('y')).toEqual(['child*'])
  })

  test('may name an incarnation that was given, and no other', () => {
    const world = new World()
    const known = world.acquire('c', 'z')
    const giver = world.acquire('a', 'x')
    world.refused(world.do({ kind: 'transfer', lease: giver.lease, to: 'c', incarnation: 99 }), 'INVALID', 'never-given')
    const { id } = world.do({
      kind: 'transfer',
      lease: giver.lease,
      to: 'c',
      incarnation: known.incarnation,
      stopped: true,
    }) as { id: number }
    expect(world.lease(id)!.incarnation).toBe(known.incarnation)
  })
})

describe('the recipient of a transfer', () => {
  test('is the one of that name that waits for it, and renews with its own key', () => {
    const world = new World()
    const [mine, theirs] = [world.key('mine', 'acquire:'), world.key('theirs', 'acquire:jobs')]
    const giver = world.acquire('a', 'jobs/1', { key: mine })
    const waiter = world.queue('b', 'jobs/1', { key: theirs })
    const { id } = world.do({ kind: 'transfer', lease: giver.lease, to: 'b', stopped: true }, { key: mine }) as { id: number }
    expect(world.lease(id)!.holder).toBe(world.lease(waiter.lease)!.holder)
    expect(world.renew(id, mine)).toBe(-1)
    expect(world.renew(id, theirs)).toBe(10_000)
  })

  test('is the process whose incarnation is named, by its first lease', () => {
    const world = new World()
    const [mine, theirs] = [world.key('mine', 'acquire:'), world.key('theirs', 'acquire:')]
    const known = world.acquire('b', 'z', { key: theirs })
    const { incarnation } = known
    const given = (name: string, more: object = {}) => {
      const { lease } = world.acquire('a', name, { key: mine })
      return (world.do({ kind: 'transfer', lease, to: 'b', stopped: true, ...more }, { key: mine }) as { id: number }).id
    }
    expect(world.renew(given('x', { incarnation }), theirs)).toBe(10_000)
    // Not named, and waiting for nothing: it is not known which of that name is meant, and with which key it would come.
    const open = given('y')
    expect(world.lease(open)!.incarnation).toBe(open)
    expect(world.renew(open, mine)).toBe(10_000)
    // Another's number is not b's.
    const other = world.acquire('c', 'w', { key: theirs })
    expect(world.renew(given('v', { incarnation: other.incarnation }), mine)).toBe(10_000)
  })

  test('is never a lease whose key could not have requested all of it', () => {
    const world = new World()
    const [mine, theirs] = [world.key('mine', 'acquire:'), world.key('theirs', 'acquire:jobs')]
    const giver = world.acquire('a', ['jobs/1', 'secret'], { key: mine })
    const waiter = world.queue('b', 'jobs/1', { key: theirs })
    const { id } = world.do({ kind: 'transfer', lease: giver.lease, to: 'b', stopped: true }, { key: mine }) as { id: number }
    expect(world.lease(id)!.incarnation).not.toBe(waiter.incarnation)
    expect(world.renew(id, theirs)).toBe(-1)
    expect(world.renew(id, mine)).toBe(10_000)
  })
})

describe('recall', () => {
  test('asks the holders to give the resource back, and ends nothing', () => {
    const world = new World()
    world.acquire('a', 'x~')
    world.acquire('b', 'x~')
    world.do({ kind: 'recall', resource: 'x', by: 'c' })
    expect(world.revisionEvents.map(({ type, holder, by, token }) => [type, holder, by, token])).toEqual([
      ['recalled', 'a', 'c', 1],
      ['recalled', 'b', 'c', 2],
    ])
    world.refused(world.do({ kind: 'recall', resource: 'y' }), 'NOT_FOUND')
  })
})

test('a lease that its holder has lost ends as lapsed, with the cause that the holder names, and its stopped children with it', () => {
  const world = new World()
  const { lease } = world.acquire('a', 'x')
  const child = world.acquire('a', 'y', { parent: lease }).lease
  const since = world.events.length
  world.do({ kind: 'release', lease, stopped: [child], lost: 'stall' })
  expect(world.eventsSince(since)).toEqual(['lapsed x stall', 'lapsed y parent'])
  expect(world.holders('x')).toEqual([])
  expect(world.holders('y')).toEqual([])
})

test('the lock-delay of a policy follows the loss of a lease by its holder as it follows a lapse', () => {
  const world = new World()
  world.policy('x', { lockDelay: 5_000 })
  const { lease } = world.acquire('a', 'x')
  world.do({ kind: 'release', lease, lost: 'unreachable' })
  expect(world.holders('x')).toEqual(['a*'])
})

test('a refused break of a member of a pool states how many announced breaks its holder takes', () => {
  const world = new World()
  world.acquire('host', [], { ttl: 86_400_000, entries: [{ key: 'pool/g/a', value: '{}' }] })
  world.acquire('holder', [], { pool: { pool: 'g' } })
  let accepted = 0
  let outcome = world.do({ kind: 'break', resource: 'g/a', after: 60_000 })
  for (; outcome.kind === 'done'; outcome = world.do({ kind: 'break', resource: 'g/a', after: 60_000 - accepted * 1_000 })) accepted++
  expect(outcome).toMatchObject({ kind: 'refused', code: 'LIMIT', facts: { resource: 'g/a' } })
  const { facts } = world.refused(outcome, 'LIMIT')
  expect(facts).toMatchObject({ limit: accepted })
})
