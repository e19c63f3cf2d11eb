/** The hook configuration of each coding agent: which file, which events, and how a hook of ours is recognized in it. */
import { join } from 'node:path'
import type { HookHost } from '../../guard/hook-event.ts'
import { withElement, withoutElements } from './json-text.ts'

export type AgentHost = Exclude<HookHost, 'git'>

interface HostHooks {
  /** In the folder of the project, and in the user's home. */
  readonly file: readonly string[]
  /** The text of a file that does not exist yet. */
  readonly empty: string
  /** Each event, with the tools that it is for. */
  readonly events: readonly (readonly [event: string, matcher?: string])[]
  readonly element: (command: string, matcher: string | undefined) => object
  /** The user has to know this after it was written. */
  readonly next: string
}

/** Seconds. Longer than the guard waits for its server. */
const HOOK_TIMEOUT = 10

const group = (command: string, matcher: string | undefined) => ({
  ...(matcher !== undefined && { matcher }),
  hooks: [{ type: 'command', command, timeout: HOOK_TIMEOUT }],
})

export const AGENT_HOOKS: Readonly<Record<AgentHost, HostHooks>> = {
  claude: {
    file: ['.claude', 'settings.json'],
    empty: '{}\n',
    events: [
      ['PreToolUse', 'Edit|MultiEdit|Write|NotebookEdit'],
      ['PostToolUse', 'Edit|MultiEdit|Write|NotebookEdit'],
      ['SessionStart'],
      ['Stop'],
      ['SubagentStop'],
      ['SessionEnd'],
    ],
    element: group,
    next: 'Claude Code reads it when a session starts.',
  },
  codex: {
    file: ['.codex', 'hooks.json'],
    empty: '{}\n',
    events: [['PreToolUse', 'apply_patch'], ['PostToolUse', 'apply_patch'], ['SessionStart'], ['Stop'], ['SubagentStop']],
    element: group,
    next: 'Codex runs new hooks once you have trusted them: run /hooks in Codex. Older versions need hooks enabled under [features] in config.toml.',
  },
  cursor: {
    file: ['.cursor', 'hooks.json'],
    empty: '{\n  "version": 1\n}\n',
    events: [
      ['preToolUse', 'Write|StrReplace|Edit|Delete|EditNotebook|ApplyPatch'],
      ['afterFileEdit'],
      ['sessionStart'],
      ['stop'],
      ['subagentStop'],
      ['sessionEnd'],
    ],
    element: (command, matcher) => ({ command, ...(matcher !== undefined && { matcher }), timeout: HOOK_TIMEOUT }),
    next: 'Cursor reads it when the file is saved; its settings list the hooks.',
  },
}

export function hooksFile(host: AgentHost, folder: string): string {
  return join(folder, ...AGENT_HOOKS[host].file)
}

/** The text with our hooks, in place of those of ours that it has. */
export function withHooks(host: AgentHost, text: string | undefined, command: string): string {
  const { empty, events, element } = AGENT_HOOKS[host]
  const clean = text === undefined || text.trim() === '' ? empty : withoutHooks(host, text)
  return events.reduce((result, [event, matcher]) => withElement(result, ['hooks', event], element(command, matcher)), clean)
}

export function withoutHooks(host: AgentHost, text: string): string {
  return AGENT_HOOKS[host].events.reduce((result, [event]) => withoutElements(result, ['hooks', event], value => isOurs(value, host)), text)
}

function isOurs(value: unknown, host: AgentHost): boolean {
  const { command, hooks } = (value ?? {}) as { readonly command?: unknown; readonly hooks?: unknown }
  if (Array.isArray(hooks)) return hooks.length > 0 && hooks.every(hook => isOurs(hook, host))
  return typeof command === 'string' && new RegExp(`leasehold\\S* guard .*--host ${host}\\b`).test(command)
}
