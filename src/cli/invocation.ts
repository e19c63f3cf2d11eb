/** One run of a command: reads the settings, opens the store or server, listens for signals, and closes everything, whatever happens. */
import { setMaxListeners } from 'node:events'
import type { Command } from 'commander'
import { type Clock, keepAlive, systemClock, unlessAborted } from '../clock.ts'
import { open } from '../connect/connect.ts'
import { Leases } from '../leases.ts'
import type { Lessor, Query, View } from '../lessor.ts'
import { Interrupted, usageError } from './exit.ts'
import { rememberFlags } from './hints.ts'
import { Output } from './output.ts'
import { attributeErrors, type Flags, type Settings, settingsOf } from './settings.ts'

const OPTIONS = {
  store: [
    '--store <url>',
    'the store or server to use (default: LEASEHOLD_URL, else that of this machine in /etc/leasehold/leasehold.json, else leasehold.db in your state folder)',
  ],
  config: ['--config <file>', 'the configuration file (default: leasehold.json beside the data file, if it exists)'],
  holder: ['--holder <name>', 'the name under which this command holds leases (default: LEASEHOLD_HOLDER, else host:pid)'],
  json: ['--json', 'print JSON, one object per line (default: text)'],
} as const

/** Adds the options that every command takes, or the named ones of them. */
export function addGlobalOptions(command: Command, names = Object.keys(OPTIONS) as readonly (keyof typeof OPTIONS)[]): Command {
  for (const name of names) {
    const [flag, description] = OPTIONS[name]
    command.option(flag, description)
  }
  return command
}

export interface CommandInput {
  readonly settings: Settings
  readonly out: Output
}

/** Reads the flags of a command and of the program before it. Those of the command take precedence. */
export function commandInput(command: Command): CommandInput {
  const flags = { ...command.parent?.parent?.opts(), ...command.parent?.opts(), ...command.opts() } as Flags & { json?: boolean }
  for (const name of Object.keys(OPTIONS))
    if (name in flags && !command.options.some(option => option.attributeName() === name))
      throw usageError(`${command.name()} does not take --${name}`, `Run: leasehold help ${command.name()}`)
  rememberFlags(flags)
  return { settings: settingsOf(flags), out: new Output({ json: flags.json === true }) }
}

export interface Invocation extends CommandInput {
  readonly leases: Leases
  readonly lessor: Lessor
  readonly clock: Clock
  /** Fires with the first INT, TERM or HUP. */
  readonly signal: AbortSignal
  /** Reads at the end of the log. */
  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>): Promise<View<K>>
}

/** Listens for signals from before the store is opened. */
export interface InterruptListener {
  /** Fires with the first signal that asks the command to end. */
  readonly signal: AbortSignal
  stop(): void
}

export async function invoke<T>(
  command: Command,
  work: (invocation: Invocation) => Promise<T>,
  interrupts: InterruptListener = listenForInterrupt(),
  defaults: { readonly holder?: string } = {},
): Promise<T> {
  const { signal } = interrupts
  const letExit = keepAlive(systemClock)
  try {
    const { settings, out } = commandInput(command)
    await using leases = await closeIfAborted(connectWith({ ...settings, holder: settings.holder ?? defaults.holder }), signal)
    const { lessor, clock } = leases
    const read: Invocation['read'] = query => lessor.read(query, { consistent: true, signal })
    return await work({ settings, out, leases, lessor, clock, signal, read })
  } finally {
    letExit()
    interrupts.stop()
  }
}

async function connectWith(settings: Settings): Promise<Leases> {
  const { url, holder, apiKey } = settings
  const lessor = await attributeErrors(settings, () => open(url, apiKey === undefined ? {} : { apiKey }))
  return new Leases(lessor, holder === undefined ? {} : { holder })
}

/** Does not wait for a store that is still being opened when a signal arrives: no request was made there yet. */
async function closeIfAborted(opening: Promise<Leases>, signal: AbortSignal): Promise<Leases> {
  try {
    return await unlessAborted(opening, signal)
  } catch (error) {
    opening.then(leases => leases[Symbol.asyncDispose]()).catch(() => {})
    throw error
  }
}

/** From now until `stop`, INT, TERM and HUP abort what the command waits for instead of ending the process. */
export function listenForInterrupt(): InterruptListener {
  const controller = new AbortController()
  setMaxListeners(0, controller.signal) // every request of the command listens there
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
