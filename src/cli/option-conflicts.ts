/**
 * The table of options that contradict each other or have no effect without another one. The caller meant something by each of them, so the command
 * is rejected before anything is opened, instead of one option being ignored.
 */
import type { Command } from 'commander'
import { parseDuration } from '../duration.ts'
import { usageError } from './exit.ts'

interface OptionConflict {
  readonly commands: readonly string[]
  /** Options that must not be given together. */
  readonly both?: readonly [string, string]
  /** An option that has no effect without the other. */
  readonly without?: readonly [option: string, other: string]
  /** Returns whether the values of both contradict each other. Left out: they always do. */
  readonly when?: (options: Readonly<Record<string, unknown>>) => boolean
  /** With the arithmetic, where it depends on values. */
  readonly message: string | ((options: Readonly<Record<string, unknown>>) => string)
  readonly next: string
}

const CONFLICTS: readonly OptionConflict[] = [
  {
    commands: ['run'],
    both: ['--wait', '--no-wait'],
    message: '--wait and --no-wait contradict each other',
    next: 'Use --wait DURATION to wait that long, or --no-wait to give up at once.',
  },
  {
    commands: ['run'],
    both: ['--skip-ok', '--conflict-exit-code'],
    message: '--skip-ok and -E contradict each other: both set the exit code for a lease that is held',
    next: 'Use one of them.',
  },
  {
    commands: ['run'],
    both: ['--shared', '--units'],
    message: '--shared and --units contradict each other: a shared lease takes no units',
    next: 'Use one of them.',
  },
  ...(['--shared', '--units'] as const).map(option => ({
    commands: ['run'],
    both: ['--slots', option] as const,
    message: `--slots and ${option} contradict each other: a slot is a number that one holder has alone`,
    next: 'Use one of them.',
  })),
  {
    commands: ['run', 'elect'],
    both: ['--ttl', '--grace'],
    when: ({ ttl, grace }) => ttl !== 'auto' && parseDuration(grace as string, '--grace') > parseDuration(ttl as string, '--ttl'),
    message: ({ ttl, grace }) =>
      `--grace is longer than --ttl: another holder could get the lease ${ttl} after the last renewal, while the command still has up to ${grace} to end`,
    next: 'Use a longer --ttl or a shorter --grace. With a grace of at most a third of the ttl the command ends in time.',
  },
  {
    commands: ['run'],
    both: ['--class', '--class'],
    when: ({ ttl }) => ttl !== 'auto',
    message: '--class without --ttl auto: a ttl that is given is not learned',
    next: 'Write: --ttl auto --class CLASS',
  },
  {
    commands: ['explain'],
    without: ['--class', '--term'],
    message: '--class without --term: only terms are learned by class',
    next: 'Write: leasehold explain --term NAME --class CLASS',
  },
  {
    commands: ['mcp'],
    both: ['--workspace', '--no-workspace'],
    message: '--workspace and --no-workspace contradict each other',
    next: 'Use one of them.',
  },
  ...(['--tls-cert', '--tls-key'] as const).map((option, i, all) => ({
    commands: ['serve'],
    without: [option, all[1 - i]!] as const,
    message: '--tls-cert and --tls-key need each other',
    next: 'Use both, or neither.',
  })),
  {
    commands: ['serve'],
    without: ['--socket-mode', '--socket'],
    message: '--socket-mode without --socket: there is no socket',
    next: 'Add --socket PATH.',
  },
  {
    commands: ['serve'],
    without: ['--tls-ca', '--tls-cert'],
    message: '--tls-ca without --tls-cert: without TLS the server cannot ask for client certificates',
    next: 'Add --tls-cert and --tls-key.',
  },
  {
    commands: ['serve'],
    without: ['--dns-domain', '--dns'],
    message: '--dns-domain without --dns: the server does not answer DNS',
    next: 'Add --dns ADDRESS.',
  },
  {
    commands: ['serve'],
    without: ['--dns-public', '--dns'],
    message: '--dns-public without --dns: the server does not answer DNS',
    next: 'Add --dns ADDRESS.',
  },
]

/** Rejects conflicting options of a command. Call it when all options are declared. */
export function rejectConflicts(command: Command): Command {
  // Commander keeps one value for `--wait` and `--no-wait`. Only its events tell which of them were given.
  const given = new Set<string>()
  for (const option of command.options) command.on(`option:${option.name()}`, () => given.add(option.long!))
  return command.hook('preAction', (_, self) => {
    if (self.name() !== 'serve') checkConflicts(self.name(), self.opts(), option => given.has(option))
  })
}

/** `options`: values by option name in camel case. `serve` calls this itself, because some of its options come from the configuration file. */
export function checkConflicts(
  command: string,
  options: Readonly<Record<string, unknown>>,
  has = (option: string) => options[camel(option)] !== undefined,
): void {
  for (const { commands, both, without, when = () => true, message, next } of CONFLICTS) {
    if (!commands.includes(command)) continue
    const wrong = both === undefined ? has(without![0]) && !has(without![1]) : both.every(has) && when(options)
    if (wrong) throw usageError(typeof message === 'string' ? message : message(options), next)
  }
}

function camel(option: string): string {
  return option.slice(2).replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase())
}
