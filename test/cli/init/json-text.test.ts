import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { withHooks, withoutHooks } from '../../../src/cli/init/agent-hooks.ts'
import { GIT_HOOKS, withGitHook, withoutGitHook } from '../../../src/cli/init/git-hooks.ts'
import { parseJson, withElement, withoutElements } from '../../../src/cli/init/json-text.ts'

const command = 'leasehold guard --store http://127.0.0.1:7420 --host claude'

describe('JSON that is edited in place', () => {
  test('is the same value with one more element, and afterwards the same bytes, whatever its spacing', () => {
    const settings = fc.record({
      rest: fc.dictionary(fc.string(), fc.jsonValue()),
      hooks: fc.dictionary(fc.constantFrom('PreToolUse', 'Stop', 'x'), fc.array(fc.jsonValue(), { minLength: 1 }), { minKeys: 1 }),
      indent: fc.constantFrom(0, 1, 2, 4, '\t'),
      end: fc.constantFrom('', '\n', '\n\n'),
    })
    fc.assert(
      fc.property(settings, fc.boolean(), ({ rest, hooks, indent, end }, with_) => {
        const { hooks: _, ['__proto__']: __, ...others } = rest
        const value = { ...others, ...(with_ && { hooks }) }
        const text = `${JSON.stringify(value, null, indent)}${end}`
        const more = withElement(text, ['hooks', 'PreToolUse'], { ours: true })
        const read = JSON.parse(text) // as JSON has it: -0 is 0
        const before: readonly unknown[] = read.hooks?.PreToolUse ?? []
        expect(JSON.parse(more)).toEqual({ ...read, hooks: { ...read.hooks, PreToolUse: [...before, { ours: true }] } })
        const isOurs = (given: unknown) => JSON.stringify(given) === '{"ours":true}'
        fc.pre(!before.some(isOurs))
        const back = withoutElements(more, ['hooks', 'PreToolUse'], isOurs)
        // An object without members loses the space that it had between its braces.
        expect(Object.keys(value).length === 0 ? JSON.parse(back) : back).toEqual(Object.keys(value).length === 0 ? {} : text)
      }),
    )
  })

  test('is read with the place of every part', () => {
    const text = ' { "a" : [ 1 , "x\\"]" , { } ] , "b":null}\n'
    const { members } = parseJson(text)
    expect(members!.map(({ name, node }) => [name, text.slice(node.start, node.end)])).toEqual([
      ['a', '[ 1 , "x\\"]" , { } ]'],
      ['b', 'null'],
    ])
  })

  test.each([
    ['// a comment\n{}', /JSON/],
    ['{"hooks": []}', /"hooks" is not an object/],
    ['{"hooks": {"PreToolUse": {}}}', /"hooks.PreToolUse" is not a list/],
    ['[]', /the file is not an object/],
    ['', /JSON/],
  ])('%j is refused, and not edited', (text, message) => {
    expect(() => withElement(text, ['hooks', 'PreToolUse'], 1)).toThrow(message)
  })
})

describe('the hooks of an agent', () => {
  const theirs = `{
    "permissions": { "allow": ["Bash(ls:*)"] },
    "hooks": {
        "PreToolUse": [
            { "matcher": "Bash", "hooks": [{ "type": "command", "command": "./mine.sh" }] }
        ]
    },
    "model": "opus"
}
`
  test('are added beside those of the user, written once however often, and taken out byte for byte', () => {
    const once = withHooks('claude', theirs, command)
    expect(withHooks('claude', once, command)).toBe(once)
    const { hooks, permissions, model } = JSON.parse(once)
    expect({ permissions, model }).toEqual({ permissions: { allow: ['Bash(ls:*)'] }, model: 'opus' })
    expect(Object.keys(hooks)).toEqual(['PreToolUse', 'PostToolUse', 'SessionStart', 'SubagentStart', 'Stop', 'SubagentStop', 'SessionEnd'])
    expect(hooks.PreToolUse[1]).toEqual({
      matcher: 'Edit|MultiEdit|Write|NotebookEdit',
      hooks: [{ type: 'command', command, timeout: 10 }],
    })
    expect(withoutHooks('claude', once)).toBe(theirs)
    // Also after the user has changed something else.
    const edited = once.replace('"opus"', '"sonnet"')
    expect(withoutHooks('claude', edited)).toBe(theirs.replace('"opus"', '"sonnet"'))
  })

  test.each(['claude', 'codex', 'cursor'] as const)(
    'of %s in a new file are its whole content, and nothing of them is left afterwards',
    host => {
      const text = withHooks(host, undefined, `leasehold guard --host ${host}`)
      expect(JSON.stringify(JSON.parse(text)).match(/leasehold guard/g)!.length).toBeGreaterThanOrEqual(5)
      const left = JSON.parse(withoutHooks(host, text))
      expect(left).toEqual(host === 'cursor' ? { version: 1 } : {})
    },
  )

  test('of another program, and a group that the user shares with ours, stay', () => {
    const mixed = JSON.stringify({
      hooks: {
        Stop: [
          {
            hooks: [
              { type: 'command', command },
              { type: 'command', command: 'mine' },
            ],
          },
          { hooks: [] },
        ],
      },
    })
    expect(withoutHooks('claude', mixed)).toBe(mixed)
  })
})

describe('the hooks of git', () => {
  test.each(GIT_HOOKS)('%s is put before the script of the user, once, and taken out byte for byte', hook => {
    const theirs = '#!/usr/bin/env bash\n\nset -e\nnpm test\nexit 0\n'
    const once = withGitHook(hook, theirs, 'leasehold guard')
    expect(withGitHook(hook, once, 'leasehold guard')).toBe(once)
    expect(once.startsWith('#!/usr/bin/env bash\n# >>> leasehold guard\n')).toBe(true)
    expect(once).toContain(`leasehold guard --git ${hook} || exit 1`)
    expect(withoutGitHook(once)).toBe(theirs)
  })

  test('in a script of another language are refused, with what to add', () => {
    expect(() => withGitHook('pre-commit', '#!/usr/bin/python3\n', 'leasehold guard')).toThrow(/leasehold guard --git pre-commit/)
  })
})
