/**
 * Runs a command under a lease: starts it when the lease is held, ends it when the lease is lost, and releases the lease when the command has ended.
 *
 * A command cannot check the clock as `lease.assertHeld()` does, so it is ended early. When no renewal is answered and the rest of the term is down to
 * the grace (at most a third of the ttl), it gets TERM. The KILL then comes before another holder can have the lease.
 *
 * Not promised: that the command has ended before another holder has the lease, if it was stopped or stalled together with this process, or if the
 * grace is longer than a third of the ttl. Its writes are safe only where its token (LEASEHOLD_TOKEN) is checked. Processes that the command leaves
 * running when it ends by itself are no longer under the lease.
 */

import { basename } from 'node:path'
import { BACKOFF } from '../../backoff.ts'
import { type Clock, pause, whenAborted } from '../../clock.ts'
import { inWords, parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { Lease } from '../../lease.ts'
import type { AcquireOptions, Leases } from '../../leases.ts'
import { keepRun } from '../../lessor/kept-runs.ts'
import { accessDenialAdvice, EXIT, usageError } from '../exit.ts'
import type { Output } from '../output.ts'
import { type WaitingLineOptions, waitingLine } from '../waiting-line.ts'
import { Child } from './child.ts'
import type { SignalForwarder } from './signal-forwarder.ts'

export const ON_LOST = ['kill', 'term', 'ignore'] as const

/** Ms that the exit code may take on its way into the history. */
const KEEP_PATIENCE = 2_000
const MAX_COMMAND = 128

/** Ms between two attempts to acquire while the lessor is unreachable. */

export interface LeasedProcessOptions {
  readonly leases: Leases
  readonly signals: SignalForwarder
  readonly out: Output
  readonly url: string
  readonly command: readonly string[]
  readonly onLost: (typeof ON_LOST)[number]
  readonly grace: number
  /** End the command after this many ms. */
  readonly maxTime?: number
}

/** The options that a process adds to its request. */
export interface RequestSignals extends Pick<AcquireOptions, 'wait' | 'signal' | 'onWait' | 'onLost'> {
  readonly advanced?: { readonly onAway?: (error: LeaseError) => void }
}

/** A lease that is not for one resource by name is requested in this way. */
export interface LeaseRequest {
  /** The name of the request, for messages. */
  readonly name: string
  /** The resources that are waited for. @default `name` alone */
  readonly resources?: readonly string[]
  /** Requests the lease. The options end the wait, and report the place in the queue and the loss of the lease. */
  readonly acquire: (options: RequestSignals) => Promise<Lease>
  /** Variables for the command, besides those of every lease; undefined removes one. */
  readonly env?: (lease: Lease) => Readonly<Record<string, string | undefined>> | Promise<Readonly<Record<string, string | undefined>>>
  /** The line on a terminal while it waits. */
  readonly describe?: WaitingLineOptions['describe']
  /** Called when the holder is asked to give the lease back. With true, the command gets TERM. */
  readonly onRecalled?: (lease: Lease) => boolean
}

export interface LeasedProcessEnd {
  readonly code: number
  readonly lost: boolean
}

/** Refuses an empty command. Before a store is opened, where the caller can. */
export function requireCommand(command: readonly string[]): void {
  if (command.length === 0) throw usageError('no command to run was given', 'Write it after --: leasehold run NAME -- CMD…')
}

/** The end of the command itself, for the history. */
interface CommandEnd extends LeasedProcessEnd {
  /** Its own exit code, whatever `leasehold` exits with. */
  readonly exit: number
  /** Ms that it ran. */
  readonly ran: number
  readonly overdue: boolean
}

export class LeasedProcess {
  readonly #options: LeasedProcessOptions
  readonly #clock: Clock
  #child: Child | undefined
  #stopping: Promise<void> | undefined
  #lost = false
  #isOverdue = false

  constructor(options: LeasedProcessOptions) {
    requireCommand(options.command)
    this.#options = options
    this.#clock = options.leases.clock
  }

  /** Fires when a signal asks the command to end. */
  get signal(): AbortSignal {
    return this.#options.signals.signal
  }

  /** Waits for the lease, runs the command under it and releases it. Of several resources it gets all at once, or none. */
  run(resources: readonly string[], options: AcquireOptions): Promise<LeasedProcessEnd> {
    const { leases } = this.#options
    const acquire = ({ advanced, ...more }: RequestSignals) =>
      leases.acquire(resources, { ...options, ...more, advanced: { ...options.advanced, ...advanced } })
    const env = () => ({ LEASEHOLD_RESOURCE: resources[0]! })
    return this.runUnder({ name: resources.join(', '), resources, acquire, env }, options)
  }

  /** As `run`, for any kind of lease. */
  async runUnder(request: LeaseRequest, options: Pick<AcquireOptions, 'wait' | 'ifAvailable'>): Promise<LeasedProcessEnd> {
    const { leases, out } = this.#options
    const { name: resource, resources = [resource], describe } = request
    const line = waitingLine({ leases, out, resources, ...(describe !== undefined && { describe }) })
    let lease: Lease
    try {
      lease = await this.#acquire(request, options, line.update)
    } finally {
      line.end()
    }
    const release = async () => {
      try {
        await lease.release()
        return true
      } catch (error) {
        out.note((error as Error).message, { resource })
        return false
      }
    }
    let end: CommandEnd
    try {
      end = await this.#runUnder(lease, request)
    } catch (error) {
      await release()
      throw error
    }
    if (out.json) out.note('ended', { resource, lease: lease.id, exit: end.exit, ran: end.ran, lost: end.lost })
    // At the same time: on a store, both become one append. A lost lease has other things to tell first.
    if (end.lost) {
      if ((await release()) && !leases.lessor.signal.aborted) await this.#keepRun(lease, end)
    } else await Promise.all([release(), this.#keepRun(lease, end)])
    return { code: end.code, lost: end.lost }
  }

  /** The command has ended with its own code, whether or not its run can be kept. */
  async #keepRun({ id, tokens, holder }: Lease, { exit, ran, lost, overdue }: CommandEnd): Promise<void> {
    const { leases, command, out } = this.#options
    const until = Math.round(this.#clock.wall())
    const since = Math.max(0, until - ran)
    const cause = lost ? 'lost' : overdue ? 'overdue' : 'released'
    const run = { lease: id, holder, since, until, cause, exit, ran, command: basename(command[0]!).slice(0, MAX_COMMAND) }
    const patience = new AbortController()
    const cancel = this.#clock.after(lost ? KEEP_PATIENCE / 4 : KEEP_PATIENCE, () =>
      patience.abort(new LeaseError('UNAVAILABLE', 'no answer')),
    )
    try {
      await keepRun(leases.lessor, tokens, run, { signal: patience.signal })
    } catch (error) {
      // Of a lost lease the user has been told already, and the store may be gone with it.
      if (!lost) out.note(`the exit code could not be written into the history: ${(error as Error).message}`, { exit })
    } finally {
      cancel()
    }
  }

  /** Keeps trying while the lessor is unreachable, once it was reached: a server that restarts must not end the commands that wait for it. */
  async #acquire(
    { name: resource, acquire }: LeaseRequest,
    options: Pick<AcquireOptions, 'wait' | 'ifAvailable'>,
    onWait: NonNullable<AcquireOptions['onWait']>,
  ): Promise<Lease> {
    const { leases, out } = this.#options
    const { wait, ifAvailable = false } = options
    const end = wait === undefined ? Number.POSITIVE_INFINITY : this.#clock.now() + parseDuration(wait, '--wait')
    let reported = false
    const reportUnreachable = (error: LeaseError) => {
      if (!reported) out.note(`${error.message}; still waiting for ${resource}, retrying`, { resource, away: error.code })
      reported = true
    }
    for (;;) {
      try {
        return await acquire({
          ...(end < Number.POSITIVE_INFINITY && { wait: Math.max(1, Math.round(end - this.#clock.now())) }),
          signal: this.signal,
          onWait: place => {
            reported = false
            onWait(place)
          },
          advanced: { onAway: reportUnreachable },
          onLost: reason => this.#end(reason.message, reason),
        })
      } catch (error) {
        const over = ifAvailable || this.#clock.now() >= end || leases.lessor.signal.aborted
        if (over || !isUnreachable(error)) throw error
        reportUnreachable(error)
      }
      await pause(this.#clock, Math.min(BACKOFF.round.longest, Math.max(0, end - this.#clock.now())), this.signal, { ref: true })
    }
  }

  async #runUnder(lease: Lease, { name: resource, env: more, onRecalled }: LeaseRequest): Promise<CommandEnd> {
    const { command, url, onLost, grace, out, signals, maxTime } = this.#options
    this.#lost = false
    this.#isOverdue = false
    this.#stopping = undefined
    this.signal.throwIfAborted()
    const env = {
      LEASEHOLD_RESOURCE: resource,
      LEASEHOLD_TOKEN: String(lease.token),
      LEASEHOLD_TOKENS: JSON.stringify(lease.tokens),
      LEASEHOLD_LEASE: String(lease.id),
      LEASEHOLD_URL: url,
      ...(await more?.(lease)),
    }
    const guard = onLost === 'ignore' ? undefined : { kill: onLost === 'kill', grace }
    const started = this.#clock.now()
    const child = await Child.start({ command, env, clock: this.#clock, ...(guard !== undefined && { guard }) })
    this.#child = child
    signals.forwardTo(name => void child.forward(name))
    // Signals that arrived while it was being started are sent now, even if it already has them.
    if (signals.endingSignal !== undefined) child.send(signals.endingSignal)
    // Also without a callback: it watches for a revoke, instead of learning of it with the next renewal.
    const unlisten = whenAborted(lease.recalled, () => {
      if (onRecalled?.(lease)) child.send('SIGTERM')
    })
    if (out.json) out.note('granted', { resource, lease: lease.id, token: lease.token })
    // It was lost while the command was being started.
    if (lease.signal.aborted) void this.#end((lease.signal.reason as LeaseError).message, lease.signal.reason)
    const ended = new AbortController()
    if (onLost !== 'ignore') void this.#endBeforeExpiry(lease, ended.signal)
    const cancelLimit = maxTime === undefined ? () => {} : this.#clock.after(maxTime, () => this.#endOverdue(resource, maxTime))
    try {
      const code = await child.ended
      await this.#stopping
      const how = { exit: code, ran: Math.round(this.#clock.now() - started), overdue: this.#isOverdue }
      if (this.#isOverdue) return { ...how, code: EXIT.overdue, lost: false }
      if (!this.#lost) return { ...how, code, lost: false }
      return { ...how, code: onLost === 'ignore' ? code : EXIT.lost, lost: true }
    } finally {
      ended.abort()
      cancelLimit()
      unlisten()
      signals.forwardTo(undefined)
      child.detach()
      this.#child = undefined
    }
  }

  /** The command has run for as long as it may. */
  #endOverdue(resource: string, maxTime: number): void {
    const { out, grace } = this.#options
    if (this.#stopping !== undefined || this.#child === undefined) return
    this.#isOverdue = true
    out.note(`the command has run for ${inWords(maxTime)} (--max-time). Ending it: TERM now, KILL in ${inWords(grace)}.`, {
      resource,
      overdue: maxTime,
    })
    this.#stopping = this.#child.stop({ kill: true, grace })
  }

  /** Ends the command when no renewal is answered and the remaining time is just enough to do so. */
  async #endBeforeExpiry(lease: Lease, ended: AbortSignal): Promise<void> {
    try {
      for (let wokeLate = false; ; ) {
        const needed = Math.min(this.#options.grace, lease.ttl / 3)
        const left = lease.remaining()
        if (lease.signal.aborted) return
        // 0, though the lease has not ended: the wall clock jumped, and a renewal that is under way will tell.
        const short = left > 0 && left <= needed
        // If this process woke late, it stalled itself, and the renewal was sent only now. Give its answer half of the remaining time.
        if (short && (wokeLate || left > needed * 0.9)) break
        wokeLate = short
        await pause(this.#clock, left === 0 ? 10 : short ? left / 2 : left - needed, ended)
      }
    } catch {
      return // the command has ended by itself
    }
    const { resources, id } = lease
    const text = `${resources.join(', ')} (lease ${id}) could not be renewed and would be lost in ${inWords(lease.remaining())}`
    await this.#end(text, new LeaseError('LOST', text, { facts: { lease: id, cause: 'unreachable' } }))
  }

  /** Resolves when the command has stopped. Only then may the lessor be told that the holder has stopped. */
  #end(text: string, { facts }: LeaseError): Promise<void> {
    const { out, onLost, grace } = this.#options
    const child = this.#child
    if (child === undefined) return Promise.resolve()
    this.#lost = true
    if (onLost === 'ignore') {
      out.note(`${text}. The command keeps running (--on-lost ignore): another holder may do the same work now.`, { lost: facts })
      return child.ended.then(() => {})
    }
    if (this.#stopping === undefined) {
      const kill = onLost === 'kill'
      out.note(`${text}. Ending the command: TERM now${kill ? `, KILL in ${inWords(grace)}` : ''}.`, { lost: facts })
      this.#stopping = child.stop({ kill, grace })
    }
    return this.#stopping
  }
}

/** Returns whether the lessor may become reachable again. Leases that moved to a store that cannot be opened here, or that denies access, will not. */
function isUnreachable(error: unknown): error is LeaseError {
  if (!(error instanceof LeaseError) || (error.code !== 'UNKNOWN' && error.code !== 'UNAVAILABLE')) return false
  return error.facts.moved === undefined && accessDenialAdvice(error) === undefined
}
