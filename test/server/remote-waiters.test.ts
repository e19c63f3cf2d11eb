/** Waiters that are granted, time out or leave together take several turns of the event loop. */
import { setMaxListeners } from 'node:events'
import { expect, test } from 'vitest'
import { type Clock, systemClock, turn } from '../../src/clock.ts'
import type { Granted } from '../../src/kernel/outcome.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { anonymousCaller } from '../../src/server/access-control.ts'
import { CallerTurns } from '../../src/server/caller-turns.ts'
import { GuardedLessor } from '../../src/server/guarded-lessor.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { acquire, granted } from '../support/replica/rig.ts'

const WAITERS = 1_000

/** Each reading takes a tenth of a millisecond, and the turns of callers are divided by it. */
function slowClock(): Clock {
  let read = 0
  return Object.assign(Object.create(systemClock) as Clock, { now: () => read++ / 10 })
}

/** Timers of `ms` fire when the test says so, all in one turn, as those of Node do. */
class TogetherClock extends ManualClock {
  readonly #ms: number
  readonly #held: (() => void)[] = []

  constructor(ms: number) {
    super()
    this.#ms = ms
  }

  override after(ms: number, then: () => void): () => void {
    if (ms !== this.#ms) return super.after(ms, then)
    this.#held.push(then)
    return () => {}
  }

  fireTogether(): void {
    for (const then of this.#held.splice(0)) then()
  }
}

const WAIT = 20_000

async function waitersOf(resource: string, shared: boolean) {
  const clock = new TogetherClock(WAIT)
  const lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  const guarded = await GuardedLessor.open({ lessor, clock, turns: new CallerTurns(slowClock()) })
  const holder = granted(await propose(lessor, acquire('holder', resource, { ttl: 3_600_000 })))
  await propose(lessor, { kind: 'renew', leases: [holder.lease] })
  const caller = anonymousCaller()
  const leave = new AbortController()
  setMaxListeners(0, leave.signal)
  const wants = [{ resource, shared }]
  const waits = Array.from({ length: WAITERS }, (_, i) =>
    guarded.acquire(caller, acquire(`w${i}`, resource, { wants, ttl: 60_000 }), { wait: WAIT, signal: leave.signal }),
  )
  while (guarded.waiting < WAITERS) await turn()
  return {
    ...{ clock, lessor, guarded, holder, waits, leave },
    async [Symbol.asyncDispose]() {
      await guarded[Symbol.asyncDispose]()
      await lessor[Symbol.asyncDispose]()
    },
  }
}

/** Counts events by turns of the event loop, until `all` have happened. */
function perTurn(): { count(): void; most(all: number): Promise<number> } {
  let [inTurn, total, most] = [0, 0, 0]
  return {
    count: () => {
      total++
      most = Math.max(most, ++inTurn)
    },
    most: async all => {
      for (; total < all; inTurn = 0) await turn()
      return most
    },
  }
}

test('a thousand waiters for a shared resource that are granted in one revision are answered over many turns', async () => {
  await using world = await waitersOf('a', true)
  const answers = perTurn()
  for (const wait of world.waits) void wait.then(answers.count)
  await propose(world.lessor, { kind: 'release', lease: world.holder.lease })
  expect(await answers.most(WAITERS)).toBeLessThanOrEqual(200)
  const outcomes = (await Promise.all(world.waits)) as Granted[]
  expect(new Set(outcomes.map(({ revision }) => revision)).size).toBe(1)
})

test('a thousand waits that end at one moment are answered over many turns, and leave no place', async () => {
  await using world = await waitersOf('a', false)
  const answers = perTurn()
  for (const wait of world.waits) void wait.catch(answers.count)
  world.clock.fireTogether()
  expect(await answers.most(WAITERS)).toBeLessThanOrEqual(200)
  await world.clock.settle()
  expect((await world.lessor.read({ kind: 'resource', resource: 'a' })).value.queue).toEqual([])
})

test('a thousand waiters that leave with their connection give up their places over many turns', async () => {
  await using world = await waitersOf('a', false)
  const releases = perTurn()
  const { lessor } = world
  const submit = lessor.submit.bind(lessor)
  lessor.submit = (command, options, completion) => {
    if (command.kind === 'release') releases.count()
    submit(command, options, completion)
  }
  for (const wait of world.waits) void wait.catch(() => {})
  world.leave.abort(new Error('the connection was closed'))
  // One slice at once, and one in the turn that follows it.
  expect(await releases.most(WAITERS)).toBeLessThanOrEqual(400)
  await world.clock.settle()
  expect((await lessor.read({ kind: 'resource', resource: 'a' })).value.queue).toEqual([])
})
