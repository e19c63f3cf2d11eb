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
import { type Clock, pause } from '../clock.ts'
import { type Duration, inWords, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Lease } from '../lease.ts'
import type { Leases } from '../leases.ts'
import { Child, FORWARDED, type Forwarded } from './child.ts'
import { EXIT, Interrupted, usage } from './exit.ts'
import type { Output } from './output.ts'
import { waitingLine } from './waiting-line.ts'

export const ON_LOST = ['kill', 'term', 'ignore'] as const

export interface ErrandOptions {
  readonly leases: Leases
  readonly out: Output
  readonly url: string
  readonly command: readonly string[]
  readonly onLost: (typeof ON_LOST)[number]
  readonly grace: number
}

export interface Ended {
  readonly code: number
  readonly lost: boolean
}

export function grace(text: Duration): number {
  return milliseconds(text, '--grace')
}

export class Errand {
  readonly #options: ErrandOptions
  readonly #clock: Clock
  readonly #interrupt = new AbortController()
  readonly #heard = new Map<Forwarded, () => void>()
  #child: Child | undefined
  #stopping: Promise<void> | undefined
  #lost = false

  constructor(options: ErrandOptions) {
    if (options.command.length === 0) throw usage('there is no command to run', 'Write it after --: leasehold run NAME -- CMD…')
    this.#options = options
    this.#clock = options.leases.clock
    for (const name of FORWARDED) {
      const hear = () => this.#hear(name)
      this.#heard.set(name, hear)
      process.on(name, hear)
    }
  }

  /** Fires when a signal asks us to end. */
  get signal(): AbortSignal {
    return this.#interrupt.signal
  }

  [Symbol.dispose](): void {
    for (const [name, hear] of this.#heard) process.off(name, hear)
  }

  /** Waits for the lease, runs the command under it, gives it back. */
  async run(resource: string, options: Parameters<Leases['acquire']>[1]): Promise<Ended> {
    const { leases, out } = this.#options
    const line = waitingLine({ leases, out, resource })
    let lease: Lease
    try {
      lease = await leases.acquire(resource, {
        ...options,
        signal: this.signal,
        onWait: line.place,
        onLost: reason => this.#hasLost(reason),
      })
    } finally {
      line.end()
    }
    try {
      return await this.#under(lease, resource)
    } finally {
      await lease.release().catch(error => out.note((error as Error).message, { resource }))
    }
  }

  async #under(lease: Lease, resource: string): Promise<Ended> {
    const { command, url, onLost, grace, out } = this.#options
    this.#lost = false
    this.#stopping = undefined
    this.signal.throwIfAborted()
    const cookie = `LEASEHOLD_LEASE=${lease.id}`
    const env = {
      LEASEHOLD_RESOURCE: resource,
      LEASEHOLD_TOKEN: String(lease.token),
      LEASEHOLD_LEASE: String(lease.id),
      LEASEHOLD_URL: url,
    }
    const guard = onLost === 'ignore' ? undefined : { kill: onLost === 'kill', grace }
    const child = await Child.start({ command, env, cookie, clock: this.#clock, ...(guard !== undefined && { guard }) })
    this.#child = child
    // What was heard while it was being started is passed on now.
    if (this.signal.reason instanceof Interrupted) child.forward(this.signal.reason.signal as Forwarded)
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
      for (;;) {
        const needed = Math.min(this.#options.grace, lease.ttl / 3)
        const left = lease.remaining()
        if (lease.signal.aborted) return
        // 0 without an end: the wall clock jumped, and a renewal that is under way will say.
        if (left > 0 && left <= needed) break
        await pause(this.#clock, left === 0 ? 10 : left - needed, over)
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

  #hear(name: Forwarded): void {
    const ends = name !== 'SIGUSR1' && name !== 'SIGUSR2' && name !== 'SIGWINCH'
    if (ends && !this.#interrupt.signal.aborted) this.#interrupt.abort(new Interrupted(name))
    this.#child?.forward(name)
  }
}
