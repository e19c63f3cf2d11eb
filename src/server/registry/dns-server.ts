/**
 * A DNS server for the registry, over UDP and TCP, on an address that the operator chooses. DNS has no keys: every client that can reach it learns
 * every address, so it listens on loopback unless the operator makes it public.
 *
 * Not promised: that resolvers forget an instance in time. The ttl of an answer is never longer than the leases of its instances.
 */
import { createSocket, type Socket as UdpSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, isIPv6, type Server, type Socket } from 'node:net'
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Lessor } from '../../lessor.ts'
import { keyOf } from '../../registry/entry.ts'
import type { ServerLog } from '../listener.ts'
import type { Catalog } from './catalog.ts'
import { DnsBudget } from './dns-budget.ts'
import { DnsIndex } from './dns-index.ts'
import { type DnsQuestion, formatError, RCODE, readQuestion, writeReply } from './dns-message.ts'
import { answer, domainOf } from './dns-names.ts'

export interface DnsServerOptions {
  readonly catalog: Catalog
  readonly lessor: Lessor
  readonly clock: Clock
  readonly log: ServerLog
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  readonly domain?: string
}

/** Every network carries a datagram of this size without fragmenting it. */
const MAX_UDP_REPLY = 1_232
/** For clients that do not say which size they accept. */
const DEFAULT_UDP_REPLY = 512
/** A reply over UDP is at max this many times as long as its query. */
const MAX_UDP_GAIN = 10
/** Datagrams that wait to be sent. More queries are dropped. */
const MAX_UDP_QUEUE = 1_000
const MAX_TCP_REPLY = 65_535
const MAX_TCP_CONNECTIONS = 128
const TCP_IDLE_TIMEOUT = 10_000
/** A query has at max 300 bytes, and a few more for options. */
const MAX_TCP_QUERY = 1_024
/** Stop reading a connection while this many of its queries are unanswered. */
const MAX_TCP_PENDING = 16

export class DnsServer implements AsyncDisposable {
  readonly #options: Required<DnsServerOptions>
  readonly #index: DnsIndex
  readonly #budget: DnsBudget
  readonly #udp: UdpSocket
  readonly #tcp: Server
  readonly #sockets = new Set<Socket>()

  private constructor(options: DnsServerOptions) {
    const { domain: given = 'leasehold', catalog, clock } = options
    const domain = domainOf(given)
    if (domain === undefined)
      throw new LeaseError('INVALID', `${JSON.stringify(given.slice(0, 64))} is not a domain: write leasehold, or svc.example`)
    this.#options = { ...options, domain }
    this.#index = new DnsIndex(catalog.directory)
    this.#budget = new DnsBudget(clock)
    this.#udp = createSocket({ type: isIPv6(options.host) ? 'udp6' : 'udp4' })
    this.#udp.on('message', (bytes, from) => void this.#datagram(bytes, from))
    this.#tcp = createServer(socket => this.#connection(socket))
  }

  static async open(options: DnsServerOptions): Promise<DnsServer> {
    await options.catalog.ready()
    const dns = new DnsServer(options)
    const { host } = options
    try {
      // The same port for both: TCP first, which chooses it if the port is 0.
      dns.#tcp.listen(options.port, host)
      await once(dns.#tcp, 'listening')
      dns.#udp.bind(dns.port, host)
      await once(dns.#udp, 'listening')
      dns.#udp.on('error', error => options.log.warn({ error: String(error) }, 'DNS over UDP failed'))
      dns.#tcp.on('error', error => options.log.warn({ error: String(error) }, 'DNS over TCP failed'))
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
    if (this.#udp.getSendQueueCount() > MAX_UDP_QUEUE) return
    const withinBudget = this.#budget.has(from.address)
    const reply = await this.#reply(bytes, { datagram: true, withinBudget })
    if (reply === undefined) return
    this.#budget.spend(from.address, reply.length - bytes.length)
    this.#udp.send(reply, from.port, from.address, () => {})
  }

  #connection(socket: Socket): void {
    // At the limit close the oldest connection: idle ones must not keep new clients out.
    if (this.#sockets.size >= MAX_TCP_CONNECTIONS) {
      const [oldest] = this.#sockets
      this.#sockets.delete(oldest!)
      oldest!.destroy()
    }
    this.#sockets.add(socket)
    let buffered: Buffer = Buffer.alloc(0)
    let busy = Promise.resolve()
    let pending = 0
    const { clock } = this.#options
    const disconnect = () => void socket.destroy()
    let idle = clock.after(TCP_IDLE_TIMEOUT, disconnect)
    socket.on('error', () => {})
    socket.on('close', () => {
      idle()
      this.#sockets.delete(socket)
    })
    socket.on('data', (chunk: Buffer) => {
      buffered = Buffer.concat([buffered, chunk])
      while (buffered.length >= 2 && buffered.length >= 2 + buffered.readUInt16BE(0)) {
        const message = buffered.subarray(2, 2 + buffered.readUInt16BE(0))
        buffered = buffered.subarray(2 + message.length)
        // Only a complete query resets the idle timer: one that never ends must not keep the connection open.
        idle()
        idle = clock.after(TCP_IDLE_TIMEOUT, disconnect)
        if (++pending === MAX_TCP_PENDING) socket.pause()
        busy = busy.then(async () => {
          const reply = await this.#reply(message, { datagram: false })
          if (pending-- === MAX_TCP_PENDING) socket.resume()
          if (reply === undefined || socket.destroyed) return disconnect()
          const length = Buffer.alloc(2)
          length.writeUInt16BE(reply.length)
          // Disconnect a client that sends queries and does not read replies.
          if (!socket.write(Buffer.concat([length, reply]))) socket.destroy()
        })
      }
      if (buffered.length >= 2 && buffered.readUInt16BE(0) > MAX_TCP_QUERY) disconnect()
    })
  }

  async #reply(
    bytes: Buffer,
    { datagram, withinBudget = true }: { readonly datagram: boolean; readonly withinBudget?: boolean },
  ): Promise<Buffer | undefined> {
    const question = readQuestion(bytes)
    if (question === undefined) return undefined
    if ('malformed' in question) return formatError(question.id)
    const max = datagram ? Math.min(question.payload ?? DEFAULT_UDP_REPLY, MAX_UDP_REPLY, MAX_UDP_GAIN * bytes.length) : MAX_TCP_REPLY
    if (!withinBudget) return writeReply(question, { rcode: RCODE.NOERROR, truncated: true }, max)
    return this.#answer(question, max, datagram)
  }

  async #answer(question: DnsQuestion, max: number, datagram: boolean): Promise<Buffer> {
    const { lessor, domain, clock, log } = this.#options
    try {
      const reply = await answer(question, {
        index: this.#index,
        domain,
        datagram,
        random: () => clock.random(),
        // Read the entry, not the lease: a lease may carry many entries.
        remaining: async instance =>
          (await lessor.read({ kind: 'entries', prefix: keyOf(instance), limit: 1 })).value.find(({ lease }) => lease === instance.lease)
            ?.remaining ?? 0,
      })
      return writeReply(question, reply, max)
    } catch (error) {
      log.warn({ error: String(error) }, 'a DNS query could not be answered')
      return writeReply(question, { rcode: RCODE.SERVFAIL }, max)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#index[Symbol.dispose]()
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
