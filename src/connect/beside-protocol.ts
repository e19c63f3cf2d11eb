/**
 * A server on a shared store and a client that found it there recognize each other by this protocol.
 *
 * 1. The server announces its addresses in the store, with a secret that it draws at each start.
 * 2. The client writes a challenge into the store, under a name of its own, and sends the name with a proof (`HELLO … BESIDE name proof`). The proof shows that the client
 *    has read the announcement. The challenge shows that the client may write to the store, as an operator may.
 * 3. The server takes the challenge out of the store, so that it serves once, and answers with a proof of its own: it knows the secret, and reads the same store now.
 *
 * So the client notices an address of another program, or of a server of another store, even if that store is a copy. Neither the secret nor the challenge is ever sent.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { hostname } from 'node:os'
import type { Clock } from '../clock.ts'

/** A server is announced for this long, in ms, and announces itself again this often. */
export const ANNOUNCED_FOR = 30_000
export const ANNOUNCE_AGAIN = 10_000
/** A challenge stays in the store for this long, in ms. */
export const CHALLENGE_FOR = 30_000

export const SERVERS = 'server/'
export const CHALLENGES = 'challenge/'

/** A server announces this. */
export interface AnnouncedServer {
  readonly secret: string
  readonly addresses: readonly AnnouncedEndpoint[]
}

export interface AnnouncedEndpoint {
  readonly address: string
  /** Of the certificate of this server; absent without TLS. */
  readonly fingerprint?: string
  /** The machine on which the address can be reached; absent: on others, too. */
  readonly on?: string
}

/** Names this machine, as far as an address of loopback or a socket is concerned. A wrong guess costs a connection attempt. */
export function thisMachine(clock: Clock): string {
  return `${hostname()} ${clock.boot()}`
}

export function clientProof(secret: string, name: string): string {
  return mac(secret, `leasehold client ${name}`)
}

export function serverProof(secret: string, name: string, challenge: string): string {
  return mac(secret, `leasehold server ${name} ${challenge}`)
}

function mac(secret: string, text: string): string {
  return createHmac('sha256', secret).update(text).digest('hex')
}

export function isEqual(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** Undefined if it was written by another version, or by another program. */
export function parseAnnouncement(text: string): AnnouncedServer | undefined {
  try {
    const { secret, addresses } = JSON.parse(text) as AnnouncedServer
    const valid = typeof secret === 'string' && secret.length >= 40 && Array.isArray(addresses) && addresses.every(isEndpoint)
    return valid ? { secret, addresses } : undefined
  } catch {
    return undefined
  }
}

const ADDRESS = /^(?:\/.{1,107}|(?:\[[\da-fA-F:.%\w]+\]|[\w.-]+):\d{1,5})$/

function isEndpoint({ address, fingerprint, on }: AnnouncedEndpoint): boolean {
  return typeof address === 'string' && ADDRESS.test(address) && isTextOrAbsent(fingerprint) && isTextOrAbsent(on)
}

function isTextOrAbsent(value: unknown): boolean {
  return value === undefined || typeof value === 'string'
}
