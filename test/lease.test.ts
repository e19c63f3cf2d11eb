import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { LeaseError } from '../src/errors.ts'
import type { Lease } from '../src/lease.ts'
import { Leases } from '../src/leases.ts'
import { SilentLessor, silentLessor } from '../src/testing/in-memory.ts'
import { ManualClock } from '../src/testing/manual-clock.ts'

afterEach(() => vi.restoreAllMocks())

/** Two holders on one log, each with a lessor of its own to silence. */
function rivals() {
  const a = silentLessor({ holder: 'a' })
  const b = silentLessor({ holder: 'b', clock: a.clock, log: a.log })
  return {
    clock: a.clock,
    a,
    b,
    async [Symbol.asyncDispose]() {
      a.lessor.answer()
      b.lessor.answer()
      await Promise.all([a.leases[Symbol.asyncDispose](), b.leases[Symbol.asyncDispose]()])
    },
  }
}

function code(error: unknown): string {
  return (error as LeaseError).code
}

function lossOf(lease: Lease) {
  const reason = lease.signal.reason as LeaseError
  return { code: reason.code, cause: reason.facts.cause, message: reason.message, facts: reason.facts }
}

describe('a lease in hand', () => {
  test('has a token for each resource, and gives everything back when the block is left', async () => {
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

  test('nobody renews ends at its deadline, not before', async () => {
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

  test('is over by the clocks even while timers stand still', async () => {
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

  test('is over after the machine slept, which the monotonic clock does not know', async () => {
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

  test('is told that it is over after a sleep, without being asked', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 60_000, renew: 'manual' })
    const { signal } = lease
    lessor.stopAnswering()
    clock.sleepMachine(120_000)
    await clock.advance(1_000)
    expect(signal.aborted).toBe(true)
    lessor.answer()
  })

  test('counts from before the request left, not from its answer', async () => {
    const { clock, leases, lessor } = silentLessor()
    lessor.loseAnswers()
    const asked = leases.acquire('k', { ttl: 1_000 })
    await clock.advance(600)
    lessor.answer()
    await using lease = await asked
    expect(lease.remaining()).toBe(390)
  })

  test('counts a renewal from before it left', async () => {
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
    const asked = leases.tryAcquire('k', { ttl: 1_000 })
    await clock.advance(995)
    lessor.answer()
    await expect(asked).rejects.toMatchObject({ code: 'LOST' })
    await clock.settle()
    expect((await leases.query()).held).toEqual([])
  })

  test('whose answer came late is renewed before it is handed out', async () => {
    const { clock, leases, lessor } = silentLessor()
    lessor.loseAnswers()
    const asked = leases.acquire('k', { ttl: 1_000 })
    await clock.advance(900)
    lessor.answer()
    await using lease = await asked
    expect(lease.remaining()).toBe(990)
  })

  test('counts the term in the answer, not the ttl it asked for: a long grant begins short', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('gpu', { ttl: '1h' })
    expect(lease.remaining()).toBeLessThanOrEqual(30_000)
    await clock.advance(20_000)
    expect(lease.remaining()).toBeGreaterThan(3_000_000)
    await using byHand = await leases.acquire('other', { ttl: '1h', renew: 'manual' })
    expect(byHand.remaining()).toBeGreaterThan(3_000_000)
    lessor.answer()
  })

  test('counts the term in the answer to a renewal, should the lessor give less', async () => {
    const { leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000, renew: 'manual' })
    const propose = lessor.propose.bind(lessor)
    vi.spyOn(lessor, 'propose').mockImplementation(async (command, options) => {
      const outcome = await propose(command, options)
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
    const asked = leases.acquire('k', { renew: 'manual' })
    await clock.settle()
    clock.stepWall(3_600_000)
    await clock.advance(1_000) // the pulse sees it
    lessor.answer()
    await using lease = await asked
    expect(lease.held).toBe(true)
    expect(lease.remaining()).toBe(29_700)
  })

  test('stays in hand for as long as the lessor answers', async () => {
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

  test('survives failures that pass, and renews again and again meanwhile', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000 })
    const propose = vi.spyOn(lessor, 'propose').mockRejectedValue(new LeaseError('UNAVAILABLE', 'no route'))
    await clock.advance(9_000)
    expect(propose.mock.calls.length).toBeGreaterThan(3)
    propose.mockRestore()
    await clock.advance(1_000)
    expect(lease.held).toBe(true)
    await clock.advance(5_000)
    expect(lease.held).toBe(true)
  })

  test('asks again while a renewal has no answer, within what remains', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 9_000 })
    let asked = 0
    const propose = lessor.propose.bind(lessor)
    vi.spyOn(lessor, 'propose').mockImplementation((command, options) => {
      if (command.kind === 'renew' && asked++ === 0) return new Promise(() => {}) // the first is lost on its way
      return propose(command, options)
    })
    await clock.advance(8_950)
    expect(asked).toBeGreaterThan(1)
    expect(lease.held).toBe(true)
  })

  test('asks again where a renewal at once has no answer, without waiting for its turn', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 9_000, renew: 'manual' })
    const propose = vi.spyOn(lessor, 'propose')
    propose.mockReturnValueOnce(new Promise(() => {})) // lost on its way
    const renewed = lease.renew()
    await clock.advance(4_000)
    expect(propose).toHaveBeenCalledTimes(2)
    await renewed
    expect(lease.remaining()).toBeGreaterThan(7_000)
  })

  test('is renewed a little before half of its term, each time by another little: those who began together drift apart', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using _lease = await leases.acquire('k', { ttl: 10_000 })
    const at: number[] = [clock.now()]
    const propose = lessor.propose.bind(lessor)
    vi.spyOn(lessor, 'propose').mockImplementation((command, options) => {
      at.push(clock.now())
      return propose(command, options)
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

  test('tells at once that the lessor has ended it, by whom and why', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    await using lease = await a.leases.acquire('jobs/nightly', { ttl: 10_000 })
    await b.leases.revoke({ lease: lease.id }, { by: 'operator' })
    await clock.advance(5_000)
    expect(lossOf(lease)).toMatchObject({ code: 'LOST', cause: 'revoked', facts: { by: 'operator' } })
    expect(lossOf(lease).message).toBe(`jobs/nightly (lease ${lease.id}) is lost: the lessor has ended it: revoked by operator`)
    // It said that it stopped, so what was frozen is free before its term is over.
    await using next = await b.leases.acquire('jobs/nightly', { ifAvailable: true })
    expect(next.token).toBeGreaterThan(lease.token)
  })

  test('is believed in no more from the moment the lessor says so, even before it is known why', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    await using lease = await a.leases.acquire('k', { ttl: 10_000, renew: 'manual' })
    await b.leases.revoke({ lease: lease.id }, { by: 'operator' })
    const read = vi.spyOn(a.lessor, 'read').mockImplementation(() => new Promise(() => {}))
    const renewal = lease.renew()
    const told = expect(renewal).rejects.toMatchObject({ code: 'LOST', facts: { cause: 'ended' } })
    await clock.settle()
    expect(read).toHaveBeenCalled()
    expect(lease.held).toBe(false)
    await clock.advance(250) // nobody can say why
    await told
    read.mockRestore()
  })

  test('that has been held for a while hears of a revoke without waiting for its next renewal', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    await using lease = await a.leases.acquire('k', { ttl: 10_000 })
    await clock.advance(5_100)
    await b.leases.revoke({ lease: lease.id })
    await clock.settle()
    expect(lease.signal.aborted).toBe(true)
  })

  test('is released when it is lost here, so that nothing keeps alive what nobody believes in', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    await using lease = await a.leases.acquire('k', { ttl: '60s', renew: 'manual', maxHold: '10s' })
    await clock.advance(10_000)
    expect(lossOf(lease)).toMatchObject({ cause: 'max-hold' })
    await clock.settle()
    await using next = await b.leases.acquire('k', { ifAvailable: true })
    expect(next.held).toBe(true)
  })

  test('doubts itself when the wall clock jumps, until a renewal sent at once is acknowledged', async () => {
    const { clock, leases, lessor } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 30_000, renew: 'manual' })
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

  test('answers to older renewals give nothing back once it was given away', async () => {
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

describe('strategies', () => {
  test('on activity: touched it lives, untouched it ends', async () => {
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

  test('on activity: one touch just before the end is enough', async () => {
    const { clock, leases } = silentLessor()
    await using lease = await leases.acquire('s', { ttl: 8_000, renew: 'on-activity' })
    await clock.advance(7_900)
    lease.touch()
    await clock.advance(1_000)
    expect(lease.held).toBe(true)
  })

  test('manual: nobody renews it but its holder; never: nobody at all', async () => {
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

  test('a holder whose work makes no progress is not renewed, and is again when it does', async () => {
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
  }, 60_000)
})

describe('giving back', () => {
  test('nothing waits in the clock once everything is released', async () => {
    const { clock, leases } = silentLessor()
    const before = clock.waiting
    const lease = await leases.acquire('k')
    await clock.advance(20_000)
    await lease.release()
    await lease.release()
    await clock.settle()
    expect(leases.stats.leases).toBe(0)
    await leases[Symbol.asyncDispose]()
    expect(clock.waiting).toBeLessThanOrEqual(before)
  })

  test('a release that cannot be delivered says so, and gives up believing all the same', async () => {
    const { clock, leases, lessor } = silentLessor()
    const lease = await leases.acquire('k', { ttl: 2_000 })
    lessor.stopAnswering()
    const released = lease.release()
    expect(lease.held).toBe(false)
    const told = expect(released).rejects.toMatchObject({ code: 'UNKNOWN', facts: { ttl: 2_000 } })
    await clock.advance(2_000)
    await told
    lessor.answer()
  })

  test('a release that failed is tried again, and resolves when it was done', async () => {
    await using both = rivals()
    const { clock, a, b } = both
    const lease = await a.leases.acquire('k', { ttl: 60_000 })
    const propose = vi.spyOn(a.lessor, 'propose')
    for (let i = 0; i < 3; i++) propose.mockRejectedValueOnce(new LeaseError('UNAVAILABLE', 'no route'))
    const released = lease.release()
    await clock.advance(1_000)
    await released
    expect(propose).toHaveBeenCalledTimes(4)
    await using other = await b.leases.tryAcquire('k')
    expect(other?.held).toBe(true)
  })

  test('a transfer goes to the process that waits under the name, which renews before it believes', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    const lease = await a.leases.acquire('seat', { ttl: 10_000 })
    const asked = b.leases.acquire('seat', { ttl: 10_000 })
    await clock.settle()
    const heir = await lease.transfer('b')
    expect(lease.held).toBe(false)
    expect(lossOf(lease)).toMatchObject({ code: 'GONE' })
    await using got = await asked
    expect(got.id).toBe(heir)
    expect(got.token).toBeGreaterThan(lease.token)
    expect(b.lessor.proposals.some(command => command.kind === 'renew' && command.leases.includes(heir))).toBe(true)
    await clock.settle()
    expect((await a.leases.query('seat')).pending).toEqual([])
    await clock.advance(30_000)
    expect(got.held).toBe(true)
  })

  test('an operator may move a lease: its holder stops first, then whoever was meant has it', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    const lease = await a.leases.acquire('seat', { ttl: 10_000 })
    const asked = b.leases.acquire('seat', { ttl: 10_000 })
    await clock.advance(5_100)
    const { pending } = await a.leases.query('seat')
    const { incarnation } = pending[0]!
    await a.lessor.propose({ kind: 'transfer', lease: lease.id, to: 'b', incarnation })
    await using got = await asked
    expect(lossOf(lease)).toMatchObject({ code: 'LOST', cause: 'transferred' })
    expect(got.token).toBeGreaterThan(lease.token)
    await clock.settle()
    const { held, pending: left } = await a.leases.query('seat')
    expect({ held: held.map(grant => grant.lease), left }).toEqual({ held: [got.id], left: [] })
  })

  test('a transfer to one who does not wait is adopted by number', async () => {
    await using both = rivals()
    const { a, b } = both
    const lease = await a.leases.acquire('seat')
    const heir = await lease.transfer('b')
    await expect(a.leases.adopt(heir)).rejects.toMatchObject({ code: 'INVALID' })
    await using got = await b.leases.adopt(heir)
    expect(got.resources).toEqual(['seat'])
    expect(got.held).toBe(true)
    await expect(b.leases.adopt(heir)).rejects.toMatchObject({ code: 'INVALID' })
  })

  test('what a living process holds is not adopted by another of its name', async () => {
    const a = silentLessor({ holder: 'worker' })
    const namesake = silentLessor({ holder: 'worker', clock: a.clock, log: a.log })
    await using mine = await a.leases.acquire('seat', { ttl: 10_000 }) // its first: the number of its incarnation
    await expect(namesake.leases.adopt(mine.id)).rejects.toMatchObject({ code: 'HELD' })
    expect(mine.held).toBe(true)
  })

  test('of two processes of one name, one adopts what was transferred to that name', async () => {
    const giver = silentLessor({ holder: 'giver' })
    const a = silentLessor({ holder: 'worker', clock: giver.clock, log: giver.log })
    const b = silentLessor({ holder: 'worker', clock: giver.clock, log: giver.log })
    const lease = await giver.leases.acquire('seat', { ttl: 10_000 })
    const heir = await lease.transfer('worker')
    const asked = await Promise.allSettled([a.leases.adopt(heir), b.leases.adopt(heir)])
    expect(asked.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    expect(asked.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'HELD' } })
  })

  test('what was transferred to one process is not adopted by another of its name', async () => {
    await using both = rivals()
    const { a, b, clock } = both
    const namesake = silentLessor({ holder: 'b', clock, log: a.log })
    const lease = await a.leases.acquire('seat')
    const asked = b.leases.acquire('seat')
    await clock.settle()
    const heir = await lease.transfer('b')
    await using got = await asked
    expect(got.id).toBe(heir)
    await expect(namesake.leases.adopt(heir)).rejects.toMatchObject({
      code: 'HELD',
      message: expect.stringMatching(/has a process already/),
    })
    await namesake.leases[Symbol.asyncDispose]()
  })

  test('a refused transfer gives belief back with the next renewal', async () => {
    const { leases, lessor, clock } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000 })
    lessor.proposals.length = 0
    const refused = lease.transfer('bad\u0000name')
    await Promise.resolve()
    await expect(refused).rejects.toMatchObject({ code: 'INVALID' })
    expect(lessor.proposals.map(({ kind }) => kind)).toEqual(['transfer', 'renew'])
    expect(lease.held).toBe(true)
    await clock.advance(30_000)
    expect(lease.held).toBe(true)
  })

  test('no renewal is sent while a transfer is under way, and an older answer does not help', async () => {
    const { leases, lessor, clock } = silentLessor()
    await using lease = await leases.acquire('k', { ttl: 10_000 })
    lessor.loseAnswers()
    await clock.advance(5_000) // a renewal is under way
    lessor.proposals.length = 0
    const moved = lease.transfer('b', { incarnation: 1 })
    const told = expect(moved).rejects.toMatchObject({ code: 'UNKNOWN' })
    await clock.advance(4_900)
    expect(lessor.proposals.filter(({ kind }) => kind === 'renew')).toEqual([])
    expect(lease.held).toBe(false)
    await clock.advance(2_000)
    await told
    expect(lossOf(lease)).toMatchObject({ code: 'LOST', cause: 'transfer' })
    lessor.answer()
  })

  test('children are told before their parent is given back, and given back with it', async () => {
    const { leases, lessor } = silentLessor()
    const parent = await leases.grant({ ttl: 10_000 })
    const child = await leases.acquire('k', { parent })
    const grandchild = await leases.acquire('l', { parent: child })
    lessor.proposals.length = 0
    await parent.release()
    expect(lossOf(child)).toMatchObject({ code: 'LOST', cause: 'parent' })
    expect(lossOf(grandchild)).toMatchObject({ code: 'LOST', cause: 'parent' })
    expect(lessor.proposals).toEqual([{ kind: 'release', lease: parent.id, stopped: [grandchild.id, child.id] }])
    expect((await leases.query()).held).toEqual([]) // not frozen
  })

  test('a handle that nobody has any more is released, whoever listens to its signal is told, and a warning is given once', async () => {
    setFlagsFromString('--expose-gc')
    const gc = runInNewContext('gc') as () => void
    const warnings = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    const { leases, clock } = silentLessor()
    const told: unknown[] = []
    await (async () => {
      for (const name of ['k', 'l']) {
        const { signal } = await leases.acquire(name)
        signal.addEventListener('abort', () => told.push(signal.reason))
      }
    })()
    for (let i = 0; i < 50 && told.length < 2; i++) {
      gc()
      await clock.settle()
    }
    expect(told).toMatchObject([{ facts: { cause: 'forgotten' } }, { facts: { cause: 'forgotten' } }])
    expect(warnings).toHaveBeenCalledTimes(1)
    await clock.settle()
    expect((await leases.query()).held).toEqual([])
  })
})

test('what was lost is kept with its cause, and read together with the history of the resource', async () => {
  await using both = rivals()
  const { a, b, clock } = both
  const lease = await a.leases.acquire('k', { ttl: 1_000 })
  a.lessor.stopAnswering()
  await clock.advance(1_100)
  a.lessor.answer()
  await using _next = await b.leases.acquire('k')
  const [past] = await a.leases.history('k')
  expect(past).toMatchObject({ lease: lease.id, holder: 'a', cause: 'lapsed', loss: { cause: 'unreachable', overlap: 0 } })
  expect(a.leases.losses).toHaveLength(1)
})

test('a lessor may be used by several, and each has its own incarnation', async () => {
  const clock = new ManualClock()
  await using lessor = new SilentLessor(clock)
  const first = new Leases(lessor, { clock, holder: 'same' })
  const second = new Leases(lessor, { clock, holder: 'same' })
  const [one, two, three] = await Promise.all([first.acquire('a'), first.acquire('b'), second.acquire('c')])
  const { value } = await lessor.read({ kind: 'leases', holder: 'same' })
  const of = (id: number) => value.find(({ lease }) => lease === id)!.incarnation
  expect(of(one.id)).toBe(of(two.id))
  expect(of(three.id)).not.toBe(of(one.id))
  expect(code(await first.acquire('c', { ifAvailable: true }).catch(error => error))).toBe('HELD')
})
