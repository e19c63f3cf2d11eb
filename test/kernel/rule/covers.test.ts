import { describe, expect, test } from 'vitest'
import { timerOf } from '../../../src/kernel/state/timers.ts'
import { HOLD } from '../../../src/kernel/state.ts'
import { type Options, reload, World } from '../../support/kernel/world.ts'

const covering = { covers: true } as const
const waiting = { covers: true, wait: true } as const

describe('a covering claim', () => {
  test.each([
    ['what is below it', 'lib', 'lib/c.ts'],
    ['what is far below it', 'lib', 'lib/a/b/c.ts'],
    ['its own name', 'lib', 'lib'],
  ])('excludes claims of %s, in both orders', (_, above, below) => {
    const first = new World()
    first.acquire('a', above, covering)
    first.refused(first.ask('b', below), 'HELD', 'held', { holder: 'a', resource: below, ...(above !== below && { claim: above }) })
    const second = new World()
    second.acquire('b', below)
    second.refused(second.ask('a', above, covering), 'HELD', 'held', {
      holder: 'b',
      resource: above,
      ...(above !== below && { claim: below }),
    })
  })

  test('excludes covering claims above and below', () => {
    const world = new World()
    world.acquire('a', 'lib/x', covering)
    world.refused(world.ask('b', 'lib', covering), 'HELD', 'held')
    world.refused(world.ask('b', 'lib/x/y', covering), 'HELD', 'held')
    world.acquire('b', 'lib/z', covering)
  })

  test('leaves alone names that only begin alike, the plain name above, and plain names as before', () => {
    const world = new World()
    world.acquire('a', 'lib/x', covering)
    for (const name of ['lib', 'lib/xy', 'lib/x y', 'lib/y', 'li']) world.acquire('b', name)
    world.acquire('c', 'jobs')
    world.acquire('d', 'jobs/nightly')
  })

  test('is shared with shared claims below and above, and with no exclusive one', () => {
    const world = new World()
    world.acquire('a', 'lib~', covering)
    world.acquire('b', 'lib/c~')
    world.acquire('c', 'lib/d~', covering)
    world.refused(world.ask('d', 'lib/e'), 'HELD', 'held', { claim: 'lib' })
    world.refused(world.ask('d', 'lib/d', covering), 'HELD', 'held')
    const other = new World()
    other.acquire('a', 'lib/c~')
    other.acquire('b', 'lib~', covering)
    other.refused(other.ask('c', 'lib', covering), 'HELD', 'held')
  })

  test('is alone at its name, whatever the capacity there and below', () => {
    const world = new World()
    world.policy('seats', { capacity: 3 })
    const { lease } = world.acquire('a', 'seats', covering)
    world.refused(world.ask('b', 'seats'), 'HELD', 'held')
    world.refused(world.ask('b', 'seats/1'), 'HELD', 'held')
    world.release(lease)
    world.acquire('b', 'seats')
    world.refused(world.ask('a', 'seats', covering), 'HELD', 'held')
  })

  test.each([
    ['units', ['s:2'], {}, 'not-together'],
    ['any', ['s', 't'], { any: 1 }, 'not-together'],
    ['permits', ['s'], { permits: 2 }, 'not-together'],
    ['a pool', [], { pool: { pool: 'g' } }, 'not-together'],
    ['no name', [], {}, 'needs'],
  ] as const)('with %s is refused', (_, names, options: Options, reason) => {
    const world = new World()
    world.refused(world.ask('a', names, { ...covering, ...options }), 'INVALID', reason)
  })

  test('on a pool, on a member or above them is refused, and a member is not offered below one', () => {
    const world = new World()
    const offer = (key: string) => world.ask('host', [], { entries: [{ key, value: '{}' }] })
    const host = offer('pool/team/gpus/m1')
    for (const name of ['team', 'team/gpus', 'team/gpus/m1'])
      world.refused(world.ask('a', name, covering), 'INVALID', 'covers-pool', { resource: name })
    world.acquire('a', 'team/other', covering)
    world.refused(offer('pool/team/other/m1'), 'INVALID', 'covered-member', { resource: 'team/other' })
    world.release((host as { lease: number }).lease)
    world.acquire('b', 'team/gpus', covering)
  })

  test('a waiter that brings a member gets it once the covering claim has gone', () => {
    const world = new World()
    const { lease: key } = world.acquire('x', [], { entries: [{ key: 'pool/g/m1', value: '{}' }] })
    const host = world.ask('y', 'host', { wait: true, entries: [{ key: 'pool/g/m1', value: '{}' }] })
    expect(host).toMatchObject({ kind: 'queued' })
    world.release(key)
    expect(world.state.pools.get('g')?.members.size).toBe(1)
    const other = new World()
    const { lease: busy } = other.acquire('x', 'host')
    other.queue('y', 'host', { entries: [{ key: 'pool/g/m1', value: '{}' }] })
    const { lease } = other.acquire('a', 'g', covering)
    other.release(busy)
    expect(other.holders('host')).toEqual([])
    other.release(lease)
    expect(other.holders('host')).toEqual(['y'])
  })

  test('counts frozen claims and lock-delays, above and below', () => {
    const world = new World()
    world.policy('lib', { lockDelay: 500 })
    const frozen = world.acquire('a', 'lib/c')
    world.do({ kind: 'revoke', target: { lease: frozen.lease } })
    world.refused(world.ask('b', 'lib', covering), 'HELD', 'held', { frozen: true })
    world.queue('b', 'lib', covering)
    world.release(frozen.lease)
    expect(world.holders('lib')).toEqual(['b'])
    const [held] = world.state.leases.values()
    world.queue('c', 'lib/d')
    world.due(held!.id)
    expect(world.holders('lib')).toEqual(['b*'])
    world.due(held!.id)
    expect(world.holders('lib/d')).toEqual(['c'])
  })

  test('has a token above those of earlier claims below, and below those of later ones: a fence accepts each in its order', () => {
    const world = new World()
    const tokens: number[] = []
    for (const [name, options] of [
      ['lib/c', {}],
      ['lib', covering],
      ['lib/c', {}],
    ] as const) {
      const {
        lease,
        tokens: [token],
      } = world.acquire('a', name, options)
      tokens.push(token!)
      expect(world.do({ kind: 'fence', resource: 'lib/c', token: token! })).toMatchObject({ kind: 'fenced' })
      world.release(lease)
    }
    expect(tokens).toEqual([...tokens].sort((one, other) => one - other))
    world.refused(world.do({ kind: 'fence', resource: 'lib/c', token: tokens[1]! }), 'STALE', 'older-token')
  })
})

describe('waiting for and below a covering claim', () => {
  test('a covering request is granted when all below, above and at its name is free', () => {
    const world = new World()
    const leases = ['lib/x/a', 'lib/x/b/c', 'lib/x'].map(name => world.acquire('a', name).lease)
    const above = world.acquire('a', 'other', covering).lease
    world.queue('b', 'lib/x', waiting)
    for (const lease of leases.slice(0, -1)) {
      world.release(lease)
      expect(world.holders('lib/x')).toEqual(['a'])
    }
    world.release(leases.at(-1)!)
    expect(world.holders('lib/x')).toEqual(['b'])
    world.queue('b', 'other/x', waiting)
    world.release(above)
    expect(world.holders('other/x')).toEqual(['b'])
  })

  test('a request below a waiting covering one queues behind it', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'lib/a')
    const waiter = world.queue('b', 'lib', waiting)
    world.refused(world.ask('c', 'lib/c'), 'HELD', 'reserved')
    world.queue('c', 'lib/c')
    world.queue('d', 'lib/d', waiting)
    world.acquire('e', 'libs')
    world.release(lease)
    expect([world.holders('lib'), world.holders('lib/c'), world.holders('lib/d')]).toEqual([['b'], [], []])
    world.release(waiter.lease)
    expect([world.holders('lib'), world.holders('lib/c'), world.holders('lib/d')]).toEqual([[], ['c'], ['d']])
  })

  test('a waiter below is woken when the covering waiter before it gives up', () => {
    const world = new World()
    world.acquire('a', 'lib/a')
    const { lease } = world.queue('b', 'lib', waiting)
    world.queue('c', 'lib/c')
    world.release(lease)
    expect(world.holders('lib/c')).toEqual(['c'])
  })

  test('a covering request does not overtake an earlier waiter below', () => {
    const world = new World()
    world.acquire('a', 'lib/c~')
    const first = world.queue('b', 'lib/c')
    world.refused(world.ask('d', 'lib~', covering), 'HELD')
    world.queue('d', 'lib~', waiting)
    world.release(first.lease)
    expect(world.holders('lib')).toEqual(['d'])
  })

  test('covering waiters are served in order, and shared ones together', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'lib', covering)
    const b = world.queue('b', 'lib/x', waiting)
    const c = world.queue('c', 'lib', waiting)
    world.queue('d', 'lib/y', waiting)
    world.release(lease)
    expect([world.holders('lib/x'), world.holders('lib'), world.holders('lib/y')]).toEqual([['b'], [], []])
    world.release(b.lease)
    expect([world.holders('lib'), world.holders('lib/y')]).toEqual([['c'], []])
    world.queue('e', 'lib/y/z~', waiting)
    world.queue('f', 'lib/y/z/q~')
    world.release(c.lease)
    const [d] = world.state.resources.get('lib/y')!.grants
    world.release(d!.lease.id)
    expect([world.holders('lib/y/z'), world.holders('lib/y/z/q')]).toEqual([['e'], ['f']])
  })

  test('two names of one request, one below the other, are granted together', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'lib/c/d')
    world.queue('b', ['lib', 'lib/c'], waiting)
    world.release(lease)
    expect([world.holders('lib'), world.holders('lib/c')]).toEqual([['b'], ['b']])
  })

  test('in a queue with the rule fit, others overtake a covering waiter', () => {
    const world = new World()
    world.policy('lib', { queue: 'fit' })
    const { lease } = world.acquire('a', 'lib/a')
    world.queue('b', 'lib', waiting)
    world.acquire('c', 'lib/c')
    world.release(lease)
    expect(world.holders('lib')).toEqual([])
  })

  test('a policy that lets others overtake serves the waiters that it frees', () => {
    const world = new World()
    world.acquire('a', 'lib/a')
    world.queue('b', 'lib', waiting)
    world.queue('c', 'lib/c')
    world.policy('lib', { queue: 'fit' })
    expect(world.holders('lib/c')).toEqual(['c'])
  })

  test('a replica that begins with a snapshot decides the same', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'lib', covering)
    world.queue('b', 'lib/c')
    world.queue('c', 'lib', waiting)
    world.state = reload(world.state)
    world.refused(world.ask('d', 'lib/d'), 'HELD', 'held', { claim: 'lib' })
    world.release(lease)
    expect([world.holders('lib/c'), world.holders('lib')]).toEqual([['b'], []])
  })

  test('a holder below a limit counts how long it holds while a covering waiter waits', () => {
    const world = new World()
    world.policy('lib', { maxHold: 300 })
    const below = world.acquire('a', 'lib/c')
    world.queue('b', 'lib', waiting)
    expect(timerOf(world.lease(below.lease)!, HOLD)).toBeDefined()
    world.due(below.lease, HOLD)
    expect(world.holders('lib/c')).toEqual(['a*'])
    const other = new World()
    other.policy('lib', { maxHold: 300 })
    const above = other.acquire('a', 'lib', covering)
    other.queue('b', 'lib/c')
    other.due(above.lease, HOLD)
    expect(other.holders('lib')).toEqual(['a*'])
  })

  test('a request that recalls tells the holders above and below', () => {
    const world = new World()
    const below = world.acquire('a', 'lib/c')
    world.queue('b', 'lib', { ...waiting, recall: true })
    expect(world.lease(below.lease)!.extras!.recalled).toBe(true)
    const other = new World()
    const above = other.acquire('a', 'lib', covering)
    other.do({ kind: 'recall', resource: 'lib/c', by: 'b' })
    expect(other.lease(above.lease)!.extras!.recalled).toBe(true)
  })
})

describe('the own claims of a client', () => {
  test('are no obstacle for its covering claim, and those of others are', () => {
    const world = new World()
    const own = world.acquire('a', 'lib/c').lease
    world.refused(world.ask('a', 'lib', covering), 'HELD', 'held')
    world.refused(world.ask('b', 'lib', { ...covering, holding: [own] }), 'HELD', 'held')
    const cover = world.acquire('a', 'lib', { ...covering, holding: [own] }).lease
    const more = world.acquire('a', 'lib/d', { holding: [cover] }).lease
    world.refused(world.ask('b', 'lib/d', { holding: [cover] }), 'HELD', 'held')
    world.release(own)
    world.refused(world.ask('b', 'lib/c'), 'HELD', 'held')
    world.release(cover)
    world.refused(world.ask('b', 'lib', covering), 'HELD', 'held', { claim: 'lib/d' })
    world.release(more)
    world.acquire('b', 'lib', covering)
  })

  test('do not count while a covering request waits', () => {
    const world = new World()
    const own = world.acquire('a', 'lib/c').lease
    const other = world.acquire('b', 'lib/d').lease
    world.queue('a', 'lib', { ...waiting, holding: [own] })
    world.release(other)
    expect(world.holders('lib')).toEqual(['a'])
  })

  test('what it covers is granted at once, though others wait for it', () => {
    const world = new World()
    const cover = world.acquire('a', 'lib', covering).lease
    world.queue('b', 'lib/c')
    world.queue('c', 'lib', waiting)
    world.acquire('a', 'lib/c', { holding: [cover], wait: true })
    expect(world.holders('lib/c')).toEqual(['a'])
  })

  test('are an obstacle once they are frozen', () => {
    const world = new World()
    const own = world.acquire('a', 'lib/c').lease
    world.do({ kind: 'revoke', target: { lease: own } })
    world.refused(world.ask('a', 'lib', { ...covering, holding: [own] }), 'HELD', 'held')
  })
})

describe('deadlocks', () => {
  test('a client that keeps a claim below and asks for what the covering waiter keeps is refused', () => {
    const world = new World()
    const kept = world.acquire('a', 'lib/a').lease
    const other = world.acquire('b', 'lib/b').lease
    world.queue('a', 'lib', { ...waiting, holding: [kept] })
    world.refused(world.ask('b', 'lib/a', { wait: true, holding: [other] }), 'DEADLOCK', 'deadlock')
    world.refused(world.ask('b', 'lib/c', { wait: true, holding: [other] }), 'DEADLOCK', 'deadlock')
    expect(world.ask('b', 'elsewhere', { wait: true, holding: [other] })).toMatchObject({ kind: 'granted' })
  })

  test('two clients that keep a claim below and ask for the same covering one cannot both wait', () => {
    const world = new World()
    const [a, b] = ['a', 'b'].map(name => world.acquire(name, `lib/${name}`).lease) as [number, number]
    world.queue('a', 'lib', { ...waiting, holding: [a] })
    world.refused(world.ask('b', 'lib', { ...waiting, holding: [b] }), 'DEADLOCK', 'deadlock', { cycle: ['lib', 'lib'] })
  })

  test('a client that waits for what its own lease of another name covers is refused', () => {
    const world = new World()
    const kept = world.acquire('a', 'lib', covering).lease
    world.refused(world.ask('other name', 'lib/c', { wait: true, holding: [kept] }), 'DEADLOCK', 'deadlock')
  })

  test('a process that was given a covering claim and does not know it is not let wait for it', () => {
    const world = new World()
    const giver = world.acquire('a', 'lib', covering)
    const process = world.acquire('b', 'x')
    world.do({ kind: 'transfer', lease: giver.lease, to: 'b', incarnation: process.incarnation, stopped: true })
    world.refused(world.ask('b', 'lib/c', { wait: true, incarnation: process.incarnation }), 'DEADLOCK', 'waits-for-transferred')
  })
})

describe('stealing and passing on', () => {
  test('a covering steal ends what is below and above, and no more', () => {
    const world = new World()
    for (const name of ['lib/a', 'lib/b/c', 'libs', 'li']) world.acquire('a', name)
    world.acquire('thief', 'lib', { ...waiting, steal: 'force' })
    expect(['lib', 'lib/a', 'lib/b/c', 'libs', 'li'].map(name => world.holders(name).join())).toEqual(['thief', '', '', 'a', 'a'])
    world.acquire('second', 'lib/q', { wait: true, steal: 'force' })
    expect([world.holders('lib'), world.holders('lib/q')]).toEqual([[], ['second']])
  })

  test('a steal waits until the holders around have stopped', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'lib/a')
    world.queue('thief', 'lib', { ...waiting, steal: 'after' })
    expect(world.holders('lib/a')).toEqual(['a*'])
    world.release(lease)
    expect(world.holders('lib')).toEqual(['thief'])
  })

  test('a steal below a covering claim of its own parent is refused', () => {
    const world = new World()
    const parent = world.acquire('a', 'lib', covering).lease
    world.refused(world.ask('a', 'lib/c', { wait: true, steal: 'force', parent }), 'INVALID', 'steals-from-parent')
  })

  test('a lease that is transferred goes on covering', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'lib', covering)
    world.do({ kind: 'transfer', lease, to: 'b', stopped: true })
    world.refused(world.ask('c', 'lib/c'), 'HELD', 'held', { holder: 'b', claim: 'lib' })
  })

  test('a transfer does not answer a plain waiter for the name', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'lib', covering)
    const waiter = world.queue('b', 'lib')
    world.do({ kind: 'transfer', lease, to: 'b', incarnation: waiter.incarnation, stopped: true })
    world.refused(world.ask('c', 'lib/c'), 'HELD', 'held', { holder: 'b', claim: 'lib' })
    expect(world.waiters('lib')).toEqual([])
  })

  test('the recipient of a claim waits until the claims of the giver around it have gone', () => {
    const world = new World()
    const own = world.acquire('a', 'lib/c').lease
    const cover = world.acquire('a', 'lib', { ...covering, holding: [own] }).lease
    world.do({ kind: 'transfer', lease: cover, to: 'b', stopped: true })
    expect([world.holders('lib'), world.waiters('lib')]).toEqual([[], ['b']])
    world.release(own)
    expect(world.holders('lib')).toEqual(['b'])
  })

  test('a process that waits below for what it is given is not left waiting for itself', () => {
    const world = new World()
    const giver = world.acquire('a', 'lib', covering)
    const waiter = world.queue('b', 'lib/c')
    world.do({ kind: 'transfer', lease: giver.lease, to: 'b', incarnation: waiter.incarnation, stopped: true })
    expect(world.lease(waiter.lease)).toBeUndefined()
  })
})

describe('the segments whose claims are listed', () => {
  test('one below which nothing is claimed is forgotten among thousands, and listed again when it is covered again', () => {
    const world = new World({ strict: false })
    const kept = world.acquire('a', 'kept', covering)
    world.release(world.acquire('a', 'forgotten', covering).lease)
    for (let i = 0; i < 2_500; i++) world.release(world.acquire('a', `s${i}`, covering).lease)
    const { segments } = world.state.claims!
    expect(segments.size).toBeLessThanOrEqual(1_001)
    expect([segments.has('kept'), segments.has('forgotten')]).toEqual([true, false])
    world.acquire('b', 'forgotten/c')
    world.refused(world.ask('a', 'forgotten', covering), 'HELD', 'held', { holder: 'b', claim: 'forgotten/c' })
    world.refused(world.ask('b', 'kept/c'), 'HELD', 'held', { holder: 'a', claim: 'kept' })
    world.release(kept.lease)
    expect(world.ask('b', 'kept/c').kind).toBe('granted')
  })
})
