/** Parses `leasehold://` addresses, and opens sockets to the servers that they name. */
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { LeaseError } from '../../errors.ts'
import { type ByteLink, type ByteLinkEnd, linkOver } from './link.ts'

/** Opens connections to one server. Bytes may be written at once; whether the server is there shows later. */
export interface Dial {
  readonly name: string
  open(end: ByteLinkEnd): ByteLink
  /**
   * Present if the server and this client prove to each other that they use the same store (`HELLO … BESIDE`). Called for each connection, once the server is
   * reached and its certificate is the expected one. Nothing is sent before.
   */
  introduce?(): Promise<Introduction>
}

/** A client introduces itself with this in place of a key; only the right server can answer it. */
export interface Introduction {
  readonly name: string
  readonly proof: string
  readonly answer: string
}

export interface ServerAddress {
  readonly dials: readonly Dial[]
  readonly key?: string
}

const DEFAULT_PORT = 7420

/**
 * `leasehold://[KEY@]host[:port][,host2[:port]]`, or `leaseholds://` with TLS, where `?ca=FILE` names a certificate authority and
 * `?cert=FILE&key=FILE` the client's own certificate. `leasehold:///path` is a unix socket.
 */
export function serverAddressOf(url: string): ServerAddress {
  const parts = /^(leaseholds?):\/\/(?:([^@/?#]*)@)?([^/?#]*)(\/[^?#]*)?(?:\?([^#]*))?$/i.exec(url)
  if (parts === null) throw wrong(url, 'it cannot be parsed')
  const [, scheme = '', user, hosts = '', path = '', query = ''] = parts
  const secure = scheme.toLowerCase() === 'leaseholds'
  const key = user === undefined ? undefined : decoded(url, user.slice(user.indexOf(':') + 1))
  const settings = new URLSearchParams(query)
  for (const name of settings.keys()) if (!['ca', 'cert', 'key'].includes(name)) throw wrong(url, `there is no setting ${name}`)
  if (hosts === '' && path.length > 1 && !secure) return { dials: [dialPath(decoded(url, path))], ...(key && { key }) }
  if (path.length > 1 || hosts === '') throw wrong(url, hosts === '' ? 'it names no host' : 'a path may not follow the hosts')
  const files = secure ? certificates(settings) : undefined
  return { dials: hosts.split(',').map(host => dialHost(url, host, files)), ...(key && { key }) }
}

function dialHost(url: string, text: string, files: Certificates | undefined): Dial {
  const [, bracketed, bare, digits] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text) ?? []
  const host = bracketed ?? bare
  const port = digits === undefined ? DEFAULT_PORT : Number(digits)
  if (host === undefined || port > 65_535 || port === 0) throw wrong(url, `${text} is not host:port`)
  const where = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }
  return {
    name: `${bracketed === undefined ? host : `[${host}]`}:${port}`,
    open: end => {
      const socket =
        files === undefined
          ? connect(where)
          : connectTls({ ...where, ...files, servername: bracketed === undefined && /[a-z]/i.test(host) ? host : '' })
      // `closed` of the link reports the error; without this listener it would end the process.
      socket.on('error', () => {})
      return linkOver(socket, end)
    },
  }
}

export interface AnnouncedAddress {
  /** `host:port`, `[v6]:port` or the path of a socket. */
  readonly address: string
  /** The SHA-256 fingerprint of the only certificate that is trusted. Undefined: no TLS. */
  readonly fingerprint?: string | undefined
}

/** Connects to a server that was found in its store. */
export function dialAnnounced({ address, fingerprint }: AnnouncedAddress, introduce: () => Promise<Introduction>): Dial {
  let socket: Socket | undefined
  const reached = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const opened = socket!
      opened.once('close', () => reject(new LeaseError('UNAVAILABLE', `${address} cannot be reached`)))
      if (fingerprint === undefined) opened.once('connect', () => resolve())
      else
        opened.once('secureConnect', () => {
          if ((opened as TLSSocket).getPeerX509Certificate()?.fingerprint256 === fingerprint) return resolve()
          opened.destroy(new Error(`${address} shows another certificate than the one that its store names`))
        })
    })
  const [, bracketed, bare, port] = /^(?:\[([^\]]+)\]|([^:/]+)):(\d+)$/.exec(address) ?? []
  const where = { host: bracketed ?? bare, port: Number(port), noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000 }
  return {
    name: address,
    open: end => {
      // The fingerprint is compared instead of an authority and a name.
      if (fingerprint !== undefined) socket = connectTls({ ...where, rejectUnauthorized: false, servername: '' })
      else socket = address.startsWith('/') ? connect(address) : connect(where)
      socket.on('error', () => {})
      return linkOver(socket, end)
    },
    introduce: async () => {
      await reached()
      return introduce()
    },
  }
}

function dialPath(path: string): Dial {
  return {
    name: path,
    open: end => {
      const socket = connect(path)
      socket.on('error', () => {})
      return linkOver(socket, end)
    },
  }
}

interface Certificates {
  readonly ca?: Buffer
  readonly cert?: Buffer
  readonly key?: Buffer
}

function certificates(settings: URLSearchParams): Certificates {
  const file = (name: string) => {
    const path = settings.get(name)
    if (path === null) return {}
    try {
      return { [name]: readFileSync(path) }
    } catch (cause) {
      throw new LeaseError('INVALID', `${name} names ${path}, which cannot be read: ${(cause as Error).message}`, { cause })
    }
  }
  return { ...file('ca'), ...file('cert'), ...file('key') }
}

function decoded(url: string, text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw wrong(url, 'a part of it is badly escaped')
  }
}

function wrong(url: string, why: string): LeaseError {
  // The URL may contain a key, and messages end up in logs.
  const shown = url.replace(/\/\/[^@/]*@/, '//…@')
  return new LeaseError(
    'INVALID',
    `${shown} is not the address of a server: ${why}; write leasehold://host:7420, or leasehold://host:7420,host2:7420`,
  )
}
