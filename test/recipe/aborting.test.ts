/** An abort, or a loss, in the same turn as the grant: the listener that comes a moment later must not miss it. */
import { expect, test, vi } from 'vitest'
import { whenAborted } from '../../src/clock.ts'
import { LeaseError } from '../../src/errors.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { type SilentLessor, silentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** Calls `then` this many microtasks after the first `acquire` was answered with a grant. */
function afterGrant(lessor: SilentLessor, microtasks: number, then: () => void): void {
  const submit = lessor.submit.bind(lessor)
  let first = true
  vi.spyOn(lessor, 'submit').mockImplementation((command, options, completion) => {
    if (command.kind !== 'acquire' || !first) return submit(command, options, completion)
    first = false
    const later = async () => {
      for (let i = 0; i < microtasks; i++) await null
      then()
    }
    submit(command, options, {
      settle(outcome) {
        void later()
        completion.settle(outcome)
      },
      fail: error => completion.fail(error),
    })
  })
}

/** Reaches from the answer to well after the listener was added. */
const TURNS = Array.from({ length: 24 }, (_, i) => i)

test.each(TURNS)('an election that is aborted %i microtasks after the grant ends, and leaves the office free', async microtasks => {
  const { clock, leases, lessor } = silentLessor()
  const calledOff = new AbortController()
  afterGrant(lessor, microtasks, () => calledOff.abort())
  const election = leases.election('boss', { ttl: 1_000 })
  let begunLate = false
  let led = false
  const leading = election.lead(
    async term => {
      begunLate ||= term.signal.aborted
      // Work that ends when its signal fires.
      await new Promise<void>(resolve => whenAborted(term.signal, resolve))
    },
    { signal: calledOff.signal },
  )
  void leading.then(() => (led = true))
  await clock.advance(10)
  expect({ led, begunLate, term: election.term }).toEqual({ led: true, begunLate: false, term: undefined })
  expect((await leases.query()).held).toEqual([])
  await leases[Symbol.asyncDispose]()
})

test.each(TURNS)('terms that are aborted %i microtasks after the grant end', async microtasks => {
  const { clock, leases, lessor } = silentLessor()
  const calledOff = new AbortController()
  afterGrant(lessor, microtasks, () => calledOff.abort())
  let over = false
  const observing = (async () => {
    for await (const term of leases.election('boss', { ttl: 1_000 }).terms({ signal: calledOff.signal }))
      await new Promise<void>(resolve => whenAborted(term.signal, resolve))
    over = true
  })()
  await clock.advance(10)
  await observing
  expect(over).toBe(true)
  await leases[Symbol.asyncDispose]()
})

test('an offer that is lost takes its member and its units with it, and leaves no policy behind', async () => {
  const { clock, leases, lessor } = silentLessor()
  const offer = await leases.pool('gpu').offer('one', { units: 4, ttl: 1_000 })
  expect((await leases.read({ kind: 'resource', resource: 'gpu/one' })).value.capacity).toBe(4)
  lessor.stopAnswering()
  await clock.advance(2_000)
  expect(offer.held).toBe(false)
  lessor.answer()
  await clock.advance(1_000)
  expect((await leases.read({ kind: 'resource', resource: 'gpu/one' }, { consistent: true })).value.capacity).toBe(1)
  expect((await leases.read({ kind: 'policies' }, { consistent: true })).value).toEqual([])
  await leases[Symbol.asyncDispose]()
})

test('a replica whose store ended while it was opened stops', async () => {
  const clock = new ManualClock()
  const ended = new LeaseError('UNAVAILABLE', 'the engine is gone')
  const store = Object.assign(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { ended: AbortSignal.abort(ended) })
  const opening = Replica.open(store, { clock }).then(
    async replica => {
      await clock.settle()
      return replica.signal.reason
    },
    error => error,
  )
  await clock.advance(100)
  expect(await opening).toBe(ended)
})
