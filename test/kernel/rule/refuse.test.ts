/** What is refused when the counters of a log are exhausted. */
import { describe, expect, test } from 'vitest'
import { COUNTER_LIMIT, SLOTS } from '../../../src/kernel/state.ts'
import { World } from '../../support/kernel/world.ts'

const LOSS = { kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 0 } as const

describe('when the counters are exhausted', () => {
  const asks = (world: World) => {
    const { lease } = world.acquire('ann', 'x')
    const waiter = world.queue('bob', 'x')
    return { lease, waiter: waiter.lease }
  }

  test.each(['nextLease', 'nextToken', 'revision'] as const)(
    'of %s, what needs one is refused with LIMIT, and the rest goes on',
    counter => {
      const world = new World({ strict: false })
      const { lease, waiter } = asks(world)
      const registered = world.acquire('reg', [], { entries: [{ key: 'e', value: '' }] })
      world.state[counter] = COUNTER_LIMIT
      world.refused(world.ask('cid', 'y'), 'LIMIT', 'counters-exhausted')
      world.refused(world.ask('cid', 'x', { wait: true }), 'LIMIT')
      world.refused(world.ask('cid', []), 'LIMIT')
      world.refused(world.do({ kind: 'transfer', lease, to: 'cid', stopped: true }), 'LIMIT')
      if (counter === 'revision') {
        world.refused(world.do({ kind: 'put', lease: registered.lease, key: 'f', value: '' }), 'LIMIT')
        world.refused(world.do({ kind: 'policy', prefix: 'p', rules: { capacity: 1 } }), 'LIMIT')
      }
      expect(world.renew(lease)).toBe(10_000)
      expect(world.release(lease).kind).toBe('done')
      // What waits already is still served, with a number of its own.
      expect(world.holders('x')).toEqual(['bob'])
      expect(Number.isSafeInteger(world.lease(waiter)!.grants[0]!.token)).toBe(true)
      expect(world.due(waiter).kind).toBe('done')
      expect(Number.isSafeInteger(COUNTER_LIMIT * SLOTS)).toBe(true)
      expect(world.state.revision).toBeLessThan(Number.MAX_SAFE_INTEGER / 2)
    },
  )

  test('a key is refused when the key ids are exhausted', () => {
    const world = new World({ strict: false })
    world.state.nextKey = COUNTER_LIMIT
    world.refused(world.do({ kind: 'key', name: 'k', hash: '0'.repeat(64), allow: [] }), 'LIMIT')
  })

  test('a generation that leaves no room is refused', () => {
    const world = new World({ strict: false })
    for (const field of ['lease', 'token', 'revision', 'key']) world.refused(world.do({ ...LOSS, [field]: COUNTER_LIMIT }), 'INVALID')
  })
})
