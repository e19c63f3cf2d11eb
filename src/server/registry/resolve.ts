/**
 * The addresses of a host that a health check names.
 *
 * A registration chooses the name, so the lookup must not be able to hurt anything else. `dns.lookup` calls getaddrinfo on the thread pool that the whole
 * process shares: four names at a silent resolver stop every other lookup and file operation, and keep the process from ending. So names are asked here with
 * c-ares: on sockets of their own, with a bound in time, and cancelled when the asker gives up.
 *
 * Not promised: what only the system's resolver knows (search domains, mDNS, NSS modules). Names are asked as they are written. The hosts file is read,
 * and `localhost` is this machine.
 */
import { promises } from 'node:dns'
import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'

export type Resolve = (host: string, signal: AbortSignal) => Promise<readonly string[]>

export interface ResolveOptions {
  /** `address:port` of DNS servers; left out: those of the system. */
  readonly servers?: readonly string[]
  /** The hosts file. */
  readonly hosts?: string
}

/** Milliseconds for the first question to a server; the second gets twice as long. An address of one family is used when the other stays unanswered. */
const FIRST_TRY = 750
const TRIES = 2
const HOSTS = '/etc/hosts'
/** A hosts file is for people. What is longer is not searched, since this reads it on the loop. */
const LONGEST_HOSTS = 256 * 1_024
/** These say that there is no such address. Other codes say that nobody knows. */
const NONE = new Set(['ENOTFOUND', 'ENODATA'])

/** Rejects with the code of the failure when no family could be asked; an empty list: the host has no address. */
export function resolver({ servers, hosts = HOSTS }: ResolveOptions = {}): Resolve {
  return async (host, signal) => {
    const known = inHosts(host, hosts)
    if (known.length > 0) return known
    // RFC 6761: whatever a resolver would say, this is loopback.
    if (host === 'localhost' || host.endsWith('.localhost')) return ['127.0.0.1', '::1']
    // One for each lookup: to cancel it cancels nobody else's.
    const asking = new promises.Resolver({ timeout: FIRST_TRY, tries: TRIES })
    if (servers !== undefined) asking.setServers(servers)
    const cancel = () => asking.cancel()
    signal.addEventListener('abort', cancel, { once: true })
    try {
      signal.throwIfAborted()
      // Async, so that one that throws at once does not leave the failure of the other unheard, which would end the server.
      const found = await Promise.allSettled([async () => asking.resolve4(host), async () => asking.resolve6(host)].map(ask => ask()))
      const addresses = found.flatMap(each => (each.status === 'fulfilled' ? each.value : []))
      const failed = found.find(each => each.status === 'rejected' && !NONE.has((each.reason as NodeJS.ErrnoException).code ?? ''))
      if (addresses.length === 0 && failed !== undefined) throw (failed as PromiseRejectedResult).reason
      return addresses
    } finally {
      signal.removeEventListener('abort', cancel)
    }
  }
}

/** Read each time, as the system's resolver does: it is small, and may change while the server runs. */
function inHosts(host: string, file: string): readonly string[] {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    return []
  }
  if (text.length > LONGEST_HOSTS) return []
  return text.split('\n').flatMap(line => {
    const [address = '', ...names] = line.replace(/#.*/, '').trim().split(/\s+/)
    return isIP(address) !== 0 && names.some(name => name.toLowerCase() === host) ? [address] : []
  })
}
