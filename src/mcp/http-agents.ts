/**
 * The agents that a server acts for, by key and name. The log is their memory; this keeps only what they lost since they last asked, so an
 * agent that is dropped here, or finds the server restarted, has what it had. Between calls nothing is renewed but places in queues.
 */
import { Agent } from '../agent/agent.ts'
import { checkAgentName } from '../agent/names.ts'
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { Leases } from '../leases.ts'
import type { Caller } from '../server/access-control.ts'
import { callerLessor } from '../server/caller-lessor.ts'
import type { GuardedLessor } from '../server/guarded-lessor.ts'
import { SubAgents } from './sub-agents.ts'

const MAX_AGENTS = 2_000
/** Calls of one agent that are under way. */
const MAX_CALLS = 8
/** An agent that has not called for this long is dropped. */
const FORGET_AFTER = 3_600_000
/** A place in a queue is kept this long after the last call: as long as the claims. */
const KEEP_QUEUED = 900_000
const ROUND = 8_000

/** Who calls: over HTTP there is no process, and no folder. */
export interface HttpIdentity {
  readonly name: string
  /** Whose paths it claims, such as `github.com/acme/app`. Left out: names say what they are. */
  readonly repository?: string
}

interface HttpAgent {
  readonly leases: Leases
  readonly subAgents: Promise<SubAgents>
  readonly opened: Set<Agent>
  lastCall: number
  calls: number
}

export class HttpAgents {
  readonly #guarded: GuardedLessor
  readonly #clock: Clock
  /** The agent that called last comes last. */
  readonly #agents = new Map<string, HttpAgent>()
  #cancelRound: (() => void) | undefined
  #closed = false

  constructor(guarded: GuardedLessor, clock: Clock, closing: AbortSignal) {
    this.#guarded = guarded
    this.#clock = clock
    closing.addEventListener('abort', () => this.#close(), { once: true })
  }

  /** Runs a call of an agent, with a function that finds it or one of its sub-agents. */
  async call<T>(
    caller: Caller,
    identity: HttpIdentity,
    work: (agentOf: (subAgent: string | undefined) => Promise<Agent>) => Promise<T>,
  ): Promise<T> {
    let entry: HttpAgent | undefined
    const agentOf = async (subAgent: string | undefined) => {
      entry ??= this.#enter(caller, identity)
      const agent = await (await entry.subAgents).of(subAgent)
      entry.opened.add(agent)
      return agent
    }
    try {
      return await work(agentOf)
    } finally {
      if (entry !== undefined) this.#leave(entry)
    }
  }

  #enter(caller: Caller, { name, repository = '' }: HttpIdentity): HttpAgent {
    const key = `${caller.key} ${checkAgentName(name)} ${repository}`
    const entry = this.#agents.get(key) ?? this.#open(caller, { name, repository }, key)
    if (entry.calls >= MAX_CALLS)
      throw new LeaseError('LIMIT', `${MAX_CALLS} calls of ${name} are under way: wait for their answers`, { facts: { limit: MAX_CALLS } })
    entry.calls++
    this.#agents.delete(key)
    this.#agents.set(key, entry)
    return entry
  }

  #open(caller: Caller, { name, repository }: Required<HttpIdentity>, key: string): HttpAgent {
    this.#forget()
    if (this.#agents.size >= MAX_AGENTS || this.#closed)
      throw new LeaseError('LIMIT', `this server acts for ${MAX_AGENTS} agents, as many as it may: try again later`, {
        facts: { limit: MAX_AGENTS },
      })
    const leases = new Leases(callerLessor(this.#guarded, caller), { holder: name, clock: this.#clock })
    const subAgents = Agent.join(leases, {
      name,
      ...(repository === '' ? { explicitNames: true } : { workspace: { root: '', prefix: `repo/${repository}` } }),
    }).then(agent => new SubAgents(agent))
    // The next call tries again.
    subAgents.catch(() => this.#agents.delete(key))
    return { leases, subAgents, opened: new Set(), lastCall: this.#clock.now(), calls: 0 }
  }

  #leave(entry: HttpAgent): void {
    entry.calls--
    entry.lastCall = this.#clock.now()
    if (this.#cancelRound === undefined && isQueued(entry)) this.#scheduleRound()
  }

  /** Drops agents that have not called for long, and the one that called first if there are too many. */
  #forget(): void {
    const now = this.#clock.now()
    for (const [key, entry] of this.#agents) {
      const isOld = now - entry.lastCall > FORGET_AFTER
      const isTooMany = this.#agents.size >= MAX_AGENTS && !isQueued(entry)
      if (entry.calls > 0 || !(isOld || isTooMany)) continue
      this.#agents.delete(key)
      for (const agent of entry.opened) agent.detach()
    }
  }

  #scheduleRound(): void {
    if (!this.#closed) this.#cancelRound = this.#clock.after(ROUND, () => void this.#round())
  }

  async #round(): Promise<void> {
    const now = this.#clock.now()
    const waiting = [...this.#agents.values()].filter(entry => isQueued(entry) && now - entry.lastCall < KEEP_QUEUED)
    // A place that could not be kept now is kept by the next round, or lapses.
    for (const { opened } of waiting) for (const agent of opened) await agent.keepQueued().catch(() => {})
    this.#cancelRound = undefined
    if (waiting.length > 0) this.#scheduleRound()
  }

  #close(): void {
    this.#closed = true
    this.#cancelRound?.()
    for (const { opened } of this.#agents.values()) for (const agent of opened) agent.detach()
    this.#agents.clear()
  }
}

function isQueued({ opened }: HttpAgent): boolean {
  for (const agent of opened) if (agent.isQueued) return true
  return false
}
