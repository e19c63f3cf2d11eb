/** The sub-agents of one agent that have called, found by their short names. */
import type { Agent } from '../agent/agent.ts'
import { LeaseError } from '../errors.ts'

const MAX_SUB_AGENTS = 32

export class SubAgents {
  readonly #agent: Agent
  readonly #byName = new Map<string, Promise<Agent>>()

  constructor(agent: Agent) {
    this.#agent = agent
  }

  /** The agent itself without a name. */
  of(name: string | undefined): Promise<Agent> {
    if (name === undefined || name === '') return Promise.resolve(this.#agent)
    const known = this.#byName.get(name)
    if (known !== undefined) return known
    if (this.#byName.size >= MAX_SUB_AGENTS)
      return Promise.reject(
        new LeaseError(
          'LIMIT',
          `${this.#agent.name} has ${MAX_SUB_AGENTS} sub-agents, as many as one agent may have: leave out sub_agent`,
          {
            facts: { limit: MAX_SUB_AGENTS },
          },
        ),
      )
    const opening = this.#agent.child(name)
    this.#byName.set(name, opening)
    opening.catch(() => this.#byName.delete(name))
    return opening
  }
}
