/** Opens the optional parts of a server's registry: DNS, UDP heartbeats and health checks. The operator enables each of them. */
import { networkInterfaces } from 'node:os'
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { ServerLog } from '../listener.ts'
import { addressOf, isLoopback, type Server } from '../serve.ts'
import { Catalog } from './catalog.ts'
import { DnsServer } from './dns-server.ts'
import { HealthChecks } from './health-checks.ts'
import { ProbeRules, plainAddress } from './probe-rules.ts'
import { UdpHeartbeats } from './udp-heartbeats.ts'

export interface RegistryOptions {
  /** `host:port` of the DNS server. */
  readonly dns?: string
  /** @default 'leasehold' */
  readonly dnsDomain?: string
  /** Allow DNS on an address that other machines can reach, though DNS has no keys. */
  readonly dnsPublic?: boolean
  /** `host:port` of UDP heartbeats. */
  readonly udp?: string
  /**
   * Targets that health checks may connect to (see probe-rules.ts).
   * @default none: no health checks
   */
  readonly checkAllow?: readonly string[]
  /** Programs that check services, by service. Only the server's own configuration can name them. */
  readonly checkCommands?: Readonly<Record<string, readonly string[]>>
  /** Allow these programs to be run. */
  readonly commandChecks?: boolean
}

export interface RegistryListeners extends AsyncDisposable {
  /** Descriptions of what was opened, for the operator. */
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
  const parts: AsyncDisposable[] = []
  const opened: string[] = []
  const close = async () => {
    for (const part of parts.splice(0)) await part[Symbol.asyncDispose]()
  }
  try {
    if (options.dns !== undefined) {
      const { host, port } = addressOf(options.dns)
      if (!isLoopback(host) && options.dnsPublic !== true)
        throw new LeaseError(
          'INVALID',
          `DNS on ${host} can be reached from other machines, and DNS has no keys. Use --dns-public if every client that can reach it may know all addresses, or use 127.0.0.1`,
          { facts: { host } },
        )
      const domain = options.dnsDomain ?? 'leasehold'
      const dns = await DnsServer.open({ catalog, lessor, clock, log, host, port, domain })
      parts.push(dns)
      opened.push(`names under ${domain} on ${shown(host)}:${dns.port} (DNS)`)
    }
    if (options.udp !== undefined) {
      const { host, port } = addressOf(options.udp)
      if (!isLoopback(host) && !guarded.access.hasKeys)
        throw new LeaseError(
          'INVALID',
          `UDP on ${host} can be reached from other machines, and there are no keys. Create a key first, or use 127.0.0.1`,
          { facts: { host, missing: 'keys' } },
        )
      if (!isLoopback(host)) guarded.access.expose()
      const udp = await UdpHeartbeats.open({ guarded, clock, log, host, port })
      parts.push(udp)
      opened.push(`heartbeats on ${shown(host)}:${udp.port} (UDP)`)
    }
    if (!rules.none || Object.keys(commands).length > 0) {
      parts.push(await HealthChecks.open({ lessor, catalog, clock, log, rules, commands, own: ownAddresses(server) }))
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
    throw new LeaseError('INVALID', 'the configuration has checkCommands. Use --command-checks to allow them')
  for (const [service, command] of Object.entries(checkCommands))
    if (!Array.isArray(command) || command.length === 0 || command.some(word => typeof word !== 'string') || !command[0]!.startsWith('/'))
      throw new LeaseError('INVALID', `the check command of ${service} must be a list: the full path of a program, and its arguments`)
  return checkCommands
}

/** Returns whether an address and port are this server's own, which it has at every address of this machine. */
function ownAddresses({ addresses }: Server): (address: string, port: number) => boolean {
  const ports = new Set(addresses.filter(address => !address.startsWith('/')).map(address => Number(address.split(':').at(-1))))
  return (address, port) => {
    if (!ports.has(port)) return false
    const plain = plainAddress(address)
    const local = Object.values(networkInterfaces()).flatMap(each => each ?? [])
    return isLoopback(plain) || plain === '0.0.0.0' || plain === '::' || local.some(found => plainAddress(found.address) === plain)
  }
}
