/**
 * The port: takes connections over TCP, TLS and a unix socket, and hands each to the wire that its first bytes speak.
 *
 * Every connection costs something, so each wait here has an end: for the first byte, for a place among the allowed, for a peer that has gone
 * without a word, and for those who have not left when the server stops.
 */
import { readFile, rm } from 'node:fs/promises'
import type { Server as HttpServer } from 'node:http'
import { createServer, type Server as NetServer, type Socket } from 'node:net'
import { createServer as createTlsServer, type TLSSocket, type Server as TlsServer } from 'node:tls'
import { afterReading } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { isCertified, uncertified } from './client-certificate.ts'
import { Connections, type Reason } from './connections.ts'
import type { Listener, ListenerContext } from './listener.ts'
import { RespListener } from './resp/resp-listener.ts'
import { takeSocketPath } from './socket-path.ts'

export interface TlsFiles {
  readonly cert: string
  readonly key: string
  /** Mutual TLS: only clients with a certificate of this authority are let in. */
  readonly ca?: string
}

export interface PortOptions {
  readonly context: ListenerContext
  readonly listen: readonly { readonly host: string; readonly port: number }[]
  readonly socket?: string
  readonly tls?: TlsFiles
  readonly http?: Listener
}

/** So many more than allowed are told why they are refused; the rest is cut off without a word. */
const TOLD = 128
const KEEP_ALIVE = 60_000
/** Of the first line, so much is waited for before it is called RESP. */
const FIRST_LINE = 4 << 10
/** A stopping server waits so long for clients that were answered and do not hang up. */
const FAREWELL = 5_000
/** A stopping server waits so long for everything: answers under way, clients that do not read them, and the above. Then it closes every connection. */
const STOP_WITHIN = 10_000

export class Port {
  readonly addresses: string[] = []
  readonly #context: ListenerContext
  readonly #tls: TlsFiles | undefined
  readonly #resp: RespListener
  readonly #http: HttpServer | undefined
  readonly #servers: NetServer[] = []
  readonly #sockets = new Set<Socket>()
  readonly #connections: Connections
  /** What TLS runs over, from before its handshake. */
  readonly #beneath = new Set<Socket>()
  /** Of these, those whose handshake is not finished, the oldest first, by their addresses: TLS makes another socket of each. */
  readonly #handshakes = new Map<string, Socket>()
  /** Those that have not said a word yet. Browsers open such in advance. */
  readonly #silent = new Set<Socket>()
  #path: string | undefined
  #closing = false
  #empty: (() => void) | undefined

  private constructor({ context, tls, http }: PortOptions) {
    this.#context = context
    this.#tls = tls
    this.#connections = new Connections({ ...context, gate: context.desk.gate })
    this.#resp = new RespListener(context)
    this.#http = http?.(context)
    // A server that does not listen itself never begins to count how long its requests take.
    this.#http?.emit('listening')
  }

  static async open(options: PortOptions): Promise<Port> {
    const port = new Port(options)
    try {
      for (const { host, port: number } of options.listen) await port.#listen({ host, port: number })
      if (options.socket !== undefined) {
        await takeSocketPath(options.socket)
        port.#path = options.socket
        await port.#listen({ path: options.socket })
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

  async #listen(where: { readonly host: string; readonly port: number } | { readonly path: string }): Promise<void> {
    const secure = this.#tls !== undefined && 'port' in where
    const server = secure
      ? createTlsServer({ ...(await this.#certificates()), allowHalfOpen: true, handshakeTimeout: this.#context.limits.headerTime })
      : createServer({ allowHalfOpen: true, noDelay: true })
    server.on(secure ? 'secureConnection' : 'connection', (socket: Socket) => {
      this.#handshakes.delete(endsOf(socket))
      if (secure && this.#tls!.ca !== undefined && !isCertified(socket as TLSSocket)) uncertified.add(socket)
      this.#take(socket)
    })
    if (secure) {
      // Node tells of a handshake that failed or took too long, and leaves the socket as it is.
      server.on('tlsClientError', (error: NodeJS.ErrnoException, socket: Socket) => {
        const plain = error.code === 'ERR_SSL_HTTP_REQUEST' ? 'http' : error.code === 'ERR_SSL_WRONG_VERSION_NUMBER' ? 'resp' : undefined
        const beneath = this.#handshakes.get(endsOf(socket))
        if (plain !== undefined && beneath !== undefined) sayTls(beneath, plain, () => socket.destroy())
        else socket.destroy()
      })
      server.on('connection', (socket: Socket) => this.#beginHandshake(socket))
    }
    server.maxConnections = this.#context.limits.connections + TOLD
    const umask = 'path' in where ? process.umask(0o177) : undefined
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject)
        server.listen({ ...where, backlog: 4_096 }, () => {
          server.off('error', reject)
          resolve()
        })
      })
    } catch (error) {
      throw cannotListen(error, 'path' in where ? where.path : `${where.host}:${where.port}`)
    } finally {
      if (umask !== undefined) process.umask(umask)
    }
    server.on('error', error => this.#context.log.error({ error: error.message }, 'the port cannot take connections'))
    this.#servers.push(server)
    const bound = server.address()
    this.addresses.push(
      typeof bound === 'object' && bound !== null
        ? `${bound.family === 'IPv6' ? `[${bound.address}]` : bound.address}:${bound.port}`
        : String(bound),
    )
  }

  /** Who has not even finished a handshake cannot keep others from beginning theirs. */
  #beginHandshake(socket: Socket): void {
    const ends = endsOf(socket)
    this.#beneath.add(socket)
    this.#handshakes.set(ends, socket)
    socket.once('close', () => {
      this.#beneath.delete(socket)
      if (this.#handshakes.get(ends) === socket) this.#handshakes.delete(ends)
    })
    const [oldest] = this.#handshakes.values()
    if (this.#beneath.size > this.#context.limits.connections + TOLD / 2 && oldest !== socket) oldest?.destroy()
  }

  async #certificates() {
    const { cert, key, ca } = this.#tls!
    const [certificate, secret, authority] = await Promise.all([readFile(cert), readFile(key), ca === undefined ? undefined : readFile(ca)])
    return {
      cert: certificate,
      key: secret,
      minVersion: 'TLSv1.2' as const,
      ...(authority !== undefined && { ca: authority, requestCert: true, rejectUnauthorized: false }),
    }
  }

  async reload(): Promise<void> {
    if (this.#tls === undefined) return
    const certificates = await this.#certificates()
    for (const server of this.#servers) if ('setSecureContext' in server) (server as TlsServer).setSecureContext(certificates)
  }

  #take(socket: Socket): void {
    const { limits, clock } = this.#context
    if (this.#closing) return void socket.destroy()
    this.#sockets.add(socket)
    this.#silent.add(socket)
    socket.setNoDelay(true)
    socket.setKeepAlive(true, KEEP_ALIVE)
    // Someone may always hang up in the middle: that is the connection's end, and nobody else's business.
    socket.on('error', () => {})
    const late = afterReading(clock, limits.headerTime, () => socket.destroy())
    socket.once('close', () => {
      late()
      this.#sockets.delete(socket)
      this.#silent.delete(socket)
      if (this.#sockets.size === 0) this.#empty?.()
    })
    const connection = this.#connections.open(socket)
    const gone = () => socket.destroy() // it left without having said which wire it speaks
    let first: Buffer | undefined
    const tellApart = (chunk: Buffer) => {
      this.#silent.delete(socket)
      first = first === undefined ? chunk : Buffer.concat([first, chunk])
      const wire = wireOf(first)
      if (wire === undefined) return
      late()
      socket.off('data', tellApart)
      socket.off('end', gone)
      if (connection === undefined) return refuse(socket, wire, limits.connections)
      connection.ends(reason => turnAway(socket, wire, reason))
      if (wire === 'resp' && uncertified.has(socket)) return void socket.end(`-UNAVAILABLE ${CERTIFICATE}\r\n`)
      if (wire === 'resp') return this.#resp.take(socket, first, connection)
      if (this.#http === undefined) return void socket.end(`HTTP/1.1 501 Not Implemented\r\n${PLAIN}Only RESP is spoken here.\n`)
      socket.pause()
      socket.unshift(first)
      this.#http.emit('connection', socket)
      socket.resume()
    }
    socket.once('end', gone)
    socket.on('data', tellApart)
  }

  /** `stop` tells everyone who waits or watches. Then what is under way is answered. */
  async close(stop: () => void): Promise<void> {
    this.#closing = true
    const stopped = this.#servers.map(server => new Promise<void>(resolve => server.close(() => resolve())))
    stop()
    this.#http?.close()
    this.#http?.closeIdleConnections()
    for (const socket of this.#silent) socket.destroy()
    const cut = () => {
      for (const socket of this.#sockets) socket.destroy()
    }
    const { clock } = this.#context
    // One deadline over everything: a client that was stopped, or that keeps its socket after QUIT, cannot hold up the end.
    const cancel = clock.after(STOP_WITHIN, cut, { ref: true })
    await this.#resp.close()
    if (this.#sockets.size > 0) {
      const left = new Promise<void>(resolve => (this.#empty = resolve))
      const sooner = clock.after(FAREWELL, cut, { ref: true })
      await left
      sooner()
    }
    cancel()
    for (const socket of this.#beneath) socket.destroy()
    await Promise.all(stopped)
    if (this.#path !== undefined) await rm(this.#path, { force: true })
  }
}

const PLAIN = 'Content-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n'

/**
 * Undefined while it cannot be known. A RESP command begins with `*`, or is a line of words. What looks like the first line of an HTTP request is
 * HTTP, whatever its method: pages choose that freely, and what follows it, too. Names of ours begin with no slash.
 */
export function wireOf(first: Uint8Array): 'http' | 'resp' | undefined {
  const known = Buffer.from(first.buffer, first.byteOffset, Math.min(first.length, FIRST_LINE)).toString('latin1')
  const [line] = known.split('\n', 1) as [string]
  if (known === '') return undefined
  // A token of HTTP, but neither of the signs by which RESP begins.
  if (!/^[!#%&'+.^`|~\w-][!#$%&'*+.^`|~\w-]*( |$)/.test(line)) return 'resp'
  if (/^\S+ (\/|https?:\/\/)/i.test(line)) return 'http'
  if (line.length === known.length && line.length < FIRST_LINE) return undefined
  return / HTTP\/\d\.\d\r?$/.test(line) ? 'http' : 'resp'
}

const CERTIFICATE =
  'this server lets in only who shows a client certificate of its authority: name yours as ?cert=FILE&key=FILE behind the address'

/** Beneath a handshake that cannot succeed, in the words of whoever spoke without TLS. */
function sayTls(socket: Socket, wire: 'http' | 'resp', then: () => void): void {
  const message = `this port speaks TLS: write ${wire === 'http' ? 'https' : 'leaseholds'}:// instead of ${wire === 'http' ? 'http' : 'leasehold'}://`
  const body = JSON.stringify({ error: { code: 'UNAVAILABLE', message } })
  socket.write(
    wire === 'http'
      ? `HTTP/1.1 400 Bad Request\r\nContent-Length: ${body.length}\r\n${PLAIN.replace('text/plain', 'application/json')}${body}`
      : `-UNAVAILABLE ${message}\r\n`,
    () => {
      socket.destroySoon()
      then()
    },
  )
}

function endsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`
}

/** An idle connection of HTTP cannot be told anything; one of RESP is told why. */
function turnAway(socket: Socket, wire: 'http' | 'resp', { code, message }: Reason): void {
  if (wire === 'http' || socket.writableLength > 0) return void socket.destroy()
  socket.write(`-${code} ${message}\r\n`)
  socket.destroySoon()
}

function refuse(socket: Socket, wire: 'http' | 'resp', limit: number): void {
  const message = `${limit} connections are open, as many as are allowed: close some, or raise the limit connections`
  const body = JSON.stringify({ error: { code: 'LIMIT', message, limit } })
  socket.end(
    wire === 'http'
      ? `HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: ${body.length}\r\n${PLAIN.replace('text/plain', 'application/json')}${body}`
      : `-LIMIT ${message}\r\n`,
  )
  socket.resume()
}

function cannotListen(cause: unknown, where: string): unknown {
  const { code } = cause as { code?: string }
  if (code === 'EADDRINUSE')
    return new LeaseError('UNAVAILABLE', `${where} is in use by another process: stop it, or listen elsewhere`, {
      cause,
      facts: { inUse: where },
    })
  if (code === 'EACCES') return new LeaseError('FORBIDDEN', `this user may not listen on ${where}`, { cause })
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
    return new LeaseError('INVALID', `${where} is no address of this machine`, { cause })
  return cause
}
