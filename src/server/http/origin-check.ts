/**
 * Refuses requests that come from pages of other sites, before anything else of the request is read. Such a page must not reach a server on the visitor's own
 * machine through the visitor's browser. (etcd could be reached like that: CVE-2018-1098, 1099.)
 */
import { isIP } from 'node:net'
import { SECRET_PATTERN } from '../key-secret.ts'
import { HttpFailure } from './failure.ts'
import type { HttpRequest } from './route.ts'

/** Query parameters by which people try to send a key. */
const KEY_PARAMETERS = /[?&](?:api[-_]?key|key|apikey|access[-_]?token|token|auth|authorization|secret|password|bearer)=/i

/** `hosts` are further names of this server. `*` turns the check of names off, for a server behind a proxy that makes it. */
export class OriginCheck {
  readonly #hosts: ReadonlySet<string>
  readonly #any: boolean

  constructor(hosts: readonly string[] = []) {
    this.#hosts = new Set(hosts.map(host => host.toLowerCase()))
    this.#any = this.#hosts.has('*')
  }

  /** Throws if the request is refused. `host` and `target` are those of the request line if it has them, otherwise of the header. */
  check(request: HttpRequest, host: string | undefined, target: string): void {
    const { repeatedHeader } = request
    if (repeatedHeader !== undefined) throw new HttpFailure('INVALID', `the header ${repeatedHeader} was sent twice: send it once`)
    if (!this.#any && !this.#known(host, request.localAddress))
      throw new HttpFailure(
        'FORBIDDEN',
        `this server is not known as ${(host ?? '(no Host header)').slice(0, 64)}: use its address, or start it with --host NAME`,
        {
          status: 421,
        },
      )
    const origin = request.header('origin')
    if (origin !== undefined && !sameOrigin(origin, host)) throw foreign()
    const site = request.header('sec-fetch-site')
    if (site !== undefined && site !== 'same-origin' && site !== 'none' && !isNavigation(request, target)) throw foreign()
    const query = target.indexOf('?')
    if ((query >= 0 && KEY_PARAMETERS.test(target.slice(query))) || target.search(SECRET_PATTERN) >= 0)
      throw new HttpFailure(
        'INVALID',
        'a key must not be sent in a URL, which logs and browser histories keep: send Authorization: Bearer KEY, and revoke this key',
      )
  }

  #known(host: string | undefined, local: string | undefined): boolean {
    if (host === undefined) return false
    const name = nameOf(host)
    if (name === undefined) return false
    if (name === 'localhost' || name === '[::1]' || (name.startsWith('127.') && isIP(name) === 4)) return true
    // A client that used the server's own address was not misled by a DNS name.
    if (local !== undefined && isSelf(name, local)) return true
    return this.#hosts.has(name) || this.#hosts.has(host.toLowerCase())
  }
}

/**
 * Returns whether a host is the server's own address of the connection. A socket that listens on [::] reports its IPv4 address as ::ffff:192.0.2.1, while the client
 * used 192.0.2.1. One IPv6 address can be written in many ways.
 */
function isSelf(name: string, local: string): boolean {
  const [, mapped] = /^::ffff:(\d{1,3}(?:\.\d{1,3}){3})$/i.exec(local) ?? []
  if (name === local || name === mapped) return true
  return isIP(local) === 6 && name.startsWith('[') && normal(name) === normal(`[${local}]`)
}

/** An IPv6 address in brackets, in the canonical form of URLs. */
function normal(address: string): string | undefined {
  try {
    return new URL(`http://${address}/`).hostname
  } catch {
    return undefined
  }
}

/** The host without its port, or undefined if it is malformed. */
function nameOf(host: string): string | undefined {
  return /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?$/i.exec(host)?.[1]?.toLowerCase()
}

function sameOrigin(origin: string, host: string | undefined): boolean {
  const named = /^https?:\/\/([^/]+)$/i.exec(origin)?.[1]
  return named !== undefined && host !== undefined && named.toLowerCase() === host.toLowerCase()
}

/** The visitor followed a link to the dashboard. The dashboard itself contains no data. */
function isNavigation(request: HttpRequest, target: string): boolean {
  return (
    request.method === 'GET' &&
    target === '/' &&
    request.header('sec-fetch-mode') === 'navigate' &&
    request.header('sec-fetch-dest') === 'document'
  )
}

function foreign(): HttpFailure {
  return new HttpFailure('FORBIDDEN', 'a page of another site must not send requests to this server')
}
