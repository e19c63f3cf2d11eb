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
import { LeaseError } from '../../errors.ts'
import type { Lessor } from '../../lessor.ts'
import { keyOf } from '../../registry/entry.ts'
import type { ServerLog } from '../listener.ts'
import type { Catalog } from './catalog.ts'
import { DnsBudget } from './dns-budget.ts'
import { DnsIndex } from './dns-index.ts'
import { type DnsQuestion, formatError, RCODE, readQuestion, writeReply } from './dns-message.ts'
import { answer, domainOf } from './dns-names.ts'

export interface DnsOptions {
  readonly catalog: Catalog
  readonly lessor: Lessor
  readonly clock: Clock
  readonly log: ServerLog
  readonly host: string
  /** 0: a free one. */
  readonly port: number
  readonly domain?: string
}

/** What every network carries in one piece. */
const UDP_MAX = 1_232
const UDP_UNTOLD = 512
/** An answer by datagram is at most so many times as long as its question. */
const UDP_GAIN = 10
/** Answers that wait to be sent; more are dropped, as datagrams are. */
const UDP_WAITING = 1_000
const TCP_MAX = 65_535
const TCP_CONNECTIONS = 128
const TCP_IDLE = 10_000
/** A question takes 300 bytes at most, and a few more for options. */
const TCP_QUESTION = 1_024
/** Questions of one connection that are read and not answered; then it is read on. */
const TCP_UNANSWERED = 16

export class Dns implements AsyncDisposable {
  readonly #options: Required<DnsOptions>
  readonly #index: DnsIndex
  readonly #budget: DnsBudget
  readonly #udp: UdpSocket
  readonly #tcp: Server
  readonly #sockets = new Set<Socket>()

  private constructor(options: DnsOptions) {
    const { domain: given = 'leasehold', catalog, clock } = options
    const domain = domainOf(given)
    if (domain === undefined)
      throw new LeaseError('INVALID', `${JSON.stringify(given.slice(0, 64))} is no domain: write leasehold, or svc.example`)
    this.#options = { ...options, domain }
    this.#index = new DnsIndex(catalog.directory)
    this.#budget = new DnsBudget(clock)
    this.#udp = createSocket({ type: isIPv6(options.host) ? 'udp6' : 'udp4' })
    this.#udp.on('message', (bytes, from) => void this.#datagram(bytes, from))
    this.#tcp = createServer(socket => this.#connection(socket))
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
    if (this.#udp.getSendQueueCount() > UDP_WAITING) return
    const trusted = this.#budget.has(from.address)
    const reply = await this.#reply(bytes, { datagram: true, trusted })
    if (reply === undefined) return
    this.#budget.spend(from.address, reply.length - bytes.length)
    this.#udp.send(reply, from.port, from.address, () => {})
  }

  #connection(socket: Socket): void {
    // At the limit the one that came first gives way: connections that are kept open for nothing must not keep others out.
    if (this.#sockets.size >= TCP_CONNECTIONS) {
      const [oldest] = this.#sockets
      this.#sockets.delete(oldest!)
      oldest!.destroy()
    }
    this.#sockets.add(socket)
    let held: Buffer = Buffer.alloc(0)
    let busy = Promise.resolve()
    let unanswered = 0
    const { clock } = this.#options
    const hangUp = () => void socket.destroy()
    let idle = clock.after(TCP_IDLE, hangUp)
    socket.on('error', () => {})
    socket.on('close', () => {
      idle()
      this.#sockets.delete(socket)
    })
    socket.on('data', (chunk: Buffer) => {
      held = Buffer.concat([held, chunk])
      while (held.length >= 2 && held.length >= 2 + held.readUInt16BE(0)) {
        const message = held.subarray(2, 2 + held.readUInt16BE(0))
        held = held.subarray(2 + message.length)
        // Only a whole question counts as a sign of life: one that never ends does not keep the connection.
        idle()
        idle = clock.after(TCP_IDLE, hangUp)
        if (++unanswered === TCP_UNANSWERED) socket.pause()
        busy = busy.then(async () => {
          const reply = await this.#reply(message, { datagram: false })
          if (unanswered-- === TCP_UNANSWERED) socket.resume()
          if (reply === undefined || socket.destroyed) return hangUp()
          const length = Buffer.alloc(2)
          length.writeUInt16BE(reply.length)
          // Who asks and never reads is not waited for.
          if (!socket.write(Buffer.concat([length, reply]))) socket.destroy()
        })
      }
      if (held.length >= 2 && held.readUInt16BE(0) > TCP_QUESTION) hangUp()
    })
  }

  async #reply(
    bytes: Buffer,
    { datagram, trusted = true }: { readonly datagram: boolean; readonly trusted?: boolean },
  ): Promise<Buffer | undefined> {
    const question = readQuestion(bytes)
    if (question === undefined) return undefined
    if ('malformed' in question) return formatError(question.id)
    const most = datagram ? Math.min(question.payload ?? UDP_UNTOLD, UDP_MAX, UDP_GAIN * bytes.length) : TCP_MAX
    if (!trusted) return writeReply(question, { rcode: RCODE.NOERROR, truncated: true }, most)
    return this.#answer(question, most, datagram)
  }

  async #answer(question: DnsQuestion, most: number, datagram: boolean): Promise<Buffer> {
    const { lessor, domain, clock, log } = this.#options
    try {
      const reply = await answer(question, {
        index: this.#index,
        domain,
        datagram,
        random: () => clock.random(),
        // Its own entry and no other: a lease may carry many.
        remaining: async instance =>
          (await lessor.read({ kind: 'entries', prefix: keyOf(instance), limit: 1 })).value.find(({ lease }) => lease === instance.lease)
            ?.remaining ?? 0,
      })
      return writeReply(question, reply, most)
    } catch (error) {
      log.warn({ error: String(error) }, 'a name could not be answered')
      return writeReply(question, { rcode: RCODE.SERVFAIL }, most)
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
