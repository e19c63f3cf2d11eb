/** Finds agents that are present, without opening a session: for the end of a turn, and for commits. */
import { hostname } from 'node:os'
import type { Leases } from '../leases.ts'
import type { AgentOptions } from './agent-options.ts'
import { AgentLog } from './log.ts'
import { checkAgentName } from './names.ts'
import { presentSession, sessionsOfProcess } from './session.ts'

export type AgentIdentity = Pick<AgentOptions, 'name' | 'unnamed' | 'process'>

/** The name of the agent that `Agent.join` would share. Undefined: there is none. */
export async function presentName(leases: Leases, { name, unnamed, process }: AgentIdentity): Promise<string | undefined> {
  const bound = process && { host: hostname(), ...process }
  const session = await presentSession(new AgentLog(leases), {
    name: checkAgentName(name),
    unnamed,
    ttl: 0,
    aliveBy: 'calls',
    process: bound,
  })
  return session?.name
}

/** The names of everything that this agent is. A commit may contain what any of them holds. */
export async function namesOf(leases: Leases, identity: AgentIdentity): Promise<readonly string[]> {
  const { name, process, unnamed = false } = identity
  if (process === undefined) return [name]
  if (!unnamed) return [(await presentName(leases, identity)) ?? name]
  const sessions = await sessionsOfProcess(new AgentLog(leases), { host: hostname(), ...process })
  return sessions.length === 0 ? [name] : sessions.map(session => session.name)
}
