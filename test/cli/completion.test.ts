/** Completions are tried in the shells themselves; the scripts come from the built program. */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { completedCommands, completionScript, SHELLS } from '../../src/cli/completion.ts'
import { EXAMPLES } from '../../src/cli/examples.ts'
import { program } from '../../src/cli/program.ts'
import { Place } from '../support/cli.ts'

const SLOW = 120_000

/** The answers of bash for words of which the last is completed. */
function completed(script: string, words: readonly string[]): readonly string[] {
  const line = words.map(word => `'${word}'`).join(' ')
  const test = `source '${script}'; COMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _leasehold; printf '%s\\n' "\${COMPREPLY[@]}"`
  const { stdout, stderr, status } = spawnSync('bash', ['--norc', '-c', test], { encoding: 'utf8' })
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 })
  return stdout.split('\n').filter(Boolean)
}

test('bash completes commands, subcommands, options and their choices, and the command after --', { timeout: SLOW }, async () => {
  await using here = new Place()
  const printed = await here.run(['completion', 'bash'])
  expect(printed).toMatchObject({ code: 0, stderr: '' })
  const script = here.file('completion')
  writeFileSync(script, printed.stdout)
  const all = completed(script, ['leasehold', ''])
  expect(all).toEqual(expect.arrayContaining(['run', 'serve', 'policy', 'completion', '--store']))
  expect(completed(script, ['leasehold', 'ex'])).toEqual(['explain'])
  expect(completed(script, ['leasehold', 'policy', ''])).toEqual(expect.arrayContaining(['get', 'set', 'unset']))
  expect(completed(script, ['leasehold', '--store', 'memory:', 'policy', 's'])).toEqual(['set'])
  expect(completed(script, ['leasehold', 'run', 'jobs/nightly', '--max'])).toEqual(['--max-time'])
  expect(completed(script, ['leasehold', 'run', 'x', '--on-lost', ''])).toEqual(['kill', 'term', 'ignore'])
  expect(completed(script, ['leasehold', 'run', 'x', '--', 'bas'])).toContain('bash')
  expect(completed(script, ['leasehold', 'ls', '--nothing'])).toEqual([])
})

test.each(SHELLS)('the script for %s is one that this shell can read, where it is installed', async shell => {
  const script = completionScript(shell, completedCommands(await program()))
  const { error, status, stderr } = spawnSync(shell, ['-n'], { input: script, encoding: 'utf8' })
  if (error === undefined) expect({ stderr, status }).toEqual({ stderr: '', status: 0 })
  for (const [name] of Object.entries(EXAMPLES)) expect(script).toContain(name.split(' ').at(-1))
})

test('another shell is refused with the shells that there are', () => {
  expect(() => completionScript('csh', [])).toThrow(/no completion for csh/)
})

test('every command has examples, and the program knows each option in them', async () => {
  const commands = new Map(completedCommands(await program()).map(command => [command.words.join(' '), command]))
  const groups = new Set(
    [...commands.keys()].filter(name => [...commands.keys()].some(other => other.startsWith(`${name} `) || name === '')),
  )
  const without = [...commands.keys()].filter(name => !groups.has(name) && EXAMPLES[name] === undefined)
  expect(without).toEqual([])
  const root = commands.get('')!
  for (const [name, examples] of Object.entries(EXAMPLES)) {
    const command = commands.get(name)
    expect(command, name).toBeDefined()
    const known = new Set([...root.options, ...command!.options].flatMap(({ names }) => names))
    for (const example of examples) {
      expect(example.startsWith(`leasehold ${name}`), example).toBe(true)
      const [own = ''] = example.split(' -- ')
      const unknown = own.split(' ').filter(word => /^--?[a-z]/i.test(word) && !known.has(word))
      expect(unknown, example).toEqual([])
    }
  }
})
