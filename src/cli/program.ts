/** The program: which commands there are, and how every one of them ends. A new command is its file and one line here. */
import { readFileSync } from 'node:fs'
import { Command, CommanderError } from 'commander'
import { backup } from './command/backup.ts'
import { certify } from './command/certify.ts'
import { discover } from './command/discover.ts'
import { elect } from './command/elect.ts'
import { explain } from './command/explain.ts'
import { history } from './command/history.ts'
import { key } from './command/key.ts'
import { ls } from './command/ls.ts'
import { migrate } from './command/migrate.ts'
import { breakHold, revoke } from './command/operate.ts'
import { policy } from './command/policy.ts'
import { register } from './command/register.ts'
import { restore } from './command/restore.ts'
import { run } from './command/run.ts'
import { serve } from './command/serve.ts'
import { show } from './command/show.ts'
import { watch } from './command/watch.ts'
import { CommandFailure, EXIT, Interrupted, report, usage } from './exit.ts'
import { common } from './invocation.ts'
import { refuseContradictions } from './option-conflicts.ts'
import { leaveGoneTerminals, onStdoutError, say } from './output.ts'

const commands: readonly ((program: Command) => void)[] = [
  ...[serve, run, elect],
  ...[ls, show, watch, history, explain],
  ...[register, discover],
  ...[revoke, breakHold, policy, key],
  ...[backup, restore, migrate, certify],
]

export function program(): Command {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
  const all = common(new Command('leasehold'))
    .description('Leases: who may do what, for how long.')
    .version(version)
    .enablePositionalOptions()
    .helpCommand('help [command]', 'what a command does and takes')
    .showSuggestionAfterError()
  for (const add of commands) add(all)
  for (const each of below(all)) refuseContradictions(each)
  for (const each of [all, ...below(all)])
    each.exitOverride().configureOutput({ writeErr: () => {}, writeOut: text => process.stdout.write(text) })
  return all
}

function below(command: Command): Command[] {
  return command.commands.flatMap(each => [each as Command, ...below(each as Command)])
}

export async function main(argv: readonly string[]): Promise<void> {
  const end = argv.indexOf('--')
  const json = (end === -1 ? argv : argv.slice(0, end)).includes('--json')
  onStdoutError(error => report(notWritten(error), { json }))
  leaveGoneTerminals()
  const all = program()
  try {
    if (argv.length === 0) say(all.helpInformation().trimEnd())
    if (argv.length === 0) process.exitCode = EXIT.usage
    else await all.parseAsync(deepHelp(argv), { from: 'user' })
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode !== 0) process.exitCode = report(mistyped(error, argv, all), { json })
      return
    }
    process.exitCode = report(error, { json })
    // Whatever was being opened or waited for goes with us.
    if (error instanceof Interrupted) process.exit()
  }
}

/** Commander's own `help` goes one word deep. */
function deepHelp(argv: readonly string[]): readonly string[] {
  const [word, ...names] = argv
  return word === 'help' && names.length > 1 ? [...names, '--help'] : argv
}

function mistyped({ message, code }: CommanderError, argv: readonly string[], all: Command): Error {
  if (code === 'commander.help') return incomplete(argv, all)
  const hint = code === 'commander.unknownOption' ? ' What belongs to the command that is run comes after --.' : ''
  // A suggestion stands on a line of its own.
  return usage(message.replace(/^error: /, '').replaceAll('\n', ' '), `See leasehold help, or leasehold help COMMAND.${hint}`)
}

/** A command that only others are below of, or help about one that is not there. */
function incomplete(argv: readonly string[], all: Command): Error {
  const [first, second] = argv.filter(word => !word.startsWith('-'))
  if (first === 'help' && second !== undefined) return usage(`there is no command ${second}`, 'See leasehold help.')
  const group = all.commands.find(each => argv.includes(each.name()))
  if (group === undefined) return usage('there is no command', 'See leasehold help.')
  const names = group.commands.map(each => each.name())
  return usage(
    `${group.name()} what?`,
    `There are: ${names.map(name => `leasehold ${group.name()} ${name}`).join(', ')}. See leasehold help ${group.name()}.`,
  )
}

function notWritten(error: NodeJS.ErrnoException): CommandFailure {
  return new CommandFailure({
    exit: EXIT.output,
    code: error.code ?? 'OUTPUT',
    happened: `the output could not be written: ${error.message}`,
    means: 'What was asked for was done, and not all of it was told.',
    next: 'See that there is room where stdout goes, then look again.',
  })
}
