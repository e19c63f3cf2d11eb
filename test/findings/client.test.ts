/** Known findings: what a client does after an outage. */
import { expect } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import type { Command } from '../../src/kernel/command.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { Completion, Lessor, ProposeOptions } from '../../src/lessor.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog } from '../../src/store/memory.ts'
import { SilentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { AgelessStore } from '../support/ageless-store.ts'
import { knownFinding } from '../support/known-finding.ts'
import { lossOf } from '../support/rivals.ts'
import { submitting } from '../support/submitting.ts'

/** A lessor behind a connection that loses what is sent to it, or answers. */
class LosingLessor extends SilentLessor {
  loses: 'requests' | 'answers' | 'nothing' = 'nothing'

  override submit(command: Command, options: ProposeOptions, completion: Completion): void {
    const lost = new LeaseError('UNKNOWN', 'no answer, as the test said')
    if (this.loses === 'requests') return completion.fail(lost)
    super.submit(command, options, {
      settle: outcome => (this.loses === 'answers' ? completion.fail(lost) : completion.settle(outcome)),
      fail: error => completion.fail(error),
    })
  }
}

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

knownFinding('client-own-orphan', 'after an outage, a client does not wait for a lease that it was granted itself', async claim => {
  const clock = new ManualClock()
  const lessor = new LosingLessor(clock)
  await using leases = new Leases(lessor, { clock, holder: 'a' })
  lessor.loses = 'requests'
  let first: string | undefined
  leases.tryAcquire('k', { ttl: 30_000 }).catch(error => {
    first = error.code
  })
  await clock.advance(28_000)
  // The last copies of the request arrive, and the caller is told that its outcome is unknown.
  lessor.loses = 'answers'
  await clock.advance(4_000)
  expect(first).toBe('UNKNOWN')
  expect((await lessor.read({ kind: 'resource', resource: 'k' })).value.grants).toHaveLength(1)
  lessor.loses = 'nothing'
  let again: string | undefined
  leases.acquire('k', { ttl: 30_000, wait: 60_000 }).then(
    () => {
      again = 'granted'
    },
    error => {
      again = error.code
    },
  )
  await clock.advance(2_000)
  const soon = again
  await clock.advance(60_000)
  expect(again).toBe('granted')
  await claim(() => expect(soon).toBe('granted'))
})

knownFinding('client-loss-as-release', 'a lease that its client lost during an outage is not counted as released', async claim => {
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
  const { 'events.released': released = 0 } = replica.figures
  await claim(() => expect(released).toBe(0))
  await server.stop()
})
