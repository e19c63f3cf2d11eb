/**
 * Events of coding agents, in one form for all hosts. Claude Code, Codex, Cursor and Gemini CLI send JSON to their hooks; docs/guard.md says which
 * versions were read. A field that a host does not send is left out, and an event that means nothing to the guard is `other`.
 *
 * Light: `leasehold guard` loads this for every edit.
 */
import { pathsOfPatch } from './patch-paths.ts'

/** `git` is not an agent: its hooks ask before a commit or a push. */
export const HOSTS = ['claude', 'codex', 'cursor', 'gemini', 'git'] as const
export type HookHost = (typeof HOSTS)[number]

/**
 * `before`: a tool is about to write. `after`: it has written. `begin`: the session or a sub-agent started, or the context was compacted. `turn`: the agent
 * has finished its turn. `stop`: a sub-agent, or the whole session, has ended. `commit`: paths are about to be committed or pushed.
 */
export type HookKind = 'before' | 'after' | 'begin' | 'turn' | 'stop' | 'commit' | 'other'

export interface HookEvent {
  readonly host: HookHost
  readonly kind: HookKind
  /** The host's own name of the event, which some answers repeat. */
  readonly name: string
  /** Identifies the session of the agent; '' if the host sent none. */
  readonly session: string
  /** Identifies the sub-agent that acts; left out for the agent itself. */
  readonly subAgent?: string
  /** The working directory: only for relative paths. */
  readonly cwd: string
  /** The paths that are written, as the host wrote them. */
  readonly paths: readonly string[]
  readonly tool: string
  /** With `stop`: the host has not ended, and goes on with another conversation. */
  readonly hostGoesOn?: boolean
  /** With `before`: why it is not known what is written. The guard cannot decide then. */
  readonly problem?: string
  /** With `commit`: the token that each resource was last written under, as far as that is known. */
  readonly tokens?: Readonly<Record<string, number>>
}

/** The most paths of one event. A patch that writes more is refused. */
export const MAX_PATHS = 256
const MAX_TEXT = 4_096

/** Tools that write the files they name, without case and underscores. Those of Claude Code, of Cursor and Gemini CLI, and names that they have used before. */
const WRITERS: ReadonlySet<string> = new Set([
  ...['edit', 'multiedit', 'write', 'notebookedit', 'delete', 'writefile', 'replace'],
  ...['strreplace', 'editnotebook', 'applypatch', 'editfile', 'searchreplace', 'deletefile', 'tabwrite', 'git'],
])

/** Where tools name the file. */
const PATH_FIELDS = ['file_path', 'path', 'notebook_path', 'target_file', 'target_notebook', 'filePath', 'relative_workspace_path'] as const
/** Where tools have a patch. Codex sends it as the command of the tool `apply_patch`. */
const PATCH_FIELDS = ['command', 'input', 'patch'] as const

const KINDS: Readonly<Record<string, HookKind>> = {
  PreToolUse: 'before',
  PostToolUse: 'after',
  PostToolUseFailure: 'after',
  SessionStart: 'begin',
  SubagentStart: 'begin',
  Stop: 'turn',
  StopFailure: 'turn',
  SubagentStop: 'stop',
  SessionEnd: 'stop',
  'pre-commit': 'commit',
  'pre-push': 'commit',
  // Cursor
  preToolUse: 'before',
  beforeFileEdit: 'before',
  postToolUse: 'after',
  postToolUseFailure: 'after',
  afterFileEdit: 'after',
  afterTabFileEdit: 'after',
  sessionStart: 'begin',
  stop: 'turn',
  subagentStop: 'stop',
  sessionEnd: 'stop',
  // Gemini CLI
  BeforeTool: 'before',
  AfterTool: 'after',
  AfterAgent: 'turn',
}

/** Reasons of `SessionEnd` after which the same process goes on. Cursor has several conversations in one process. */
const GOES_ON: ReadonlySet<string> = new Set(['clear', 'resume'])

/** Throws a plain Error whose message says what is wrong with the event. */
export function readHookEvent(host: HookHost, event: unknown): HookEvent {
  if (typeof event !== 'object' || event === null || Array.isArray(event)) throw new Error('the event is not a JSON object')
  const given = event as Readonly<Record<string, unknown>>
  const name = text(given.hook_event_name)
  if (name === '') throw new Error('the event has no hook_event_name')
  const tool = text(given.tool_name)
  const roots = Array.isArray(given.workspace_roots) ? given.workspace_roots : []
  const subAgent = text(given.agent_id) || text(given.subagent_id)
  const kind = Object.hasOwn(KINDS, name) ? KINDS[name]! : 'other'
  const { paths = [], problem } = kind === 'before' || kind === 'after' || kind === 'commit' ? writtenPaths(given, tool) : {}
  return {
    host,
    // A tool that writes no file it names: only a sign of activity.
    kind: kind === 'before' && paths.length === 0 && problem === undefined ? 'other' : kind,
    name,
    session: text(given.session_id) || text(given.conversation_id),
    ...(subAgent !== '' && { subAgent }),
    cwd: text(given.cwd) || text(roots[0]) || '',
    paths,
    tool,
    ...(kind === 'before' && problem !== undefined && { problem }),
    ...(kind === 'stop' && (host === 'cursor' || GOES_ON.has(text(given.reason))) && { hostGoesOn: true }),
    ...(kind === 'commit' && { tokens: tokensOf(given.tokens) }),
  }
}

function tokensOf(given: unknown): Readonly<Record<string, number>> {
  if (typeof given !== 'object' || given === null) return {}
  const whole = Object.entries(given).filter(([, token]) => Number.isSafeInteger(token) && token > 0)
  return Object.fromEntries(whole.slice(0, MAX_PATHS)) as Record<string, number>
}

interface WrittenPaths {
  readonly paths?: readonly string[]
  readonly problem?: string
}

/** Returns what a tool writes. Nothing for a tool that writes no files. */
function writtenPaths(event: Readonly<Record<string, unknown>>, tool: string): WrittenPaths {
  // Cursor's own events of edits name the file beside the other fields, and no tool.
  if (tool === '') return recognised([event.file_path], [], 'the event')
  if (!WRITERS.has(tool.toLowerCase().replaceAll('_', ''))) return {}
  const input = inputOf(event.tool_input)
  const edits = Array.isArray(input.edits) ? input.edits.slice(0, MAX_PATHS + 1) : []
  const parts = [input, ...edits.filter(edit => typeof edit === 'object' && edit !== null)] as readonly Readonly<Record<string, unknown>>[]
  const listed = Array.isArray(input.paths) ? input.paths.slice(0, MAX_PATHS + 1) : []
  const named = [...parts.flatMap(part => PATH_FIELDS.map(field => part[field])), ...listed]
  const patches = PATCH_FIELDS.flatMap(field => [input[field]].flat()).filter(patch => typeof patch === 'string')
  return recognised(
    named,
    patches.flatMap(patch => pathsOfPatch(patch, MAX_PATHS + 1)),
    `the tool ${tool}`,
  )
}

/** A path that is not understood may be one that another agent holds: it must not count as none. */
function recognised(named: readonly unknown[], patched: readonly string[], from: string): WrittenPaths {
  const given = named.filter(value => value !== undefined && value !== null && value !== '')
  const paths = [...new Set([...onlyTexts(given), ...patched])]
  if (paths.length > MAX_PATHS) return { problem: `${from} writes more than ${MAX_PATHS} files: split it` }
  if (onlyTexts(given).length < given.length)
    return { paths, problem: `${from} names a path that is no text, or is longer than ${MAX_TEXT} characters` }
  return paths.length === 0 ? { problem: `${from} names no file in a form that is known here` } : { paths }
}

/** Some versions of Cursor send the input of a tool as JSON in a text. */
function inputOf(input: unknown): Readonly<Record<string, unknown>> {
  if (typeof input === 'object' && input !== null) return input as Readonly<Record<string, unknown>>
  if (typeof input !== 'string') return {}
  try {
    return inputOf(JSON.parse(input))
  } catch {
    return { command: input }
  }
}

function onlyTexts(values: readonly unknown[]): readonly string[] {
  return values.filter(value => typeof value === 'string' && value !== '' && value.length <= MAX_TEXT) as string[]
}

function text(value: unknown): string {
  return typeof value === 'string' && value.length <= MAX_TEXT ? value : ''
}

/** Returns what a server needs of an event: without the contents of files. Reading it again gives the same event. */
export function withoutContents(event: HookEvent): object {
  const { kind, name, session, subAgent, cwd, paths, tool, tokens, hostGoesOn } = event
  const writes = kind === 'before' || kind === 'after' || kind === 'commit'
  return {
    hook_event_name: name,
    session_id: session,
    ...(subAgent !== undefined && { agent_id: subAgent }),
    cwd,
    ...(hostGoesOn === true && { reason: 'clear' }),
    ...(tool !== '' && { tool_name: tool }),
    ...(tool === '' && paths.length > 0 && { file_path: paths[0] }),
    ...(tokens !== undefined && { tokens }),
    ...(tool !== '' && writes && paths.length > 0 && { tool_input: { paths } }),
  }
}
