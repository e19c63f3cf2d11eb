/** What the lessor learns of a lease that its holder has lost. */
import { expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { Lessor } from '../../src/lessor.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { AgelessStore } from '../support/ageless-store.ts'
import { lossOf } from '../support/rivals.ts'
import { submitting } from '../support/submitting.ts'

/** A server on a store without ages that can be stopped and started again. */
class StoppableServer {
  readonly #clock: ManualClock
  readonly #log: MemoryLog
  #replica: Replica | undefined
  readonly #closing = new AbortController()

  constructor(clock: ManualClock) {
    this.#clock = clock
    this.#log = new MemoryLog({ clock })
  }

  async start(): Promise<Replica> {
    this.#replica = await Replica.open(new AgelessStore({ log: this.#log, clock: this.#clock }), { clock: this.#clock })
    return this.#replica
  }

  async stop(): Promise<void> {
    const replica = this.#replica!
    this.#replica = undefined
    await replica[Symbol.asyncDispose]()
  }

  /** What a client has of it. */
  get lessor(): Lessor {
    const running = () => {
      if (this.#replica === undefined) throw new LeaseError('UNAVAILABLE', 'the server is stopped, as the test said')
      return this.#replica
    }
    return {
      profile: running().profile,
      signal: this.#closing.signal,
      submit: submitting(async (command, options) => propose(running(), command, options)),
      read: async (query, options) => running().read(query, options),
      watch: (prefix, options) => running().watch(prefix, options),
      [Symbol.asyncDispose]: async () => {},
    }
  }
}

test('a lease that its holder lost during an outage is counted and listed as lapsed, with the cause that the holder names', async () => {
  const clock = new ManualClock()
  const server = new StoppableServer(clock)
  await server.start()
  await using leases = new Leases(server.lessor, { clock, holder: 'a' })
  const lease = await leases.acquire('k', { ttl: 10_000 })
  await server.stop()
  await clock.advance(15_000)
  expect(lossOf(lease)).toMatchObject({ code: 'LOST' })
  const replica = await server.start()
  await clock.advance(15_000)
  expect((await replica.read({ kind: 'resource', resource: 'k' })).value.grants).toEqual([])
  const { 'events.released': released = 0, 'events.lapsed': lapsed = 0 } = replica.figures
  expect({ released, lapsed }).toEqual({ released: 0, lapsed: 1 })
  expect((await replica.read({ kind: 'history', resource: 'k' })).value).toMatchObject([{ holder: 'a', cause: 'unreachable' }])
  await server.stop()
})
