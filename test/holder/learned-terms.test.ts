import { describe, expect, test } from 'vitest'
import { classOf } from '../../src/holder/learned-terms.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'

describe("ttl: 'auto'", () => {
  test('begins with the default ttl, and counts how long each lease was held', async () => {
    const { clock, leases } = silentLessor()
    for (let i = 0; i < 3; i++) {
      await using lease = await leases.acquire(`jobs/${i}`, { ttl: 'auto' })
      expect(lease.ttl).toBe(30_000)
      await clock.advance(2_000)
    }
    const { value } = await leases.read({ kind: 'durations', class: 'jobs' })
    expect(value.map(sketch => [sketch.class, sketch.ended, sketch.died])).toEqual([
      ['', 3, 0],
      ['jobs', 3, 0],
    ])
    const learned = await leases.learned('jobs/x')
    expect(learned).toMatchObject({ class: 'jobs', plan: { kind: 'cold', first: 30_000 } })
    expect(learned.explanation).toContain('only 3 leases of jobs')
  })

  test('learns: leases that are always held for 5 s get another first term than the default', async () => {
    const { clock, leases } = silentLessor()
    const use = async () => {
      await using lease = await leases.acquire('jobs/a', { ttl: 'auto' })
      const { ttl } = lease
      await clock.advance(5_000)
      return ttl
    }
    for (let i = 0; i < 25; i++) await use()
    await clock.advance(31_000) // what was read before is used for 30 s
    expect(await use()).toBeLessThan(15_000)
    expect(await leases.learned('jobs/a')).toMatchObject({ plan: { kind: 'fixed' }, expect: 5_000 })
  })

  test('a lease that has run long gets a longer term with a renewal, and is held without a gap', async () => {
    const { clock, leases } = silentLessor()
    await using lease = await leases.acquire('jobs/long', { ttl: 'auto' })
    for (let i = 0; i < 720; i++) {
      await clock.advance(10_000)
      expect(lease.held).toBe(true)
    }
    expect(lease.ttl).toBeGreaterThan(60_000)
    const { value } = await leases.read({ kind: 'lease', lease: lease.id })
    expect(value).toMatchObject({ ttl: lease.ttl })
  })

  test('a holder that cannot reach the lessor stops before its longer term is over', async () => {
    const { clock, leases, lessor } = silentLessor()
    const lease = await leases.acquire('jobs/long', { ttl: 'auto' })
    await clock.advance(7_200_000)
    const { ttl } = lease
    lessor.stopAnswering()
    await clock.advance(ttl)
    expect(lease.held).toBe(false)
    expect(lease.signal.aborted).toBe(true)
  })

  test('stays within the bounds of a policy', async () => {
    const { clock, leases } = silentLessor()
    await leases.setPolicy('jobs', { ttlMin: 40_000, ttlMax: 50_000 })
    await using lease = await leases.acquire('jobs/a', { ttl: 'auto' })
    await clock.advance(3_600_000)
    expect(lease.held).toBe(true)
    expect(lease.ttl).toBe(50_000)
  })

  test('needs a resource, and a class that begins like it', async () => {
    const { leases } = silentLessor()
    await expect(leases.grant({ ttl: 'auto' })).rejects.toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('give it a ttl'),
    })
    await expect(leases.acquire('jobs/a', { ttl: 'auto', learn: { class: 'gpu' } })).rejects.toThrow(/must begin with the first segment/)
    await expect(leases.acquire('jobs/a', { ttl: 'auto', learn: { klass: 'x' } as never })).rejects.toThrow(/klass/)
  })

  test('the class is the name up to its last slash, and the chosen labels', () => {
    expect(classOf(['jobs'], {}, {})).toBe('jobs')
    expect(classOf(['jobs/etl/7'], {}, {})).toBe('jobs/etl')
    expect(classOf(['gpu/1'], { labels: ['model', 'missing'] }, { model: 'a/100', other: 'x' })).toBe('gpu/model=a_100')
    expect(classOf(['gpu/1'], { class: 'gpu/train' }, {})).toBe('gpu/train')
  })
})

test('a maxHold that a lease without renewals can never reach is refused with the arithmetic', async () => {
  const { leases } = silentLessor()
  await expect(leases.acquire('a', { ttl: '5s', renew: 'never', maxHold: '1m' })).rejects.toThrow(/60 s is never reached.*ttl of 5 s/)
})
