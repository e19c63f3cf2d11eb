/** The second thread of a simulated process: the real BackupRenewer, on the clock of its process, which goes on while the loop of the process stalls. */
import type { Clock } from '../src/clock.ts'
import { BackupRenewer } from '../src/holder/backup-renewer.ts'
import { LoopPulse, WorkerHeartbeat, type WorkerMessage } from '../src/holder/worker-heartbeat.ts'
import type { Command } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { complete } from '../src/lessor/complete.ts'
import type { Lessor } from '../src/lessor.ts'
import { Client, type Host, type Site } from './participants.ts'
import type { Machine } from './world.ts'

/** The library's default: 2ρ. */
const MARGIN = 0.01
const MAX_STALL = 4_000

/** A clock that shows the time of one machine, and whose timers run on another: that of a thread of the same process. */
export class ThreadClock implements Clock {
  readonly #shown: Clock
  readonly #timers: Clock

  constructor(shown: Clock, timers: Clock) {
    this.#shown = shown
    this.#timers = timers
  }

  now(): number {
    return this.#shown.now()
  }

  uptime(): number {
    return this.#shown.uptime()
  }

  wall(): number {
    return this.#shown.wall()
  }

  boot(): string {
    return this.#shown.boot()
  }

  random(): number {
    return this.#timers.random()
  }

  bits(): bigint {
    return this.#timers.bits()
  }

  after(ms: number, then: () => void): () => void {
    return this.#timers.after(ms, then)
  }

  soon(then: () => void): void {
    this.#timers.soon(then)
  }
}

/** Starts the thread of a process on `machine`; it runs on `thread`, and reaches the log through any of the hosts. */
export function startThread(site: Site, machine: Machine, thread: Machine, hosts: readonly Host[]): WorkerHeartbeat {
  if (!thread.alive) thread.revive()
  machine.mourners.add(() => thread.kill())
  machine.threads.add(thread)
  const pulse = new LoopPulse()
  const clock = new ThreadClock(machine.clock(), thread.clock())
  const lessor: Pick<Lessor, 'submit'> = {
    submit: (command, _options, completion) => complete(completion, propose(site, new Client(site, thread, hosts), command)),
  }
  const renewer = new BackupRenewer({ lessor, clock, pulse, margin: MARGIN, maxStall: MAX_STALL })
  const receive = (message: WorkerMessage) => {
    if (message === 'close' || message === 'exit') renewer.close()
    else if ('page' in message) renewer.addPage(message.page)
    else renewer.mindTerm(message.shortest)
  }
  return new WorkerHeartbeat(
    machine.clock(),
    {
      post: message => void site.world.later(0.1, () => receive(message), thread),
      async [Symbol.asyncDispose]() {
        renewer.close()
      },
    },
    pulse,
    MAX_STALL,
  )
}

/** Reports each renewal of the thread to the referee. */
async function propose({ world, referee }: Site, client: Client, command: Command): Promise<Outcome> {
  const sent = world.now
  if (command.kind === 'renew')
    for (const lease of command.leases)
      if (referee.neverRenewed.has(lease)) world.violate('S5', `a second thread renews lease ${lease}, which its program never renews`)
  const outcome = await client.propose(command)
  if (command.kind !== 'renew' || outcome.kind !== 'renewed') return outcome
  for (const [i, lease] of command.leases.entries()) {
    if (outcome.ttls[i]! <= 0) continue
    referee.terms.acknowledged(lease, sent, outcome.ttls[i]!)
    referee.pairs.acts('worker-renews', [lease])
  }
  return outcome
}
