import type { Command } from 'commander'
import { parseDuration } from '../../duration.ts'
import type { RegisterInput } from '../../recipe/registry/registry.ts'
import { usage } from '../exit.ts'
import { common, type Invocation, invoke } from '../invocation.ts'
import { Child } from '../process/child.ts'
import { type Forwarded, SignalForwarder } from '../process/signal-forwarder.ts'
import { whole } from './run.ts'

interface Options {
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
  const list = (value: string, before: readonly string[] = []) => [...before, value]
  common(program.command('register'))
    .summary('list a service for as long as a command runs')
    .description(
      'Lists SERVICE while CMD runs: draining when it is asked to stop, gone when it has ended. The exit code is that of the command.',
    )
    .argument('<service>', 'what it is')
    .argument('<cmd...>', 'what to run, without a shell in between')
    .option('--address <url>', 'where it is reached; may be repeated, the first is the one that is meant', list)
    .option('--instance <name>', 'which of them it is (default: the holder)')
    .option('--capability <name>', 'what it can do; may be repeated', list)
    .option('--tag <name>', 'a word to find it by; may be repeated', list)
    .option('--zone <zone>', 'where it is, from the outside in: eu/fra/rack-7')
    .option('--weight <n>', 'its share of what is picked by weight')
    .option('--generation <n>', 'a newer one takes the name over from an older one')
    .option('--metadata <json>', 'anything, kept as it is')
    .option(
      '--check <url>',
      'have a server probe http(s)://, tcp:// or grpc://, where it is allowed; unknown, and not picked, until it did',
    )
    .option('--ttl <duration>', 'how long it is listed without a heartbeat', '30s')
    .option('--drain <duration>', 'how long it is listed as draining before the command is told to stop', '0s')
    .option('--wait <duration>', 'how long to wait for a name that another has', '0s')
    .action(async (service: string, command: string[], options: Options, self: Command) => {
      if (options.address === undefined) throw usage('--address is missing', 'Say where it is reached: --address http://10.0.0.7:8080')
      const drain = parseDuration(options.drain, '--drain')
      const input = inputOf(service, options)
      const hearing = new SignalForwarder()
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
          // Where there is none, the registration says so itself.
          const { length } = await leases.registry.checkers().catch(() => [])
          if (length > 0)
            out.note(`${service}: health checks are made by ${length} ${length === 1 ? 'server' : 'servers'}`, { checkers: length })
        }
        const env = {
          LEASEHOLD_SERVICE: service,
          LEASEHOLD_LEASE: String(registered.lease),
          LEASEHOLD_URL: settings.url,
          // Of a lease around this one: together with the number above they would be taken for its.
          LEASEHOLD_RESOURCE: undefined,
          LEASEHOLD_TOKEN: undefined,
        }
        const child = await Child.start({ command, env, clock })
        let cancel = () => {}
        // Told to stop: first nobody picks it any more, then it hears of it.
        const tell = (name: Forwarded) => {
          if (drain === 0 || (name !== 'SIGTERM' && name !== 'SIGINT')) return child.pass(name)
          void registered.drain().catch(() => {})
          cancel = clock.after(drain, () => child.pass(name), { ref: true })
        }
        hearing.passTo(async name => (await child.had(name)) || tell(name))
        if (hearing.ending !== undefined) tell(hearing.ending)
        try {
          return await child.ended
        } finally {
          leaving = true
          cancel()
          hearing.passTo(undefined)
          child.leave()
        }
      }
      process.exitCode = await invoke(self, work, hearing)
    })
}

function inputOf(service: string, options: Options): RegisterInput {
  const { instance, capability, tag, zone, weight, generation, metadata, check } = options
  let kept: unknown
  try {
    kept = metadata === undefined ? undefined : JSON.parse(metadata)
  } catch (error) {
    throw usage(`--metadata is not JSON: ${(error as Error).message}`, `Write it as --metadata '{"key": "value"}'.`)
  }
  return {
    service,
    addresses: options.address!,
    ...(instance !== undefined && { instance }),
    ...(capability !== undefined && { capabilities: capability }),
    ...(tag !== undefined && { tags: tag }),
    ...(zone !== undefined && { zone }),
    ...(weight !== undefined && { weight: whole(weight, '--weight') }),
    ...(generation !== undefined && { generation: whole(generation, '--generation') }),
    ...(kept !== undefined && { metadata: kept as NonNullable<RegisterInput['metadata']> }),
    ...(check !== undefined && { check }),
  }
}
