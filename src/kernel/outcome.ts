/** What the kernel answered, decided at `revision`. A refusal is an answer, not a failure: it changed nothing. */

export type RefusalCode = 'HELD' | 'GONE' | 'STALE' | 'DEADLOCK' | 'INVALID' | 'FORBIDDEN' | 'LIMIT' | 'UNAVAILABLE' | 'NOT_FOUND'

export interface Refused {
  readonly kind: 'refused'
  readonly revision: number
  readonly code: RefusalCode
  readonly message: string
  readonly facts: Readonly<Record<string, string | number | boolean | readonly string[] | readonly number[]>>
}

/** `ttl` is the first term: at most 30 s until renewed once. `tokens[i]` fences `resources[i]`. */
export interface Granted {
  readonly kind: 'granted'
  readonly revision: number
  readonly lease: number
  readonly incarnation: number
  readonly ttl: number
  readonly resources: readonly string[]
  readonly tokens: readonly number[]
}

/** The lease exists and must be renewed like any other, or its place is lost. Its grant comes as an event; renew before you trust it. */
export interface Queued {
  readonly kind: 'queued'
  readonly revision: number
  readonly lease: number
  readonly incarnation: number
  readonly ttl: number
  /** 0: next. The longest queue's, when there are several. */
  readonly position: number
}

/** For each lease asked for, in that order: the ttl it has from now on, or GONE. */
export interface Renewed {
  readonly kind: 'renewed'
  readonly revision: number
  readonly ttls: readonly number[]
}
export const GONE = -1

export interface Done {
  readonly kind: 'done'
  readonly revision: number
  /** The new lease of a transfer, or the id of a key. */
  readonly id?: number
}

/** Accepted: no newer token had been shown. */
export interface Fenced {
  readonly kind: 'fenced'
  readonly revision: number
  readonly highest: number
}

/** The command came too late to mean anything: a timer restarted since, a tick already counted. */
export interface Nothing {
  readonly kind: 'nothing'
  readonly revision: number
}

/** The entry was too far out of date to be applied. Certainly not done; its proposer asks again in a new entry. */
export interface Void {
  readonly kind: 'void'
  readonly revision: number
}

export type Outcome = Granted | Queued | Renewed | Done | Fenced | Nothing | Void | Refused

/** `apply` writes the revision in when it is known. */
export function done(id?: number): Done {
  return id === undefined ? { kind: 'done', revision: 0 } : { kind: 'done', revision: 0, id }
}

export function nothing(): Nothing {
  return { kind: 'nothing', revision: 0 }
}
