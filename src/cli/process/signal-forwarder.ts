/**
 * Handles the signals of a command that runs another command, from its first moment. Before there is a child, a signal that ends programs ends the
 * wait for the lease. After that, every signal is forwarded to the child.
 */
import { Interrupted } from '../exit.ts'
import type { InterruptListener } from '../invocation.ts'

export const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH'] as const
export type Forwarded = (typeof FORWARDED)[number]

const ENDING: readonly Forwarded[] = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT']

export class SignalForwarder implements InterruptListener {
  readonly #interrupt = new AbortController()
  readonly #listeners = new Map<Forwarded, () => void>()
  #forward: ((name: Forwarded) => unknown) | undefined

  constructor() {
    for (const name of FORWARDED) {
      const listener = () => this.#receive(name)
      this.#listeners.set(name, listener)
      process.on(name, listener)
    }
  }

  /** Fires with the first signal that asks the command to end. */
  get signal(): AbortSignal {
    return this.#interrupt.signal
  }

  /** The first signal that asked the command to end. */
  get endingSignal(): Forwarded | undefined {
    const { reason } = this.signal
    return reason instanceof Interrupted ? (reason.signal as Forwarded) : undefined
  }

  /** Sets the receiver of all further signals; undefined for none. */
  forwardTo(forward: ((name: Forwarded) => unknown) | undefined): void {
    this.#forward = forward
  }

  stop(): void {
    for (const [name, listener] of this.#listeners) process.off(name, listener)
  }

  #receive(name: Forwarded): void {
    if (ENDING.includes(name) && !this.signal.aborted) this.#interrupt.abort(new Interrupted(name))
    void this.#forward?.(name)
  }
}
