/** Agents on one log in memory with a manual clock, each with a connection of its own that can fall silent. */
import { Agent, type AgentOptions } from '../../src/agent/agent.ts'
import type { Leases } from '../../src/leases.ts'
import { MemoryLog } from '../../src/store/memory.ts'
import { type SilentLessor, silentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

export interface AgentPlace {
  readonly agent: Agent
  readonly leases: Leases
  readonly lessor: SilentLessor
}

export class AgentTown implements AsyncDisposable {
  readonly clock = new ManualClock()
  readonly log = new MemoryLog({ clock: this.clock })
  readonly #opened: Leases[] = []

  connection(): { readonly leases: Leases; readonly lessor: SilentLessor } {
    const { leases, lessor } = silentLessor({ clock: this.clock, log: this.log })
    this.#opened.push(leases)
    return { leases, lessor }
  }

  /** An agent with a process that keeps its session. */
  async begin(name: string, options: Partial<AgentOptions> = {}): Promise<AgentPlace> {
    const connection = this.connection()
    return { ...connection, agent: await this.soon(Agent.begin(connection.leases, { name, ...options })) }
  }

  /** An agent without a process. */
  async join(name: string, options: Partial<AgentOptions> = {}): Promise<AgentPlace> {
    const connection = this.connection()
    return { ...connection, agent: await this.soon(Agent.join(connection.leases, { name, ...options })) }
  }

  /** The answer, without time passing. */
  async soon<T>(answer: Promise<T>): Promise<T> {
    return answer
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.#opened.map(leases => leases.close()))
  }
}
