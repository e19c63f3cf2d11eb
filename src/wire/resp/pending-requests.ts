/**
 * All requests of a client that wait for an answer: sent in batches, failed when their connection ends or after a timeout. A change is sent once, and the caller
 * decides whether to send it again (holder/operations.ts). Only reads are asked again here, on the next connection.
 */
import type { Clock, RearmableTimer } from '../../clock.ts'
import { inWords } from '../../duration.ts'
import type { LeaseError } from '../../errors.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { View } from '../../lessor.ts'
import type { ServerMessage } from '../messages.ts'
import type { RespConnection } from './connection.ts'
import { PendingRequest, type RequestMessage, type Waiting } from './request.ts'

export interface PendingRequestsOptions {
  readonly clock: Clock
  /** Fail a request that has no answer for this many ms. */
  readonly timeout: number
  /** The servers' names, for error messages. */
  readonly servers: string
  /** Requests wait to be sent: send them at the end of this turn. */
  readonly sendSoon: () => void
}

export class PendingRequests implements Iterable<PendingRequest> {
  readonly #options: PendingRequestsOptions
  readonly #pending = new Map<number, PendingRequest>()
  #unsent: PendingRequest[] = []
  /**
   * Keeps the process alive while a request waits; the sockets do not. It stays set while nothing waits: setting a timer for each request would cost more than
   * sending it.
   */
  #timer: RearmableTimer | undefined
  #allSettled: (() => void) | undefined

  constructor(options: PendingRequestsOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#pending.size
  }

  [Symbol.iterator](): IterableIterator<PendingRequest> {
    return this.#pending.values()
  }

  /** Sends `message` at the end of this turn, and passes its answer or its error to `waiting`. */
  begin(message: RequestMessage, signal: AbortSignal | undefined, waiting: Waiting): void {
    const { clock, timeout, sendSoon } = this.#options
    const request = new PendingRequest(message, clock.now(), waiting)
    if (signal !== undefined) {
      const abort = () => this.#fail(request, signal.reason)
      signal.addEventListener('abort', abort, { once: true })
      request.unlink = () => signal.removeEventListener('abort', abort)
    }
    if (this.#pending.size === 0) this.#timer?.keepAlive?.(true)
    this.#pending.set(message.id, request)
    this.#timer ??= this.#failOverdueAfter(timeout)
    this.#unsent.push(request)
    sendSoon()
  }

  #settled(request: PendingRequest): void {
    this.#pending.delete(request.message.id)
    request.unlink?.()
    if (this.#pending.size > 0) return
    if (this.#timer?.keepAlive !== undefined) this.#timer.keepAlive(false)
    else {
      this.#timer?.cancel()
      this.#timer = undefined
    }
    this.#allSettled?.()
  }

  #fail(request: PendingRequest, error: unknown): void {
    this.#settled(request)
    request.waiting.fail(error)
  }

  /** Writes all unsent requests to `connection`, if it has room. */
  sendOn(connection: RespConnection): void {
    if (this.#unsent.length === 0 || !connection.hasRoom) return
    const now = this.#options.clock.now()
    for (const request of this.#unsent.splice(0)) {
      if (this.#pending.get(request.message.id) !== request || request.on !== undefined) continue
      request.on = connection
      request.sentAt = now
      connection.send(request.message)
    }
  }

  // Answers

  /** The server answered a request of this kind. */
  answered(id: number, kind: RequestMessage['kind'], answer: Outcome | View): void {
    const request = this.#pending.get(id)
    if (request === undefined) return
    if (request.message.kind !== kind) return this.#fail(request, request.unanswered('the server answered another request'))
    this.#settled(request)
    request.waiting.settle(answer)
  }

  /** The server answered with an error. False: no request has this id. */
  refused(connection: RespConnection, { id, error }: Extract<ServerMessage, { readonly kind: 'failed' }>): boolean {
    const request = this.#pending.get(id)
    if (request === undefined) return false
    // A read that was asked again elsewhere: the answer to that copy decides.
    if (request.on === connection) this.#fail(request, error)
    return true
  }

  // Connections that end or are replaced

  /** Returns whether an answer is expected on `connection`. */
  expectedOn(connection: RespConnection): boolean {
    for (const { on } of this.#pending.values()) if (on === connection) return true
    return false
  }

  /** Answers will not come on `connection`. Reads are asked again; changes may have been executed, and fail. */
  interrupt(connection: RespConnection, error: LeaseError): void {
    for (const request of [...this.#pending.values()]) {
      if (request.on !== connection) continue
      if (request.isRead) this.#askAgain(request)
      else this.#fail(request, request.unanswered(error.message, error))
    }
  }

  /** `connection` was replaced while it was silent. A change without an operation id, which its sender cannot send again, goes on waiting. */
  leave(connection: RespConnection): void {
    const { name } = connection
    for (const request of [...this.#pending.values()]) {
      if (request.on !== connection) continue
      if (request.isRead) this.#askAgain(request)
      else if (request.isResentBySender)
        this.#fail(request, request.unanswered(`${name} is silent`, { reason: 'silent', facts: { where: name } }))
    }
  }

  #askAgain(request: PendingRequest): void {
    request.on = undefined
    this.#unsent.push(request)
  }

  /** The log went back: revisions seen before mean nothing. */
  forgetRevisions(): void {
    for (const request of this.#pending.values()) request.forgetRevision()
  }

  /** No server will take any request: the client itself was refused. */
  refuseAll(error: LeaseError): void {
    for (const request of [...this.#pending.values()]) this.#fail(request, error)
  }

  // Timeouts

  #failOverdueAfter(ms: number): RearmableTimer {
    const { clock } = this.#options
    // After a stall the timer is overdue and answers wait in the socket. Read them first.
    const fail = () => clock.soon(() => clock.soon(() => this.#failOverdue()))
    return clock.standing?.(ms, fail) ?? { cancel: clock.after(ms, fail, { ref: true }) }
  }

  #failOverdue(): void {
    this.#timer = undefined
    const { clock, timeout, servers } = this.#options
    const now = clock.now()
    for (const request of this.#pending.values()) {
      const left = request.createdAt + timeout - now
      if (left > 0.5) {
        this.#timer = this.#failOverdueAfter(left)
        return
      }
      this.#fail(
        request,
        request.unanswered(`no answer from ${servers} for ${inWords(timeout)}`, {
          reason: 'unreachable',
          facts: { engine: 'leasehold', where: servers },
        }),
      )
    }
  }

  // The end

  /** Resolves when no request waits any more. */
  allSettled(): Promise<void> {
    return new Promise(resolve => (this.#allSettled = resolve))
  }

  close(why: string): void {
    for (const request of [...this.#pending.values()]) this.#fail(request, request.unanswered(why))
    this.#timer?.cancel()
  }
}
