/**
 * Names for those who know nothing but DNS: over UDP and TCP, on an address that the operator names. There are no keys in DNS: whoever can
 * reach it learns every address, so it listens on loopback unless it is said that it is meant for all.
 *
 * Not promised: that a resolver forgets in time; its answers live no longer than the leases they speak of.
 */
import { createSocket, type Socket as UdpSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, isIPv6, type Server, type Socket } from 'node:net'
import type { Clock } from '../../clock.ts'
import type { Lessor } from '../../lessor.ts'
import type { Log } from '../door.ts'
import type { Catalog } from './catalog.ts'
import { formatError, RCODE, readQuestion, writeReply } from './dns-message.ts'
import { answer } from './dns-names.ts'

export interface DnsOptions {
  readonly catalog: Catalog
  readonly lessor: Lessor
  readonly clock: Clock
  readonly log: Log
  readonly host: string
  /** 0: a free one. */
  readonly port: number
  readonly domain?: string
}

/** What every network carries in one piece. */
const UDP_MOST = 1_232
const UDP_UNTOLD = 512
const TCP_MOST = 65_535
const TCP_CONNECTIONS = 128
const TCP_IDLE = 10_000

export class Dns implements AsyncDisposable {
  readonly #options: Required<DnsOptions>
  readonly #udp: UdpSocket
  readonly #tcp: Server
  readonly #sockets = new Set<Socket>()

  private constructor(options: DnsOptions) {
    this.#options = { domain: 'leasehold', ...options }
    this.#udp = createSocket({ type: isIPv6(options.host) ? 'udp6' : 'udp4' })
    this.#udp.on('message', (bytes, from) => void this.#datagram(bytes, from))
    this.#tcp = createServer(socket => this.#connection(socket))
    this.#tcp.maxConnections = TCP_CONNECTIONS
  }

  static async open(options: DnsOptions): Promise<Dns> {
    await options.catalog.ready()
    const dns = new Dns(options)
    const { host } = options
    try {
      // The same port for both: first the one that may be free to choose.
      dns.#tcp.listen(options.port, host)
      await once(dns.#tcp, 'listening')
      dns.#udp.bind(dns.port, host)
      await once(dns.#udp, 'listening')
      dns.#udp.on('error', error => options.log.warn({ error: String(error) }, 'DNS over UDP met a failure'))
      dns.#tcp.on('error', error => options.log.warn({ error: String(error) }, 'DNS over TCP met a failure'))
      return dns
    } catch (error) {
      await dns[Symbol.asyncDispose]()
      throw error
    }
  }

  get port(): number {
    return (this.#tcp.address() as { port: number }).port
  }

  async #datagram(bytes: Buffer, from: { readonly address: string; readonly port: number }): Promise<void> {
    const reply = await this.#reply(bytes, payload => Math.min(payload ?? UDP_UNTOLD, UDP_MOST))
    if (reply !== undefined) this.#udp.send(reply, from.port, from.address, () => {})
  }

  #connection(socket: Socket): void {
    this.#sockets.add(socket)
    let held = Buffer.alloc(0)
    let busy = Promise.resolve()
    const { clock } = this.#options
    let idle = clock.after(TCP_IDLE, () => socket.destroy())
    socket.on('error', () => {})
    socket.on('close', () => {
      idle()
      this.#sockets.delete(socket)
    })
    socket.on('data', (chunk: Buffer) => {
      idle()
      idle = clock.after(TCP_IDLE, () => socket.destroy())
      held = Buffer.concat([held, chunk])
      while (held.length >= 2 && held.length >= 2 + held.readUInt16BE(0)) {
        const message = held.subarray(2, 2 + held.readUInt16BE(0))
        held = held.subarray(2 + message.length)
        busy = busy.then(async () => {
          const reply = await this.#reply(message, () => TCP_MOST)
          if (reply === undefined || socket.destroyed) return void socket.destroy()
          const length = Buffer.alloc(2)
          length.writeUInt16BE(reply.length)
          // Who asks and never reads is not waited for.
          if (!socket.write(Buffer.concat([length, reply]))) socket.destroy()
        })
      }
    })
  }

  async #reply(bytes: Buffer, most: (payload: number | undefined) => number): Promise<Buffer | undefined> {
    const question = readQuestion(bytes)
    if (question === undefined) return undefined
    if ('malformed' in question) return formatError(question.id)
    const { catalog, lessor, domain, clock, log } = this.#options
    const limit = most(question.payload)
    try {
      const reply = await answer(question, {
        directory: catalog.directory,
        domain,
        random: () => clock.random(),
        remaining: async ({ lease }) => (await lessor.read({ kind: 'lease', lease })).value?.remaining ?? 0,
      })
      return writeReply(question, reply, limit)
    } catch (error) {
      log.warn({ error: String(error) }, 'a name could not be answered')
      return writeReply(question, { rcode: RCODE.SERVFAIL }, limit)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise<void>(resolve => this.#tcp.close(() => resolve()))
    await new Promise<void>(resolve => {
      try {
        this.#udp.close(() => resolve())
      } catch {
        resolve() // it was never bound
      }
    })
  }
}
