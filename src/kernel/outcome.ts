/** Outcomes: what the kernel decided, at `revision`. A refusal is an outcome, not a failure: it changed nothing. */

import type { Facts, Reason, RefusalCode } from './reason.ts'

export type { RefusalCode } from './reason.ts'

export interface Refused {
  readonly kind: 'refused'
  readonly revision: number
  readonly code: RefusalCode
  readonly reason: Reason
  /** As `FactsByReason` has them for the reason. */
  readonly facts: Facts
}

/** `ttl` is the first term, at most 30 s until the first renewal. `tokens[i]` fences `resources[i]`. */
export interface Granted {
  readonly kind: 'granted'
  readonly revision: number
  readonly lease: number
  readonly incarnation: number
  readonly ttl: number
  readonly resources: readonly string[]
  readonly tokens: readonly number[]
}

/** The lease waits. It must be renewed like any other, or it loses its place. The grant comes as an event; renew before you rely on it. */
export interface Queued {
  readonly kind: 'queued'
  readonly revision: number
  readonly lease: number
  readonly incarnation: number
  readonly ttl: number
  /** 0 is next. With several queues, the highest position. */
  readonly position: number
}

/**
 * For each lease of the command, in order: its ttl from now on, or GONE. 0: it goes on, and its holder may not rely on it. Either the command renews waiters only and
 * the lease does not wait, or its grant was not confirmed before the log lost records: renew it again.
 */
export interface Renewed {
  readonly kind: 'renewed'
  readonly revision: number
  readonly ttls: readonly number[]
}
export const GONE = -1

export interface Done {
  readonly kind: 'done'
  readonly revision: number
  /** The new lease of a transfer, the id of a new key, or how many leases a revocation by holder or prefix has ended. */
  readonly id?: number
}

/** The token was accepted: no newer one had been shown. */
export interface Fenced {
  readonly kind: 'fenced'
  readonly revision: number
  readonly highest: number
}

/** Tells whether the comparisons of a transaction were true: `success` was carried out, otherwise `failure`. */
export interface Transacted {
  readonly kind: 'transacted'
  readonly revision: number
  readonly succeeded: boolean
}

/** The command came too late to have an effect: its timer was restarted, or its tick was already counted. */
export interface Nothing {
  readonly kind: 'nothing'
  readonly revision: number
}

/** The record was too old to be applied. Certainly not done; its proposer writes the commands into a new record. */
export interface Void {
  readonly kind: 'void'
  readonly revision: number
}

export type Outcome = Granted | Queued | Renewed | Done | Fenced | Nothing | Void | Refused | Transacted

/** `apply` fills in the revision. */
export function done(id?: number): Done {
  return id === undefined ? { kind: 'done', revision: 0 } : { kind: 'done', revision: 0, id }
}

export function nothing(): Nothing {
  return { kind: 'nothing', revision: 0 }
}
