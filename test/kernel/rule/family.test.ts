import { describe, expect, test } from 'vitest'
import { timerId, timerOf } from '../../../src/kernel/state/timers.ts'
import { BREAK, CAP, HOLD, LIVE } from '../../../src/kernel/state.ts'
import { World } from '../../support/kernel/world.ts'

describe('parents and children', () => {
  test('ten thousand leases may end together, and no more, however they hang on each other', () => {
    const world = new World({ strict: false })
    const parent = world.acquire('p', 'a')
    let last = parent
    for (let i = 1; i < 10_000; i++)
      last = world.acquire('c', `b/${i}`, { parent: i < 5_000 ? parent.lease : i < 5_020 ? last.lease : parent.lease })
    const more = (of: number) => world.do({ kind: 'acquire', holder: 'c', ttl: 1_000, wants: [], parent: of })
    for (const lease of [parent.lease, last.lease])
      expect(more(lease)).toMatchObject({ reason: 'too-many-descendants', facts: { limit: 10_000 } })
    world.release(last.lease)
    expect(more(parent.lease)).toMatchObject({ kind: 'granted' })
    world.release(parent.lease)
    expect(world.revisionEvents.length).toBeGreaterThanOrEqual(10_000)
  })

  test('children end with their parent in one revision, and what they held is frozen as well', () => {
    const world = new World()
    const parent = world.acquire('p', 'a')
    const child = world.acquire('c', 'b', { parent: parent.lease, entries: [{ key: 'svc/c', value: '1' }] })
    const grandchild = world.acquire('g', 'c', { parent: child.lease })
    world.do({ kind: 'revoke', target: { lease: parent.lease }, by: 'ops' })
    expect(world.revisionEvents.map(event => [event.type, event.lease, event.cause])).toEqual([
      ['revoked', parent.lease, 'revoked'],
      ['frozen', parent.lease, 'revoked'],
      ['revoked', child.lease, 'parent'],
      ['deleted', child.lease, 'parent'],
      ['frozen', child.lease, 'parent'],
      ['revoked', grandchild.lease, 'parent'],
      ['frozen', grandchild.lease, 'parent'],
    ])
    expect(['a', 'b', 'c'].flatMap(name => world.holders(name))).toEqual(['p*', 'c*', 'g*'])
    expect(world.entries()).toEqual([])
    for (const { lease } of [parent, child, grandchild]) expect(world.renew(lease)).toBe(-1)
    world.due(child.lease)
    expect(world.holders('b')).toEqual([])
  })

  test('the release of a parent ends its children; their holders may not know yet, so their units stay frozen', () => {
    const world = new World()
    const parent = world.acquire('p', 'a')
    const child = world.acquire('c', 'b', { parent: parent.lease })
    const waiting = world.queue('w', 'a', { parent: parent.lease })
    world.release(parent.lease)
    expect(world.holders('a')).toEqual([])
    expect(world.holders('b')).toEqual(['c*'])
    expect(world.lease(waiting.lease)).toBeUndefined()
    expect(world.release(child.lease)).toMatchObject({ kind: 'done' })
    expect(world.holders('b')).toEqual([])
  })

  test('a release that says which children have stopped frees those in the same revision, and no others', () => {
    const world = new World()
    const parent = world.acquire('p', 'a')
    const child = world.acquire('p', 'b', { parent: parent.lease })
    const grandchild = world.acquire('p', 'c', { parent: child.lease })
    const other = world.acquire('q', 'd', { parent: child.lease })
    const stranger = world.acquire('s', 'e')
    world.queue('w', ['b', 'c'])
    const stopped = [child.lease, grandchild.lease, stranger.lease, 99]
    world.do({ kind: 'release', lease: parent.lease, stopped })
    expect(world.revisionEvents.map(({ type, lease, cause }) => [type, lease, cause])).toEqual([
      ['released', parent.lease, 'released'],
      ['released', child.lease, 'parent'],
      ['released', grandchild.lease, 'parent'],
      ['revoked', other.lease, 'parent'],
      ['frozen', other.lease, 'parent'],
      ['granted', 6, undefined],
      ['granted', 6, undefined],
    ])
    expect(['a', 'b', 'c', 'd', 'e'].flatMap(name => world.holders(name))).toEqual(['w', 'w', 'q*', 's'])
  })

  test('only the own key of a child can say that its holder has stopped', () => {
    const world = new World()
    const [mine, theirs] = [world.key('mine', 'acquire:', 'admin:'), world.key('theirs', 'acquire:', 'admin:')]
    const parent = world.acquire('p', 'a', { key: mine })
    const child = world.acquire('c', 'b', { parent: parent.lease, key: theirs })
    world.do({ kind: 'release', lease: parent.lease, stopped: [child.lease] }, { key: mine })
    expect(world.holders('b')).toEqual(['c*'])
    const [above, below] = [world.acquire('p', 'c', { key: mine }), world.state.nextLease]
    world.acquire('p', 'd', { parent: above.lease, key: mine })
    // An administrator's release is a revocation of the whole tree.
    world.do({ kind: 'release', lease: above.lease, stopped: [below] }, { key: theirs })
    expect([world.holders('c'), world.holders('d')]).toEqual([['p*'], ['p*']])
  })

  test('a child that ends leaves its parent alone', () => {
    const world = new World()
    const parent = world.acquire('p', 'a')
    const child = world.acquire('c', 'b', { parent: parent.lease })
    world.release(child.lease)
    expect(world.renew(parent.lease)).toBe(10_000)
    expect(world.lease(parent.lease)!.extras!.children!.size).toBe(0)
  })

  test('a suspect lease can be a parent; a waiting, frozen or ended one cannot', () => {
    const world = new World()
    const suspect = world.acquire('s', 'a', { grace: 1_000 })
    world.due(suspect.lease)
    world.acquire('c', 'b', { parent: suspect.lease })
    const waiter = world.queue('w', 'a')
    world.refused(world.ask('c', 'c', { parent: waiter.lease }), 'INVALID', 'parent-waits')
    const frozen = world.acquire('f', 'd')
    world.do({ kind: 'revoke', target: { lease: frozen.lease } })
    world.refused(world.ask('c', 'c', { parent: frozen.lease }), 'GONE')
    world.release(frozen.lease)
    world.refused(world.ask('c', 'c', { parent: frozen.lease }), 'GONE')
    world.refused(world.ask('c', 'c', { parent: 1_000 }), 'INVALID', 'parent-missing', { lease: 1000 })
  })

  test('a child that holds the same resource as its parent ends once when the resource is broken', () => {
    const world = new World()
    const parent = world.acquire('p', 'x~')
    const child = world.acquire('c', 'x~', { parent: parent.lease, grace: 1_000 })
    world.due(child.lease)
    expect(world.holders('x')).toEqual(['p', 'c?'])
    world.do({ kind: 'break', resource: 'x' })
    expect(world.holders('x')).toEqual(['p*'])
    expect(world.revisionEvents.filter(event => event.lease === child.lease && event.type === 'revoked')).toHaveLength(1)
    expect(world.state.counts).toMatchObject({ suspect: 0, frozen: 1 })
  })

  test('ten thousand generations end in one revision, on any stack', () => {
    const world = new World({ strict: false })
    const first = world.acquire('p', 'r0').lease
    let parent = first
    for (let i = 1; i < 10_000; i++) parent = world.acquire('p', `r${i}`, { parent }).lease
    expect(world.do({ kind: 'revoke', target: { lease: first } })).toMatchObject({ kind: 'done' })
    expect(world.state.counts.frozen).toBe(10_000)
  })
})

describe('the limits of a lease also bind the recipient of its transfer', () => {
  const passedOn = (world: World, lease: number, stopped = true) => {
    const outcome = world.do({ kind: 'transfer', lease, to: 'bob', stopped })
    return world.lease((outcome as { readonly id: number }).id)!
  }

  test('its parent', () => {
    const world = new World()
    const parent = world.acquire('ann', [])
    const child = world.acquire('ann', 'r', { parent: parent.lease })
    const heir = passedOn(world, child.lease)
    world.release(parent.lease)
    expect(world.lease(heir.id)?.status).not.toBe(LIVE)
  })

  for (const stopped of [true, false])
    test(`a break that was announced, and the cap on its life with what has passed of it (${stopped ? 'at once' : 'when the giver is gone'})`, () => {
      const world = new World()
      world.policy('r', { maxLife: 60_000, maxHold: 5_000 })
      const given = world.acquire('ann', 'r')
      world.queue('waiter', 'r')
      world.do({ kind: 'break', resource: 'r', after: 10_000, by: 'ops' })
      const marks = ([CAP, HOLD, BREAK] as const).map(slot => {
        const lease = world.lease(given.lease)!
        return { timer: timerId(lease, slot), epoch: timerOf(lease, slot)!.epoch, ms: 4_900 + slot }
      })
      world.do({ kind: 'aged', marks })
      const heir = passedOn(world, given.lease, stopped)
      if (!stopped) world.due(given.lease) // the giver may still believe until then
      expect(world.holders('r')).toEqual(['bob'])
      for (const [slot, duration] of [
        [CAP, 60_000],
        [HOLD, 5_000],
        [BREAK, 10_000],
      ] as const)
        expect(timerOf(heir, slot)).toMatchObject({ duration, aged: 4_900 + slot })
      world.due(heir.id, BREAK)
      expect(world.revisionEvents[0]).toMatchObject({ type: 'revoked', cause: 'break', by: 'ops' })
    })
})
