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
  /**
   * The name is made up, such as `agent-4711`: if the process has a name already, that one counts.
   * @default false
   */
  readonly unnamed?: boolean
  /** The session lease of the parent agent: this one ends with it. */
  readonly parent?: number
  /** The process that the agent is. When it is gone, so are the claims. Checked by `isAlive`. */
  readonly process?: Omit<BoundProcess, 'host'> & Partial<Pick<BoundProcess, 'host'>>
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
  /**
   * Without a workspace: a name must say what it is, `repo/HOST/OWNER/NAME/PATH` or `name:NAME`.
   * @default false
   */
  readonly explicitNames?: boolean
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
  /**
   * The claim ends with the turn of the agent, when its host reports that. Names that are held already stay as they are.
   * @default false: it lasts until it is released
   */
  readonly forTurn?: boolean
  /** The conversation of the host that claims. Conversations of one agent exclude each other. Left out: for all conversations of the agent. */
  readonly conversation?: string
}

/** The claims that end with a turn. */
export interface TurnEnd {
  /** The conversation whose turn has ended. Left out: all. */
  readonly conversation?: string
  /** Claims that were to last, too: the conversation is over. */
  readonly everything?: boolean
}

/** A claim of names, as its agent sees it. */
export interface ClaimView {
  readonly status: 'held' | 'queued'
  readonly names: readonly string[]
  readonly resources: readonly string[]
  readonly mode: Mode
  readonly purpose: string
  /** It ends with the turn of the agent. */
  readonly forTurn: boolean
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
