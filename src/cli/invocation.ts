/** One visit of a command to the place where leases live: settings read, opened, signals heard, closed again whatever happens. */
import type { Command } from 'commander'
import { type Clock, keepAlive, systemClock, unlessAborted } from '../clock.ts'
import { open } from '../connect/connect.ts'
import { Leases } from '../leases.ts'
import type { Lessor, Query, View } from '../lessor.ts'
import { Interrupted, usage } from './exit.ts'
import { rememberFlags } from './hints.ts'
import { Output } from './output.ts'
import { blamed, type Flags, type Settings, settingsOf } from './settings.ts'

const OPTIONS = {
  store: ['--store <url>', 'where leases live (LEASEHOLD_URL; default: a file of your own)'],
  config: ['--config <file>', 'a configuration file (default: leasehold.json beside the data file)'],
  holder: ['--holder <name>', 'who we are (LEASEHOLD_HOLDER; default: host:pid)'],
  json: ['--json', 'one JSON object a line'],
} as const

/** What every command takes, or those of it that one has a use for. */
export function common(command: Command, names = Object.keys(OPTIONS) as readonly (keyof typeof OPTIONS)[]): Command {
  for (const name of names) {
    const [flag, words] = OPTIONS[name]
    command.option(flag, words)
  }
  return command
}

export interface CommandInput {
  readonly settings: Settings
  readonly out: Output
}

/** The flags of a command and of the program before it; nearer ones count. */
export function commandInput(command: Command): CommandInput {
  const flags = { ...command.parent?.parent?.opts(), ...command.parent?.opts(), ...command.opts() } as Flags & { json?: boolean }
  for (const name of Object.keys(OPTIONS))
    if (name in flags && !command.options.some(option => option.attributeName() === name))
      throw usage(`${command.name()} has no use for --${name}`, `See leasehold help ${command.name()}.`)
  rememberFlags(flags)
  return { settings: settingsOf(flags), out: new Output({ json: flags.json === true }) }
}

export interface Invocation extends CommandInput {
  readonly leases: Leases
  readonly lessor: Lessor
  readonly clock: Clock
  /** Fires with the first INT, TERM or HUP. */
  readonly signal: AbortSignal
  /** At the log's end. */
  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>): Promise<View<K>>
}

/** Signals, from before anything is opened. */
export interface ForwardedSignals {
  /** Fires with the first that asks us to end. */
  readonly signal: AbortSignal
  stop(): void
}

export async function invoke<T>(
  command: Command,
  work: (here: Invocation) => Promise<T>,
  heard: ForwardedSignals = interrupted(),
): Promise<T> {
  const { signal } = heard
  // Neither a store that waits for events nor an unreferenced timer keeps a process alive.
  const stay = keepAlive(systemClock)
  try {
    const { settings, out } = commandInput(command)
    await using leases = await unlessEnded(connected(settings), signal)
    const { lessor, clock } = leases
    const read: Invocation['read'] = query => lessor.read(query, { consistent: true, signal })
    return await work({ settings, out, leases, lessor, clock, signal, read })
  } finally {
    stay()
    heard.stop()
  }
}

async function connected(settings: Settings): Promise<Leases> {
  const { url, holder, apiKey } = settings
  const lessor = await blamed(settings, () => open(url, apiKey === undefined ? {} : { apiKey }))
  return new Leases(lessor, holder === undefined ? {} : { holder })
}

/** What is being opened when a signal comes is not waited for: nothing was asked there yet. */
async function unlessEnded(opening: Promise<Leases>, signal: AbortSignal): Promise<Leases> {
  try {
    return await unlessAborted(opening, signal)
  } catch (error) {
    opening.then(leases => leases[Symbol.asyncDispose]()).catch(() => {})
    throw error
  }
}

/** From now on, these signals end what waits instead of the process, until `stop`. */
export function interrupted(): ForwardedSignals {
  const controller = new AbortController()
  const end = (name: NodeJS.Signals) => controller.abort(new Interrupted(name))
  const names = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
  for (const name of names) process.once(name, end)
  return {
    signal: controller.signal,
    stop: () => {
      for (const name of names) process.off(name, end)
    },
  }
}
