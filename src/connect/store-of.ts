/** Makes the store that a URL names. */
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { STORES, storeModule } from '../store/modules.ts'
import type { Ownership } from '../store/store-module.ts'
import type { Store } from '../store.ts'
import { redactedUrl, schemeOf, viaOf } from './url.ts'

export interface StoreOptions {
  readonly clock?: Clock
  /** Requests ownership of the log, under this name. The profile of the store says whether it was granted. */
  readonly own?: Ownership
}

/** The store that `url` names, not opened yet. How to use it (`?via=`) is no part of its name. */
export async function storeOf(given: string, { clock = systemClock, own }: StoreOptions = {}): Promise<Store> {
  const { url } = viaOf(given)
  const scheme = schemeOf(url)
  const module = storeModule(scheme)
  if (module === undefined) throw unknownUrl(url, scheme)
  return module.fromUrl(url, { clock, own })
}

function unknownUrl(url: string, scheme: string | undefined): LeaseError {
  const meant = meantUrl(url, scheme)
  const hint = meant === undefined ? '' : `; did you mean ${redactedUrl(meant)}?`
  const known = [...STORES.map(module => module.url), 'leasehold://HOST'].join(' or ')
  return new LeaseError(
    'INVALID',
    `${url === '' ? 'an empty string' : redactedUrl(url)} is not a URL of a store or server: use ${known}${hint}`,
    { facts: { url: redactedUrl(url), ...(meant !== undefined && { meant: redactedUrl(meant) }) } },
  )
}

/** Schemes that other programs use, and frequent slips, with what they are called here. */
const OTHER_SCHEMES: Readonly<Record<string, string>> = {
  ...{ htp: 'http:', htttp: 'http:', ttp: 'http:', htps: 'https:', httsp: 'https:', leashold: 'leasehold:', leasholds: 'leaseholds:' },
  ...{ lease: 'leasehold:', tcp: 'leasehold:', resp: 'leasehold:', grpc: 'leasehold:', tls: 'leaseholds:' },
  ...{ pg: 'postgres:', psql: 'postgres:', postgress: 'postgres:', pgsql: 'postgres:', valkey: 'redis:', etcd3: 'etcd:', etcds: 'etcd:' },
  ...{ sqlite: 'file:', sqlite3: 'file:', flie: 'file:', fiel: 'file:', path: 'file:', mem: 'memory:', ram: 'memory:' },
}

/** The URL that was probably meant. */
function meantUrl(url: string, scheme: string | undefined): string | undefined {
  const rest = url.slice(url.indexOf(':') + 1)
  if (/^(\[[\da-f:.]+\]|[\w.-]+):\d{1,5}\/?$/i.test(url)) return `leasehold://${url}`
  if (scheme === undefined) return /^[\w./~-]/.test(url) ? `file:${url}` : undefined
  // A unix socket: the path follows the empty host.
  if (scheme === 'unix') return `leasehold://${rest.replace(/^\/*/, '/')}`
  const known = Object.hasOwn(OTHER_SCHEMES, scheme) ? OTHER_SCHEMES[scheme] : undefined
  return known === undefined ? undefined : known === 'memory:' ? known : `${known}${rest}`
}
