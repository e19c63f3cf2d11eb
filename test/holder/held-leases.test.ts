/** Losses that no timer could report, because the program itself kept the event loop from turning. */
import { afterEach, describe, expect, test, vi } from 'vitest'
import type { LeaseError } from '../../src/errors.ts'
import { GONE, type Outcome } from '../../src/kernel/outcome.ts'
import type { Lease } from '../../src/lease.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { PastGrant } from '../../src/lessor.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { eventually } from '../support/eventually.ts'

afterEach(() => vi.restoreAllMocks())

test('request rejects with LOST when synchronous work outlasts the ttl, and the loss is recorded', async () => {
  const { clock, leases } = silentLessor()
  for (const work of [() => clock.block(800), async () => clock.block(800)]) {
    let seen: Lease | undefined
    const pending = leases.request('k', { ttl: 500 }, lease => {
      seen = lease
      return work()
    })
    await expect(pending).rejects.toMatchObject({ code: 'LOST', facts: { resource: 'k', cause: 'stall' } })
    expect((seen!.signal.reason as LeaseError).code).toBe('LOST')
    expect(leases.losses.at(-1)).toMatchObject({ lease: seen!.id, resources: ['k'] })
  }
  expect(leases.losses).toHaveLength(2)
  await leases[Symbol.asyncDispose]()
})

test('request rejects with LOST when the lease was lost and the callback never checked', async () => {
  const { clock, leases, lessor } = silentLessor()
  const pending = leases.request('k', { ttl: 500 }, () => new Promise<void>(resolve => clock.after(800, resolve)))
  await clock.advance(1)
  lessor.stopAnswering()
  const rejected = expect(pending).rejects.toMatchObject({ code: 'LOST', facts: { cause: 'unreachable' } })
  await clock.advance(900)
  lessor.answer()
  await rejected
  await leases[Symbol.asyncDispose]()
})

test('request resolves when the callback knew of the loss and returned normally', async () => {
  const { clock, leases, lessor } = silentLessor()
  const untilAborted = (lease: Lease) =>
    new Promise<string>(resolve => lease.signal.addEventListener('abort', () => resolve('stopped'), { once: true }))
  const untilNotHeld = async (lease: Lease) => {
    await new Promise<void>(resolve => clock.after(800, resolve))
    return lease.held ? 'held' : 'stopped'
  }
  for (const work of [untilAborted, untilNotHeld]) {
    const pending = leases.request('k', { ttl: 500 }, work)
    await clock.advance(1)
    lessor.stopAnswering()
    await clock.advance(900)
    lessor.answer()
    expect(await pending).toBe('stopped')
  }
  expect(leases.losses).toHaveLength(2)
  await leases[Symbol.asyncDispose]()
})

test('request rejects with the error of the callback, even if the lease was lost', async () => {
  const { clock, leases } = silentLessor()
  const oops = new Error('oops')
  const pending = leases.request('k', { ttl: 500 }, () => {
    clock.block(800)
    throw oops
  })
  await expect(pending).rejects.toBe(oops)
  expect(leases.losses).toHaveLength(1)
  await leases[Symbol.asyncDispose]()
})

test('request resolves when the callback released or transferred its lease itself', async () => {
  const { clock, leases } = silentLessor({ holder: 'a' })
  expect(await leases.request('k', { ttl: 500 }, lease => lease.release().then(() => 'released'))).toBe('released')
  expect(await leases.request('k', { ttl: 500 }, lease => lease.transfer('b').then(() => 'transferred'))).toBe('transferred')
  await clock.advance(1_000)
  expect(leases.losses).toEqual([])
  await leases[Symbol.asyncDispose]()
})

test('a release after the deadline is a loss, even if no timer has fired since', async () => {
  const { clock, leases } = silentLessor()
  const lease = await leases.acquire('k', { ttl: 500 })
  clock.block(800)
  await lease.release()
  expect((lease.signal.reason as LeaseError).code).toBe('LOST')
  expect(leases.losses).toMatchObject([{ lease: lease.id }])
  await leases[Symbol.asyncDispose]()
})

test('a release while the end of the lease is being read is a loss', async () => {
  const { clock, leases, lessor } = silentLessor()
  const other = silentLessor({ clock, holder: 'other' })
  const lease = await leases.acquire('k', { ttl: 10_000 })
  await propose(lessor, { kind: 'revoke', target: { lease: lease.id }, by: 'operator' })
  const renewed = lease.renew().catch(error => error)
  // Released in the turn in which the answer says that it is gone, and before its history was read.
  const read = vi.spyOn(lessor, 'read').mockImplementation(() => new Promise(() => {}))
  await eventually(() => expect(read).toHaveBeenCalled())
  void lease.release()
  expect((lease.signal.reason as LeaseError).code).toBe('LOST')
  expect(leases.losses).toMatchObject([{ lease: lease.id, cause: 'ended' }])
  expect(((await renewed) as LeaseError).code).toBe('LOST')
  read.mockRestore()
  await clock.advance(1_000)
  await Promise.all([leases[Symbol.asyncDispose](), other.leases[Symbol.asyncDispose]()])
})

describe('after a stall that outlasted the ttl, the loss is reported as a stall', () => {
  /** A renewal is under way when the process stalls. When it wakes, it reads the answer, "gone", before its overdue timers fire. */
  async function answeredAfterStall(history?: (lease: number) => PastGrant[]): Promise<LeaseError> {
    const { clock, leases, lessor } = silentLessor()
    const lease = await leases.acquire('k', { ttl: 500 })
    let answer = (_: Outcome) => {}
    vi.spyOn(lessor, 'submit').mockImplementationOnce((_command, _options, completion) => {
      answer = outcome => completion.settle(outcome)
    })
    vi.spyOn(lessor, 'read').mockImplementationOnce(() =>
      history === undefined ? new Promise(() => {}) : (Promise.resolve({ revision: 9, value: history(lease.id) }) as Promise<never>),
    )
    lease.renew().catch(() => {})
    await clock.settle()
    clock.block(800)
    answer({ kind: 'renewed', revision: 9, ttls: [GONE] })
    await clock.settle()
    await clock.advance(1)
    await leases[Symbol.asyncDispose]()
    return lease.signal.reason as LeaseError
  }

  test('when the lessor says that it lapsed', async () => {
    const lapsed = (lease: number) => [{ cause: 'lapsed', lease }] as unknown as PastGrant[]
    expect((await answeredAfterStall(lapsed)).facts).toMatchObject({ cause: 'stall' })
  })

  test('when the lessor says only that it is gone', async () => {
    expect((await answeredAfterStall()).facts).toMatchObject({ cause: 'stall' })
  })

  test('when a timer was late once more before the lease was checked', async () => {
    const { clock, leases, lessor } = silentLessor()
    const lease = await leases.acquire('k', { ttl: 500 })
    lessor.stopAnswering()
    await clock.advance(260) // a renewal is under way, so its answer is awaited
    clock.stall(800)
    clock.stall(251 + 20) // the next reading of the clocks is 20 ms late
    await clock.advance(1)
    expect((lease.signal.reason as LeaseError).facts).toMatchObject({ cause: 'stall' })
    lessor.answer()
    await leases[Symbol.asyncDispose]()
  })

  test('when the process did not run for a moment between the readings of its two clocks, which looks like a short sleep', async () => {
    const { clock, leases, lessor } = silentLessor()
    const lease = await leases.acquire('k', { ttl: 500 })
    lessor.stopAnswering()
    await clock.advance(260)
    const uptime = clock.uptime.bind(clock)
    vi.spyOn(clock, 'uptime').mockImplementation(() => uptime() + 11)
    clock.stall(800)
    await clock.advance(1)
    expect((lease.signal.reason as LeaseError).facts).toMatchObject({ cause: 'stall' })
    lessor.answer()
    await leases[Symbol.asyncDispose]()
  })
})

test('an onLost callback that throws or rejects causes a process warning', async () => {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const { clock, leases, lessor } = silentLessor()
  const oops = new Error('cannot stop')
  const throws = () => {
    throw oops
  }
  const kept = await Promise.all([
    leases.acquire('thrown', { ttl: 500, onLost: throws }),
    leases.acquire('rejected', { ttl: 500, onLost: () => Promise.reject(oops) }),
  ])
  lessor.stopAnswering()
  await clock.advance(600)
  lessor.answer()
  await Promise.all(kept.map(lease => lease.release()))
  expect(warned.mock.calls.map(([warning]) => warning)).toEqual(
    ['thrown', 'rejected'].map(name =>
      expect.objectContaining({
        name: 'LeaseholdWarning',
        code: 'LEASEHOLD_ON_LOST',
        message: expect.stringContaining(name),
        cause: oops,
      }),
    ),
  )
  await leases[Symbol.asyncDispose]()
})
