/**
 * The agents whose hooks call this server. Each is opened once and found again by its name; so its next event is answered from what is known, and
 * its notices are given once. An agent that is bound to a process of this machine ends when the process is gone.
 */
import { hostname } from 'node:os'
import { Agent } from '../agent/agent.ts'
import { isAlive } from '../agent/bound-process.ts'
import type { Clock } from '../clock.ts'
import type { Leases } from '../leases.ts'
import type { HookAgent, HookProcess } from './hook-agent.ts'

const MAX_AGENTS = 5_000
/** As long as a session lasts without a call. */
const KEEP = 900_000
/** The processes are looked at this often, in ms, and so many in one turn: each is a read of the file system. */
const CHECK = 1_000
const CHECKED_AT_ONCE = 50

interface KnownAgent {
  readonly opening: Promise<Agent>
  readonly process: HookProcess | undefined
  usedAt: number
}

export class HookAgents {
  readonly #clock: Clock
  readonly #agents = new Map<string, KnownAgent>()
  #checking = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `owner` distinguishes the callers of the server, whose agents may have the same names. */
  async open(owner: string, leases: () => Leases, { name, unnamed, process }: HookAgent): Promise<Agent> {
    // Two processes with one name are two agents.
    const id = JSON.stringify([owner, name, process?.host, process?.pid, process?.started])
    const known = this.#agents.get(id)
    if (known !== undefined) {
      const agent = await known.opening
      if (!agent.signal.aborted) {
        known.usedAt = this.#clock.now()
        return agent
      }
    }
    if (this.#agents.size >= MAX_AGENTS) this.#forget(this.#agents.keys().next().value!)
    const opening = Agent.join(leases(), { name, ...(unnamed && { unnamed }), ...(process !== undefined && { process }) })
    this.#agents.delete(id) // to the end: the first one is the oldest
    this.#agents.set(id, { opening, process, usedAt: this.#clock.now() })
    opening.catch(() => this.#agents.delete(id))
    this.#scheduleCheck()
    return opening
  }

  #forget(id: string): void {
    const known = this.#agents.get(id)
    this.#agents.delete(id)
    known?.opening.then(
      agent => agent.detach(),
      () => {},
    )
  }

  #scheduleCheck(): void {
    if (this.#checking || this.#agents.size === 0) return
    this.#checking = true
    this.#clock.after(CHECK, () => this.#check([...this.#agents]))
  }

  #check(agents: readonly (readonly [string, KnownAgent])[]): void {
    for (const [id, known] of agents.slice(0, CHECKED_AT_ONCE)) {
      if (this.#agents.get(id) !== known) continue
      const { opening, process, usedAt } = known
      if (process !== undefined && isOfThisHost(process.host) && !isAlive(process)) {
        this.#agents.delete(id)
        opening.then(agent => agent.end()).catch(() => {}) // then it lapses
      } else if (this.#clock.now() - usedAt > KEEP) this.#forget(id)
    }
    if (agents.length > CHECKED_AT_ONCE) return void this.#clock.after(1, () => this.#check(agents.slice(CHECKED_AT_ONCE)))
    this.#checking = false
    this.#scheduleCheck()
  }
}

/** Returns whether a process that a caller names can be looked at here. */
function isOfThisHost(machine: string | undefined): boolean {
  return machine === hostname()
}
