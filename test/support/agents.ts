/** Agents on one log in memory with a manual clock, each with a connection of its own that can fall silent. */
import { Agent, type AgentOptions } from '../../src/agent/agent.ts'
import type { Leases } from '../../src/leases.ts'
import type { MemoryLog } from '../../src/store/memory.ts'
import { type SilentLessor, silentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

export interface AgentPlace {
  readonly agent: Agent
  readonly leases: Leases
  readonly lessor: SilentLessor
}

/** The code that a town runs: the source, or a copy of the build with a planted mistake. */
export interface AgentCode {
  readonly Agent: typeof Agent
  readonly silentLessor: typeof silentLessor
  readonly ManualClock: typeof ManualClock
}

export class AgentTown implements AsyncDisposable {
  readonly clock: ManualClock
  readonly #code: AgentCode
  #log: MemoryLog | undefined
  readonly #opened: Leases[] = []

  constructor(code: AgentCode = { Agent, silentLessor, ManualClock }) {
    this.#code = code
    this.clock = new code.ManualClock()
  }

  connection(): { readonly leases: Leases; readonly lessor: SilentLessor } {
    const { leases, lessor, log } = this.#code.silentLessor({ clock: this.clock, ...(this.#log !== undefined && { log: this.#log }) })
    this.#log ??= log
    this.#opened.push(leases)
    return { leases, lessor }
  }

  /** An agent with a process that keeps its session. */
  async begin(name: string, options: Partial<AgentOptions> = {}): Promise<AgentPlace> {
    const connection = this.connection()
    return { ...connection, agent: await this.#code.Agent.begin(connection.leases, { name, ...options }) }
  }

  /** An agent without a process. */
  async join(name: string, options: Partial<AgentOptions> = {}): Promise<AgentPlace> {
    const connection = this.connection()
    return { ...connection, agent: await this.#code.Agent.join(connection.leases, { name, ...options }) }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.#opened.map(leases => leases.close()))
  }
}
