/**
 * A command run under a lease: begun when it is held, ended when it is lost, and the lease given back when the command has ended.
 *
 * A command cannot look at the clocks as `lease.assertHeld()` does, so it is ended early: when no renewal was answered and what is left of the
 * term is no more than the grace (a third of the ttl at most), it gets its TERM, and the KILL falls before another can have the lease.
 *
 * Not promised: that a command which was stopped or stalled together with us, or whose grace is longer than a third of the ttl, has ended before
 * another has the lease; what it writes needs its token (LEASEHOLD_TOKEN) checked where it is written. What the command left running when it
 * ended by itself is not under the lease any more.
 */
import { type Clock, pause } from '../../clock.ts'
import { inWords, parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { Lease } from '../../lease.ts'
import type { AcquireOptions, Leases } from '../../leases.ts'
import { denial, EXIT, usage } from '../exit.ts'
import type { Output } from '../output.ts'
import { waitingLine } from '../waiting-line.ts'
import { Child } from './child.ts'
import type { SignalForwarder } from './signal-forwarder.ts'

export const ON_LOST = ['kill', 'term', 'ignore'] as const

/** How often a lessor that has gone is asked again, after it was given its own time to answer. */
const AGAIN = 1_000

export interface LeasedProcessOptions {
  readonly leases: Leases
  readonly hearing: SignalForwarder
  readonly out: Output
  readonly url: string
  readonly command: readonly string[]
  readonly onLost: (typeof ON_LOST)[number]
  readonly grace: number
}

export interface LeasedProcessEnd {
  readonly code: number
  readonly lost: boolean
}

export function grace(text: string): number {
  return parseDuration(text, '--grace')
}

export class LeasedProcess {
  readonly #options: LeasedProcessOptions
  readonly #clock: Clock
  #child: Child | undefined
  #stopping: Promise<void> | undefined
  #lost = false

  constructor(options: LeasedProcessOptions) {
    if (options.command.length === 0) throw usage('there is no command to run', 'Write it after --: leasehold run NAME -- CMD…')
    this.#options = options
    this.#clock = options.leases.clock
  }

  /** Fires when a signal asks us to end. */
  get signal(): AbortSignal {
    return this.#options.hearing.signal
  }

  /** Waits for the lease, runs the command under it, gives it back. */
  async run(resource: string, options: AcquireOptions): Promise<LeasedProcessEnd> {
    const { leases, out } = this.#options
    const line = waitingLine({ leases, out, resource })
    let lease: Lease
    try {
      lease = await this.#obtain(resource, options, line.place)
    } finally {
      line.end()
    }
    try {
      return await this.#under(lease, resource)
    } finally {
      await lease.release().catch(error => out.note((error as Error).message, { resource }))
    }
  }

  /** Whoever has once reached the lessor goes on while it is away: a server that is started anew must not end everyone who waits for it. */
  async #obtain(resource: string, options: AcquireOptions, place: NonNullable<AcquireOptions['onWait']>): Promise<Lease> {
    const { leases, out } = this.#options
    const { wait, ifAvailable = false, advanced } = options
    const end = wait === undefined ? Number.POSITIVE_INFINITY : this.#clock.now() + parseDuration(wait, '--wait')
    let said = false
    const say = (error: LeaseError) => {
      if (!said) out.note(`${error.message}; still waiting for ${resource}, and asking again`, { resource, away: error.code })
      said = true
    }
    for (;;) {
      try {
        return await leases.acquire(resource, {
          ...options,
          ...(end < Number.POSITIVE_INFINITY && { wait: Math.max(1, Math.round(end - this.#clock.now())) }),
          signal: this.signal,
          onWait: where => {
            said = false
            place(where)
          },
          advanced: { ...advanced, onAway: say },
          onLost: reason => this.#hasLost(reason),
        })
      } catch (error) {
        const over = ifAvailable || this.#clock.now() >= end || leases.lessor.signal.aborted
        if (over || !isAway(error)) throw error
        say(error)
      }
      await pause(this.#clock, Math.min(AGAIN, Math.max(0, end - this.#clock.now())), this.signal, { ref: true })
    }
  }

  async #under(lease: Lease, resource: string): Promise<LeasedProcessEnd> {
    const { command, url, onLost, grace, out, hearing } = this.#options
    this.#lost = false
    this.#stopping = undefined
    this.signal.throwIfAborted()
    const env = {
      LEASEHOLD_RESOURCE: resource,
      LEASEHOLD_TOKEN: String(lease.token),
      LEASEHOLD_LEASE: String(lease.id),
      LEASEHOLD_URL: url,
    }
    const guard = onLost === 'ignore' ? undefined : { kill: onLost === 'kill', grace }
    const child = await Child.start({ command, env, clock: this.#clock, ...(guard !== undefined && { guard }) })
    this.#child = child
    hearing.passTo(name => void child.forward(name))
    // What was heard while it was being started is passed on now, whether it was there to have it or not.
    if (hearing.ending !== undefined) child.pass(hearing.ending)
    void lease.recalled // hear of a revoke at once, not with the next renewal
    if (out.json) out.note('granted', { resource, lease: lease.id, token: lease.token })
    // It was lost while the command was being started.
    if (lease.signal.aborted) void this.#hasLost(lease.signal.reason)
    const over = new AbortController()
    if (onLost !== 'ignore') void this.#endInTime(lease, over.signal)
    try {
      const code = await child.ended
      await this.#stopping
      if (!this.#lost) return { code, lost: false }
      return { code: onLost === 'ignore' ? code : EXIT.lost, lost: true }
    } finally {
      over.abort()
      hearing.passTo(undefined)
      child.leave()
      this.#child = undefined
    }
  }

  /** Resolves when the command has stopped: only then is the lessor told. */
  async #hasLost(reason: LeaseError): Promise<void> {
    await this.#end(reason.message, reason)
  }

  /** No renewal is answered, and what is left is just enough to end the command. */
  async #endInTime(lease: Lease, over: AbortSignal): Promise<void> {
    try {
      for (let late = false; ; ) {
        const needed = Math.min(this.#options.grace, lease.ttl / 3)
        const left = lease.remaining()
        if (lease.signal.aborted) return
        // 0 without an end: the wall clock jumped, and a renewal that is under way will say.
        const short = left > 0 && left <= needed
        // Woken late, we have stood still ourselves, and the renewal has only now been sent: its answer has half of what is left.
        if (short && (late || left > needed * 0.9)) break
        late = short
        await pause(this.#clock, left === 0 ? 10 : short ? left / 2 : left - needed, over)
      }
    } catch {
      return // the command has ended by itself
    }
    const { resources, id } = lease
    const text = `${resources.join(', ')} (lease ${id}) could not be renewed and would be lost in ${inWords(lease.remaining())}`
    await this.#end(text, new LeaseError('LOST', text, { facts: { lease: id, cause: 'unreachable' } }))
  }

  #end(text: string, { facts }: LeaseError): Promise<void> {
    const { out, onLost, grace } = this.#options
    const child = this.#child
    if (child === undefined) return Promise.resolve()
    this.#lost = true
    if (onLost === 'ignore') {
      out.note(`${text}. The command goes on all the same (--on-lost ignore): another may do the same work now.`, { lost: facts })
      return child.ended.then(() => {})
    }
    if (this.#stopping === undefined) {
      const kill = onLost === 'kill'
      out.note(`${text}. The command is ended: TERM now${kill ? `, KILL in ${inWords(grace)}` : ''}.`, { lost: facts })
      this.#stopping = child.stop({ kill, grace })
    }
    return this.#stopping
  }
}

/** Nobody answers at the moment. What has moved to a place that cannot be opened, or may not be used, is not waited for. */
function isAway(error: unknown): error is LeaseError {
  if (!(error instanceof LeaseError) || (error.code !== 'UNKNOWN' && error.code !== 'UNAVAILABLE')) return false
  return error.facts.moved === undefined && denial(error) === undefined
}
