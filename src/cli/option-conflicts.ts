/**
 * Options that contradict each other, or that have no effect without another, in one table. A caller that gives both means something, and it
 * is not certain what: so the command is refused before anything is opened, instead of one option being ignored.
 */
import type { Command } from 'commander'
import { parseDuration } from '../duration.ts'
import { usage } from './exit.ts'

interface Rule {
  readonly commands: readonly string[]
  /** Options that must not come together. */
  readonly both?: readonly [string, string]
  /** An option that has no effect without the other. */
  readonly without?: readonly [option: string, other: string]
  /** Asked when both are given: whether their values contradict each other. Left out: they always do. */
  readonly when?: (options: Readonly<Record<string, unknown>>) => boolean
  readonly happened: string
  readonly next: string
}

const RULES: readonly Rule[] = [
  {
    commands: ['run'],
    both: ['--wait', '--no-wait'],
    happened: '--wait and --no-wait contradict each other',
    next: 'Give --wait DURATION to wait that long, or --no-wait not to wait.',
  },
  {
    commands: ['run'],
    both: ['--skip-ok', '--conflict-exit-code'],
    happened: '--skip-ok and -E contradict each other: one is exit code 0, the other another',
    next: 'Give one of them.',
  },
  {
    commands: ['run'],
    both: ['--shared', '--units'],
    happened: '--shared and --units contradict each other: a shared lease takes no units',
    next: 'Give one of them.',
  },
  {
    commands: ['run', 'elect'],
    both: ['--ttl', '--grace'],
    when: ({ ttl, grace }) => parseDuration(grace as string, '--grace') > parseDuration(ttl as string, '--ttl'),
    happened: '--grace is longer than --ttl: another would have the lease while the command still runs',
    next: 'Give a longer --ttl, or a shorter --grace. A grace of a third of the ttl lets the command end in time.',
  },
  ...(['--tls-cert', '--tls-key'] as const).map((option, i, all) => ({
    commands: ['serve'],
    without: [option, all[1 - i]!] as const,
    happened: '--tls-cert and --tls-key come together',
    next: 'Give both, or neither.',
  })),
  {
    commands: ['serve'],
    without: ['--tls-ca', '--tls-cert'],
    happened: '--tls-ca without --tls-cert: without TLS no client certificate is ever asked for',
    next: 'Give --tls-cert and --tls-key as well.',
  },
  {
    commands: ['serve'],
    without: ['--dns-domain', '--dns'],
    happened: '--dns-domain without --dns: no names are served',
    next: 'Give --dns ADDRESS as well.',
  },
  {
    commands: ['serve'],
    without: ['--dns-public', '--dns'],
    happened: '--dns-public without --dns: no names are served',
    next: 'Give --dns ADDRESS as well.',
  },
]

/** Refuses contradictions among the options of a command, which are all declared by now. */
export function refuseContradictions(command: Command): Command {
  // Commander keeps one value for `--wait` and `--no-wait`: which of them were given, its events tell.
  const seen = new Set<string>()
  for (const option of command.options) command.on(`option:${option.name()}`, () => seen.add(option.long!))
  return command.hook('preAction', (_, self) => {
    if (self.name() !== 'serve') mustNotContradict(self.name(), self.opts(), option => seen.has(option))
  })
}

/** `options`: the values by the names that the command has for them. `serve` takes some from its configuration file, and asks for itself. */
export function mustNotContradict(
  command: string,
  options: Readonly<Record<string, unknown>>,
  has = (option: string) => options[camel(option)] !== undefined,
): void {
  for (const { commands, both, without, when = () => true, happened, next } of RULES) {
    if (!commands.includes(command)) continue
    const wrong = both === undefined ? has(without![0]) && !has(without![1]) : both.every(has) && when(options)
    if (wrong) throw usage(happened, next)
  }
}

function camel(option: string): string {
  return option.slice(2).replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase())
}
