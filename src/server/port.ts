/**
 * The port of a server: accepts connections over TCP, TLS and a unix socket, and passes each to HTTP or RESP according to its first bytes.
 *
 * Every connection costs memory, so every wait here is bounded: for the first byte, for the TLS handshake, for a peer that disappeared, and for clients that
 * keep their connection open while the server stops.
 */
import { readFile, rm } from 'node:fs/promises'
import type { Server as HttpServer } from 'node:http'
import { createServer, type Server as NetServer, type Socket } from 'node:net'
import { createServer as createTlsServer, type TLSSocket, type Server as TlsServer } from 'node:tls'
import { afterReading } from '../clock.ts'
import { certificateEnd } from './certificate-end.ts'
import { hasClientCertificate, socketsWithoutCertificate } from './client-certificate.ts'
import { Connections } from './connections.ts'
import { listenError } from './listen-error.ts'
import type { Listener, ListenerContext } from './listener.ts'
import { closeConnection, refuseHttp, refuseOverLimit, refuseWithoutCertificate, refuseWithoutTls } from './refuse-connection.ts'
import { isHttp2, refuseGrpc } from './refuse-grpc.ts'
import { RespListener } from './resp/resp-listener.ts'
import { takeSocketPath } from './socket-path.ts'
import { detectWire } from './wire-detection.ts'

export interface TlsFiles {
  readonly cert: string
  readonly key: string
  /** Mutual TLS: requires a client certificate of this authority. @default none */
  readonly ca?: string
}

export interface PortOptions {
  readonly context: ListenerContext
  readonly listen: readonly { readonly host: string; readonly port: number }[]
  readonly socket?: string
  /** Who may connect to the socket, as the mode of a file. @default 0o600, the user who runs the server */
  readonly socketMode?: number
  readonly tls?: TlsFiles
  readonly http?: Listener
}

/** Connections above the limit that get an error message. The system refuses further ones. */
const MAX_REFUSED = 128
/** TCP keep-alive, in ms: finds peers that disappeared without closing. */
const KEEP_ALIVE = 60_000
/** On stop: how long to wait for clients that were answered and keep their connection open, in ms. */
const HANG_UP_TIMEOUT = 5_000
/** On stop: how long to wait for everything, including requests in progress and clients that do not read, in ms. Then all connections are destroyed. */
const STOP_TIMEOUT = 10_000

interface SocketAddress {
  readonly path: string
  readonly mode: number
}

export class Port {
  readonly addresses: string[] = []
  /** When the certificates in use end, in wall time. */
  readonly certificates = new Map<string, number>()
  readonly #context: ListenerContext
  readonly #tls: TlsFiles | undefined
  readonly #resp: RespListener
  readonly #http: HttpServer | undefined
  readonly #servers: NetServer[] = []
  readonly #sockets = new Set<Socket>()
  readonly #connections: Connections
  /** The TCP sockets beneath TLS, from before the handshake. */
  readonly #tcpSockets = new Set<Socket>()
  /** TCP sockets whose handshake is not finished, oldest first, by their endpoints: TLS creates another socket object for each. */
  readonly #handshakes = new Map<string, Socket>()
  /** Connections that have sent nothing yet. Browsers open some in advance. */
  readonly #silent = new Set<Socket>()
  #socketPath: string | undefined
  #closing = false
  #onEmpty: (() => void) | undefined

  private constructor({ context, tls, http }: PortOptions) {
    this.#context = context
    this.#tls = tls
    this.#connections = new Connections({ ...context, access: context.guarded.access })
    this.#resp = new RespListener(context)
    this.#http = http?.(context)
    // Starts the timeouts of requests: Node starts them only for a server that listens itself.
    this.#http?.emit('listening')
  }

  static async open(options: PortOptions): Promise<Port> {
    const port = new Port(options)
    try {
      for (const { host, port: number } of options.listen) await port.#listen({ host, port: number })
      if (options.socket !== undefined) {
        await takeSocketPath(options.socket)
        port.#socketPath = options.socket
        await port.#listen({ path: options.socket, mode: options.socketMode ?? 0o600 })
      }
      return port
    } catch (error) {
      await port.close(() => {})
      throw error
    }
  }

  get connections(): number {
    return this.#sockets.size
  }

  async #listen(address: { readonly host: string; readonly port: number } | SocketAddress): Promise<void> {
    const secure = this.#tls !== undefined && 'port' in address
    const certificates = secure ? await this.#certificates() : undefined
    const server =
      certificates !== undefined
        ? createTlsServer({ ...certificates, allowHalfOpen: true, handshakeTimeout: this.#context.limits.headerTime })
        : createServer({ allowHalfOpen: true, noDelay: true })
    this.#noteEnds(certificates)
    server.on(secure ? 'secureConnection' : 'connection', (socket: Socket) => {
      this.#handshakes.delete(endpointsOf(socket))
      if (secure && this.#tls!.ca !== undefined && !hasClientCertificate(socket as TLSSocket)) socketsWithoutCertificate.add(socket)
      this.#accept(socket)
    })
    if (secure) {
      // Node reports a failed or slow handshake, and leaves the socket open.
      server.on('tlsClientError', (error: NodeJS.ErrnoException, socket: Socket) => {
        const plain = error.code === 'ERR_SSL_HTTP_REQUEST' ? 'http' : error.code === 'ERR_SSL_WRONG_VERSION_NUMBER' ? 'resp' : undefined
        const tcpSocket = this.#handshakes.get(endpointsOf(socket))
        if (plain !== undefined && tcpSocket !== undefined) refuseWithoutTls(tcpSocket, plain, () => socket.destroy())
        else socket.destroy()
      })
      server.on('connection', (socket: Socket) => this.#beginHandshake(socket))
    }
    server.maxConnections = this.#context.limits.connections + MAX_REFUSED
    const umask = 'path' in address ? process.umask(0o777 & ~address.mode) : undefined
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject)
        server.listen({ ...('path' in address ? { path: address.path } : address), backlog: 4_096 }, () => {
          server.off('error', reject)
          resolve()
        })
      })
    } catch (error) {
      throw listenError(error, 'path' in address ? address.path : `${address.host}:${address.port}`)
    } finally {
      if (umask !== undefined) process.umask(umask)
    }
    server.on('error', error => this.#context.log.error({ error: error.message }, 'the port cannot accept connections'))
    this.#servers.push(server)
    const bound = server.address()
    this.addresses.push(
      typeof bound === 'object' && bound !== null
        ? `${bound.family === 'IPv6' ? `[${bound.address}]` : bound.address}:${bound.port}`
        : String(bound),
    )
  }

  /** When too many handshakes are unfinished, destroys the oldest: they must not keep other clients from connecting. */
  #beginHandshake(socket: Socket): void {
    const endpoints = endpointsOf(socket)
    this.#tcpSockets.add(socket)
    this.#handshakes.set(endpoints, socket)
    socket.once('close', () => {
      this.#tcpSockets.delete(socket)
      if (this.#handshakes.get(endpoints) === socket) this.#handshakes.delete(endpoints)
    })
    const [oldest] = this.#handshakes.values()
    if (this.#tcpSockets.size > this.#context.limits.connections + MAX_REFUSED / 2 && oldest !== socket) oldest?.destroy()
  }

  async #certificates() {
    const { cert, key, ca } = this.#tls!
    const [certificate, privateKey, authority] = await Promise.all([
      readFile(cert),
      readFile(key),
      ca === undefined ? undefined : readFile(ca),
    ])
    return {
      cert: certificate,
      key: privateKey,
      minVersion: 'TLSv1.2' as const,
      ...(authority !== undefined && { ca: authority, requestCert: true, rejectUnauthorized: false }),
    }
  }

  /** Once they are in use. */
  #noteEnds({ cert, ca }: { readonly cert?: Buffer; readonly ca?: Buffer } = {}): void {
    for (const [file, pem] of Object.entries({ certificate: cert, authority: ca })) {
      const end = pem === undefined ? undefined : certificateEnd(pem)
      if (end !== undefined) this.certificates.set(file, end)
    }
  }

  async reload(): Promise<void> {
    if (this.#tls === undefined) return
    const certificates = await this.#certificates()
    for (const server of this.#servers) if ('setSecureContext' in server) (server as TlsServer).setSecureContext(certificates)
    this.#noteEnds(certificates)
  }

  #accept(socket: Socket): void {
    const { limits, clock } = this.#context
    if (this.#closing) return void socket.destroy()
    this.#sockets.add(socket)
    this.#silent.add(socket)
    socket.setNoDelay(true)
    socket.setKeepAlive(true, KEEP_ALIVE)
    // A client may disconnect at any time. That ends its connection and nothing else.
    socket.on('error', () => {})
    const cancelTimeout = afterReading(clock, limits.headerTime, () => socket.destroy())
    socket.once('close', () => {
      cancelTimeout()
      this.#sockets.delete(socket)
      this.#silent.delete(socket)
      if (this.#sockets.size === 0) this.#onEmpty?.()
    })
    const connection = this.#connections.open(socket)
    const onEnd = () => socket.destroy() // the client disconnected before its protocol was known
    let first: Buffer | undefined
    const onData = (chunk: Buffer) => {
      this.#silent.delete(socket)
      first = first === undefined ? chunk : Buffer.concat([first, chunk])
      const wire = detectWire(first)
      if (wire === undefined) return
      cancelTimeout()
      socket.off('data', onData)
      socket.off('end', onEnd)
      if (connection === undefined) return refuseOverLimit(socket, wire, limits.connections)
      connection.closeWith(reason => closeConnection(socket, wire, reason))
      if (wire === 'resp' && socketsWithoutCertificate.has(socket)) return refuseWithoutCertificate(socket)
      if (wire === 'resp') return this.#resp.accept(socket, first, connection)
      if (this.#http === undefined) return refuseHttp(socket)
      if (isHttp2(first)) return void refuseGrpc(socket, first, this.#context.clock)
      socket.pause()
      socket.unshift(first)
      this.#http.emit('connection', socket)
      socket.resume()
    }
    socket.once('end', onEnd)
    socket.on('data', onData)
  }

  /** Stops accepting. `stop` ends waits and watches. Then requests in progress are answered, and connections closed. */
  async close(stop: () => void): Promise<void> {
    this.#closing = true
    const stopped = this.#servers.map(server => new Promise<void>(resolve => server.close(() => resolve())))
    stop()
    this.#http?.close()
    this.#http?.closeIdleConnections()
    for (const socket of this.#silent) socket.destroy()
    const destroyAll = () => {
      for (const socket of this.#sockets) socket.destroy()
    }
    const { clock } = this.#context
    // One deadline for everything: a suspended client, or one that keeps its socket open after QUIT, must not delay the stop.
    const cancelStop = clock.after(STOP_TIMEOUT, destroyAll, { ref: true })
    await this.#resp.close()
    if (this.#sockets.size > 0) {
      const empty = new Promise<void>(resolve => (this.#onEmpty = resolve))
      const cancelHangUp = clock.after(HANG_UP_TIMEOUT, destroyAll, { ref: true })
      await empty
      cancelHangUp()
    }
    cancelStop()
    for (const socket of this.#tcpSockets) socket.destroy()
    await Promise.all(stopped)
    if (this.#socketPath !== undefined) await rm(this.#socketPath, { force: true })
  }
}

function endpointsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`
}
