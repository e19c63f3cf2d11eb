/**
 * The server's side of `via: 'server'`: it announces where it is in the store that it serves, for clients that open the store by its URL, and recognizes them
 * (beside-protocol.ts). The announcement ends with the server, or half a minute after it was killed.
 */
import { networkInterfaces } from 'node:os'
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { newSecret } from '../server/key-secret.ts'
import { isLoopback } from '../server/serve.ts'
import type { Announcements } from '../store/announcements.ts'
import { storeModule } from '../store/modules.ts'
import {
  ANNOUNCE_AGAIN,
  ANNOUNCED_FOR,
  type AnnouncedEndpoint,
  type AnnouncedServer,
  CHALLENGES,
  clientProof,
  isEqual,
  SERVERS,
  serverProof,
  thisMachine,
} from './beside-protocol.ts'
import { schemeOf } from './url.ts'

export interface ServerAnnouncementOptions {
  readonly clock: Clock
  /** The store could not be told, or could again. */
  readonly failed?: (error: LeaseError | undefined) => void
}

export class ServerAnnouncement implements AsyncDisposable {
  readonly #announcements: Announcements
  readonly #clock: Clock
  readonly #name: string
  readonly #secret: string
  readonly #failed: (error: LeaseError | undefined) => void
  #addresses: readonly AnnouncedEndpoint[] = []
  #cancelTimer: (() => void) | undefined
  #writing: Promise<void> = Promise.resolve()
  #hasFailed = false
  #over = false

  private constructor(announcements: Announcements, { clock, failed = () => {} }: ServerAnnouncementOptions) {
    this.#announcements = announcements
    this.#clock = clock
    this.#failed = failed
    this.#name = `${SERVERS}${clock.bits().toString(36)}`
    this.#secret = newSecret(clock)
  }

  /** Undefined if the store has no place for announcements. */
  static async open(url: string, options: ServerAnnouncementOptions): Promise<ServerAnnouncement | undefined> {
    const announcements = await storeModule(schemeOf(url))?.announcements?.(url, options.clock)
    return announcements && new ServerAnnouncement(announcements, options)
  }

  /** Announces these addresses until the end, or in place of former ones. None: the announcement ends. */
  async announce(addresses: readonly AnnouncedEndpoint[]): Promise<void> {
    this.#addresses = addresses
    this.#cancelTimer?.()
    this.#writing = this.#writing.then(() => this.#write())
    await this.#writing
  }

  /** Answers a client that has found this server in the store. Throws `UNAUTHENTICATED`. */
  readonly check = async (name: string, proof: string): Promise<string> => {
    const mine = this.#addresses.length > 0 && /^[\w-]{1,64}$/.test(name) && isEqual(proof, clientProof(this.#secret, name))
    const challenge = mine ? await this.#announcements.take(CHALLENGES + name) : undefined
    if (challenge === undefined)
      throw new LeaseError('UNAUTHENTICATED', 'this proof does not belong to the announcement of this server in its store')
    return serverProof(this.#secret, name, challenge)
  }

  async #write(): Promise<void> {
    if (this.#over) return
    try {
      if (this.#addresses.length === 0) return void (await this.#announcements.take(this.#name))
      const announced: AnnouncedServer = { secret: this.#secret, addresses: this.#addresses }
      await this.#announcements.put(this.#name, JSON.stringify(announced), ANNOUNCED_FOR)
      if (this.#hasFailed) this.#failed(undefined)
      this.#hasFailed = false
    } catch (error) {
      if (!this.#hasFailed) this.#failed(error as LeaseError)
      this.#hasFailed = true
    }
    if (this.#over || this.#addresses.length === 0) return
    this.#cancelTimer?.() // there is one at a time
    this.#cancelTimer = this.#clock.after(ANNOUNCE_AGAIN, () => {
      this.#writing = this.#write()
    })
  }

  /** Stops without a word, as a process that is killed: the announcement ends by itself. */
  async stop(): Promise<void> {
    this.#over = true
    this.#cancelTimer?.()
    await this.#writing
    await this.#announcements[Symbol.asyncDispose]()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#over) return
    this.#over = true
    await this.#writing
    await this.#announcements.take(this.#name).catch(() => {}) // it ends by itself
    await this.stop()
  }
}

/**
 * The addresses that clients of the store can use, of those that a server listens on. Without TLS only those of this machine: what the operator of the store may do
 * must not cross a network in clear text. `clientCertificates`: clients without a certificate are refused wherever there is TLS.
 */
export function announceable(
  listening: readonly string[],
  {
    clock,
    fingerprint,
    clientCertificates,
  }: { readonly clock: Clock; readonly fingerprint?: string | undefined; readonly clientCertificates: boolean },
): AnnouncedEndpoint[] {
  const on = thisMachine(clock)
  return listening.flatMap(expanded).flatMap(address => {
    if (address.startsWith('/')) return [{ address, on }]
    if (clientCertificates) return []
    const local = isLoopback(address.replace(/:\d+$/, '').replace(/^\[|\]$/g, ''))
    if (!local && fingerprint === undefined) return []
    return [{ address, ...(fingerprint !== undefined && { fingerprint }), ...(local && { on }) }]
  })
}

/** All addresses of this machine, for an address that stands for them. */
function expanded(address: string): string[] {
  const [, host, port] = /^(0\.0\.0\.0|\[::\]):(\d+)$/.exec(address) ?? []
  if (host === undefined) return [address]
  const found = Object.values(networkInterfaces()).flatMap(list => list ?? [])
  return found.flatMap(({ address: ip, family }) => {
    if (family === 'IPv4') return [`${ip}:${port}`]
    return host === '[::]' && !/^fe80:/i.test(ip) ? [`[${ip}]:${port}`] : []
  })
}
