import { describe, expect, test } from 'vitest'
import type { Renew } from '../../../src/kernel/command.ts'
import { isPlainRenewal, plainRenewalAnswer } from '../../../src/kernel/rule/plain-renewal.ts'
import { World } from '../../support/kernel/world.ts'

const MINUTE = 60_000

function renewal(lease: number, more: Partial<Renew> = {}): Renew {
  return { kind: 'renew', leases: [lease], ...more }
}

/** Whether others may pass the renewal, and the ttls that its sender may take as answered. */
function judged(world: World, command: Renew, key = 0): { readonly plain: boolean; readonly ttls?: readonly number[] } {
  const proposal = { command, key }
  const answer = plainRenewalAnswer(world.state, proposal)
  return { plain: isPlainRenewal(world.state, proposal), ...(answer?.kind === 'renewed' && { ttls: answer.ttls }) }
}

describe('a plain renewal', () => {
  test('is one of live leases that were confirmed, and its answer is that of the kernel', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'a', { ttl: MINUTE })
    world.renew(lease)
    expect(judged(world, renewal(lease))).toEqual({ plain: true, ttls: [MINUTE] })
    expect(world.do(renewal(lease))).toMatchObject({ ttls: [MINUTE] })
  })

  test('is not the first one after a grant, if it gives a longer term than every process knows of', () => {
    const world = new World()
    const long = world.acquire('ann', 'a', { ttl: MINUTE }).lease
    const short = world.acquire('ann', 'b', { ttl: 10_000 }).lease
    expect(judged(world, renewal(long))).toEqual({ plain: false })
    expect(judged(world, renewal(short))).toEqual({ plain: true })
  })

  test('has no operation and no ttl, and names no lease that is unknown, suspect or frozen', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'a')
    world.renew(lease)
    expect(judged(world, renewal(lease, { ttl: 20_000 }))).toEqual({ plain: false })
    expect(judged(world, renewal(99))).toEqual({ plain: false })
    const op = { session: 's', seq: 1, acked: 0 }
    expect(isPlainRenewal(world.state, { command: renewal(lease), key: 0, op })).toBe(false)
    expect(isPlainRenewal(world.state, { command: { kind: 'release', lease }, key: 0 })).toBe(false)
    world.do({ kind: 'revoke', target: { lease } })
    expect(judged(world, renewal(lease))).toEqual({ plain: false })
  })

  test('of a waiter can be passed, and its own answer is not known before it is read', () => {
    const world = new World()
    world.acquire('ann', 'a')
    const waiting = world.ask('bob', 'a', { wait: true, ttl: 10_000 }) as { readonly lease: number }
    expect(judged(world, renewal(waiting.lease))).toEqual({ plain: true })
  })

  test('of a key that may not renew the lease has no answer', () => {
    const world = new World()
    const [mine, other] = [world.key('k', 'acquire:'), world.key('o', 'acquire:')]
    const { lease } = world.acquire('ann', 'a', { key: mine })
    world.renew(lease, mine)
    expect(judged(world, renewal(lease), mine).ttls).toEqual([10_000])
    expect(judged(world, renewal(lease), other)).toEqual({ plain: true })
  })

  test('is none while a generation is quiet, or after the leases have moved', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'a')
    world.renew(lease)
    world.do({ kind: 'generation', lease: 5, token: 5, revision: world.state.revision, quiet: 1_000 })
    expect(judged(world, renewal(lease))).toEqual({ plain: false })
  })
})
