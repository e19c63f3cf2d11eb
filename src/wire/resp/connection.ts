/** One connection of a client to a server: a greeting, then messages both ways until it ends. It does not reconnect (see connections.ts). */
import type { Clock } from '../../clock.ts'
import { type ErrorReason, type Facts, LeaseError } from '../../errors.ts'
import { Damaged, NewerFormatError, Reader, Writer } from '../../kernel/codec/bytes.ts'
import type { Lessor } from '../../lessor.ts'
import { unreachableError } from '../../unreachable-error.ts'
import {
  type ClientMessage,
  isWhole,
  MESSAGES_VERSION,
  otherMessages,
  readServerMessage,
  type ServerMessage,
  writeClientMessage,
} from '../messages.ts'
import { codeFrom, factsFrom, parseRespError, reasonFrom } from '../received-error.ts'
import { isNotTls, isUntrustedCertificate } from '../tls-errors.ts'
import { ProtocolError } from './command-parser.ts'
import type { Dial, Introduction } from './dial.ts'
import type { ByteLink, ByteLinkEnd } from './link.ts'
import { Push, type Reply, ReplyError, ReplyParser } from './reply-parser.ts'

type ServerProfile = Lessor['profile']

export interface Greeting {
  readonly profile: ServerProfile
  readonly revision: number
  /** The server's log has come this far; undefined from a server that does not report it. */
  readonly witness?: string
  /** False: the server's log does not contain what the client saw (`witness` of the options). */
  readonly continues: boolean
}

/** Takes a message that came on a connection. */
export type Receive = (connection: RespConnection, message: ServerMessage) => void

export interface RespConnectionOptions {
  readonly dial: Dial
  readonly clock: Clock
  readonly key?: string | undefined
  /** The last server's log had come this far; empty before the first greeting. */
  readonly witness: string
  /** The server accepted this client. */
  readonly greeted: (greeting: Greeting) => void
  readonly received: Receive
  /** Everything written was sent: there is room for more. */
  readonly drained: () => void
  /** The connection is over, for the reason given. Called once. */
  readonly ended: (error: LeaseError) => void
}

/** Send a batch when it has this many bytes. A server accepts at most 4 MiB in one command. */
const BATCH_BYTES = 128 << 10
/** Write no more requests while this many bytes wait: the server reads too slowly. */
const MAX_BACKLOG = 8 << 20

export class RespConnection implements ByteLinkEnd {
  readonly name: string
  /** When the last byte came. */
  heardAt: number
  /** When a heartbeat was sent that has no answer yet. */
  heartbeatAt: number | undefined
  /** Gets each message. `connections.ts` replaces it when the connection is put into use, or replaced by another. */
  received: Receive
  /** The server has greeted this client, and the connection has not ended. Only this class changes it. */
  open = false
  #greeted = false
  #over = false
  /** The greeting was sent as an older server understands it. */
  #plain = false
  #introduction: Introduction | undefined
  readonly #options: RespConnectionOptions
  readonly #parser = new ReplyParser()
  readonly #link: ByteLink
  #writer = new Writer(4_096)

  constructor(options: RespConnectionOptions) {
    const { dial, clock } = options
    this.#options = options
    this.name = dial.name
    this.received = options.received
    this.heardAt = clock.now()
    this.#link = dial.open(this)
    const more = ['WITNESS', options.witness, 'MESSAGES', String(MESSAGES_VERSION)]
    if (dial.introduce === undefined) this.#sayHello(more)
    else void this.#introduce(dial.introduce.bind(dial), more)
  }

  async #introduce(introduce: () => Promise<Introduction>, more: readonly string[]): Promise<void> {
    try {
      const introduction = await introduce()
      const { name, proof } = introduction
      this.#introduction = introduction
      if (!this.#over) this.#sayHello(['BESIDE', name, proof, ...more])
    } catch (cause) {
      if (this.#over) return // the connection has ended, and told why
      const message = `${this.name} could not be asked whether it serves this store: ${(cause as Error).message}`
      this.close(new LeaseError('UNAVAILABLE', message, { cause, reason: cause instanceof LeaseError ? cause.reason : undefined }))
    }
  }

  #sayHello(more: readonly string[]): void {
    const { key } = this.#options
    this.#link.write(command(['HELLO', '3', ...(key === undefined ? [] : ['AUTH', 'default', key]), ...more]))
  }

  /** Returns whether more requests may be sent now. */
  get hasRoom(): boolean {
    return this.#link.backlog <= MAX_BACKLOG
  }

  /** Lets this connection keep the process alive, or not. */
  keepProcessAlive(alive: boolean): void {
    this.#link.keepProcessAlive?.(alive)
  }

  // Out

  send(message: ClientMessage): void {
    writeClientMessage(this.#writer, message)
    if (this.#writer.length >= BATCH_BYTES) this.flush()
  }

  sendHeartbeat(): void {
    this.heartbeatAt = this.#options.clock.now()
    this.send({ kind: 'beat', id: 0 })
    this.flush()
  }

  flush(): void {
    const { length } = this.#writer
    if (length === 0 || this.#over) return
    const head = Buffer.from(`*2\r\n$11\r\nLEASE.BATCH\r\n$${length}\r\n`, 'latin1')
    const bytes = Buffer.allocUnsafe(head.length + length + 2)
    head.copy(bytes)
    bytes.set(this.#writer.view(), head.length)
    bytes.write('\r\n', head.length + length, 'latin1')
    if (length > 2 * BATCH_BYTES) this.#writer = new Writer(4_096)
    else this.#writer.length = 0
    this.#link.write(bytes)
  }

  // In

  data(bytes: Uint8Array): void {
    if (this.#over) return
    this.heardAt = this.#options.clock.now()
    // A TLS alert in place of a greeting.
    if (!this.#greeted && bytes[0] === 0x15)
      return this.#fail(`${this.name} requires TLS: use leaseholds:// instead of leasehold://`, {
        reason: 'tls-required',
        meant: 'leaseholds',
      })
    try {
      this.#parser.feed(bytes, this.#reply)
    } catch (error) {
      if (!(error instanceof ProtocolError || error instanceof Damaged || error instanceof NewerFormatError)) throw error
      this.#fail(`${this.name} does not answer as a Leasehold server: ${error.message}`, { reason: 'stranger', cause: error })
    }
  }

  readonly #reply = (reply: Reply): void => {
    if (this.#over) return
    if (!(reply instanceof Push)) {
      if (!this.#greeted) return this.#greet(reply)
      // The reply to a batch is the number of its messages, which this side knows.
      if (reply instanceof ReplyError) throw new ProtocolError(reply.message)
      return
    }
    const [kind, bytes] = reply.items
    if (
      !(kind instanceof Uint8Array) ||
      !(bytes instanceof Uint8Array) ||
      Buffer.from(kind.buffer, kind.byteOffset, kind.length).toString('latin1') !== 'lease.batch'
    )
      return
    const from = new Reader(bytes)
    while (from.left > 0) {
      const message = readServerMessage(from)
      if (message.kind === 'beat') this.heartbeatAt = undefined
      else if (!this.#over) this.received(this, message)
    }
  }

  #greet(reply: Reply): void {
    const introduction = this.#introduction
    if (reply instanceof ReplyError) {
      const { code, message, rest } = parseRespError(reply.message)
      // Whatever it is, it is not the server that the store names. The store has to be asked again.
      if (introduction !== undefined) return this.#fail(`${this.name} does not serve this store: ${message}`, { reason: 'stranger' })
      if (!this.#plain && code === 'ERR') {
        this.#plain = true // an older server, which does not know every word of this greeting
        return this.#sayHello([])
      }
      const known = codeFrom(code)
      const [reason, facts] = [reasonFrom(rest), factsFrom(rest)]
      // Another server would refuse an unknown client, too. Everything else may differ there.
      const lasting = known === 'UNAUTHENTICATED' || known === 'FORBIDDEN' || known === 'UNSUPPORTED'
      return this.close(
        new LeaseError(lasting ? known : 'UNAVAILABLE', `${this.name}: ${message}`, { reason, facts: { where: this.name, ...facts } }),
      )
    }
    if (!(reply instanceof Map)) throw new ProtocolError('its greeting cannot be read')
    const fields = reply as ReadonlyMap<Reply, Reply>
    if (introduction !== undefined && textOf(fields.get('beside')) !== introduction.answer)
      return this.#fail(`${this.name} does not serve this store: it cannot prove it`, { reason: 'stranger' })
    const version = fields.get('messages')
    if (!isWhole(version)) throw new ProtocolError('it is another kind of server')
    if (version !== MESSAGES_VERSION) return this.close(otherMessages(this.name, { client: MESSAGES_VERSION, server: version }))
    const revision = fields.get('revision')
    const profile = fields.get('profile')
    if (!isWhole(revision) || !(profile instanceof Uint8Array)) throw new ProtocolError('its greeting cannot be read')
    this.#greeted = true
    this.open = true
    const sent = fields.get('witness')
    const witness = sent instanceof Uint8Array && sent.length > 0 ? { witness: Buffer.from(sent).toString('latin1') } : {}
    const continues = fields.get('continues') !== 0
    this.#options.greeted({ revision, profile: profileFrom(Buffer.from(profile).toString('utf8')), ...witness, continues })
  }

  // The end

  drained(): void {
    if (this.open) this.#options.drained()
  }

  ended(): void {
    this.#fail(`${this.name} has closed the connection`, { reason: this.#greeted ? 'connection' : 'hung-up' })
  }

  closed(why?: NodeJS.ErrnoException): void {
    const distrusted = isUntrustedCertificate(why?.code) ? why!.message.replace(/\s+/g, ' ').slice(0, 256) : undefined
    if (this.#greeted) return this.#fail(`the connection to ${this.name} was lost`, { reason: 'connection', cause: why })
    if (distrusted !== undefined) {
      const message = `${this.name} shows a certificate that is not trusted here (${distrusted}): name its authority with NODE_EXTRA_CA_CERTS=FILE, or as ?ca=FILE behind the address`
      return this.#fail(message, { reason: 'certificate', certificate: distrusted, cause: why })
    }
    if (why !== undefined && isNotTls(why))
      return this.#fail(`${this.name} does not speak TLS: write leasehold:// instead of leaseholds://`, {
        reason: 'tls-unsupported',
        cause: why,
      })
    this.close(unreachableError({ engine: 'leasehold', where: this.name, cause: why }))
  }

  #fail(
    message: string,
    { reason, cause, ...facts }: { readonly reason: ErrorReason; readonly cause?: unknown } & Record<string, unknown>,
  ): void {
    this.close(
      new LeaseError('UNAVAILABLE', message, {
        reason,
        facts: { where: this.name, ...(facts as Facts) },
        ...(cause !== undefined && { cause }),
      }),
    )
  }

  close(error: LeaseError): void {
    if (this.#over) return
    this.#over = true
    this.open = false
    this.#link.destroy()
    this.#options.ended(error)
  }
}

function profileFrom(text: string): ServerProfile {
  let profile: unknown
  try {
    profile = JSON.parse(text)
  } catch {}
  if (typeof profile !== 'object' || profile === null || typeof (profile as ServerProfile).store !== 'string')
    throw new ProtocolError('its greeting has no profile')
  return profile as ServerProfile
}

function textOf(reply: Reply | undefined): string | undefined {
  return reply instanceof Uint8Array ? Buffer.from(reply).toString('latin1') : undefined
}

function command(words: readonly string[]): Buffer {
  return Buffer.from(`*${words.length}\r\n${words.map(word => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`)
}
