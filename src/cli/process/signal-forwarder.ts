/**
 * The signals of a command that runs another, heard from its first moment: before there is a child, what ends programs ends the wait for it, and
 * then all of them are its own.
 */
import { Interrupted } from '../exit.ts'
import type { ForwardedSignals } from '../invocation.ts'

export const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH'] as const
export type Forwarded = (typeof FORWARDED)[number]

const ENDING: readonly Forwarded[] = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT']

export class SignalForwarder implements ForwardedSignals {
  readonly #interrupt = new AbortController()
  readonly #heard = new Map<Forwarded, () => void>()
  #pass: ((name: Forwarded) => unknown) | undefined

  constructor() {
    for (const name of FORWARDED) {
      const hear = () => this.#hear(name)
      this.#heard.set(name, hear)
      process.on(name, hear)
    }
  }

  /** Fires with the first signal that asks us to end. */
  get signal(): AbortSignal {
    return this.#interrupt.signal
  }

  /** The one that asked us to end. */
  get ending(): Forwarded | undefined {
    const { reason } = this.signal
    return reason instanceof Interrupted ? (reason.signal as Forwarded) : undefined
  }

  /** Who is told from now on; undefined: nobody any more. */
  passTo(pass: ((name: Forwarded) => unknown) | undefined): void {
    this.#pass = pass
  }

  stop(): void {
    for (const [name, hear] of this.#heard) process.off(name, hear)
  }

  #hear(name: Forwarded): void {
    if (ENDING.includes(name) && !this.signal.aborted) this.#interrupt.abort(new Interrupted(name))
    void this.#pass?.(name)
  }
}
