/**
 * One connection to Redis at a time, made when it is needed and given up when it is in doubt. Every request has a bound: an engine that hangs
 * takes nobody with it. A request whose answer does not come in time ends the connection, so that a late answer can be taken for no other's.
 */
import type { Clock } from '../clock.ts'
import { type ErrorCode, LeaseError } from '../errors.ts'
import type { Argument, Connection, Dial } from './redis-driver.ts'
import { refusal, trouble, unreachable } from './redis-trouble.ts'

export interface LinkOptions {
  readonly dial: Dial
  readonly clock: Clock
  /** How long, in ms, to wait for a connection, and for an answer. */
  readonly patience: number
  /** What to call the other side. */
  readonly where: string
  /** Looks at a new connection before it is used. */
  readonly greet?: (send: (args: readonly Argument[]) => Promise<unknown>) => Promise<void>
}

export interface SendOptions {
  /** What it is when the request was sent and no answer came. */
  readonly ifLost: ErrorCode
  /** The server may take so much longer, since it was asked to wait. Nobody keeps the process alive for that. */
  readonly waits?: number
}

/** Answers of a server that is not, or no longer, the one to talk to. */
const ELSEWHERE = new Set(['READONLY', 'MASTERDOWN', 'UNBLOCKED', 'NOAUTH', 'MOVED'])

export class Link {
  readonly #options: LinkOptions
  #live: Connection | undefined
  #dialing: Promise<Connection> | undefined
  #closed = false
  #busy = 0

  constructor(options: LinkOptions) {
    this.#options = options
  }

  async send(args: readonly Argument[], { ifLost, waits }: SendOptions): Promise<unknown> {
    const { where, patience } = this.#options
    const connection = this.#live?.ready === true ? this.#live : await this.#connected()
    const holds = waits === undefined
    if (holds && this.#busy++ === 0) connection.hold(true)
    try {
      return await this.#bounded(connection.send(args), patience + (waits ?? 0), () => {
        return new LeaseError(ifLost, `no answer from ${where} for ${patience} ms`, { facts: { where, reason: 'silent' } })
      })
    } catch (error) {
      const word = refusal(error)
      if (word === undefined || ELSEWHERE.has(word)) this.#drop(connection)
      throw this.#closed && word === undefined ? closed(ifLost) : trouble(error, where, ifLost)
    } finally {
      if (holds && --this.#busy === 0) connection.hold(false)
    }
  }

  close(): void {
    this.#closed = true
    this.#live?.close()
    this.#live = undefined
  }

  async #connected(): Promise<Connection> {
    if (this.#live && !this.#live.ready) this.#drop(this.#live)
    if (this.#closed) throw closed()
    if (this.#live) return this.#live
    this.#dialing ??= this.#dial().finally(() => (this.#dialing = undefined))
    const connection = await this.#dialing
    if (this.#closed) {
      connection.close()
      throw closed()
    }
    this.#live = connection
    return connection
  }

  async #dial(): Promise<Connection> {
    const { dial, where, patience, greet } = this.#options
    const connection = await dial()
    const silent = () => new Error(`no answer for ${patience} ms`)
    try {
      await this.#bounded(connection.connect(), patience, silent)
      if (greet)
        await this.#bounded(
          greet(args => connection.send(args)),
          patience,
          silent,
        )
      connection.hold(this.#busy > 0)
      return connection
    } catch (error) {
      connection.close()
      throw unreachable(error, where)
    }
  }

  #drop(connection: Connection): void {
    if (this.#live === connection) this.#live = undefined
    connection.close()
  }

  #bounded<T>(answer: Promise<T>, ms: number, late: () => Error): Promise<T> {
    const { clock } = this.#options
    return new Promise((resolve, reject) => {
      // When this process has stood still, the timer is overdue and the answer waits to be read: it comes first.
      const cancel = clock.after(ms, () => clock.soon(() => clock.soon(() => reject(late()))))
      answer.then(resolve, reject).finally(cancel)
    })
  }
}

export function closed(code: ErrorCode = 'UNAVAILABLE'): LeaseError {
  return new LeaseError(code, 'the store was closed')
}
