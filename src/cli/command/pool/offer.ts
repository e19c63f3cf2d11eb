/** `leasehold pool offer`: offers the devices of this host, until it is asked to stop. */
import { hostname } from 'node:os'
import type { Command } from 'commander'
import { type Clock, unlessAborted } from '../../../clock.ts'
import { BoundedProgram } from '../../../devices/bounded-program.ts'
import { commandDiscovery } from '../../../devices/command-discovery.ts'
import type { DeviceDiscovery } from '../../../devices/device.ts'
import { DeviceOffer } from '../../../devices/device-offer.ts'
import type { IdleRules } from '../../../devices/idle.ts'
import { nvidiaDiscovery } from '../../../devices/nvidia.ts'
import { parseDuration } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import { CommandFailure, EXIT, Interrupted, usageError } from '../../exit.ts'
import { addGlobalOptions, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import { parseInteger } from '../../option-values.ts'

import { defaultUsageFile, usageFile } from './usage-file.ts'

interface OfferFlags {
  readonly discover: string
  readonly interval: string
  readonly timeout: string
  readonly patience: string
  readonly ttl: string
  readonly grace: string
  readonly host?: string
  readonly usageFile?: string
  readonly idleBelow: string
  readonly idleWarn?: string
  readonly idleRecall?: string
  readonly idleEnd?: string
}

const HELP = `
A command for --discover prints JSON:
  {"devices": [{"id": "bench-1", "labels": {"model": "x200"}, "utilisation": 37,
                "processes": [{"pid": 4711, "memory": 3.2, "name": "python"}]}]}
Only id is required. utilisation is in percent, memory in GiB.`

export function offer(group: Command): void {
  addGlobalOptions(group.command('offer'))
    .summary('offer the devices of this host, until INT or TERM')
    .description(
      'Offers each device of this host as a member of POOL, with its labels, and reports its use. When this process or its host dies, all its devices leave the pool together. When it is stopped in order, present holders keep their devices.',
    )
    .argument('<pool>', 'the name of the pool')
    .requiredOption('--discover <how>', 'nvidia, or a command that prints the devices as JSON (required)')
    .option('--interval <duration>', 'how often to look', '10s')
    .option('--timeout <duration>', 'how long one look may take', '10s')
    .option('--patience <duration>', 'how long a device stays offered while looking fails or does not list it', '1m')
    .option('--ttl <duration>', 'how long the devices stay offered after this host died', '30s')
    .option('--grace <duration>', 'how long after that their holders keep them, in case the host comes back', '30s')
    .option('--host <name>', 'the name of this host (default: its host name)')
    .option('--usage-file <path>', 'where to keep the records of usage across restarts (default: usage-POOL.json in your state folder)')
    .option('--idle-below <percent>', 'utilisation below which a device counts as idle', '5')
    .option('--idle-warn <duration>', 'warn holders that left all their devices idle for this long (default: never)')
    .option('--idle-recall <duration>', 'ask them to give the devices back (default: never)')
    .option('--idle-end <duration>', 'end their leases (default: never)')
    .addHelpText('after', HELP)
    .action(async (pool: string, options: OfferFlags, self: Command) => {
      requireValidName(pool)
      const host = options.host ?? hostname()
      const idle = idleRules(options)
      const durations = {
        interval: parseDuration(options.interval, '--interval'),
        patience: parseDuration(options.patience, '--patience'),
        ttl: parseDuration(options.ttl, '--ttl'),
        grace: parseDuration(options.grace, '--grace'),
      }
      // The same name after a restart, so that the new process takes the devices over at once.
      await invoke(
        self,
        async ({ leases, out, signal, clock }) => {
          const discover = discoveryOf(options, host, clock)
          const running = await DeviceOffer.start(leases, pool, {
            ...durations,
            host,
            usage: usageFile(options.usageFile ?? defaultUsageFile(pool)),
            discover,
            signal,
            ...(idle !== undefined && { idle }),
            onEvent: ({ message, ...facts }) => out.note(message, facts),
          }).catch(error => {
            throw explained(error, options.discover)
          })
          await using _ = running
          const { length } = running.members
          out.note(`offering ${length} ${length === 1 ? 'device' : 'devices'} of ${host} in ${pool}`, { pool, members: running.members })
          const reason = await unlessAborted(running.ended, signal).catch(() => undefined)
          if (signal.reason instanceof Interrupted) throw signal.reason
          if (reason !== undefined) throw reason
        },
        undefined,
        { holder: host },
      )
    })
}

function discoveryOf({ discover, timeout }: OfferFlags, host: string, clock: Clock): DeviceDiscovery {
  const program = new BoundedProgram({ clock, timeout: parseDuration(timeout, '--timeout') })
  return discover === 'nvidia' ? nvidiaDiscovery({ program, host }) : commandDiscovery({ program, command: discover, host })
}

function idleRules({ idleBelow, idleWarn, idleRecall, idleEnd }: OfferFlags): IdleRules | undefined {
  const below = parseInteger(idleBelow, '--idle-below')
  if (below < 1 || below > 100) throw usageError(`--idle-below takes a percentage from 1 to 100, not ${idleBelow}`, 'Correct the value.')
  const rules = {
    ...(idleWarn !== undefined && { warn: parseDuration(idleWarn, '--idle-warn') }),
    ...(idleRecall !== undefined && { recall: parseDuration(idleRecall, '--idle-recall') }),
    ...(idleEnd !== undefined && { end: parseDuration(idleEnd, '--idle-end') }),
  }
  return Object.keys(rules).length === 0 ? undefined : { below, ...rules }
}

/** The first look failed: a mistake in the command, or a driver that is not there. */
function explained(error: unknown, discover: string): unknown {
  const fromProgram = error instanceof LeaseError ? error.reason !== undefined && error.code === 'UNAVAILABLE' : error instanceof Error
  if (!fromProgram || error instanceof CommandFailure || error instanceof Interrupted) return error
  const next =
    discover === 'nvidia'
      ? 'Check that nvidia-smi works on this host.'
      : 'Run the command yourself: it must print {"devices": [{"id": "…"}]}.'
  return new CommandFailure(
    { exit: EXIT.unavailable, code: 'DISCOVERY', message: (error as Error).message, means: 'No device was offered.', next },
    { cause: error },
  )
}
