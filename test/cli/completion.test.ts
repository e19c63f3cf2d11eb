/** Completions are tried in the shells themselves; the scripts come from the built program. */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { completedCommands, completionScript, SHELLS } from '../../src/cli/completion.ts'
import { EXAMPLES } from '../../src/cli/examples.ts'
import { program } from '../../src/cli/program.ts'
import { EVENT_TIMEOUT } from '../support/bounds.ts'
import { Place } from '../support/cli.ts'
import { describeWith, programs } from '../support/engine.ts'

/** The answers of bash for words of which the last is completed. */
function completed(script: string, words: readonly string[]): readonly string[] {
  const line = words.map(word => `'${word}'`).join(' ')
  const test = `source '${script}'; COMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _leasehold_words; printf '%s\\n' "\${COMPREPLY[@]}"`
  const { stdout, stderr, status } = spawnSync('bash', ['--norc', '-c', test], { encoding: 'utf8' })
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 })
  return stdout.split('\n').filter(Boolean)
}

test('bash completes commands, subcommands, options and their choices, and the command after --', async () => {
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
  expect(completed(script, ['leasehold', 'run', 'jobs/nightly', '--max'])).toEqual(['--max-ttl', '--max-time'])
  expect(completed(script, ['leasehold', 'run', 'x', '--on-lost', ''])).toEqual(['kill', 'term', 'ignore'])
  expect(completed(script, ['leasehold', 'run', 'x', '--', 'bas'])).toContain('bash')
  expect(completed(script, ['leasehold', 'ls', '--nothing'])).toEqual([])
})

test('the scripts know every command', async () => {
  for (const shell of SHELLS) {
    const script = completionScript(shell, completedCommands(await program()))
    for (const [name] of Object.entries(EXAMPLES)) expect(script, shell).toContain(name.split(' ').at(-1))
  }
})

test('the help of each command has its examples once', async () => {
  const all = await program()
  const commands = all.commands.flatMap(command => [command, ...command.commands])
  expect(commands.length).toBeGreaterThan(30)
  for (const command of commands) {
    let help = ''
    command.configureOutput({ writeOut: text => (help += text) }).outputHelp()
    expect(help.match(/^Examples:$/gm)?.length ?? 0, command.name()).toBeLessThan(2)
  }
})

/** What is typed, what must be offered, and whether that is all. */
const TYPED: readonly (readonly [line: string, offered: readonly string[], all?: boolean])[] = [
  ['leasehold ru', ['run'], true],
  ['leasehold ', ['run', 'serve', 'policy', 'completion']],
  ['leasehold policy ', ['get', 'set', 'unset']],
  ['leasehold --store memory: policy s', ['set'], true],
  ['leasehold run jobs/nightly --max', ['--max-ttl', '--max-time'], true],
  ['leasehold run x --on-lost ', ['kill', 'term', 'ignore'], true],
  ['leasehold run x -- bas', ['bash']],
  ['leasehold ls --nothing', [], true],
]

function checkOffers(offersFor: (line: string) => readonly string[]): void {
  for (const [line, expected, all = false] of TYPED) {
    const offers = offersFor(line)
    if (all) expect([...offers].sort(), line).toEqual([...expected].sort())
    else expect(offers, line).toEqual(expect.arrayContaining([...expected]))
  }
}

describeWith([programs.fish], 'fish', () => {
  test('completes commands, subcommands, options and their choices, and the command after --', async () => {
    await using here = new Place()
    const script = here.file('leasehold.fish')
    writeFileSync(script, completionScript('fish', completedCommands(await program())))
    const env = { ...process.env, HOME: here.path, XDG_CONFIG_HOME: here.path, XDG_DATA_HOME: here.path }
    checkOffers(line => {
      const { stdout, stderr, status } = spawnSync('fish', ['--no-config', '-c', `source ${script}; complete -C '${line}'`], {
        encoding: 'utf8',
        env,
        cwd: here.path,
      })
      expect({ stderr, status }, line).toEqual({ stderr: '', status: 0 })
      return stdout.split('\n').flatMap(found => (found === '' ? [] : [found.split('\t')[0]!]))
    })
  })
})

describeWith([programs.zsh], 'zsh', () => {
  test('completes commands, subcommands, options and their choices, and the command after --', async () => {
    await using here = new Place()
    writeFileSync(here.file('_leasehold'), completionScript('zsh', completedCommands(await program())))
    const capture = fileURLToPath(new URL('../support/zsh-completions.zsh', import.meta.url))
    checkOffers(line => {
      const { stdout, status } = spawnSync('zsh', ['-f', capture, here.path, line], {
        encoding: 'utf8',
        cwd: here.path,
        timeout: EVENT_TIMEOUT,
      })
      expect({ status }, `${line}: ${stdout}`).toEqual({ status: 0 })
      return [...new Set(stdout.split(/\r?\n/).map(found => found.trim()))].filter(found => found !== '' && found !== '_leasehold')
    })
  })
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
    expect(commands.get(name), name).toBeDefined()
    for (const example of examples) {
      expect(example.startsWith(`leasehold ${name}`), example).toBe(true)
      // The example of a group calls one of its commands.
      const called = [...commands.keys()].filter(each => `${example} `.startsWith(`leasehold ${each} `)).at(-1)!
      const known = new Set([...root.options, ...commands.get(called)!.options].flatMap(({ names }) => names))
      const [own = ''] = example.replace(/'[^']*'/g, 'TEXT').split(' -- ')
      const unknown = own.split(' ').filter(word => /^--?[a-z]/i.test(word) && !known.has(word))
      expect(unknown, example).toEqual([])
    }
  }
})
