/**
 * Whether a request may be looked at, before anything of it is: a page of another site, made to reach a server on the visitor's own machine, must
 * not get there. (etcd could be reached like that through the visitor's browser: CVE-2018-1098, 1099.)
 */
import { isIP } from 'node:net'
import { SECRET } from '../key-secret.ts'
import { Failure } from './failure.ts'
import type { HttpRequest } from './route.ts'

/** Names that people try to give a key by. */
const KEY_NAMES = /[?&](?:api[-_]?key|key|apikey|access[-_]?token|token|auth|authorization|secret|password|bearer)=/i

/** `*` among `hosts`: something in front of this server looks after that. */
export class OriginCheck {
  readonly #hosts: ReadonlySet<string>
  readonly #any: boolean

  constructor(hosts: readonly string[] = []) {
    this.#hosts = new Set(hosts.map(host => host.toLowerCase()))
    this.#any = this.#hosts.has('*')
  }

  /** Throws what is refused. `host` and `target` are the request's, whichever way it named them. */
  check(ask: HttpRequest, host: string | undefined, target: string): void {
    const { repeated } = ask
    if (repeated !== undefined) throw new Failure('INVALID', `the header ${repeated} stands there twice: which of them is meant?`)
    if (!this.#any && !this.#known(host, ask.local))
      throw new Failure(
        'FORBIDDEN',
        `this server is not called ${(host ?? 'nothing').slice(0, 64)}: name it by a loopback address, or let it be configured`,
        {
          status: 421,
        },
      )
    const origin = ask.header('origin')
    if (origin !== undefined && !sameOrigin(origin, host)) throw foreign()
    const site = ask.header('sec-fetch-site')
    if (site !== undefined && site !== 'same-origin' && site !== 'none' && !isVisit(ask, target)) throw foreign()
    const query = target.indexOf('?')
    if ((query >= 0 && KEY_NAMES.test(target.slice(query))) || target.search(SECRET) >= 0)
      throw new Failure(
        'INVALID',
        'a key never travels in a URL, where logs and histories keep it: send it as Authorization: Bearer KEY, and revoke this one',
      )
  }

  #known(host: string | undefined, local: string | undefined): boolean {
    if (host === undefined) return false
    const name = nameOf(host)
    if (name === undefined) return false
    if (name === 'localhost' || name === '[::1]' || (name.startsWith('127.') && isIP(name) === 4)) return true
    // Who reached us by a bare address was misled by no name.
    if (local !== undefined && isSelf(name, local)) return true
    return this.#hosts.has(name) || this.#hosts.has(host.toLowerCase())
  }
}

/**
 * Whether a host is the address that the connection came in by. A socket that listens on [::] reports its own IPv4 address as ::ffff:192.0.2.1, and
 * the client asked for 192.0.2.1. One IPv6 address can be written in many ways.
 */
function isSelf(name: string, local: string): boolean {
  const [, mapped] = /^::ffff:(\d{1,3}(?:\.\d{1,3}){3})$/i.exec(local) ?? []
  if (name === local || name === mapped) return true
  return isIP(local) === 6 && name.startsWith('[') && normal(name) === normal(`[${local}]`)
}

/** An IPv6 address in brackets, in the one form that URLs give it. */
function normal(address: string): string | undefined {
  try {
    return new URL(`http://${address}/`).hostname
  } catch {
    return undefined
  }
}

/** Without the port. Undefined for what is no host. */
function nameOf(host: string): string | undefined {
  return /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?$/i.exec(host)?.[1]?.toLowerCase()
}

function sameOrigin(origin: string, host: string | undefined): boolean {
  const named = /^https?:\/\/([^/]+)$/i.exec(origin)?.[1]
  return named !== undefined && host !== undefined && named.toLowerCase() === host.toLowerCase()
}

/** Somebody followed a link to the page: it carries nobody's data. */
function isVisit(ask: HttpRequest, target: string): boolean {
  return (
    ask.method === 'GET' && target === '/' && ask.header('sec-fetch-mode') === 'navigate' && ask.header('sec-fetch-dest') === 'document'
  )
}

function foreign(): Failure {
  return new Failure('FORBIDDEN', 'a page of another site may not ask this server')
}
