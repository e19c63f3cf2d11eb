/** What a server opens for its registry besides its port, each only where its operator asks for it: names, datagrams and health checks. */
import { networkInterfaces } from 'node:os'
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { ServerLog } from '../listener.ts'
import { addressOf, isLoopback, type Server } from '../serve.ts'
import { Catalog } from './catalog.ts'
import { HealthChecks } from './checks.ts'
import { Dns } from './dns.ts'
import { ProbeRules, plainAddress } from './probe-rule.ts'
import { UdpHeartbeats } from './udp.ts'

export interface RegistryOptions {
  /** `host:port` for names. */
  readonly dns?: string
  readonly dnsDomain?: string
  /** Names may be asked from other machines, though DNS knows no keys. */
  readonly dnsPublic?: boolean
  /** `host:port` for heartbeats by datagram. */
  readonly udp?: string
  /** Where health checks may go: see probe-rule.ts. None: nowhere. */
  readonly checkAllow?: readonly string[]
  /** Programs that check services, from the server's own configuration, and whether they may be run at all. */
  readonly checkCommands?: Readonly<Record<string, readonly string[]>>
  readonly commandChecks?: boolean
}

export interface RegistryListeners extends AsyncDisposable {
  /** What was opened, for people. */
  readonly opened: readonly string[]
}

export async function openRegistryListeners(
  server: Server,
  options: RegistryOptions,
  { clock, log }: { readonly clock: Clock; readonly log: ServerLog },
): Promise<RegistryListeners> {
  const { guarded } = server
  const { lessor } = guarded
  const catalog = Catalog.of({ lessor, clock, closing: lessor.signal })
  const rules = new ProbeRules(options.checkAllow ?? [])
  const commands = commandsOf(options)
  const doors: AsyncDisposable[] = []
  const opened: string[] = []
  const close = async () => {
    for (const door of doors.splice(0)) await door[Symbol.asyncDispose]()
  }
  try {
    if (options.dns !== undefined) {
      const { host, port } = addressOf(options.dns)
      if (!isLoopback(host) && options.dnsPublic !== true)
        throw new LeaseError(
          'INVALID',
          `names on ${host} can be asked from other machines, and DNS knows no keys: say --dns-public if every address may be known to all who can reach it, or use 127.0.0.1`,
          { facts: { host } },
        )
      const domain = options.dnsDomain ?? 'leasehold'
      const dns = await Dns.open({ catalog, lessor, clock, log, host, port, domain })
      doors.push(dns)
      opened.push(`names under ${domain} on ${shown(host)}:${dns.port} (DNS)`)
    }
    if (options.udp !== undefined) {
      const { host, port } = addressOf(options.udp)
      if (!isLoopback(host) && !guarded.access.hasKeys)
        throw new LeaseError(
          'INVALID',
          `datagrams to ${host} can come from other machines and there are no keys: create one first, or use 127.0.0.1`,
          { facts: { host, missing: 'keys' } },
        )
      if (!isLoopback(host)) guarded.access.expose()
      const udp = await UdpHeartbeats.open({ guarded, clock, log, host, port })
      doors.push(udp)
      opened.push(`heartbeats on ${shown(host)}:${udp.port} (UDP)`)
    }
    if (!rules.none || Object.keys(commands).length > 0) {
      doors.push(await HealthChecks.open({ lessor, catalog, clock, log, rules, commands, own: ownAddresses(server) }))
      opened.push(`health checks of ${[...(options.checkAllow ?? []), ...Object.keys(commands)].join(', ')}`)
    }
  } catch (error) {
    await close()
    throw error
  }
  return { opened, [Symbol.asyncDispose]: close }
}

function shown(host: string): string {
  return host.includes(':') ? `[${host}]` : host
}

function commandsOf({ checkCommands = {}, commandChecks = false }: RegistryOptions): Readonly<Record<string, readonly string[]>> {
  if (Object.keys(checkCommands).length > 0 && !commandChecks)
    throw new LeaseError('INVALID', 'the configuration names commands that check services: say --command-checks to have them run')
  for (const [service, command] of Object.entries(checkCommands))
    if (!Array.isArray(command) || command.length === 0 || command.some(word => typeof word !== 'string') || !command[0]!.startsWith('/'))
      throw new LeaseError('INVALID', `the command that checks ${service} must be a list: the full path of a program, and its arguments`)
  return checkCommands
}

/** The server's own port is reached at every address of this machine. */
function ownAddresses({ addresses }: Server): (address: string, port: number) => boolean {
  const ports = new Set(addresses.filter(address => !address.startsWith('/')).map(address => Number(address.split(':').at(-1))))
  return (address, port) => {
    if (!ports.has(port)) return false
    const plain = plainAddress(address)
    const here = Object.values(networkInterfaces()).flatMap(each => each ?? [])
    return isLoopback(plain) || plain === '0.0.0.0' || plain === '::' || here.some(found => plainAddress(found.address) === plain)
  }
}
