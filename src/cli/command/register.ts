/** `leasehold register`: lists a service in the registry while a command runs. */
import type { Command } from 'commander'
import { parseDuration } from '../../duration.ts'
import type { RegisterInput } from '../../recipe/registry/registry.ts'
import { usageError } from '../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'
import { collect, parseInteger } from '../option-values.ts'
import { Child } from '../process/child.ts'
import { type Forwarded, SignalForwarder } from '../process/signal-forwarder.ts'

interface RegisterFlags {
  readonly address?: readonly string[]
  readonly instance?: string
  readonly capability?: readonly string[]
  readonly tag?: readonly string[]
  readonly zone?: string
  readonly weight?: string
  readonly generation?: string
  readonly metadata?: string
  readonly check?: string
  readonly ttl: string
  readonly drain: string
  readonly wait: string
}

export function register(program: Command): void {
  addGlobalOptions(program.command('register'))
    .summary('list a service in the registry while a command runs')
    .description(
      'Registers an instance of SERVICE while CMD runs. Lists it as draining when it is asked to stop, and removes it when CMD has ended. Exits with the code of CMD. Write CMD after --.',
    )
    .argument('<service>', 'the name of the service')
    .argument('<cmd...>', 'the command to run, without a shell')
    .option('--address <url>', 'where clients reach it (required); may be repeated, clients use the first', collect)
    .option('--instance <name>', 'the name of this instance (default: the holder)')
    .option('--capability <name>', 'something it can do; may be repeated', collect)
    .option('--tag <name>', 'a label to filter by; may be repeated', collect)
    .option('--zone <zone>', 'where it runs, largest area first: eu/fra/rack-7')
    .option('--weight <n>', 'its share when clients pick by weight (default: 1)')
    .option('--generation <n>', 'a higher generation takes the instance name over from a lower one (default: 0)')
    .option('--metadata <json>', 'any JSON value, stored as it is')
    .option(
      '--check <url>',
      'health check for the servers to make: http(s)://, tcp:// or grpc://; until the first result the status is unknown, and clients do not pick it',
    )
    .option('--ttl <duration>', 'how long it is listed without a heartbeat', '30s')
    .option('--drain <duration>', 'how long to be listed as draining before the command gets the signal', '0s')
    .option('--wait <duration>', 'how long to wait while another holder has the instance name', '0s')
    .action(async (service: string, command: string[], options: RegisterFlags, self: Command) => {
      if (options.address === undefined)
        throw usageError('--address is missing', 'Add the address of the service: --address http://10.0.0.7:8080')
      const drain = parseDuration(options.drain, '--drain')
      const input = inputOf(service, options)
      const signals = new SignalForwarder()
      const work = async ({ leases, out, settings, clock, signal }: Invocation) => {
        let leaving = false
        await using registered = await leases.registry.register({
          ...input,
          ttl: parseDuration(options.ttl, '--ttl'),
          wait: parseDuration(options.wait, '--wait'),
          signal,
          onEvent: ({ type, reason }) => {
            if (!leaving) out.note(`${service}: ${type}${reason === undefined ? '' : `: ${reason.message}`}`, { registration: type })
          },
        })
        signal.throwIfAborted()
        if (options.check !== undefined) {
          // If no server makes checks, the registration reports it itself.
          const { length } = await leases.registry.checkers().catch(() => [])
          if (length > 0)
            out.note(`${service}: ${length} ${length === 1 ? 'server makes' : 'servers make'} health checks`, { checkers: length })
        }
        const env = {
          LEASEHOLD_SERVICE: service,
          LEASEHOLD_LEASE: String(registered.lease),
          LEASEHOLD_URL: settings.url,
          // These belong to a lease around this command. Next to LEASEHOLD_LEASE they would be mistaken for the registration's.
          LEASEHOLD_RESOURCE: undefined,
          LEASEHOLD_TOKEN: undefined,
        }
        const child = await Child.start({ command, env, clock })
        let cancel = () => {}
        // Drain first, so that clients stop picking the instance. Then forward the signal.
        const drainAndSend = (name: Forwarded) => {
          if (drain === 0 || (name !== 'SIGTERM' && name !== 'SIGINT')) return child.send(name)
          void registered.drain().catch(() => {})
          cancel = clock.after(drain, () => child.send(name), { ref: true })
        }
        signals.forwardTo(async name => (await child.alreadyReceived(name)) || drainAndSend(name))
        if (signals.endingSignal !== undefined) drainAndSend(signals.endingSignal)
        try {
          return await child.ended
        } finally {
          leaving = true
          cancel()
          signals.forwardTo(undefined)
          child.detach()
        }
      }
      process.exitCode = await invoke(self, work, signals)
    })
}

function inputOf(service: string, options: RegisterFlags): RegisterInput {
  const { instance, capability, tag, zone, weight, generation, metadata, check } = options
  let parsed: unknown
  try {
    parsed = metadata === undefined ? undefined : JSON.parse(metadata)
  } catch (error) {
    throw usageError(`--metadata is not JSON: ${(error as Error).message}`, `Write it like this: --metadata '{"key": "value"}'`)
  }
  return {
    service,
    addresses: options.address!,
    ...(instance !== undefined && { instance }),
    ...(capability !== undefined && { capabilities: capability }),
    ...(tag !== undefined && { tags: tag }),
    ...(zone !== undefined && { zone }),
    ...(weight !== undefined && { weight: parseInteger(weight, '--weight') }),
    ...(generation !== undefined && { generation: parseInteger(generation, '--generation') }),
    ...(parsed !== undefined && { metadata: parsed as NonNullable<RegisterInput['metadata']> }),
    ...(check !== undefined && { check }),
  }
}
