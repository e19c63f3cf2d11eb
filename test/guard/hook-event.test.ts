import { readdirSync, readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { hookAnswer } from '../../src/guard/hook-answer.ts'
import { HOSTS, readHookEvent, withoutContents } from '../../src/guard/hook-event.ts'
import { ARGUMENTS } from '../../src/mcp/schemas.ts'
import { matches } from '../../src/server/http/first-error.ts'
import { hookEvent, rawEvent } from '../support/hook-events.ts'

const folder = new URL('./recorded/', import.meta.url)
const recorded = readdirSync(folder)
  .map(file => file.replace('.json', ''))
  .filter(name => name !== 'versions')
const versions = JSON.parse(readFileSync(new URL('versions.json', folder), 'utf8')) as Readonly<
  Record<string, { readonly version: string }>
>

const session = 'eb5b0174-0555-4601-804e-672d68069c89'

describe('an event of a host is read', () => {
  test.each([
    ['claude-pre-edit', { kind: 'before', paths: ['/r/src/server.ts'], cwd: '/r/packages', session, tool: 'Edit' }],
    ['claude-pre-write-subagent', { kind: 'before', paths: ['/r/src/new.ts'], subAgent: 'a7f3c21' }],
    ['claude-pre-notebook', { kind: 'before', paths: ['/r/a.ipynb'] }],
    ['claude-pre-bash', { kind: 'other', paths: [] }],
    ['claude-post-edit', { kind: 'after', paths: ['/r/src/server.ts'] }],
    ['claude-session-start', { kind: 'begin', paths: [] }],
    ['claude-stop', { kind: 'turn' }],
    ['claude-subagent-stop', { kind: 'stop', subAgent: 'a7f3c21' }],
    ['claude-session-end', { kind: 'stop' }],
    [
      'codex-pre-apply-patch',
      { kind: 'before', paths: ['src/server.ts', 'docs/new.md', 'src/old.ts', 'src/moved.ts', 'src/dead.ts'], cwd: '/r' },
    ],
    ['codex-post-apply-patch', { kind: 'after', paths: ['src/server.ts', 'docs/new.md', 'src/old.ts', 'src/moved.ts', 'src/dead.ts'] }],
    ['codex-pre-bash', { kind: 'other' }],
    ['codex-stop', { kind: 'turn' }],
    ['codex-subagent-stop', { kind: 'stop', subAgent: 'worker-1' }],
    ['cursor-pre-write', { kind: 'before', paths: ['/r/src/server.ts'], session: '668320d2-2fd8-4888-b33c-2a466fec86e7' }],
    ['cursor-pre-delete', { kind: 'before', paths: ['/r/src/server.ts'], cwd: '/r' }],
    ['cursor-after-file-edit', { kind: 'after', paths: ['/r/src/server.ts'], cwd: '/r' }],
    ['cursor-stop', { kind: 'turn' }],
    ['cursor-session-end', { kind: 'stop', hostGoesOn: true }],
    ['gemini-before-tool', { kind: 'before', paths: ['/r/src/server.ts'], cwd: '/r', tool: 'write_file' }],
    ['gemini-after-agent', { kind: 'turn' }],
    ['gemini-session-end', { kind: 'stop', hostGoesOn: true }],
  ])('%s', (name, expected) => {
    const event = hookEvent(name, '/r')
    expect(event).toMatchObject(expected)
    // What is sent to a server without the contents is the same event.
    expect(readHookEvent(event.host, withoutContents(event))).toEqual(event)
    expect(JSON.stringify(withoutContents(event))).not.toContain('export {}')
  })

  // A changed copy would test a format that no host has.
  const always = {
    claude: ['session_id', 'transcript_path', 'cwd'],
    codex: ['session_id', 'transcript_path', 'cwd', 'model', 'permission_mode'],
  }
  const gemini = ['session_id', 'transcript_path', 'cwd', 'timestamp']
  const tool = ['tool_name', 'tool_input', 'tool_use_id']
  const required: Readonly<Record<string, readonly string[]>> = {
    'claude PreToolUse': [...always.claude, ...tool],
    'claude PostToolUse': [...always.claude, ...tool, 'tool_response'],
    'claude SessionStart': [...always.claude, 'source'],
    'claude SessionEnd': [...always.claude, 'reason'],
    'claude Stop': [...always.claude, 'stop_hook_active'],
    'claude SubagentStop': [...always.claude, 'stop_hook_active', 'agent_id', 'agent_type', 'agent_transcript_path'],
    'codex PreToolUse': [...always.codex, ...tool, 'turn_id'],
    'codex PostToolUse': [...always.codex, ...tool, 'turn_id', 'tool_response'],
    'codex Stop': [...always.codex, 'turn_id', 'stop_hook_active', 'last_assistant_message'],
    'codex SubagentStop': [...always.codex, 'turn_id', 'stop_hook_active', 'agent_id', 'agent_type', 'agent_transcript_path'],
    'cursor preToolUse': ['conversation_id', 'generation_id', 'workspace_roots', ...tool],
    'cursor afterFileEdit': ['conversation_id', 'generation_id', 'workspace_roots', 'file_path', 'edits'],
    'cursor stop': ['conversation_id', 'generation_id', 'workspace_roots', 'status', 'loop_count'],
    'cursor sessionEnd': ['conversation_id', 'workspace_roots', 'session_id', 'reason', 'duration_ms'],
    'gemini BeforeTool': [...gemini, 'tool_name', 'tool_input'],
    'gemini AfterAgent': [...gemini, 'prompt', 'prompt_response', 'stop_hook_active'],
    'gemini SessionEnd': [...gemini, 'reason'],
  }

  test.each(Object.entries(versions))('of %s, read in %j, is recorded with all fields that it requires', host => {
    const names = recorded.filter(name => name.startsWith(`${host}-`))
    expect(names.length).toBeGreaterThan(0)
    if (host === 'mcp') return
    const missing = names.flatMap(name => {
      const event = rawEvent(name, '/r')
      return required[`${name.split('-')[0]} ${event.hook_event_name}`]!.filter(field => !(field in event)).map(
        field => `${name}: ${field}`,
      )
    })
    expect(missing).toEqual([])
  })

  test('and every recorded file says in which version of its host it was read', () => {
    expect(recorded.filter(name => versions[name.split('-')[0]!] === undefined)).toEqual([])
    expect(recorded.length).toBeGreaterThan(20)
  })

  test('and a recorded call of a tool has arguments that the tool takes', () => {
    const { params } = rawEvent('mcp-call', '/r') as { readonly params: { readonly name: 'claim'; readonly arguments: object } }
    expect(matches(ARGUMENTS[params.name], params.arguments)).toBe(true)
  })

  test('and anything else is refused with a message, or means nothing', () => {
    fc.assert(
      fc.property(fc.constantFrom(...HOSTS), fc.anything(), (host, given) => {
        try {
          const event = readHookEvent(host, given)
          expect(event.paths.every(path => typeof path === 'string')).toBe(true)
        } catch (error) {
          expect((error as Error).message).toMatch(/not a JSON object|no hook_event_name|more than 256 files/)
        }
      }),
    )
  })

  test('and a patch of more than 256 files is refused', () => {
    const command = Array.from({ length: 300 }, (_, i) => `*** Add File: ${i}.md\n+x\n`).join('')
    const given = { ...rawEvent('codex-pre-apply-patch', '/r'), tool_input: { command } }
    expect(readHookEvent('codex', given)).toMatchObject({ kind: 'before', problem: expect.stringMatching(/more than 256 files: split it/) })
  })

  test.each([
    ['an indented header', 'apply_patch', { command: '*** Begin Patch\n  *** Update File: src/a.ts\n@@\n-x\n+y\n*** End Patch' }],
    ['a header after tabs, in a list', 'apply_patch', { command: ['apply_patch', '*** Begin Patch\n\t*** Delete File:  src/a.ts \r\n'] }],
    ['another case of the tool', 'edit', { file_path: 'src/a.ts' }],
    ['a path in each edit', 'MultiEdit', { edits: [{ file_path: 'src/a.ts' }] }],
  ])('and %s names its path', (_, tool_name, tool_input) => {
    expect(readHookEvent('codex', { ...rawEvent('codex-pre-apply-patch', '/r'), tool_name, tool_input })).toMatchObject({
      kind: 'before',
      paths: ['src/a.ts'],
    })
  })

  test.each([
    ['no known field', 'Edit', { filename: '/r/a.ts' }],
    ['no input', 'Write', 5],
    ['a path that is no text', 'Edit', { file_path: ['/r/a.ts'] }],
    ['a path that is no text beside one that is', 'Edit', { paths: ['/r/a.ts', 7] }],
    ['a path of 4,100 characters', 'Edit', { file_path: `/r/${'./'.repeat(2_050)}a.ts` }],
    ['a patch without headers', 'apply_patch', { command: '*** Begin Patch\n*** End Patch' }],
    ['a name of a tool that is too long', 'Edit'.padEnd(5_000), { file_path: '/r/a.ts' }],
  ])('and a tool that writes, with %s, is a problem and not nothing', (_, tool_name, tool_input) => {
    const event = readHookEvent('claude', { ...rawEvent('claude-pre-edit', '/r'), tool_name, tool_input })
    expect(event).toMatchObject({ kind: 'before', problem: expect.stringMatching(/names no file|is no text/) })
  })

  test('and a header of a million blanks is read in one pass', () => {
    const command = `*** Add File: ${' '.repeat(1_000_000)}x${' '.repeat(1_000_000)}y`
    const given = { ...rawEvent('codex-pre-apply-patch', '/r'), tool_input: { command } }
    expect(readHookEvent('codex', given).paths).toHaveLength(1)
  })

  test('and a path may have any characters: it is sent as it is', () => {
    const path = '/r/a\n*** Add File: b'
    const event = readHookEvent('claude', { ...rawEvent('claude-pre-edit', '/r'), tool_input: { file_path: path } })
    expect(readHookEvent('claude', withoutContents(event)).paths).toEqual([path])
  })
})

describe('the answer to', () => {
  const denied = { allow: false, reason: 'held by bob' }

  test('a denied edit is a denial in the form of its host', () => {
    const claude = {
      hookSpecificOutput: { hookEventName: 'PreToolUse', permissionDecision: 'deny', permissionDecisionReason: 'held by bob' },
    }
    expect(hookAnswer(hookEvent('claude-pre-edit', '/r'), denied)).toEqual(claude)
    expect(hookAnswer(hookEvent('codex-pre-apply-patch', '/r'), denied)).toEqual(claude)
    expect(hookAnswer(hookEvent('cursor-pre-write', '/r'), denied)).toEqual({
      permission: 'deny',
      user_message: 'held by bob',
      agent_message: 'held by bob',
    })
  })

  test('an allowed edit leaves the permission to the host: Claude Code and Codex still ask their user', () => {
    expect(hookAnswer(hookEvent('claude-pre-edit', '/r'), { allow: true })).toBeUndefined()
    expect(hookAnswer(hookEvent('codex-pre-apply-patch', '/r'), { allow: true, context: 'x' })).toBeUndefined()
    expect(hookAnswer(hookEvent('cursor-pre-write', '/r'), { allow: true })).toEqual({ permission: 'allow' })
  })

  test('an edit that could not be decided warns the person', () => {
    expect(hookAnswer(hookEvent('claude-pre-edit', '/r'), { allow: true, warning: 'NOT GUARDED' })).toEqual({
      systemMessage: 'NOT GUARDED',
    })
    expect(hookAnswer(hookEvent('cursor-pre-write', '/r'), { allow: true, warning: 'NOT GUARDED' })).toMatchObject({
      user_message: 'NOT GUARDED',
    })
  })
})
