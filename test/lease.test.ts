import { afterEach, describe, expect, test, vi } from 'vitest'
import { connect } from '../src/connect/connect.ts'
import { LeaseError } from '../src/errors.ts'
import { MemoryStore } from '../src/store/memory.ts'
import { silentLessor } from '../src/testing/in-memory.ts'
import { ManualClock } from '../src/testing/manual-clock.ts'
import { lossOf, rivals } from './support/rivals.ts'
import { failingWith, intercept } from './support/submitting.ts'

afterEach(() => vi.restoreAllMocks())

describe('a lease in hand', () => {
  test('has a token for each resource, and is released when the block is left', async () => {
    const { leases } = silentLessor({ holder: 'me' })
    {
      await using lease = await leases.acquire(['account/1', 'account/2'], { ttl: '10s' })
      expect(lease.resources).toEqual(['account/1', 'account/2'])
      expect(lease.token).toBe(lease.tokens['account/1'])
      expect(lease.tokens['account/2']).toBeGreaterThan(lease.token)
      expect(lease.held).toBe(true)
      expect(await leases.tryAcquire('account/2')).toBeUndefined()
      expect((await leases.query('account')).held.map(({ holder }) => holder)).toEqual(['me', 'me'])
    }
    expect((await leases.query()).held).toEqual([])
    await leases[Symbol.asyncDispose]()
  })

  test('that is not renewed ends at its deadline, not before', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 900 })
    const { signal } = lease
    lessor.stopAnswering()
    await clock.advance(890)
    expect(signal.aborted).toBe(false)
    expect(lease.held).toBe(true)
    await clock.advance(10)
    expect(signal.aborted).toBe(true)
    expect(lossOf(lease)).toMatchObject({ code: 'LOST', cause: 'unreachable', facts: { lease: lease.id, resource: 'k' } })
    expect(lossOf(lease).message).toMatch(/no renewal was answered for 891 ms/)
    lessor.answer()
  })

  test('is over by the clocks even if no timer fires', async () => {
    const clock = new ManualClock()
    const { leases, lessor } = silentLessor({ clock })
    await using lease = await leases.acquire('k', { ttl: 1_000, renew: 'manual' })
    lessor.stopAnswering()
    vi.spyOn(clock, 'now').mockReturnValue(clock.now() + 991)
    expect(lease.held).toBe(false)
    expect(() => lease.assertHeld()).toThrow(LeaseError)
    expect(lease.remaining()).toBe(0)
    lessor.answer()
  })

  test('is over after the machine slept, which the monotonic clock does not show', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000 })
    const { signal } = lease
    lessor.stopAnswering()
    clock.sleepMachine(9_895)
    expect(lease.held).toBe(false)
    expect(signal.aborted).toBe(true)
    expect(lossOf(lease)).toMatchObject({ cause: 'suspend' })
    lessor.answer()
  })

  test('fires its signal after a sleep, without a call', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 60_000, renew: 'manual' })
    const { signal } = lease
    lessor.stopAnswering()
    clock.sleepMachine(120_000)
    await clock.advance(1_000)
    expect(signal.aborted).toBe(true)
    lessor.answer()
  })

  test('counts from before the request was sent, not from its answer', async () => {
    const { clock, leases, lessor } = silentLessor()
    lessor.loseAnswers()
    const pending = leases.acquire('k', { ttl: 1_000 })
    await clock.advance(600)
    lessor.answer()
    await using lease = await pending
    expect(lease.remaining()).toBe(390)
  })

  test('counts a renewal from before it was sent', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 1_000, renew: 'manual' })
    lessor.loseAnswers()
    const renewed = lease.renew()
    await clock.advance(300)
    lessor.answer()
    await renewed
    expect(lease.remaining()).toBe(690)
  })

  test('that had run out before its answer came is not handed out', async () => {
    const { clock, leases, lessor } = silentLessor()
    lessor.loseAnswers()
    const pending = leases.tryAcquire('k', { ttl: 1_000 })
    await clock.advance(995)
    lessor.answer()
    await expect(pending).rejects.toMatchObject({ code: 'LOST' })
    await clock.settle()
    expect((await leases.query()).held).toEqual([])
  })

  test('whose answer came late is renewed before it is handed out', async () => {
    const { clock, leases, lessor } = silentLessor()
    lessor.loseAnswers()
    const pending = leases.acquire('k', { ttl: 1_000 })
    await clock.advance(900)
    lessor.answer()
    await using lease = await pending
    expect(lease.remaining()).toBe(990)
  })

  test('counts the term in the answer, not the requested ttl: a long grant begins short', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('gpu', { ttl: '1h' })
    expect(lease.remaining()).toBeLessThanOrEqual(30_000)
    await clock.advance(20_000)
    expect(lease.remaining()).toBeGreaterThan(3_000_000)
    await using byHand = await leases.acquire('other', { ttl: '1h', renew: 'manual' })
    expect(byHand.remaining()).toBeGreaterThan(3_000_000)
    lessor.answer()
  })

  test('counts the term in the answer to a renewal, even if the lessor gives less', async () => {
    const { leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000, renew: 'manual' })
    intercept(lessor, async (ask, command, options) => {
      const outcome = await ask(command, options)
      return outcome.kind === 'renewed' ? { ...outcome, ttls: [2_000] } : outcome
    })
    await lease.renew()
    expect(lease.remaining()).toBe(1_980)
    expect(lease.ttl).toBe(2_000)
  })

  test('acquired while the wall clock jumped is renewed before it is handed out', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using _other = await leases.acquire('other')
    lessor.loseAnswers()
    const pending = leases.acquire('k', { renew: 'manual' })
    await clock.settle()
    clock.stepWall(3_600_000)
    await clock.advance(1_000) // the clock watch notices it
    lessor.answer()
    await using lease = await pending
    expect(lease.held).toBe(true)
    expect(lease.remaining()).toBe(29_700)
  })

  test('stays held while the lessor answers', async () => {
    const { clock, leases } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 1_000 })
    await clock.advance(60_000)
    expect(lease.held).toBe(true)
    expect(lease.signal.aborted).toBe(false)
    const { messages } = leases.stats
    expect(messages).toBeGreaterThan(119)
    expect(messages).toBeLessThan(150)
  })

  test('warns before it is lost, once per jeopardy, and a renewal ends the jeopardy', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000 })
    const warnings: number[] = []
    lease.onJeopardy(({ remaining }) => void warnings.push(remaining))
    expect(lease.atRisk).toBe(false)
    lessor.stopAnswering()
    await clock.advance(8_000)
    expect(warnings).toHaveLength(1)
    expect(warnings[0]).toBeGreaterThan(1_000)
    expect(warnings[0]).toBeLessThan(2_500)
    expect(lease.atRisk).toBe(true)
    expect(lease.signal.aborted).toBe(false)
    lessor.answer()
    await clock.settle()
    expect(lease.atRisk).toBe(false)
    await clock.advance(9_000)
    expect(lease.held).toBe(true)
    expect(warnings).toHaveLength(1)
    lessor.stopAnswering()
    while (!lease.atRisk) await clock.advance(500)
    expect(warnings).toHaveLength(2)
    lessor.answer()
  })

  test('is in jeopardy from the renewal that shows that the store no longer promises what it requires, until it does again', async () => {
    const clock = new ManualClock()
    const store = new MemoryStore({ clock })
    const profile = { ...store.profile, durable: true, failover: true }
    Object.defineProperty(store, 'profile', { value: profile })
    await using leases = await connect(store, { clock })
    await using lease = await leases.acquire('k', { ttl: 10_000, advanced: { require: ['durable', 'failover'] } })
    await using other = await leases.acquire('other', { ttl: 10_000 })
    const told: object[] = []
    lease.onJeopardy(({ broken }) => void told.push(broken))
    other.onJeopardy(() => void told.push({ other: true }))
    await clock.advance(20_000)
    expect([lease.atRisk, told]).toEqual([false, []])
    profile.failover = false // as after a failover to a server without a standby
    await clock.advance(20_000)
    expect([lease.atRisk, lease.held, told]).toEqual([true, true, [['failover']]])
    lease.onJeopardy(({ broken }) => void told.push({ late: broken }))
    await clock.settle()
    expect(told.splice(0)).toEqual([['failover'], { late: ['failover'] }])
    profile.failover = true
    await clock.advance(20_000)
    expect([lease.atRisk, told]).toEqual([false, []])
    profile.durable = false
    await clock.advance(20_000)
    expect(told).toEqual([['durable'], { late: ['durable'] }])
    expect(other.atRisk).toBe(false)
  })

  test('is at risk by the clocks even if no timer has fired, and not at risk once it is over', async () => {
    const { clock, leases } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000, renew: 'manual' })
    clock.block(9_000)
    expect(lease.atRisk).toBe(true)
    clock.block(1_000)
    expect(lease.atRisk).toBe(false)
    expect(lease.held).toBe(false)
  })

  test('calls an onJeopardy callback at once if it is in jeopardy already, and not after it was removed', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000 })
    let early = 0
    const remove = lease.onJeopardy(() => void early++)
    remove()
    lessor.stopAnswering()
    await clock.advance(8_000)
    let late = 0
    lease.onJeopardy(() => void late++)
    expect([early, late]).toEqual([0, 1])
    await clock.advance(5_000)
    expect(lease.held).toBe(false)
    lease.onJeopardy(() => void late++)
    expect([early, late]).toEqual([0, 1])
  })

  test('turns a failing onJeopardy callback into a process warning', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000 })
    const emitWarning = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    try {
      lease.onJeopardy(() => {
        throw new Error('no pager')
      })
      lessor.stopAnswering()
      await clock.advance(8_000)
      expect(emitWarning).toHaveBeenCalledWith(expect.objectContaining({ code: 'LEASEHOLD_ON_JEOPARDY' }))
      expect(lease.held).toBe(true)
      lessor.answer()
    } finally {
      emitWarning.mockRestore()
    }
  })

  test('survives a short outage, and retries renewals meanwhile', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000 })
    const submit = vi.spyOn(lessor, 'submit').mockImplementation(failingWith(new LeaseError('UNAVAILABLE', 'no route')))
    await clock.advance(9_000)
    expect(submit.mock.calls.length).toBeGreaterThan(3)
    submit.mockRestore()
    await clock.advance(1_000)
    expect(lease.held).toBe(true)
    await clock.advance(5_000)
    expect(lease.held).toBe(true)
  })

  test('retries a renewal without an answer, within what remains', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 9_000 })
    let renewals = 0
    intercept(lessor, (ask, command, options) => {
      if (command.kind === 'renew' && renewals++ === 0) return new Promise(() => {}) // the first is lost
      return ask(command, options)
    })
    await clock.advance(8_950)
    expect(renewals).toBeGreaterThan(1)
    expect(lease.held).toBe(true)
  })

  test('retries an urgent renewal without an answer, without waiting for its turn', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 9_000, renew: 'manual' })
    const submit = vi.spyOn(lessor, 'submit')
    submit.mockImplementationOnce(() => {}) // lost
    const renewed = lease.renew()
    await clock.advance(4_000)
    expect(submit).toHaveBeenCalledTimes(2)
    await renewed
    expect(lease.remaining()).toBeGreaterThan(7_000)
  })

  test('is renewed a little before half of its term, with jitter: leases that began together drift apart', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using _lease = await leases.acquire('k', { ttl: 10_000 })
    const at: number[] = [clock.now()]
    intercept(lessor, (ask, command, options) => {
      at.push(clock.now())
      return ask(command, options)
    })
    await clock.advance(100_000)
    const rounds = at.slice(1).map((time, i) => time - at[i]!)
    expect(rounds.length).toBeGreaterThanOrEqual(20)
    for (const round of rounds) {
      expect(round).toBeLessThanOrEqual(5_000)
      expect(round).toBeGreaterThan(4_490)
    }
    expect(Math.max(...rounds) - Math.min(...rounds)).toBeGreaterThan(200)
  })

  test('reports at once that the lessor has ended it, with the actor and the cause', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    await using lease = await a.leases.acquire('jobs/nightly', { ttl: 10_000 })
    await b.leases.revoke({ lease: lease.id }, { by: 'operator' })
    await clock.advance(5_000)
    expect(lossOf(lease)).toMatchObject({ code: 'LOST', cause: 'revoked', facts: { by: 'operator' } })
    expect(lossOf(lease).message).toBe(`jobs/nightly (lease ${lease.id}) is lost: the lessor has ended it: revoked by operator`)
    // The holder reported that it has stopped, so the frozen resource is free before its term is over.
    await using next = await b.leases.acquire('jobs/nightly', { ifAvailable: true })
    expect(next.token).toBeGreaterThan(lease.token)
  })

  test('is not held from the moment the lessor says so, even before the cause is known', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    await using lease = await a.leases.acquire('k', { ttl: 10_000, renew: 'manual' })
    await b.leases.revoke({ lease: lease.id }, { by: 'operator' })
    const read = vi.spyOn(a.lessor, 'read').mockImplementation(() => new Promise(() => {}))
    const renewal = lease.renew()
    const rejection = expect(renewal).rejects.toMatchObject({ code: 'LOST', facts: { cause: 'ended' } })
    await clock.settle()
    expect(read).toHaveBeenCalled()
    expect(lease.held).toBe(false)
    await clock.advance(250) // the cause stays unknown
    await rejection
    read.mockRestore()
  })

  test('that has been held for a while learns of a revoke without waiting for its next renewal', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    await using lease = await a.leases.acquire('k', { ttl: 10_000 })
    await clock.advance(5_100)
    await b.leases.revoke({ lease: lease.id })
    await clock.settle()
    expect(lease.signal.aborted).toBe(true)
  })

  test('is released when it is lost here, so that queued renewals cannot keep it alive', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    await using lease = await a.leases.acquire('k', { ttl: '60s', renew: 'manual', maxHold: '10s' })
    await clock.advance(10_000)
    expect(lossOf(lease)).toMatchObject({ cause: 'max-hold' })
    await clock.settle()
    await using next = await b.leases.acquire('k', { ifAvailable: true })
    expect(next.held).toBe(true)
  })

  test('is in doubt when the wall clock jumps, until a renewal that is sent at once is acknowledged', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 30_000 })
    const { signal } = lease
    lessor.stopAnswering()
    clock.stepWall(-3_600_000)
    expect(lease.held).toBe(false)
    expect(() => lease.assertHeld()).toThrow(/wall clock jumped/)
    await clock.settle()
    expect(lease.held).toBe(false)
    expect(lessor.proposals.at(-1)).toMatchObject({ kind: 'renew' })
    lessor.answer()
    await clock.settle()
    expect(lease.held).toBe(true)
    expect(signal.aborted).toBe(false)
  })

  test('is not renewed by a step of the wall clock if only its program renews it, and is in doubt until it does', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 30_000, renew: 'manual' })
    clock.stepWall(3_600_000)
    await clock.advance(1_000)
    expect(lessor.proposals.map(({ kind }) => kind)).not.toContain('renew')
    expect(lease.held).toBe(false)
    expect(() => lease.assertHeld()).toThrow(/wall clock jumped/)
    await lease.renew()
    expect(lease.held).toBe(true)
  })

  for (const renew of ['never', 'manual'] as const)
    test(`ends at its time with renew: '${renew}', even if the wall clock stepped`, async () => {
      const { clock, leases } = silentLessor()
      await using _ = leases
      const lease = await leases.acquire('x', { ttl: 2_000, renew })
      await clock.advance(1_500)
      expect(lease.held).toBe(true)
      clock.stepWall(3_600_000)
      await clock.advance(500)
      expect(lease.held).toBe(false)
      expect(lossOf(lease)).toMatchObject({ cause: 'not-renewed' })
    })

  test('is lost when the log lost its tail, and in jeopardy when its lessor is closed', async () => {
    const { clock, leases, lessor } = silentLessor()
    const lease = await leases.acquire('k')
    lessor.end(new LeaseError('DIVERGED', 'the log lost entries'))
    expect(lossOf(lease)).toMatchObject({ cause: 'diverged' })

    const other = silentLessor({ clock })
    const kept = await other.leases.acquire('k', { ttl: 10_000 })
    other.lessor.end(new LeaseError('UNAVAILABLE', 'closed'))
    expect(kept.atRisk).toBe(true)
    expect(kept.held).toBe(true)
    await clock.advance(9_900)
    expect(kept.signal.aborted).toBe(true)
  })

  test('is not held again by answers to older renewals once it was transferred', async () => {
    const { clock, leases, lessor } = silentLessor()
    const lease = await leases.acquire('k', { ttl: 10_000, renew: 'manual' })
    lessor.loseAnswers()
    const renewal = lease.renew()
    await clock.settle()
    const released = lease.release()
    expect(lease.held).toBe(false)
    await expect(renewal).rejects.toMatchObject({ code: 'GONE' })
    lessor.answer()
    await released
    expect(lease.held).toBe(false)
    expect(lossOf(lease)).toMatchObject({ code: 'GONE' })
    await expect(lease.renew()).rejects.toMatchObject({ code: 'GONE' })
  })
})
