/** The name of the agent behind an event: the same for all of its hooks, for its commits, and for `leasehold mcp`. */
import type { HookEvent } from './hook-event.ts'
import type { AgentProcess } from './host-process.ts'

/** The process of an agent, which may run on another machine. */
export interface HookProcess extends AgentProcess {
  /** @default this machine */
  readonly host?: string
}

export interface HookAgent {
  readonly name: string
  /** The name is made of the pid: if the process has another name already, that one counts. */
  readonly unnamed?: true
  readonly process?: HookProcess
  /** The conversation, where the agent is more than that. */
  readonly conversation?: string
}

/** Throws a plain Error if nothing identifies the agent. */
export function agentOf(
  event: Pick<HookEvent, 'host' | 'session'>,
  given: { readonly agent?: string; readonly process?: HookProcess },
): HookAgent {
  const { agent, process } = given
  const session = event.session.replace(/[^A-Za-z0-9]/g, '')
  const conversation = session === '' ? {} : { conversation: session.slice(0, 32) }
  if (agent !== undefined && agent !== '') return { name: agent, ...conversation, ...(process !== undefined && { process }) }
  if (process !== undefined) return { name: `agent-${process.pid}`, unnamed: true, process, ...conversation }
  if (event.host === 'git') return { name: 'a person' }
  if (session === '') throw new Error('the event has no session id, so its agent is unknown: name it with --agent NAME or LEASEHOLD_AGENT')
  return { name: `${event.host}-${session.slice(0, 16)}` }
}
