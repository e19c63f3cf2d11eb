/** All watches of a client. On each new connection they begin again, after the last revision that they delivered. */
import { BACKOFF } from '../../backoff.ts'
import type { Clock } from '../../clock.ts'
import type { LeaseError } from '../../errors.ts'
import type { Event } from '../../kernel/event.ts'
import type { WatchOptions } from '../../lessor.ts'
import type { ServerMessage } from '../messages.ts'
import type { RespConnection } from './connection.ts'
import { Subscription } from './subscription.ts'

export interface SubscriptionsOptions {
  readonly clock: Clock
  readonly nextId: () => number
  /** The connection in use, if it is open. */
  readonly connection: () => RespConnection | undefined
  readonly flushSoon: () => void
  /** Throws if the client was closed. */
  readonly mustBeOpen: () => void
}

export class Subscriptions {
  readonly #options: SubscriptionsOptions
  readonly #byId = new Map<number, Subscription>()

  constructor(options: SubscriptionsOptions) {
    this.#options = options
  }

  /** Yields the events of one revision after another, until the signal fires. */
  async *watch(prefix: string, { after, types, signal }: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    if (signal.aborted) return
    this.#options.mustBeOpen()
    const subscription = new Subscription(prefix, after, types)
    this.#begin(subscription)
    try {
      for (;;) {
        const events = await subscription.next(signal)
        if (events === undefined) return
        yield events
        if (signal.aborted) return
        if (subscription.wireId === 0 && subscription.low) this.#begin(subscription)
      }
    } finally {
      this.#stop(subscription)
      this.#byId.delete(subscription.id)
    }
  }

  #begin(subscription: Subscription): void {
    this.#renumber(subscription)
    const connection = this.#options.connection()
    if (connection === undefined) return
    this.#beginOn(connection, subscription)
    this.#options.flushSoon()
  }

  #beginOn(connection: RespConnection, subscription: Subscription): void {
    const { id, prefix, after, types } = subscription
    subscription.wireId = id
    connection.send({ kind: 'watch', id, prefix, ...(after !== undefined && { after }), ...(types && { types }) })
  }

  #stop(subscription: Subscription): void {
    const connection = this.#options.connection()
    if (subscription.wireId !== 0 && connection !== undefined) {
      connection.send({ kind: 'stop', id: subscription.wireId })
      this.#options.flushSoon()
    }
    subscription.wireId = 0
    // Messages still on their way carry the old id, and are dropped.
    if (this.#byId.has(subscription.id)) this.#renumber(subscription)
  }

  #renumber(subscription: Subscription): void {
    this.#byId.delete(subscription.id)
    subscription.id = this.#options.nextId()
    this.#byId.set(subscription.id, subscription)
  }

  /** A message about a watch. False: no watch has its id. */
  received(message: Extract<ServerMessage, { readonly kind: 'watching' | 'events' | 'over' }>): boolean {
    const subscription = this.#byId.get(message.id)
    if (subscription === undefined) return false
    if (message.kind === 'watching') subscription.begun(message.revision)
    else if (message.kind === 'over') this.ended(message.id, undefined)
    else {
      subscription.push(message.events)
      if (subscription.full) this.#stop(subscription)
    }
    return true
  }

  /** The server ended a watch: for good, or because the server itself is stopping. */
  ended(id: number, error: LeaseError | undefined): void {
    const subscription = this.#byId.get(id)
    if (subscription === undefined || subscription.wireId !== id) return
    subscription.wireId = 0
    if (error !== undefined && error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN') return subscription.fail(error)
    this.#options.clock.after(BACKOFF.background.first, () => {
      if (subscription.wireId === 0 && this.#byId.has(subscription.id)) this.#begin(subscription)
    })
  }

  // Connections that come, end or are replaced

  beginAllOn(connection: RespConnection): void {
    for (const subscription of [...this.#byId.values()]) if (!subscription.full) this.#beginOn(connection, subscription)
  }

  /** Under new ids: what the replaced connection may still bring was not asked for. */
  stopAll(): void {
    for (const subscription of [...this.#byId.values()]) this.#stop(subscription)
  }

  /** The connection that carried them has ended. */
  disconnected(): void {
    for (const subscription of this.#byId.values()) subscription.wireId = 0
  }

  resyncAll(revision: number, at: number): void {
    for (const subscription of this.#byId.values()) subscription.resync(revision, at)
  }

  failAll(error: LeaseError): void {
    for (const subscription of this.#byId.values()) subscription.fail(error)
  }
}
