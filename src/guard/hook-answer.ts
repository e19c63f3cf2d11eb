/**
 * Answers to hooks, in the form that each host reads. To allow is to say nothing: a host that is answered with an explicit permission would not ask
 * its user any more.
 */
import type { HookEvent } from './hook-event.ts'

/** The guard has decided this about an event. */
export interface GuardDecision {
  readonly allow: boolean
  /** Why it is denied, for the model and for people: what happened, and what to do next. */
  readonly reason?: string
  /** For the model, besides. */
  readonly context?: string
  /** For the person at the terminal: the guard could not decide. */
  readonly warning?: string
  /** The token of each resource that the event's paths are claimed under. */
  readonly tokens?: Readonly<Record<string, number>>
  /** The folder of git of each repository that is written, by the prefix of its names; as far as the guard has looked at files. */
  readonly gitDirs?: Readonly<Record<string, string>>
}

/** The JSON that the host reads; undefined: nothing to say. */
export function hookAnswer(event: Pick<HookEvent, 'host' | 'kind' | 'name'>, decision: GuardDecision): object | undefined {
  if (event.host === 'git') return decision // read by `leasehold guard`
  if (event.host === 'gemini') return geminiAnswer(event, decision)
  return event.host === 'cursor' ? cursorAnswer(event, decision) : claudeAnswer(event, decision)
}

/** Claude Code, and Codex, which reads the same fields. */
function claudeAnswer({ kind, name, host }: Pick<HookEvent, 'host' | 'kind' | 'name'>, decision: GuardDecision): object | undefined {
  const { allow, reason = '', context, warning } = decision
  const denied = !allow && kind === 'before'
  // Codex takes no context before a tool call.
  const told = context !== undefined && (kind === 'after' || kind === 'begin' || (kind === 'before' && host === 'claude'))
  if (!denied && !told && warning === undefined) return undefined
  return {
    ...(warning !== undefined && { systemMessage: warning }),
    ...((denied || told) && {
      hookSpecificOutput: {
        hookEventName: name,
        ...(denied && { permissionDecision: 'deny', permissionDecisionReason: reason }),
        ...(told && { additionalContext: context }),
      },
    }),
  }
}

function cursorAnswer({ kind, name }: Pick<HookEvent, 'kind' | 'name'>, decision: GuardDecision): object | undefined {
  const { allow, reason = '', context, warning } = decision
  if (kind === 'before')
    return allow
      ? { permission: 'allow', ...(warning !== undefined && { user_message: warning }) }
      : { permission: 'deny', user_message: reason, agent_message: reason }
  if (context !== undefined && (name === 'postToolUse' || name === 'sessionStart')) return { additional_context: context }
  return undefined
}

function geminiAnswer({ kind, name }: Pick<HookEvent, 'kind' | 'name'>, decision: GuardDecision): object | undefined {
  const { allow, reason = '', context, warning } = decision
  const denied = !allow && kind === 'before'
  // It takes no context before a tool call.
  const told = context !== undefined && (kind === 'after' || kind === 'begin')
  if (!denied && !told && warning === undefined) return undefined
  return {
    ...(warning !== undefined && { systemMessage: warning }),
    ...(denied && { decision: 'deny', reason }),
    ...(told && { hookSpecificOutput: { hookEventName: name, additionalContext: context } }),
  }
}
