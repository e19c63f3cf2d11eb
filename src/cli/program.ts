/** The program: reads the command line, runs a command of the list, and reports how it ends. */
import { readFileSync } from 'node:fs'
import { Command, CommanderError } from 'commander'
import { COMMANDS } from './command-list.ts'
import { EXAMPLES } from './examples.ts'
import { CommandFailure, EXIT, Interrupted, reportError } from './exit.ts'
import { rememberCommand } from './hints.ts'
import { addGlobalOptions } from './invocation.ts'
import { rejectConflicts } from './option-conflicts.ts'
import { closeGoneTerminals, onStdoutError, writeStderrLine } from './output.ts'
import { parseError, rejectForgottenValues, wordsOf } from './parse-error.ts'

/** `names`: the commands to load. @default all of them */
export async function program(names: readonly string[] = Object.keys(COMMANDS)): Promise<Command> {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
  const root = addGlobalOptions(new Command('leasehold'))
    .description('Leases for programs that must agree on who may do what, and for how long.')
    .version(version)
    .enablePositionalOptions()
    .helpCommand('help [command]', 'show what a command does and its options')
    .showSuggestionAfterError()
    .hook('preAction', (_, command) => rememberCommand(wordsOf(command)))
  for (const add of await Promise.all(names.map(name => COMMANDS[name]!()))) add(root)
  for (const command of subcommands(root)) rejectConflicts(command)
  for (const command of subcommands(root)) addExamples(command)
  for (const command of [root, ...subcommands(root)])
    command.exitOverride().configureOutput({ writeErr: () => {}, writeOut: text => process.stdout.write(text) })
  return root
}

function addExamples(command: Command): void {
  const group = command.parent?.parent ? `${command.parent.name()} ` : ''
  const examples = EXAMPLES[`${group}${command.name()}`]
  if (examples !== undefined) command.addHelpText('after', `\nExamples:\n${examples.map(line => `  ${line}`).join('\n')}`)
}

function subcommands(command: Command): Command[] {
  return command.commands.flatMap(child => [child as Command, ...subcommands(child as Command)])
}

export async function main(argv: readonly string[]): Promise<void> {
  const end = argv.indexOf('--')
  const json = (end === -1 ? argv : argv.slice(0, end)).includes('--json')
  onStdoutError(error => reportError(outputError(error), { json }))
  closeGoneTerminals()
  const [first = ''] = argv
  // The completion is about all commands.
  const root = await program(Object.hasOwn(COMMANDS, first) && first !== 'completion' ? [first] : undefined)
  try {
    if (argv.length === 0) writeStderrLine(root.helpInformation().trimEnd())
    if (argv.length === 0) process.exitCode = EXIT.usage
    else {
      rejectForgottenValues(argv, root)
      await root.parseAsync(deepHelp(argv), { from: 'user' })
    }
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode !== 0) process.exitCode = reportError(parseError(error, argv, root), { json })
      return
    }
    process.exitCode = reportError(error, { json })
    // Do not wait for a store that is still being opened.
    if (error instanceof Interrupted) process.exit()
  }
}

/** Commander's own `help` command takes one word: `help policy set` needs this. */
function deepHelp(argv: readonly string[]): readonly string[] {
  const [word, ...names] = argv
  return word === 'help' && names.length > 1 ? [...names, '--help'] : argv
}

function outputError(error: NodeJS.ErrnoException): CommandFailure {
  return new CommandFailure({
    exit: EXIT.output,
    code: error.code ?? 'OUTPUT',
    message: `the output could not be written: ${error.message}`,
    means: 'The command was carried out, but part of its output is missing.',
    next: 'Free space where stdout goes, then check the result with leasehold show or leasehold ls.',
  })
}
