/**
 * One connection to Redis at a time, made on demand and closed when it is in doubt. Every request has a timeout. A request that times out
 * closes the connection, so that its late answer cannot be taken for that of another request.
 */
import { afterReading, type Clock } from '../../clock.ts'
import { type ErrorCode, LeaseError } from '../../errors.ts'
import { storeClosed } from '../closed.ts'
import type { DialRedis, DriverConnection, RedisArgument } from './driver.ts'
import { redisError, refusal, unreachable } from './errors.ts'

export interface RedisConnectionOptions {
  readonly dial: DialRedis
  readonly clock: Clock
  /** The store waits this long, in ms, for a connection, and for an answer. */
  readonly timeout: number
  /** The address, for messages. */
  readonly where: string
  /** Returns whether the connection is closed when it was not used for a moment. The next request makes a new one. Left out: it stays. */
  readonly mayRest?: () => boolean
  /** Checks a new connection before it is used. */
  readonly greet?: (send: (args: readonly RedisArgument[]) => Promise<unknown>) => Promise<void>
}

export interface SendOptions {
  /** The code of the error if the request was sent and no answer came. */
  readonly ifLost: ErrorCode
  /** For a blocking command: the server may take this many ms longer. The request does not keep the process alive. */
  readonly waits?: number
}

/** After so many ms without a request. */
const REST = 2_000
/** Refusals of a server that is not, or no longer, the right one. */
const WRONG_SERVER = new Set(['READONLY', 'MASTERDOWN', 'UNBLOCKED', 'NOAUTH', 'MOVED'])

/** A command that was sent and not answered yet. */
interface PendingCommand {
  readonly connection: DriverConnection
  readonly until: number
  readonly ifLost: ErrorCode
  readonly keepsAlive: boolean
  readonly resolve: (reply: unknown) => void
  readonly reject: (error: LeaseError) => void
}

export class RedisConnection {
  readonly #options: RedisConnectionOptions
  #live: DriverConnection | undefined
  #dialing: Promise<DriverConnection> | undefined
  #closed = false
  #busy = 0
  readonly #pending = new Set<PendingCommand>()
  #watching = false
  #cancelRest: (() => void) | undefined

  constructor(options: RedisConnectionOptions) {
    this.#options = options
  }

  /** `args`: a function if they depend on what the greeting of the connection has found. Not async: an append should wait for one promise only. */
  send(args: readonly RedisArgument[] | (() => readonly RedisArgument[]), options: SendOptions): Promise<unknown> {
    const made = () => (typeof args === 'function' ? args() : args)
    if (this.#live?.ready === true) return this.#request(this.#live, made(), options)
    return this.#connected().then(connection => this.#request(connection, made(), options))
  }

  #request(connection: DriverConnection, args: readonly RedisArgument[], { ifLost, waits }: SendOptions): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const until = this.#options.clock.now() + this.#options.timeout + (waits ?? 0)
      const pending = { connection, until, ifLost, keepsAlive: waits === undefined, resolve, reject }
      this.#pending.add(pending)
      if (pending.keepsAlive && this.#busy++ === 0) connection.keepAlive(true)
      if (!this.#watching) this.#watch(until)
      connection.send(args).then(
        reply => this.#settled(pending) && resolve(reply),
        error => this.#settled(pending) && reject(this.#error(pending, error)),
      )
    })
  }

  /** False if the request had been settled before. */
  #settled(pending: PendingCommand): boolean {
    if (!this.#pending.delete(pending)) return false
    if (pending.keepsAlive && --this.#busy === 0) pending.connection.keepAlive(false)
    if (this.#pending.size === 0) this.rest()
    return true
  }

  /** Closes the connection after a moment without a request, if it may rest then. */
  rest(): void {
    const { clock, mayRest } = this.#options
    this.#cancelRest?.()
    this.#cancelRest = undefined
    if (mayRest?.() !== true || this.#live === undefined) return
    this.#cancelRest = clock.after(REST, () => {
      this.#cancelRest = undefined
      if (this.#pending.size === 0 && mayRest()) this.disconnect()
    })
  }

  /** Closes the connection: requests that are pending fail. The next request makes a new connection. */
  disconnect(): void {
    if (this.#live !== undefined) this.#drop(this.#live)
  }

  #error({ connection, ifLost }: PendingCommand, error: unknown): LeaseError {
    const word = refusal(error)
    if (word === undefined || WRONG_SERVER.has(word)) this.#drop(connection)
    return this.#closed && word === undefined ? storeClosed(ifLost) : redisError(error, this.#options.where, ifLost)
  }

  /** One timer for all requests: most are answered long before it fires. */
  #watch(until: number): void {
    const { clock, where, timeout } = this.#options
    this.#watching = true
    const check = () => {
      this.#watching = false
      const now = clock.now()
      for (const pending of this.#pending) {
        if (pending.until > now || !this.#settled(pending)) continue
        this.#drop(pending.connection)
        const message = `no answer from ${where} for ${timeout} ms`
        pending.reject(new LeaseError(pending.ifLost, message, { reason: 'silent', facts: { where } }))
      }
      const next = Math.min(...[...this.#pending].map(pending => pending.until))
      if (next < Number.POSITIVE_INFINITY) this.#watch(next)
    }
    afterReading(clock, Math.max(0, until - clock.now()), check)
  }

  close(): void {
    this.#closed = true
    this.#cancelRest?.()
    this.#live?.close()
    this.#live = undefined
  }

  async #connected(): Promise<DriverConnection> {
    if (this.#live && !this.#live.ready) this.#drop(this.#live)
    if (this.#closed) throw storeClosed()
    if (this.#live) return this.#live
    this.#dialing ??= this.#dial().finally(() => (this.#dialing = undefined))
    const connection = await this.#dialing
    if (this.#closed) {
      connection.close()
      throw storeClosed()
    }
    this.#live = connection
    return connection
  }

  async #dial(): Promise<DriverConnection> {
    const { dial, where, timeout, greet } = this.#options
    const connection = await dial()
    const silent = () => new Error(`no answer for ${timeout} ms`)
    try {
      await this.#bounded(connection.connect(), timeout, silent)
      if (greet)
        await this.#bounded(
          greet(args => connection.send(args)),
          timeout,
          silent,
        )
      connection.keepAlive(this.#busy > 0)
      return connection
    } catch (error) {
      connection.close()
      throw unreachable(error, where)
    }
  }

  #drop(connection: DriverConnection): void {
    if (this.#live === connection) this.#live = undefined
    connection.close()
  }

  #bounded<T>(answer: Promise<T>, ms: number, late: () => Error): Promise<T> {
    const { clock } = this.#options
    return new Promise((resolve, reject) => {
      const cancel = afterReading(clock, ms, () => reject(late()))
      answer.then(resolve, reject).finally(cancel)
    })
  }
}
