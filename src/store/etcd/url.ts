/** Parses URLs: `etcd://[user:password@]host[:port][,host[:port]…][/?name=&tls=&ca=&cert=&key=]`; `etcds://` is TLS. */
import { LeaseError } from '../../errors.ts'
import type { EtcdStoreOptions } from './options.ts'

const PORT = 2379
const KNOWN = ['name', 'tls', 'ca', 'cert', 'key']

export function etcdOptions(url: string): EtcdStoreOptions {
  const found = /^etcd(?<tls>s)?:\/\/(?:(?<user>[^@/?]*)@)?(?<hosts>[^@/?#]+)\/?(?:\?(?<query>[^#]*))?$/i.exec(url)
  if (found === null) throw invalid('write etcd://host:2379,host2:2379/?name=leasehold')
  const { tls, user, hosts, query } = found.groups as { tls?: string; user?: string; hosts: string; query?: string }
  const settings = new URLSearchParams(query)
  for (const name of settings.keys())
    if (!KNOWN.includes(name)) throw invalid(`there is no setting '${name}'; there are ${KNOWN.join(', ')}`)
  const [name, ca, cert, key] = ['name', 'ca', 'cert', 'key'].map(setting => settings.get(setting) ?? undefined)
  if ((cert === undefined) !== (key === undefined)) throw invalid('a certificate goes with its key: give both cert= and key=')
  const secure = tls !== undefined || ca !== undefined || cert !== undefined || !['false', null].includes(settings.get('tls'))
  return {
    endpoints: hosts.split(',').map(endpoint),
    ...(name !== undefined && { name }),
    ...(user !== undefined && { user: credentials(user) }),
    ...(secure && { tls: { ...(ca !== undefined && { ca }), ...(cert !== undefined && { cert }), ...(key !== undefined && { key }) } }),
  }
}

/** The parts of an endpoint, `host:port` or `[address]:port`. */
export function hostAndPort(endpoint: string): { readonly host: string; readonly port: number } {
  const [, host, port] = /^\[?(.*?)\]?:(\d+)$/.exec(endpoint) as unknown as [string, string, string]
  return { host, port: Number(port) }
}

function endpoint(host: string): string {
  const found = /^(?<name>\[[0-9a-f:.]+\]|[^:[\]]+)(?::(?<port>\d{1,5}))?$/i.exec(host)
  if (found === null) throw invalid(`'${host}' is not a host and port`)
  return `${found.groups!.name}:${found.groups!.port ?? PORT}`
}

function credentials(text: string): { readonly name: string; readonly password: string } {
  const [name = '', ...password] = text.split(':')
  try {
    return { name: decodeURIComponent(name), password: decodeURIComponent(password.join(':')) }
  } catch {
    throw invalid('user and password are percent-encoded')
  }
}

/** The message does not contain the URL: it may contain a password. */
function invalid(what: string): LeaseError {
  return new LeaseError('INVALID', `this etcd URL cannot be used: ${what}`)
}
