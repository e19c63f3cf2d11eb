import { expect, test, vi } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import type { Command } from '../../src/kernel/command.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { failingWith, intercept } from '../support/submitting.ts'

function world(...holders: string[]) {
  const first = silentLessor({ holder: holders[0]! })
  const others = holders.slice(1).map(holder => silentLessor({ holder, clock: first.clock, log: first.log }))
  const all = [first, ...others]
  return {
    clock: first.clock,
    lessors: all.map(({ lessor }) => lessor),
    leases: all.map(({ leases }) => leases),
    async [Symbol.asyncDispose]() {
      for (const { lessor } of all) lessor.answer()
      await Promise.all(all.map(({ leases }) => leases[Symbol.asyncDispose]()))
    },
  }
}

test('a waiter gets the lease after the release by the holder and a renewal of its own', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const held = await a!.acquire('k')
  const pending = b!.acquire('k', { ttl: 10_000 })
  await here.clock.advance(60_000) // its place is kept while it is renewed
  here.lessors[1]!.proposals.length = 0
  await held.release()
  await using lease = await pending
  expect(lease.token).toBeGreaterThan(held.token)
  expect(lease.remaining()).toBe(9_900)
  expect(here.lessors[1]!.proposals).toEqual([{ kind: 'renew', leases: [lease.id] }])
})

test('a waiter whose grant may not be confirmed yet, since the log lost records, asks again until it is', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const held = await a!.acquire('k')
  const pending = b!.acquire('k', { ttl: 10_000 })
  await here.clock.settle()
  let told = 0
  intercept(here.lessors[1]!, async (ask, command, options) => {
    const outcome = await ask(command, options)
    return outcome.kind === 'renewed' && command.kind === 'renew' && command.waiting !== true && told++ < 2
      ? { ...outcome, ttls: [0] }
      : outcome
  })
  await held.release()
  await here.clock.advance(2_000)
  expect(told).toBe(3)
  await using lease = await pending
  expect(lease.remaining()).toBeGreaterThan(5_000)
})

test('a renewal that was sent before the news of the grant does not count, even if it is answered later', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const held = await a!.acquire('k')
  const pending = b!.acquire('k', { ttl: 9_000 })
  await here.clock.settle()
  const lessor = here.lessors[1]!
  const kept: { readonly command: Command; readonly outcome: Promise<Outcome> }[] = []
  intercept(lessor, (ask, command, options) => {
    const outcome = ask(command, options)
    kept.push({ command, outcome })
    return outcome
  })
  lessor.stopAnswering()
  await here.clock.advance(3_100) // a renewal of the waiter has been sent
  expect(kept).toHaveLength(1)
  await held.release()
  await here.clock.settle()
  lessor.answer() // it arrives now, at a lease that was granted meanwhile
  await using lease = await pending
  expect(await kept[0]!.outcome).toMatchObject({ ttls: [0] })
  expect(kept.map(({ command }) => command)).toEqual([
    { kind: 'renew', leases: [lease.id], waiting: true },
    { kind: 'renew', leases: [lease.id] },
  ])
  expect(lease.remaining()).toBe(8_910)
})

test('an answer from before the grant does not make the lease held, even if it arrives after the news', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const held = await a!.acquire('k')
  const pending = b!.acquire('k', { ttl: 9_000 })
  let handed = false
  void pending.then(() => (handed = true))
  await here.clock.settle()
  const lessor = here.lessors[1]!
  const late: (() => void)[] = []
  intercept(lessor, async (ask, command, options) => {
    const outcome = await ask(command, options)
    await new Promise<void>(resolve => late.push(resolve))
    return outcome
  })
  await here.clock.advance(3_100)
  expect(late.length).toBe(1) // the place in the queue was renewed, and the answer is on its way
  await held.release()
  await here.clock.settle()
  expect(late.length).toBe(2) // the confirming renewal has been sent
  late[0]!()
  await here.clock.settle()
  const early = handed
  vi.restoreAllMocks()
  for (const answer of late) answer()
  await using lease = await pending
  expect(early).toBe(false)
  expect(lease.remaining()).toBe(8_910)
})

test('a confirming renewal that fails is retried, and the place in the queue is kept', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const held = await a!.acquire('k')
  const pending = b!.acquire('k', { ttl: 10_000 })
  await here.clock.settle()
  const waiting = (await b!.query()).pending[0]!.lease
  vi.spyOn(here.lessors[1]!, 'submit').mockImplementationOnce(failingWith(new LeaseError('UNAVAILABLE', 'no route')))
  await held.release()
  await here.clock.advance(100)
  await using lease = await pending
  expect(lease.id).toBe(waiting)
})

test('waiters are served in order, higher priority first', async () => {
  await using here = world('a', 'b', 'c', 'd')
  const [a, b, c, d] = here.leases
  const held = await a!.acquire('k')
  const order: string[] = []
  const wait = async (leases: typeof a, name: string, priority = 0) => {
    await leases!.request('k', { priority }, async () => void order.push(name))
  }
  const pending: Promise<void>[] = []
  for (const [leases, name, priority] of [
    [b, 'b', 0],
    [c, 'c', 0],
    [d, 'd', 5],
  ] as const) {
    pending.push(wait(leases, name, priority))
    await here.clock.settle()
  }
  await held.release()
  await Promise.all(pending)
  expect(order).toEqual(['d', 'b', 'c'])
})

test('shared holders do not exclude each other, and an exclusive waiter waits for all of them', async () => {
  await using here = world('a', 'b', 'c')
  const [a, b, c] = here.leases
  const one = await a!.acquire('doc', { mode: 'shared' })
  const two = await b!.acquire('doc', { mode: 'shared' })
  const writing = c!.acquire('doc')
  await here.clock.settle()
  await one.release()
  await here.clock.settle()
  expect(await a!.tryAcquire('doc', { mode: 'shared' })).toBeUndefined() // the writer comes first
  await two.release()
  await using writer = await writing
  expect(writer.held).toBe(true)
})

test('units of a resource are handed out up to its capacity', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  await a!.setPolicy('licences', { capacity: 5 })
  await using three = await a!.acquire('licences', { units: 3 })
  await expect(b!.acquire('licences', { units: 3, ifAvailable: true })).rejects.toMatchObject({ code: 'HELD' })
  await using two = await b!.acquire('licences', { units: { licences: 2 } })
  expect(two.token).toBeGreaterThan(three.token)
  await expect(a!.acquire('licences', { units: 6 })).rejects.toMatchObject({ code: 'INVALID' })
})

test('a wait that is over rejects with TIMEOUT and leaves no waiter behind', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  await using _held = await a!.acquire('k')
  const pending = b!.acquire('k', { wait: '5s' })
  const rejection = expect(pending).rejects.toMatchObject({ code: 'TIMEOUT', facts: { resource: 'k', waited: 5_000 } })
  await here.clock.advance(5_000)
  await rejection
  await here.clock.settle()
  expect((await a!.query()).pending).toEqual([])
  expect(b!.stats.leases).toBe(0)
})

test('a call that does not wait answers at once: undefined, HELD, or null for a callback', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  await using _held = await a!.acquire('k')
  expect(await b!.tryAcquire('k')).toBeUndefined()
  await expect(b!.acquire('k', { ifAvailable: true })).rejects.toMatchObject({ code: 'HELD', facts: { holder: 'a', resource: 'k' } })
  expect(await b!.request('k', { ifAvailable: true }, lease => lease)).toBeNull()
})

test.each(['before it was sent', 'while it is decided', 'while it waits', 'when it was granted', 'when the answer is lost'] as const)(
  'an abort %s throws its own reason and leaves nothing behind',
  async when => {
    await using here = world('a', 'b')
    const [a, b] = here.leases
    const stop = new AbortController()
    const reason = new Error('enough')
    const held = when === 'while it waits' || when === 'when it was granted' ? await a!.acquire('k') : undefined
    if (when === 'before it was sent') stop.abort(reason)
    if (when === 'when the answer is lost') here.lessors[1]!.loseAnswers()
    const pending = b!.acquire('k', { signal: stop.signal, ttl: 60_000 })
    const rejection = expect(pending).rejects.toBe(reason)
    if (when === 'while it is decided') await Promise.resolve()
    if (when === 'while it waits') await here.clock.settle()
    if (when === 'when it was granted') {
      await here.clock.settle()
      here.lessors[1]!.stopAnswering() // granted, but it cannot know
      await held!.release()
      await here.clock.settle()
    }
    if (when === 'when the answer is lost') await here.clock.advance(1_000)
    stop.abort(reason)
    await rejection
    here.lessors[1]!.answer()
    await here.clock.advance(1_000)
    await held?.release()
    const { value } = await a!.read({ kind: 'leases' })
    expect(value).toEqual([])
    expect(b!.stats.leases).toBe(0)
  },
)

test('a request with an unknown outcome is repeated under the same operation, and has one effect', async () => {
  await using here = world('a')
  const [a] = here.leases
  const [lessor] = here.lessors
  const ops: unknown[] = []
  intercept(lessor!, async (ask, command, options) => {
    const outcome = await ask(command, options)
    if (command.kind !== 'acquire') return outcome
    ops.push(options.op)
    if (ops.length < 3) throw new LeaseError('UNKNOWN', 'the connection broke')
    return outcome
  })
  const pending = a!.acquire('k')
  await here.clock.advance(1_000)
  await using lease = await pending
  expect(ops).toHaveLength(3)
  expect(ops[2]).toEqual({ ...(ops[0] as object), again: true })
  expect((await a!.query()).held.map(grant => grant.lease)).toEqual([lease.id])
})

test('other requests do not make the lessor forget an answer that is still awaited', async () => {
  await using here = world('a')
  const [a] = here.leases
  const [lessor] = here.lessors
  await using _first = await a!.acquire('first')
  let lost = 2
  intercept(lessor!, async (ask, command, options) => {
    const outcome = await ask(command, options)
    if (command.kind === 'acquire' && command.wants[0]!.resource === 'k' && lost-- > 0)
      throw new LeaseError('UNKNOWN', 'the connection broke')
    return outcome
  })
  const pending = a!.tryAcquire('k', { ttl: '1m' })
  await here.clock.settle()
  for (let i = 0; i < 3; i++) await (await a!.acquire(`other/${i}`)).release()
  await here.clock.advance(1_000)
  await using lease = await pending
  expect(lease?.held).toBe(true)
  expect((await a!.query()).held.map(grant => grant.resource)).toEqual(['first', 'k'])
})

test('a call rejects with UNKNOWN if the lessor never answers, and a later grant is released', async () => {
  await using here = world('a')
  const [a] = here.leases
  const [lessor] = here.lessors
  lessor!.stopAnswering()
  const pending = a!.acquire('k', { ttl: 1_000, wait: '1m' })
  const rejection = expect(pending).rejects.toMatchObject({ code: 'UNKNOWN' })
  await here.clock.advance(11_000)
  await rejection
  lessor!.answer()
  await here.clock.settle()
  expect((await a!.query()).held).toEqual([])
})

test.each(['UNKNOWN', 'UNAVAILABLE'] as const)('a wait until granted survives an outage: %s', async code => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const [, lessor] = here.lessors
  const held = await a!.acquire('k', { ttl: '1h' })
  const pending = b!.acquire('k', { ttl: '5s' })
  const seat = b!.election('seat').terms({ signal: new AbortController().signal }).next()
  await here.clock.settle()
  const down = vi.spyOn(lessor!, 'submit').mockImplementation(failingWith(new LeaseError(code, 'connection refused')))
  await here.clock.advance(120_000) // long enough for its place to lapse, and for every timeout to end
  const rejection = expect(b!.tryAcquire('other')).rejects.toMatchObject({ code })
  await here.clock.advance(60_000)
  await rejection
  down.mockRestore()
  await held.release()
  await here.clock.advance(2_000)
  await using lease = await pending
  expect(lease.held).toBe(true)
  expect((await seat).value!.token).toBeGreaterThan(0)
})

test('without an answer a request is repeated under the same operation, and a late answer to the first copy counts', async () => {
  await using here = world('a')
  const [a] = here.leases
  const [lessor] = here.lessors
  lessor!.stopAnswering()
  const pending = a!.acquire('k', { ttl: '1m' })
  const also = expect(a!.tryAcquire('k')).rejects.toMatchObject({ code: 'UNAVAILABLE' }) // the first has not even been answered
  await here.clock.advance(200_000)
  await also
  const tries = lessor!.proposals.filter(({ kind }) => kind === 'acquire').length
  expect(tries).toBeGreaterThan(2)
  lessor!.answer()
  await here.clock.advance(1_000)
  await using lease = await pending
  await here.clock.advance(120_000)
  expect(lease.held).toBe(true)
  expect((await a!.query()).held.map(grant => grant.lease)).toEqual([lease.id])
})

test('a wait that survived an outage and was aborted leaves no lease behind', async () => {
  await using here = world('a')
  const [a] = here.leases
  const [lessor] = here.lessors
  lessor!.stopAnswering()
  const stop = new AbortController()
  const rejection = expect(a!.acquire('k', { ttl: '1m', signal: stop.signal })).rejects.toThrow('enough')
  await here.clock.advance(100_000)
  stop.abort(new Error('enough'))
  await rejection
  await here.clock.advance(50_000)
  lessor!.answer()
  await here.clock.advance(1_000)
  expect((await a!.query()).held).toEqual([])
})

test('a waiter whose lease lapsed is not granted, and queues again', async () => {
  await using here = world('a', 'b', 'c')
  const [a, b, c] = here.leases
  const held = await a!.acquire('k', { ttl: 60_000 })
  const pending = b!.acquire('k', { ttl: 1_000 })
  await here.clock.settle()
  const behind = c!.acquire('k', { ttl: 60_000 })
  await here.clock.settle()
  here.lessors[1]!.stopAnswering()
  await here.clock.advance(3_000)
  here.lessors[1]!.answer()
  await here.clock.settle()
  await held.release()
  const next = await behind // b had lost its place
  await next.release()
  await using lease = await pending
  expect(lease.held).toBe(true)
})

test('a waiter that an operator revokes rejects with GONE', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  await using _held = await a!.acquire('k')
  const pending = b!.acquire('k')
  const rejection = expect(pending).rejects.toMatchObject({ code: 'GONE', facts: { cause: 'revoked' } })
  await here.clock.settle()
  await a!.revoke({ holder: 'b' })
  await rejection
})

test('onWait reports the place in the queue', async () => {
  await using here = world('a', 'b', 'c')
  const [a, b, c] = here.leases
  const held = await a!.acquire('k')
  const second = b!.acquire('k')
  await here.clock.settle()
  const places: number[] = []
  const third = c!.acquire('k', { onWait: ({ position }) => places.push(position) })
  await here.clock.settle()
  await held.release()
  await (await second).release()
  await (await third).release()
  expect(places).toEqual([1, 0])
})

test('a steal waits until the former holder has stopped or its term is over', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const lease = await a!.acquire('k', { ttl: 10_000 })
  const { signal } = lease
  here.lessors[0]!.stopAnswering() // a receives no events
  const stealing = b!.acquire('k', { steal: true, ttl: 60_000 })
  let stolen = false
  void stealing.then(() => (stolen = true))
  await here.clock.advance(9_890)
  expect({ stolen, held: lease.held }).toEqual({ stolen: false, held: true })
  await here.clock.advance(20)
  expect({ stolen, aborted: signal.aborted }).toEqual({ stolen: false, aborted: true })
  await here.clock.advance(200)
  expect(stolen).toBe(true)
  here.lessors[0]!.answer()
  await (await stealing).release()
})

test('a steal is granted at once when the former holder learns of it and stops', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const lease = await a!.acquire('k', { ttl: 60_000 })
  await here.clock.advance(31_000) // it follows events by now
  await using stolen = await b!.acquire('k', { steal: true })
  expect(stolen.token).toBeGreaterThan(lease.token)
  expect((lease.signal.reason as LeaseError).message).toMatch(/stolen by b/)
})

test('a recall informs the holder and leaves it its lease', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const lease = await a!.acquire('k')
  const { recalled } = lease
  const pending = b!.acquire('k', { advanced: { recall: true } })
  await here.clock.settle()
  expect(recalled.aborted).toBe(true)
  expect(recalled.reason).toMatchObject({ code: 'HELD', facts: { by: 'b' } })
  await here.clock.advance(60_000)
  expect(lease.held).toBe(true)
  await lease.release()
  await (await pending).release()

  const late = await a!.acquire('other')
  await b!.recall('other')
  const signal = late.recalled
  expect(signal.aborted).toBe(false)
  await here.clock.settle()
  expect(signal.aborted).toBe(true) // although it began to follow events only afterwards
})

test('nested requests of one name are refused instead of waiting for themselves', async () => {
  await using here = world('a')
  const [a] = here.leases
  const nested = a!.request('k', () => a!.request('k', () => 'never'))
  await expect(nested).rejects.toMatchObject({ code: 'INVALID', reason: 'waits-for-itself', facts: { resource: 'k' } })
  await expect(a!.request('k', () => a!.request(['j', 'k'], () => 'never'))).rejects.toMatchObject({ code: 'INVALID' })
  expect(await a!.request('k', () => a!.request('other', () => 'fine'))).toBe('fine')
  expect(await a!.request('k', { mode: 'shared' }, () => a!.request('k', { mode: 'shared' }, () => 'fine'))).toBe('fine')
})

test('a name that is given twice is one name', async () => {
  await using here = world('a')
  const [a] = here.leases
  const lease = await a!.acquire(['x', 'y', 'x'], { units: { x: 1 } })
  expect([lease.resources, Object.keys(lease.tokens)]).toEqual([
    ['x', 'y'],
    ['x', 'y'],
  ])
  expect(await a!.tryAcquire(['x', 'x'])).toBeUndefined()
  await lease.release()
  expect(await a!.request(['x', 'x'], ({ resources }) => resources)).toEqual(['x'])
  const two = a!.acquire(['x', 'x'], { ifAvailable: true, advanced: { any: 2 } })
  await expect(two).rejects.toMatchObject({ code: 'INVALID', facts: { field: 'any' } })
})

test('the request that would close a waiting cycle is refused, and the error names the cycle', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  let go = () => {}
  const ready = new Promise<void>(resolve => (go = resolve))
  const first = a!.request('x', async () => {
    await ready
    return a!.request('y', () => 'a has both')
  })
  const second = b!.request('y', async () => {
    go()
    await here.clock.settle()
    return b!.request('x', () => 'never')
  })
  await expect(second).rejects.toMatchObject({ code: 'DEADLOCK', facts: { cycle: expect.arrayContaining(['x']) } })
  expect(await first).toBe('a has both')
})

test('a callback that throws releases and rethrows', async () => {
  await using here = world('a')
  const [a] = here.leases
  const oops = new Error('oops')
  await expect(a!.request('k', () => Promise.reject(oops))).rejects.toBe(oops)
  await expect(
    a!.request('k', () => {
      throw oops
    }),
  ).rejects.toBe(oops)
  expect((await a!.query()).held).toEqual([])
})

test('request passes the lease to the callback and returns its result', async () => {
  await using here = world('a')
  const [a] = here.leases
  expect(await a!.request('k', { ttl: '30s', wait: '5m' }, async lease => lease.token > 0)).toBe(true)
})

test('closing releases all leases and cancels all waits', async () => {
  await using here = world('a', 'b')
  const [a, b] = here.leases
  const lease = await a!.acquire('k')
  const pending = b!.acquire('k')
  const rejection = expect(pending).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await here.clock.settle()
  await b![Symbol.asyncDispose]()
  await rejection
  expect((await a!.query()).pending).toEqual([])
  await a![Symbol.asyncDispose]()
  expect(lease.held).toBe(false)
  await expect(a!.acquire('k')).rejects.toMatchObject({ code: 'UNAVAILABLE' })
})

test('a wrong option is refused with the reason', async () => {
  await using here = world('a')
  const [a] = here.leases
  await expect(a!.acquire('k', { ttl: '30' as '30s' })).rejects.toMatchObject({
    code: 'INVALID',
    message: expect.stringMatching(/has no unit: write '30s'/),
  })
  await expect(a!.acquire('k', { ttl: 5 })).rejects.toMatchObject({ code: 'INVALID' })
  await expect(a!.acquire('/k')).rejects.toMatchObject({ code: 'INVALID' })
  await expect(a!.acquire('k', { renew: 'sometimes' as 'half' })).rejects.toMatchObject({ code: 'INVALID' })
  await expect(a!.acquire('k', { steal: true, ifAvailable: true })).rejects.toMatchObject({ code: 'INVALID' })
  await expect(a!.acquire('k', { advanced: { require: ['durable'] } })).rejects.toMatchObject({ code: 'UNSUPPORTED' })
  await expect(a!.request('k', undefined as never)).rejects.toMatchObject({ code: 'INVALID' })
})
