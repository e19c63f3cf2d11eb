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
  /** A file of the project that is for this user alone. */
  readonly localFile?: readonly string[]
  /** The file of its MCP servers, in the folder of the project and in the user's home; as JSON under `mcpServers`, or as TOML. */
  readonly mcp: { readonly file: readonly string[]; readonly userFile: readonly string[]; readonly format: 'json' | 'toml' }
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
      ['SubagentStart'],
      ['Stop'],
      ['SubagentStop'],
      ['SessionEnd'],
    ],
    element: group,
    localFile: ['.claude', 'settings.local.json'],
    mcp: { file: ['.mcp.json'], userFile: ['.claude.json'], format: 'json' },
    next: 'Claude Code reads it when a session starts.',
  },
  codex: {
    file: ['.codex', 'hooks.json'],
    empty: '{}\n',
    events: [['PreToolUse', 'apply_patch'], ['PostToolUse', 'apply_patch'], ['SessionStart'], ['Stop'], ['SubagentStop']],
    element: group,
    mcp: { file: ['.codex', 'config.toml'], userFile: ['.codex', 'config.toml'], format: 'toml' },
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
    mcp: { file: ['.cursor', 'mcp.json'], userFile: ['.cursor', 'mcp.json'], format: 'json' },
    next: 'Cursor reads it when the file is saved; its settings list the hooks.',
  },
  gemini: {
    file: ['.gemini', 'settings.json'],
    empty: '{}\n',
    events: [['BeforeTool', 'write_file|replace'], ['AfterTool', 'write_file|replace'], ['SessionStart'], ['AfterAgent'], ['SessionEnd']],
    // It counts in milliseconds.
    element: (command, matcher) => ({
      ...(matcher !== undefined && { matcher }),
      hooks: [{ type: 'command', command, timeout: 1_000 * HOOK_TIMEOUT }],
    }),
    mcp: { file: ['.gemini', 'settings.json'], userFile: ['.gemini', 'settings.json'], format: 'json' },
    next: 'Gemini CLI reads it when it starts, and asks whether you trust the hooks of a project.',
  },
}

/** Where the hooks of a host are written. Throws for a host that has no such file. */
export function hooksFile(host: AgentHost, folder: string, local = false): string {
  const { file, localFile } = AGENT_HOOKS[host]
  return join(folder, ...((local ? localFile : undefined) ?? file))
}

/** The text with our hooks, in place of those of ours that it has. */
export function withHooks(host: AgentHost, text: string | undefined, command: string): string {
  const { empty, events, element } = AGENT_HOOKS[host]
  const clean = text === undefined || text.trim() === '' ? empty : withoutHooks(host, text)
  return events.reduce((result, [event, matcher]) => withElement(result, ['hooks', event], element(command, matcher)), clean)
}

export function withoutHooks(host: AgentHost, text: string): string {
  if (text.trim() === '') return text
  return AGENT_HOOKS[host].events.reduce((result, [event]) => withoutElements(result, ['hooks', event], value => isOurs(value, host)), text)
}

function isOurs(value: unknown, host: AgentHost): boolean {
  const { command, hooks } = (value ?? {}) as { readonly command?: unknown; readonly hooks?: unknown }
  if (Array.isArray(hooks)) return hooks.length > 0 && hooks.every(hook => isOurs(hook, host))
  return typeof command === 'string' && new RegExp(`leasehold(-guard\\S*|\\S* guard) .*--host ${host}\\b`).test(command)
}
