/** A server beside a store, as `leasehold serve` starts it, in this process. */
import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createConnection, createServer, type Socket } from 'node:net'
import { systemClock } from '../../src/clock.ts'
import type { AnnouncedEndpoint } from '../../src/connect/beside-protocol.ts'
import { openReplica } from '../../src/connect/connect.ts'
import { announceable, ServerAnnouncement } from '../../src/connect/server-announcement.ts'
import { storeOf } from '../../src/connect/store-of.ts'
import type { TlsFiles } from '../../src/server/port.ts'
import { serve } from '../../src/server/serve.ts'

export interface BesideServer extends AsyncDisposable {
  readonly port: number
  /** Announces these addresses instead. */
  announce(addresses: readonly AnnouncedEndpoint[]): Promise<void>
  /** Ends without a word, as a process that is killed: its announcement stays. */
  kill(): Promise<void>
}

export interface BesideServerOptions {
  /** The server announces these endpoints in place of those on which it listens. */
  readonly announced?: readonly AnnouncedEndpoint[]
  readonly tls?: TlsFiles
}

export async function besideServer(url: string, { announced, tls }: BesideServerOptions = {}): Promise<BesideServer> {
  const lessor = await openReplica(await storeOf(url), url, { owned: false })
  const announcement = (await ServerAnnouncement.open(url, { clock: systemClock }))!
  const server = await serve({ lessor, listen: '127.0.0.1:0', beside: announcement.check, ...(tls && { tls }) })
  const fingerprint = tls && new X509Certificate(readFileSync(tls.cert)).fingerprint256
  const [address] = server.addresses as [string]
  await announcement.announce(announced ?? announceable(server.addresses, { clock: systemClock, fingerprint, clientCertificates: false }))
  let over = false
  const end = async (withdraw: boolean) => {
    if (over) return
    over = true
    if (withdraw) await announcement[Symbol.asyncDispose]()
    await server.close()
    await lessor[Symbol.asyncDispose]()
    if (!withdraw) await announcement.stop()
  }
  const announceAgain = (addresses: readonly AnnouncedEndpoint[]) => announcement.announce(addresses)
  return { port: Number(address.split(':')[1]), announce: announceAgain, kill: () => end(false), [Symbol.asyncDispose]: () => end(true) }
}

/** Passes connections on to `port`, until told otherwise. */
export class Relay implements AsyncDisposable {
  readonly #server = createServer(socket => this.#accept(socket))
  readonly #sockets = new Set<Socket>()
  readonly #port: number
  /** False: answers do not reach the client. */
  #answers = true
  /** Resolves with the first bytes that the client sent while answers were dropped. */
  #dropped: () => void = () => {}
  readonly received: Buffer[] = []

  constructor(port: number) {
    this.#port = port
  }

  async listen(): Promise<number> {
    await new Promise<void>(resolve => this.#server.listen(0, '127.0.0.1', resolve))
    return (this.#server.address() as { readonly port: number }).port
  }

  #accept(client: Socket): void {
    const server = createConnection(this.#port, '127.0.0.1')
    for (const socket of [client, server]) {
      this.#sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        client.destroy()
        server.destroy()
      })
    }
    client.on('data', bytes => {
      this.received.push(bytes)
      server.write(bytes)
    })
    server.on('data', bytes => {
      if (this.#answers) client.write(bytes)
      else this.#dropped()
    })
  }

  /** Drops all answers from now on. Resolves when there was one. */
  dropAnswers(): Promise<void> {
    this.#answers = false
    return new Promise(resolve => (this.#dropped = resolve))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }
}
