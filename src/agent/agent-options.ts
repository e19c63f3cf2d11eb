/** The options of agents and claims, and what an agent is answered. */
import type { Duration } from '../duration.ts'
import type { Mode } from '../holder/acquire-options.ts'
import type { Workspace } from './names.ts'
import type { NameView } from './neighbours.ts'
import type { LostClaim } from './notices.ts'
import type { AgentSession, BoundProcess } from './session.ts'

export interface AgentOptions {
  /**
   * Its name, unique among live agents. A sub-agent has the name of its parent before its own: `planner/tests`.
   */
  readonly name: string
  /** The session lease of the parent agent: this one ends with it. */
  readonly parent?: number
  /** The process that the agent is. When it is gone, so are the claims. Checked by `isAlive`. */
  readonly process?: Omit<BoundProcess, 'host'>
  /** Returns whether the bound process is alive. */
  readonly isAlive?: () => boolean
  /**
   * The session lasts this long without a renewal.
   * @default '60s' if this object renews it, otherwise '15m'
   */
  readonly ttl?: Duration
  /**
   * After this time without activity, claims go to a waiter.
   * @default '20m'
   */
  readonly idle?: Duration
  /**
   * The longest life of a claim. A policy (`maxLife`) may say less.
   * @default '4h'
   */
  readonly cap?: Duration
  /** Names are paths in this workspace. Left out: free names. */
  readonly workspace?: Workspace
}

export interface ClaimOptions {
  /** @default 'exclusive' */
  readonly mode?: Mode
  /** Why, in a few words: other agents and people see it. */
  readonly purpose?: string
  readonly expectMinutes?: number
  /**
   * The call waits this long for the grant, at most 45. The place in the queue stays afterwards.
   * @default 0
   */
  readonly waitSeconds?: number
  /** Ends the wait. The place in the queue stays. */
  readonly signal?: AbortSignal
}

/** A claim of names, as its agent sees it. */
export interface ClaimView {
  readonly status: 'held' | 'queued'
  readonly names: readonly string[]
  readonly resources: readonly string[]
  readonly mode: Mode
  readonly purpose: string
  /** The fencing token of each name, once it is held. */
  readonly tokens: Readonly<Record<string, number>>
  /** Seconds until its cap ends it. */
  readonly capSeconds?: number
  /** 0 is next. */
  readonly position?: number
  /** It waits for these names. */
  readonly waitsFor?: readonly NameView[]
}

export interface Mine {
  readonly held: readonly ClaimView[]
  readonly queued: readonly ClaimView[]
  readonly lost: readonly LostClaim[]
}

export interface Released {
  readonly released: readonly string[]
  /** Names that this agent neither held nor waited for. */
  readonly notHeld: readonly string[]
}

export interface WhoAmI {
  readonly agent: string
  readonly session: number
  readonly incarnation: number
  readonly parent: number
  readonly aliveBy: AgentSession['aliveBy']
  readonly ttlSeconds: number
  readonly idleLimitSeconds: number
  readonly capSeconds: number
  readonly process?: BoundProcess
  readonly workspace?: Workspace
}
