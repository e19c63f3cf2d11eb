/**
 * Resolves the host names in health checks.
 *
 * A registration chooses the name, so a lookup must not be able to harm the server. `dns.lookup` calls getaddrinfo on the thread pool that the
 * whole process shares: four names at a silent resolver block every other lookup and file operation, and keep the process from exiting. So
 * names are resolved here with c-ares: on separate sockets, with a time limit, and cancelled when the probe ends.
 *
 * Not promised: names that only the system's resolver knows (search domains, mDNS, NSS modules). Names are resolved as they are written. The
 * hosts file is read, and `localhost` is this machine.
 */
import { promises } from 'node:dns'
import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'

export type Resolve = (host: string, signal: AbortSignal) => Promise<readonly string[]>

export interface ResolveOptions {
  /**
   * `address:port` of DNS servers.
   * @default those of the system
   */
  readonly servers?: readonly string[]
  /**
   * The hosts file.
   * @default '/etc/hosts'
   */
  readonly hosts?: string
}

/** Ms for the first query to a server; the second gets twice as long. If only one address family is answered, its addresses are used. */
const FIRST_TRY = 750
const TRIES = 2
const HOSTS = '/etc/hosts'
/** Ignore a longer hosts file: it is read synchronously. */
const MAX_HOSTS_FILE = 256 * 1_024
/** These codes mean that there is no such address. Other codes are failures of the lookup. */
const NO_ADDRESS = new Set(['ENOTFOUND', 'ENODATA'])

/** The function resolves to an empty list if the host has no address, and rejects if neither address family could be looked up. */
export function createResolver({ servers, hosts = HOSTS }: ResolveOptions = {}): Resolve {
  return async (host, signal) => {
    const known = inHosts(host, hosts)
    if (known.length > 0) return known
    // RFC 6761: `localhost` is loopback, whatever a resolver answers.
    if (host === 'localhost' || host.endsWith('.localhost')) return ['127.0.0.1', '::1']
    // One resolver for each lookup: `cancel` ends all lookups of a resolver.
    const resolver = new promises.Resolver({ timeout: FIRST_TRY, tries: TRIES })
    if (servers !== undefined) resolver.setServers(servers)
    const cancel = () => resolver.cancel()
    signal.addEventListener('abort', cancel, { once: true })
    try {
      signal.throwIfAborted()
      // Async functions: if one threw synchronously, the rejection of the other would be unhandled and end the server.
      const found = await Promise.allSettled(
        [async () => resolver.resolve4(host), async () => resolver.resolve6(host)].map(lookup => lookup()),
      )
      const addresses = found.flatMap(each => (each.status === 'fulfilled' ? each.value : []))
      const failed = found.find(each => each.status === 'rejected' && !NO_ADDRESS.has((each.reason as NodeJS.ErrnoException).code ?? ''))
      if (addresses.length === 0 && failed !== undefined) throw (failed as PromiseRejectedResult).reason
      return addresses
    } finally {
      signal.removeEventListener('abort', cancel)
    }
  }
}

/** Read on each lookup, as the system's resolver does: the file may change while the server runs. */
function inHosts(host: string, file: string): readonly string[] {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    return []
  }
  if (text.length > MAX_HOSTS_FILE) return []
  return text.split('\n').flatMap(line => {
    const [address = '', ...names] = line.replace(/#.*/, '').trim().split(/\s+/)
    return isIP(address) !== 0 && names.some(name => name.toLowerCase() === host) ? [address] : []
  })
}
