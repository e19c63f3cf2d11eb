/** The worker's renewals, as the main loop reads them after a stall. */
import { expect, test } from 'vitest'
import type { Clock } from '../../src/clock.ts'
import { LeaseError } from '../../src/errors.ts'
import { BackupRenewer } from '../../src/holder/backup-renewer.ts'
import { marginOf } from '../../src/holder/validity.ts'
import { LoopPulse, WorkerHeartbeat } from '../../src/holder/worker-heartbeat.ts'
import type { Command } from '../../src/kernel/command.ts'
import { Leases } from '../../src/leases.ts'
import type { Completion, ProposeOptions } from '../../src/lessor.ts'
import { MemoryLog } from '../../src/store/memory.ts'
import { SilentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** The clock of an event loop that can be blocked: time passes, and its timers fire when it turns again. */
class LoopClock implements Clock {
  readonly lateness = 50
  readonly #clock: ManualClock
  #overdue: Set<() => void> | undefined

  constructor(clock: ManualClock) {
    this.#clock = clock
  }

  block(): void {
    this.#overdue = new Set()
  }

  unblock(): void {
    const overdue = this.#overdue!
    this.#overdue = undefined
    for (const fire of overdue) fire()
  }

  after(ms: number, then: () => void): () => void {
    const fire = () => {
      if (this.#overdue === undefined) then()
      else this.#overdue.add(then)
    }
    const cancel = this.#clock.after(ms, fire)
    return () => {
      cancel()
      this.#overdue?.delete(then)
    }
  }

  now = () => this.#clock.now()
  uptime = () => this.#clock.uptime()
  wall = () => this.#clock.wall()
  boot = () => this.#clock.boot()
  random = () => this.#clock.random()
  bits = () => this.#clock.bits()
  soon = (then: () => void) => this.#clock.soon(then)
}

/** Notes when each renewal is sent, and can be unreachable. */
class NotingLessor extends SilentLessor {
  readonly sent: number[] = []
  isReachable = true
  readonly #clock: ManualClock

  constructor(clock: ManualClock, log: MemoryLog) {
    super(clock, log)
    this.#clock = clock
  }

  override submit(command: Command, options: ProposeOptions, completion: Completion): void {
    if (!this.isReachable) return completion.fail(new LeaseError('UNAVAILABLE', 'unreachable, as the test said'))
    if (command.kind === 'renew') this.sent.push(this.#clock.now())
    super.submit(command, options, completion)
  }
}

test('a lease that the worker renewed during a stall is not held beyond the term of that renewal', async () => {
  const [term, maxStall] = [30_000, 10_000]
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const ofLoop = new NotingLessor(clock, log)
  const ofWorker = new NotingLessor(clock, log)
  const loop = new LoopClock(clock)
  const pulse = new LoopPulse()
  const renewer = new BackupRenewer({ lessor: ofWorker, clock, pulse, margin: marginOf({}), maxStall })
  const thread = {
    post(message: Parameters<ConstructorParameters<typeof WorkerHeartbeat>[1]['post']>[0]) {
      if (typeof message === 'string') return
      if ('page' in message) renewer.addPage(message.page)
      else renewer.mindTerm(message.shortest)
    },
    [Symbol.asyncDispose]: async () => renewer.close(),
  }
  const heartbeat = new WorkerHeartbeat(loop, thread, pulse, maxStall)
  await using leases = new Leases(ofLoop, { clock: loop, heartbeat: 'worker' }, heartbeat)
  const lease = await leases.acquire('k', { ttl: term })
  await clock.advance(0.46 * term)
  loop.block()
  await clock.advance(6_000)
  expect(ofWorker.sent).toHaveLength(1)
  // From here on neither thread reaches the lessor.
  ofLoop.isReachable = ofWorker.isReachable = false
  loop.unblock()
  await clock.settle()
  expect(lease.held).toBe(true)
  const over = ofWorker.sent[0]! + term
  while (clock.now() < over) await clock.advance(Math.min(500, over - clock.now()))
  const { held } = lease
  ofLoop.isReachable = ofWorker.isReachable = true
  expect(held).toBe(false)
  await clock.advance(10_000) // its release is sent again
  await ofWorker[Symbol.asyncDispose]()
})
