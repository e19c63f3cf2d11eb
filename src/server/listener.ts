/**
 * Where a connection goes once its first bytes have told which wire it speaks. A door has everything it needs in its context, keeps nothing
 * open after `closing`, and never lets one connection hurt another.
 */
import type { Server as HttpServer } from 'node:http'
import type { Clock } from '../clock.ts'
import type { GuardedLessor } from './guarded-lessor.ts'
import type { Limits } from './limits.ts'

/** Of pino's shape; silent where none is given. Nothing secret is ever handed to it. */
export interface Log {
  debug(facts: object, message?: string): void
  info(facts: object, message?: string): void
  warn(facts: object, message?: string): void
  error(facts: object, message?: string): void
}

/** What is logged when a client shows that the log lost what the client saw. */
export const LOG_WENT_BACK =
  'the log went back: a client saw records that it does not contain, as after a data directory was put back from a copy; what the client held by them is lost'

export interface ListenerContext {
  readonly desk: GuardedLessor
  readonly clock: Clock
  readonly limits: Limits
  readonly log: Log
  /** Numbers of the replica and the store, for metrics. */
  readonly figures: () => Readonly<Record<string, number>>
  /** Fires when the server begins to stop: waits and watches end now, what is under way is answered, idle connections are let go. */
  readonly closing: AbortSignal
  /** Connections open now, of every wire. */
  readonly connections: () => number
}

/**
 * HTTP: a Node server that does not listen itself. Its connections come by `emit('connection', socket)` with everything they sent put back; the
 * port starts its watch over slow headers and bodies (`emit('listening')`), closes idle connections when stopping, and cuts what is left in the end.
 */
export type Listener = (context: ListenerContext) => HttpServer
