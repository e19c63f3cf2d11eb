/**
 * A command line that cannot be parsed is answered with what is wrong, what was probably meant, and the line to type instead. The line is
 * made of what the caller typed, so that it can be copied.
 */
import type { Command, CommanderError } from 'commander'
import { type CommandFailure, usageError } from './exit.ts'
import { shellWord } from './hints.ts'

/** Words of other programs for what a command here does. Misspelt words are found by comparing letters. */
const SYNONYMS: Readonly<Record<string, string>> = {
  ...{ lock: 'run', acquire: 'run', exec: 'run', with: 'run', flock: 'run', cron: 'run' },
  ...{ list: 'ls', leases: 'ls', status: 'ls', ps: 'ls', get: 'show', info: 'show', inspect: 'show', describe: 'explain', why: 'explain' },
  ...{ server: 'serve', start: 'serve', listen: 'serve', daemon: 'serve', leader: 'elect', election: 'elect', lead: 'elect' },
  ...{
    unlock: 'break',
    steal: 'break',
    release: 'revoke',
    kill: 'revoke',
    rm: 'revoke',
    delete: 'revoke',
    log: 'history',
    logs: 'history',
  },
  ...{ events: 'watch', tail: 'watch', follow: 'watch', policies: 'policy', keys: 'key', token: 'key', gpu: 'pool', gpus: 'pool' },
  ...{
    services: 'discover',
    dump: 'backup',
    export: 'backup',
    import: 'restore',
    move: 'migrate',
    check: 'doctor',
    completions: 'completion',
  },
}

/** Commands that run another command, which is written after `--`. */
const RUNS_COMMAND = /<cmd/

export function parseError({ message: raw, code }: CommanderError, argv: readonly string[], root: Command): CommandFailure {
  const [first = '', suggestion] = raw.replace(/^error: /, '').split('\n')
  const meant = /Did you mean (?:one of )?([^,?]+)/.exec(suggestion ?? '')?.[1]
  const command = commandOf(argv, root)
  const help = `leasehold help ${wordsOf(command).join(' ')}`.trim()
  switch (code) {
    case 'commander.help':
      return missingSubcommand(argv, root)
    case 'commander.unknownCommand': {
      const word = /'(.*)'/.exec(first)?.[1] ?? ''
      const known = meant ?? synonymOf(word, command)
      if (known === undefined) return usageError(`there is no command ${word}`, `To see the commands, run: ${help}`)
      return usageError(`there is no command ${word}. Did you mean ${known}?`, `Write: ${corrected(argv, word, known)}`)
    }
    case 'commander.unknownOption': {
      const word = /'(.*)'/.exec(first)?.[1] ?? ''
      const option = word.split('=')[0]!
      const after = RUNS_COMMAND.test(command.usage()) ? ' Options of the command that is run come after --.' : ''
      // Without the dashes, which all options share: --port is not nearly --host.
      const names = [...command.options, ...root.options].map(({ long }) => long?.slice(2) ?? '')
      const nearest = nearestOf(option.replace(/^-+/, ''), names)
      const near = nearest === undefined ? undefined : `--${nearest}`
      if (near === undefined) return usageError(`${nameOf(command)} has no option ${option}`, `To see its options, run: ${help}${after}`)
      return usageError(
        `${nameOf(command)} has no option ${option}. Did you mean ${near}?`,
        `Write: ${corrected(argv, option, near)}${after}`,
      )
    }
    case 'commander.missingArgument':
    case 'commander.excessArguments':
      return usageError(
        code.endsWith('missingArgument') ? `${nameOf(command)} needs a ${/'(.*)'/.exec(first)?.[1] ?? 'word'}` : lowerFirst(first),
        `Write: ${usageOf(command)}`,
      )
    default:
      return usageError(first, `For its options, run: ${help}`)
  }
}

/**
 * Commander takes any word as the value of an option that needs one. Another option there means that the value was forgotten: it would be refused as
 * a duration, or silently used as a name.
 */
export function rejectForgottenValues(argv: readonly string[], root: Command): void {
  const { options } = commandOf(argv, root)
  const end = argv.indexOf('--')
  const last = end === -1 ? argv.length - 1 : end
  for (const [i, word] of argv.slice(0, last).entries()) {
    const option = [...options, ...root.options].find(({ short, long, required }) => required && (short === word || long === word))
    if (option === undefined || !/^--/.test(argv[i + 1]!)) continue
    const value = /<.*>/.exec(option.flags)?.[0] ?? '<value>'
    throw usageError(
      `${word} needs a value`,
      `Write: ${word} ${value}. A value that begins with -- is written ${option.long}=${argv[i + 1]}`,
    )
  }
}

/** For a command that needs a subcommand, and for help about a command that does not exist. */
function missingSubcommand(argv: readonly string[], root: Command): CommandFailure {
  const [first, second] = argv.filter(word => !word.startsWith('-'))
  if (first === 'help' && second !== undefined) {
    const known = nearest(second, root) ?? synonymOf(second, root)
    if (known === undefined) return usageError(`there is no command ${second}`, 'To see the commands, run: leasehold help')
    return usageError(`there is no command ${second}. Did you mean ${known}?`, `Write: leasehold help ${known}`)
  }
  const group = root.commands.find(command => argv.includes(command.name()))
  if (group === undefined) return usageError('no command was given', 'To see the commands, run: leasehold help')
  const names = group.commands.map(command => command.name())
  return usageError(
    `${group.name()} needs a subcommand`,
    `Use one of: ${names.map(name => `leasehold ${group.name()} ${name}`).join(', ')}. For details run: leasehold help ${group.name()}`,
  )
}

/** The command that the words name, as far as they name one. */
function commandOf(argv: readonly string[], root: Command): Command {
  let command = root
  for (const word of argv) {
    if (word === '--') break
    const next = command.commands.find(child => child.name() === word)
    if (next !== undefined) command = next as Command
    else if (!word.startsWith('-') && command !== root) break
  }
  return command
}

/** The words that call a command, as a caller writes them after `leasehold`. */
export function wordsOf(command: Command): readonly string[] {
  return command.parent === null ? [] : [...wordsOf(command.parent), command.name()]
}

function nameOf(command: Command): string {
  return wordsOf(command).join(' ') || 'leasehold'
}

function usageOf(command: Command): string {
  const usage = command.usage().replace('[options] ', '').replace('[options]', '')
  return `leasehold ${wordsOf(command).join(' ')} ${usage}`.trim()
}

function synonymOf(word: string, command: Command): string | undefined {
  const known = Object.hasOwn(SYNONYMS, word) ? SYNONYMS[word] : undefined
  return command.parent === null ? known : undefined
}

/** The name of a command with the fewest different letters, at most two. */
function nearest(word: string, { commands }: Command): string | undefined {
  return nearestOf(
    word,
    commands.map(command => command.name()),
  )
}

/** The nearest text, at most one changed letter in three away. */
export function nearestOf(word: string, known: readonly string[]): string | undefined {
  const [best] = known.map(name => ({ name, distance: lettersBetween(word, name) })).sort((a, b) => a.distance - b.distance)
  return best !== undefined && best.distance <= Math.min(2, Math.max(1, Math.floor(word.length / 3)), word.length - 1)
    ? best.name
    : undefined
}

/** Letters that were added, left out, changed or swapped with the next. */
function lettersBetween(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2 || a.length > 64) return Number.POSITIVE_INFINITY
  const rows: number[][] = Array.from({ length: a.length + 1 }, (_, i) => [i])
  for (let j = 0; j <= b.length; j++) rows[0]![j] = j
  for (let i = 1; i <= a.length; i++)
    for (let j = 1; j <= b.length; j++) {
      const change = a[i - 1] === b[j - 1] ? 0 : 1
      rows[i]![j] = Math.min(rows[i - 1]![j]! + 1, rows[i]![j - 1]! + 1, rows[i - 1]![j - 1]! + change)
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) rows[i]![j] = Math.min(rows[i]![j]!, rows[i - 2]![j - 2]! + 1)
    }
  return rows[a.length]![b.length]!
}

/** Returns what was typed, with one word replaced. */
function corrected(argv: readonly string[], wrong: string, right: string): string {
  const at = argv.findIndex(word => word === wrong || word.startsWith(`${wrong}=`))
  const words = argv.map((word, i) => (i === at ? word.replace(wrong, right) : word))
  return ['leasehold', ...words.map(shellWord)].join(' ')
}

function lowerFirst(text: string): string {
  return text.slice(0, 1).toLowerCase() + text.slice(1)
}
