/** The name of the agent behind an event: the same for all of its hooks, and the one that `leasehold mcp` takes by default. */
import type { HookEvent } from './hook-event.ts'
import type { AgentProcess } from './host-process.ts'

/** Throws a plain Error if nothing identifies the agent. */
export function agentOf(
  event: Pick<HookEvent, 'host' | 'session'>,
  given: { readonly agent?: string; readonly process?: AgentProcess },
): string {
  const { agent, process } = given
  if (agent !== undefined && agent !== '') return agent
  if (process !== undefined) return `agent-${process.pid}`
  if (event.host === 'git') return 'a person'
  const session = event.session.replace(/[^A-Za-z0-9]/g, '').slice(0, 16)
  if (session === '') throw new Error('the event has no session id, so its agent is unknown: name it with --agent NAME or LEASEHOLD_AGENT')
  return `${event.host}-${session}`
}
