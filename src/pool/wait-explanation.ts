/** Why a waiter of a pool waits, as data. */
import type { StartForecast } from './forecast.ts'

export type WaitCause = 'ahead' | 'held' | 'near' | 'quota' | 'share' | 'impossible' | 'window' | 'suspect'

/** One reason, for programs and for people. */
export interface WaitReason {
  readonly cause: WaitCause
  readonly text: string
}

/** A lease that holds members which the waiter could use. */
export interface Blocker {
  readonly lease: number
  readonly holder: string
  readonly account: string
  readonly members: readonly string[]
  /** For how many ms it has been held. */
  readonly held: number
  /** Within how many ms it ends with a probability of one half. */
  readonly likelyEnd: number
  /** `frozen`: the lease has ended, and its holder may still use the members. */
  readonly frozen: boolean
  readonly recalled: boolean
}

/** Another request in the same place of the queue. */
export interface Alternative {
  /** This is different: `1 instead of 2`. */
  readonly change: string
  readonly start: StartForecast
}

export interface WaitExplanation {
  readonly lease: number
  readonly holder: string
  readonly account: string
  /** 0 is next. */
  readonly position: number
  readonly reasons: readonly WaitReason[]
  /** The leases that probably end first. */
  readonly blockers: readonly Blocker[]
  /** Undefined if the present members can never serve it. */
  readonly start: StartForecast | undefined
  readonly alternatives: readonly Alternative[]
  /** The same in sentences. */
  readonly text: readonly string[]
}
