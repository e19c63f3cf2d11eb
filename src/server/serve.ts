/**
 * Starts a server: makes a lessor available over HTTP and RESP on one port, with keys and limits.
 *
 * `close` answers every request in progress, ends watches and waits, and closes all connections. It does not close the lessor, which belongs to the caller of `serve`.
 * Not guaranteed: a killed server may have applied requests without answering them.
 */
import { isIP } from 'node:net'
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Face, FaceNames } from '../face/face.ts'
import type { Lessor } from '../lessor.ts'
import { setFaceRules } from './face-rules.ts'
import { type AuditRecord, GuardedLessor } from './guarded-lessor.ts'
import { DEFAULT_LIMITS, type Limits } from './limits.ts'
import type { BesideCheck, Listener, ListenerContext, ServerLog } from './listener.ts'
import { Port, type TlsFiles } from './port.ts'
import { ProbePort } from './probe-port.ts'
import { type FailedAppend, StoreWatch } from './store-watch.ts'

export type { BesideCheck, Listener, ListenerContext, ServerLog } from './listener.ts'

export interface ServeOptions {
  readonly lessor: Lessor
  /** `host:port`, `[::1]:port`, or a port alone for loopback. Port 0 picks a free one. @default '127.0.0.1:7420', or none if there is a `socket` */
  readonly listen?: string | readonly string[]
  /** Path of a unix socket. @default none */
  readonly socket?: string
  /** Who may connect to the socket, as the mode of a file. @default 0o600, the user who runs the server */
  readonly socketMode?: number
  readonly tls?: TlsFiles
  /** Address of a port that answers `/healthz` and `/readyz` in plain HTTP, without keys and certificates, and nothing else. @default none */
  readonly probe?: string
  /** A proxy in front of this server terminates TLS, so a non-loopback address may be served without it. @default false */
  readonly behindProxy?: boolean
  /** The operator's secret. Its caller acts for the store itself, like a process that opens the store. @default '' (no operator) */
  readonly operator?: string
  /** Stores that an administrator's key may move the leases to. @default none */
  readonly moveTo?: readonly string[]
  readonly limits?: Limits
  readonly log?: ServerLog
  readonly clock?: Clock
  readonly audit?: (record: AuditRecord) => void
  /** Figures of the replica and the store, for metrics. */
  readonly figures?: () => Readonly<Record<string, number>>
  /** The data file of the store, if it has one, for metrics. */
  readonly dataFile?: () => string | undefined
  /** The last append of the replica, if it failed. For metrics and the log. */
  readonly failedAppend?: () => FailedAppend | undefined
  /** Other people's protocols to answer (docs/faces.md). @default none */
  readonly faces?: readonly Face[]
  /** Which resources the names of faces stand for. @default those of the same name */
  readonly faceNames?: FaceNames
  /** Answers clients that found this server in its store (connect/server-announcement.ts). @default none: they are refused */
  readonly beside?: BesideCheck | undefined
  /** The HTTP wire. @default none: HTTP connections are answered with 501 and closed */
  readonly http?: Listener
}

export interface Server extends AsyncDisposable {
  /** The addresses it listens on: `127.0.0.1:7420`, `[::1]:7420`, `/path/of/socket`. */
  readonly addresses: readonly string[]
  /** The address of the port for probes, if there is one. */
  readonly probeAddress?: string
  readonly guarded: GuardedLessor
  /** The number of open connections. */
  readonly connections: number
  /** Reads the certificates again. Open connections keep theirs. Throws, and changes nothing, if the certificates are not usable. */
  reload(): Promise<void>
  /** Stops accepting connections, answers requests in progress, ends watches and waits. */
  close(): Promise<void>
}

export const DEFAULT_PORT = 7420

const SILENT: ServerLog = { debug() {}, info() {}, warn() {}, error() {} }

export async function serve(options: ServeOptions): Promise<Server> {
  const { lessor, socket, tls, behindProxy = false, limits = DEFAULT_LIMITS, log = SILENT, clock = systemClock } = options
  const { operator, audit, moveTo, figures = () => ({}) } = options
  const probeAt = options.probe === undefined ? undefined : addressOf(options.probe)
  const listen = [options.listen ?? (socket === undefined ? `127.0.0.1:${DEFAULT_PORT}` : [])].flat().map(addressOf)
  const guarded = await GuardedLessor.open({
    lessor,
    limits,
    clock,
    ...(operator && { operator }),
    ...(audit && { audit }),
    ...(moveTo && { moveTo }),
  })
  const storeWatch = new StoreWatch(guarded, { clock, log, ...(options.failedAppend && { failedAppend: options.failedAppend }) })
  const closing = new AbortController()
  let probe: ProbePort | undefined
  try {
    for (const { host } of listen) requireProtection(host, { keys: guarded.access.hasKeys, tls: tls !== undefined, behindProxy })
    if (listen.some(({ host }) => !isLoopback(host))) guarded.access.expose()
    await setFaceRules(lessor, options.faces ?? [])
    const context: ListenerContext = {
      guarded,
      clock,
      limits,
      log,
      figures,
      closing: closing.signal,
      connections: () => port.connections,
      certificates: () => port.certificates,
      ...(options.dataFile && { dataFile: options.dataFile }),
      faces: options.faces ?? [],
      faceNames: options.faceNames,
      beside: options.beside,
    }
    const port = await Port.open({
      context,
      listen,
      ...(socket !== undefined && { socket }),
      ...(options.socketMode !== undefined && { socketMode: options.socketMode }),
      ...(tls && { tls }),
      ...(options.http && { http: options.http }),
    })
    try {
      // After the server's own port: what is ready can be reached.
      if (probeAt !== undefined) probe = await ProbePort.open(probeAt, context)
    } catch (error) {
      await port.close(() => {})
      throw error
    }
    let closed: Promise<void> | undefined
    const stop = async () => {
      storeWatch[Symbol.dispose]()
      await port.close(() => closing.abort(new LeaseError('UNAVAILABLE', 'this server is stopping: use another server, or retry later')))
      // Last: while requests in progress are answered, the process lives and is not ready.
      await probe?.[Symbol.asyncDispose]()
      await guarded[Symbol.asyncDispose]()
    }
    const close = () => (closed ??= stop())
    return {
      addresses: port.addresses,
      ...(probe !== undefined && { probeAddress: probe.address }),
      guarded,
      get connections() {
        return port.connections
      },
      reload: () => port.reload(),
      close,
      [Symbol.asyncDispose]: close,
    }
  } catch (error) {
    storeWatch[Symbol.dispose]()
    await guarded[Symbol.asyncDispose]()
    throw error
  }
}

export interface ListenAddress {
  readonly host: string
  readonly port: number
}

/** Parses `--listen`: `host:port`, `[v6]:port`, and `:port` or `port` for loopback. */
export function addressOf(text: string): ListenAddress {
  const [, bracketed, bare, digits] = /^(?:\[([^\]]+)\]:|([^:[\]]*):)?(\d{1,5})$/.exec(text) ?? []
  const port = Number(digits)
  if (digits === undefined || port > 65_535)
    throw new LeaseError(
      'INVALID',
      `${text} is not an address to listen on: write host:port, as in 127.0.0.1:${DEFAULT_PORT} or [::1]:${DEFAULT_PORT}`,
    )
  return { host: bracketed ?? (bare || '127.0.0.1'), port }
}

export function isLoopback(host: string): boolean {
  if (host === 'localhost' || host === '::1') return true
  return isIP(host) === 4 && host.startsWith('127.')
}

/** Refuses to start an unprotected server. Other servers that listen on every network by default were found open on the internet. */
function requireProtection(
  host: string,
  { keys, tls, behindProxy }: { readonly keys: boolean; readonly tls: boolean; readonly behindProxy: boolean },
): void {
  if (isLoopback(host)) return
  if (!keys)
    throw new LeaseError(
      'INVALID',
      `${host} can be reached from other machines and there are no keys: every client could take, break and read every lease. Create a key first, with this server stopped (leasehold key create --name admin --allow admin), or listen on 127.0.0.1`,
      { facts: { host, missing: 'keys' } },
    )
  if (!tls && !behindProxy)
    throw new LeaseError(
      'INVALID',
      `${host} can be reached from other machines and there is no TLS: keys would cross the network in clear text. Use --tls-cert and --tls-key, or --behind-proxy if a proxy in front of this server does TLS`,
      { facts: { host, missing: 'tls' } },
    )
}
