/**
 * A lessor for others: one port for HTTP and RESP, with keys and limits at one desk.
 *
 * Not promised: that a server which is killed has answered what it did. `close` does: it answers everything that is under way, ends watches and
 * waits, and then lets go. The lessor stays its giver's.
 */
import { isIP } from 'node:net'
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Lessor } from '../lessor.ts'
import { type Audited, GuardedLessor } from './guarded-lessor.ts'
import { DEFAULT_LIMITS, type Limits } from './limits.ts'
import type { Listener, ListenerContext, Log } from './listener.ts'
import { Port, type TlsFiles } from './port.ts'
import { type StoreTrouble, StoreWatch } from './store-watch.ts'

export type { Listener, ListenerContext, Log } from './listener.ts'

export interface ServeOptions {
  readonly lessor: Lessor
  /** `host:port`, `[::1]:port`, or a port alone for loopback; several are allowed, and none when there is a socket. Port 0: a free one. */
  readonly listen?: string | readonly string[]
  /** Path of a unix socket, for this user alone. */
  readonly socket?: string
  readonly tls?: TlsFiles
  /** Something in front of this server does TLS: a non-loopback address may then be without it. */
  readonly behindProxy?: boolean
  /** A secret that is in no log: whoever has it speaks for the store itself, as a process that opens the store does. Empty or left out: nobody. */
  readonly operator?: string
  /** Places that an administrator's key may move the leases to; none unless said otherwise. */
  readonly moveTo?: readonly string[]
  readonly limits?: Limits
  readonly log?: Log
  readonly clock?: Clock
  readonly audit?: (done: Audited) => void
  /** Numbers of the replica and the store, for metrics. */
  readonly figures?: () => Readonly<Record<string, number>>
  /** The last append of the replica, if it failed: for metrics and the log. */
  readonly trouble?: () => StoreTrouble | undefined
  /** HTTP, where it is wanted; without it such connections are told so and closed. */
  readonly http?: Listener
}

export interface Server extends AsyncDisposable {
  /** Where it listens: `127.0.0.1:7420`, `[::1]:7420`, `/path/of/socket`. */
  readonly addresses: readonly string[]
  readonly desk: GuardedLessor
  /** Connections open now. */
  readonly connections: number
  /** Reads certificates anew. Connections that are open stay as they are. Throws, and changes nothing, when they cannot be used. */
  reload(): Promise<void>
  /** Takes no more connections, answers everything under way, ends watches and waits. */
  close(): Promise<void>
}

export const DEFAULT_PORT = 7420

const SILENT: Log = { debug() {}, info() {}, warn() {}, error() {} }

export async function serve(options: ServeOptions): Promise<Server> {
  const { lessor, socket, tls, behindProxy = false, limits = DEFAULT_LIMITS, log = SILENT, clock = systemClock } = options
  const { operator, audit, moveTo, figures = () => ({}) } = options
  const listen = [options.listen ?? (socket === undefined ? `127.0.0.1:${DEFAULT_PORT}` : [])].flat().map(addressOf)
  const desk = await GuardedLessor.open({
    lessor,
    limits,
    clock,
    ...(operator && { operator }),
    ...(audit && { audit }),
    ...(moveTo && { moveTo }),
  })
  const watch = new StoreWatch(desk, { clock, log, ...(options.trouble && { trouble: options.trouble }) })
  const closing = new AbortController()
  try {
    for (const { host } of listen) mustBeProtected(host, { keys: desk.gate.hasKeys, tls: tls !== undefined, behindProxy })
    if (listen.some(({ host }) => !isLoopback(host))) desk.gate.expose()
    const context: ListenerContext = { desk, clock, limits, log, figures, closing: closing.signal, connections: () => port.connections }
    const port = await Port.open({
      context,
      listen,
      ...(socket !== undefined && { socket }),
      ...(tls && { tls }),
      ...(options.http && { http: options.http }),
    })
    let closed: Promise<void> | undefined
    const close = async () => {
      watch[Symbol.dispose]()
      await port.close(() => closing.abort(new LeaseError('UNAVAILABLE', 'this server is stopping: ask another, or again in a while')))
      await desk[Symbol.asyncDispose]()
    }
    const end = () => (closed ??= close())
    return {
      addresses: port.addresses,
      desk,
      get connections() {
        return port.connections
      },
      reload: () => port.reload(),
      close: end,
      [Symbol.asyncDispose]: end,
    }
  } catch (error) {
    watch[Symbol.dispose]()
    await desk[Symbol.asyncDispose]()
    throw error
  }
}

export interface Address {
  readonly host: string
  readonly port: number
}

/** What `--listen` says: `host:port`, `[v6]:port`, `:port` and `port` for loopback. */
export function addressOf(text: string): Address {
  const [, bracketed, bare, digits] = /^(?:\[([^\]]+)\]:|([^:[\]]*):)?(\d{1,5})$/.exec(text) ?? []
  const port = Number(digits)
  if (digits === undefined || port > 65_535)
    throw new LeaseError(
      'INVALID',
      `${text} is no address to listen on: write host:port, as in 127.0.0.1:${DEFAULT_PORT} or [::1]:${DEFAULT_PORT}`,
    )
  return { host: bracketed ?? (bare || '127.0.0.1'), port }
}

export function isLoopback(host: string): boolean {
  if (host === 'localhost' || host === '::1') return true
  return isIP(host) === 4 && host.startsWith('127.')
}

/** Others' servers were found open on every network by default: ours refuses to start like that. */
function mustBeProtected(
  host: string,
  { keys, tls, behindProxy }: { readonly keys: boolean; readonly tls: boolean; readonly behindProxy: boolean },
): void {
  if (isLoopback(host)) return
  if (!keys)
    throw new LeaseError(
      'INVALID',
      `${host} can be reached from other machines and there are no keys: anyone could take, break and read every lease. Create one first, with this server stopped (leasehold key create --name admin --allow admin), or listen on 127.0.0.1`,
      { facts: { host, missing: 'keys' } },
    )
  if (!tls && !behindProxy)
    throw new LeaseError(
      'INVALID',
      `${host} can be reached from other machines and there is no TLS: keys would cross the network in the open. Give --tls-cert and --tls-key, or say --behind-proxy when something in front of this server does TLS`,
      { facts: { host, missing: 'tls' } },
    )
}
