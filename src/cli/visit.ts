/** One visit of a command to the place where leases live: settings read, opened, signals heard, closed again whatever happens. */
import type { Command } from 'commander'
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { Leases } from '../leases.ts'
import type { Lessor, Query, View } from '../lessor.ts'
import { open } from '../open.ts'
import { Interrupted, misconfigured } from './exit.ts'
import { Output } from './output.ts'
import { type Flags, type Settings, settingsOf } from './settings.ts'

/** What every command takes. */
export function common(command: Command): Command {
  return command
    .option('--store <url>', 'where leases live (LEASEHOLD_URL; default: a file of your own)')
    .option('--config <file>', 'a configuration file (default: leasehold.json beside the data file)')
    .option('--holder <name>', 'who we are (LEASEHOLD_HOLDER; default: host:pid)')
    .option('--json', 'one JSON object a line')
}

export interface Asked {
  readonly settings: Settings
  readonly out: Output
}

/** The flags of a command and of the program before it; nearer ones count. */
export function asked(command: Command): Asked {
  const flags = { ...command.parent?.parent?.opts(), ...command.parent?.opts(), ...command.opts() } as Flags & { json?: boolean }
  return { settings: settingsOf(flags), out: new Output({ json: flags.json === true }) }
}

export interface Visit extends Asked {
  readonly leases: Leases
  readonly lessor: Lessor
  readonly clock: Clock
  /** Fires with the first INT, TERM or HUP. */
  readonly signal: AbortSignal
  /** At the log's end. */
  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>): Promise<View<K>>
}

export async function visit<T>(command: Command, work: (here: Visit) => Promise<T>): Promise<T> {
  const { settings, out } = asked(command)
  const interrupt = interrupted()
  const stay = stayAlive(systemClock)
  try {
    await using leases = await connected(settings)
    const { lessor, clock } = leases
    const { signal } = interrupt
    const read: Visit['read'] = query => lessor.read(query, { consistent: true, signal })
    return await work({ settings, out, leases, lessor, clock, signal, read })
  } finally {
    stay()
    interrupt.stop()
  }
}

export async function connected({ url, from, holder, apiKey }: Settings): Promise<Leases> {
  try {
    const lessor = await open(url, apiKey === undefined ? {} : { apiKey })
    return new Leases(lessor, holder === undefined ? {} : { holder })
  } catch (error) {
    // A bad URL on the command line is the caller's mistake; elsewhere it is the configuration's.
    if (!(error instanceof LeaseError && error.code === 'INVALID') || from === 'flag' || from === 'default') throw error
    const where = from === 'environment' ? 'the environment (LEASEHOLD_URL)' : 'the configuration file ("store")'
    throw misconfigured(error.message, `Mend it in ${where}.`, error)
  }
}

/** From now on, these signals end what waits instead of the process, until `stop`. */
export function interrupted(): { readonly signal: AbortSignal; stop(): void } {
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

/** Neither a store that waits for news nor a timer of ours keeps a process alive; a command that waits must. */
export function stayAlive(clock: Clock): () => void {
  let cancel = () => {}
  const again = () => {
    cancel = clock.after(3_600_000, again, { ref: true })
  }
  again()
  return () => cancel()
}
