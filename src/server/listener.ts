/**
 * The contract between a server and its wires: what a wire gets to work with. A connection goes to a wire once its first bytes show which protocol it speaks. A wire
 * keeps nothing open after `closing`, and never lets one connection affect another.
 */
import type { Server as HttpServer } from 'node:http'
import type { Clock } from '../clock.ts'
import type { Face, FaceNames } from '../face/face.ts'
import type { GuardedLessor } from './guarded-lessor.ts'
import type { Limits } from './limits.ts'

/** A structured log with the methods of pino. Secrets are never passed to it. */
export interface ServerLog {
  debug(facts: object, message?: string): void
  info(facts: object, message?: string): void
  warn(facts: object, message?: string): void
  error(facts: object, message?: string): void
}

/** Logged when a client proves that the log lost records which the client had seen. */
export const LOG_WENT_BACK =
  'the log went back: a client saw records that it does not contain, as after a restore from an old copy of the data directory. Leases that the client held by those records are lost'

export interface ListenerContext {
  readonly guarded: GuardedLessor
  readonly clock: Clock
  readonly limits: Limits
  readonly log: ServerLog
  /** Figures of the replica and the store, for metrics. */
  readonly figures: () => Readonly<Record<string, number>>
  /** Fires when the server starts to stop: waits and watches end at once, requests in progress are answered, idle connections are closed. */
  readonly closing: AbortSignal
  /** The number of open connections, over all wires. */
  readonly connections: () => number
  /** When the certificates in use end, in wall time, by `certificate` and `authority`. @default none */
  readonly certificates?: () => ReadonlyMap<string, number>
  /** The data file of the store, if it has one. @default none */
  readonly dataFile?: () => string | undefined
  /** Other people's protocols that are switched on. @default none */
  readonly faces?: readonly Face[]
  /** Which resources their names stand for. @default those of the same name */
  readonly faceNames?: FaceNames | undefined
  /** Answers clients that found this server in its store. @default none: they are refused */
  readonly beside?: BesideCheck | undefined
}

/**
 * Checks the proof of a client that found this server in its store, and returns the proof that this server uses the same store. The client is the
 * operator then, as every process that may write to the store. Throws `UNAUTHENTICATED`.
 */
export type BesideCheck = (name: string, proof: string) => Promise<string>

/**
 * Creates the HTTP wire: a Node server that does not listen itself. The port passes it connections by `emit('connection', socket)`, with the bytes already read put back.
 * The port also starts its timeouts for slow headers and bodies (`emit('listening')`), closes idle connections on stop, and destroys the remaining ones at the end.
 */
export type Listener = (context: ListenerContext) => HttpServer
