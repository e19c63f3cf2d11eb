import { afterEach, describe, expect, test, vi } from 'vitest'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { lossOf } from '../support/rivals.ts'

afterEach(() => vi.restoreAllMocks())

describe('strategies', () => {
  test('on-activity: a lease that is touched lives, an untouched one ends', async () => {
    const { clock, leases } = silentLessor()
    await using lease = await leases.acquire('s', { ttl: 8_000, renew: 'on-activity' })
    for (let i = 0; i < 10; i++) {
      lease.touch()
      await clock.advance(3_000)
    }
    expect(lease.held).toBe(true)
    lease.touch()
    await clock.advance(9_500)
    expect(lossOf(lease)).toMatchObject({ code: 'LOST', cause: 'inactive' })
  })

  test('on-activity: one touch just before the end is enough', async () => {
    const { clock, leases } = silentLessor()
    await using lease = await leases.acquire('s', { ttl: 8_000, renew: 'on-activity' })
    await clock.advance(7_900)
    lease.touch()
    await clock.advance(1_000)
    expect(lease.held).toBe(true)
  })

  test('manual: only renew() renews it; never: nothing renews it', async () => {
    const { clock, leases } = silentLessor()
    await using manual = await leases.acquire('m', { ttl: 1_000, renew: 'manual' })
    await using never = await leases.acquire('n', { ttl: 1_000, renew: 'never' })
    await expect(never.renew()).rejects.toMatchObject({ code: 'INVALID' })
    await clock.advance(900)
    await manual.renew()
    await clock.advance(500)
    expect(manual.held).toBe(true)
    expect(lossOf(never)).toMatchObject({ cause: 'not-renewed' })
  })

  test('continuous: renewed many times within its term', async () => {
    const { clock, leases } = silentLessor()
    await using lease = await leases.acquire('c', { ttl: 8_000, renew: 'continuous' })
    await clock.advance(8_000)
    expect(leases.stats.messages).toBeGreaterThanOrEqual(8)
    expect(lease.remaining()).toBeGreaterThan(6_800)
  })

  test('a lease whose work makes no progress is not renewed, and is renewed again when it does', async () => {
    const { clock, leases } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 4_000, advanced: { maxStall: '3s' } })
    await using working = await leases.acquire('w', { ttl: 4_000, advanced: { maxStall: '3s' } })
    for (let i = 0; i < 5; i++) {
      working.progress()
      await clock.advance(1_000)
    }
    lease.progress()
    await clock.advance(2_000)
    expect(lease.held).toBe(true)
    for (let i = 0; i < 8; i++) {
      working.progress()
      await clock.advance(1_000)
    }
    expect(lossOf(lease)).toMatchObject({ cause: 'no-progress' })
    expect(working.held).toBe(true)
  })

  test('all leases of one term are renewed in one message, ten thousand at a time', async () => {
    const { clock, leases, lessor } = silentLessor()
    const held = await Promise.all(Array.from({ length: 10_500 }, (_, i) => leases.acquire(`k/${i}`, { ttl: 30_000 })))
    lessor.proposals.length = 0
    await clock.advance(15_000)
    expect(lessor.proposals.map(command => command.kind === 'renew' && command.leases.length)).toEqual([10_000, 500])
    expect(held.every(lease => lease.remaining() > 15_000)).toBe(true)
    await Promise.all(held.slice(200).map(lease => lease.release()))
    lessor.proposals.length = 0
    await clock.advance(15_000)
    expect(lessor.proposals).toHaveLength(1)
    await leases[Symbol.asyncDispose]()
  }, 900_000)
})
