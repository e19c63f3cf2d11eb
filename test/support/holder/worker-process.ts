/** A process with leases of its own, in virtual time. It can die: then none of its timers fires, and no answer reaches it, as after `kill -9`. */
import type { Clock } from '../../../src/clock.ts'
import type { Command } from '../../../src/kernel/command.ts'
import { Leases } from '../../../src/leases.ts'
import { propose } from '../../../src/lessor/propose.ts'
import type { Lessor } from '../../../src/lessor.ts'
import { submitting } from '../submitting.ts'

/** Changes commands on their way to the server, to see whether that is noticed. Undefined: the command is answered, and not carried out. */
export type Tamper = (command: Command) => Command | undefined

export class WorkerProcess {
  readonly leases: Leases
  readonly lessor: Lessor
  #dead = false
  readonly #died = new AbortController()

  constructor(server: Lessor, clock: Clock, holder: string, ttl: number, tamper: Tamper = command => command) {
    this.lessor = this.#connectionTo(server, tamper)
    this.leases = new Leases(this.lessor, { holder, ttl, clock: this.#clockOf(clock) })
  }

  get alive(): boolean {
    return !this.#dead
  }

  kill(): void {
    this.#dead = true
    this.#died.abort()
  }

  #clockOf(clock: Clock): Clock {
    const ifAlive = (then: () => void) => () => {
      if (!this.#dead) then()
    }
    return {
      now: () => clock.now(),
      uptime: () => clock.uptime(),
      wall: () => clock.wall(),
      boot: () => clock.boot(),
      random: () => clock.random(),
      bits: () => clock.bits(),
      after: (ms, then) => clock.after(ms, ifAlive(then)),
      soon: then => clock.soon(ifAlive(then)),
    }
  }

  #connectionTo(server: Lessor, tamper: Tamper): Lessor {
    const whileAlive = async <T>(call: () => Promise<T>): Promise<T> => {
      const settled = this.#dead
        ? undefined
        : await call().then(
            value => ({ value }),
            (error: unknown) => ({ error }),
          )
      if (this.#dead || settled === undefined) return new Promise<T>(() => {})
      if ('error' in settled) throw settled.error
      return settled.value
    }
    const died = this.#died.signal
    return {
      profile: server.profile,
      signal: new AbortController().signal,
      submit: submitting(async (command, options) => {
        const sent = tamper(command)
        return sent === undefined ? { kind: 'done', revision: 0 } : whileAlive(() => propose(server, sent, options))
      }),
      read: (query, options) => whileAlive(() => server.read(query, options)),
      async *watch(prefix, options) {
        const signal = AbortSignal.any([options.signal, died])
        for await (const events of server.watch(prefix, { ...options, signal })) yield events
        if (died.aborted) await new Promise(() => {})
      },
      // The server serves others.
      async [Symbol.asyncDispose]() {},
    }
  }
}
