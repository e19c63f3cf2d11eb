/** One connection of our own client to a server: greeted once, then questions out and answers in, until it ends. */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { Damaged, FromTheFuture, Writer } from '../../kernel/codec/bytes.ts'
import type { Lessor } from '../../lessor.ts'
import {
  type ClientMessage,
  errorFrom,
  isWhole,
  MESSAGES_VERSION,
  readServerMessages,
  type ServerMessage,
  writeClientMessage,
} from '../messages.ts'
import { ProtocolError } from './command-parser.ts'
import type { Dial } from './dial.ts'
import type { ByteLink, ByteLinkEnd } from './link.ts'
import { Push, type Reply, ReplyError, ReplyParser } from './reply-parser.ts'

type Profile = Lessor['profile']

export interface Greeting {
  readonly profile: Profile
  readonly revision: number
  /** How far the server's log has come; undefined from a server that does not tell. */
  readonly witness?: string
  /** False: the server's log does not contain what `witness` of the options tells of. */
  readonly continues: boolean
}

export interface RespConnectionOptions {
  readonly dial: Dial
  readonly clock: Clock
  readonly key?: string | undefined
  /** What the last server told of its log; empty before the first. */
  readonly witness: string
  /** The server has let us in. */
  readonly greeted: (greeting: Greeting) => void
  readonly answered: (answer: ServerMessage) => void
  /** What was written has been sent: more may be asked. */
  readonly drained: () => void
  /** It is over; `error` says why, where that is known. Called once. */
  readonly ended: (error: LeaseError) => void
}

/** A batch is sent when it has grown so large; a server takes at most 4 MiB in one command. */
const BATCH = 128 << 10
/** Beyond this the other side does not read fast enough: what is asked waits here. */
const BACKLOG = 8 << 20

export class RespConnection implements ByteLinkEnd {
  readonly name: string
  /** When the last byte came. */
  heard: number
  /** When a question was put whose only purpose is to hear something; undefined when its answer has come. */
  beat: number | undefined
  #greeted = false
  #over = false
  /** Greeted without a witness. */
  #plain = false
  readonly #options: RespConnectionOptions
  readonly #parser = new ReplyParser()
  readonly #link: ByteLink
  #writer = new Writer(4_096)

  constructor(options: RespConnectionOptions) {
    const { dial, clock } = options
    this.#options = options
    this.name = dial.name
    this.heard = clock.now()
    this.#link = dial.open(this)
    this.#sayHello(['WITNESS', options.witness])
  }

  #sayHello(more: readonly string[]): void {
    const { key } = this.#options
    this.#link.write(command(['HELLO', '3', ...(key === undefined ? [] : ['AUTH', 'default', key]), ...more]))
  }

  get open(): boolean {
    return this.#greeted && !this.#over
  }

  /** Whether more may be asked now. */
  get hasRoom(): boolean {
    return this.#link.backlog <= BACKLOG
  }

  /** Whether this connection is a reason for the process to stay. */
  holdOpen(hold: boolean): void {
    this.#link.hold?.(hold)
  }

  // Out

  ask(question: ClientMessage): void {
    writeClientMessage(this.#writer, question)
    if (this.#writer.length >= BATCH) this.flush()
  }

  /** Asks for a sign of life. */
  sendBeat(): void {
    this.beat = this.#options.clock.now()
    this.ask({ kind: 'beat', id: 0 })
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
    if (length > 2 * BATCH) this.#writer = new Writer(4_096)
    else this.#writer.length = 0
    this.#link.write(bytes)
  }

  // In

  data(bytes: Uint8Array): void {
    if (this.#over) return
    this.heard = this.#options.clock.now()
    // An alert of TLS, where a greeting should be.
    if (!this.#greeted && bytes[0] === 0x15)
      return this.close(new LeaseError('UNAVAILABLE', `${this.name} speaks TLS: write leaseholds://`))
    try {
      this.#parser.feed(bytes, reply => this.#reply(reply))
    } catch (error) {
      if (!(error instanceof ProtocolError || error instanceof Damaged || error instanceof FromTheFuture)) throw error
      this.close(new LeaseError('UNAVAILABLE', `${this.name} does not speak as a server of ours does: ${error.message}`, { cause: error }))
    }
  }

  #reply(reply: Reply): void {
    if (this.#over) return
    if (reply instanceof Push) return this.#pushed(reply.items)
    if (!this.#greeted) return this.#greet(reply)
    // How many questions a batch had: known here.
    if (reply instanceof ReplyError) throw new ProtocolError(reply.message)
  }

  #pushed([kind, bytes]: readonly Reply[]): void {
    if (
      !(kind instanceof Uint8Array) ||
      !(bytes instanceof Uint8Array) ||
      Buffer.from(kind.buffer, kind.byteOffset, kind.length).toString('latin1') !== 'lease.batch'
    )
      return
    readServerMessages(bytes, answer => {
      if (answer.kind === 'beat') this.beat = undefined
      else if (!this.#over) this.#options.answered(answer)
    })
  }

  #greet(reply: Reply): void {
    if (reply instanceof ReplyError) {
      if (!this.#plain && reply.message.includes('syntax error in HELLO')) {
        this.#plain = true // an older server: it knows of no witnesses
        return this.#sayHello([])
      }
      const [, code = '', message = ''] = /^([A-Z]+) ([^\t]*)/.exec(reply.message) ?? []
      const { code: known } = errorFrom(code, '')
      // What every server says to a client it does not know, or has no room for.
      return this.close(
        new LeaseError(
          known === 'UNAUTHENTICATED' || known === 'FORBIDDEN' ? known : 'UNAVAILABLE',
          `${this.name}: ${message || reply.message}`,
        ),
      )
    }
    if (!(reply instanceof Map)) throw new ProtocolError('a greeting that is none')
    const fields = reply as ReadonlyMap<Reply, Reply>
    if (fields.get('messages') !== MESSAGES_VERSION) throw new ProtocolError('it is no server of ours, or of another time')
    const revision = fields.get('revision')
    const profile = fields.get('profile')
    if (!isWhole(revision) || !(profile instanceof Uint8Array)) throw new ProtocolError('a greeting that is none')
    this.#greeted = true
    const witness = fields.get('witness')
    const told = witness instanceof Uint8Array && witness.length > 0 ? { witness: Buffer.from(witness).toString('latin1') } : {}
    const continues = fields.get('continues') !== 0
    this.#options.greeted({ revision, profile: profileFrom(Buffer.from(profile).toString('utf8')), ...told, continues })
  }

  // The end

  drained(): void {
    if (this.open) this.#options.drained()
  }

  ended(): void {
    this.close(new LeaseError('UNAVAILABLE', `${this.name} has closed the connection`))
  }

  closed(why?: NodeJS.ErrnoException): void {
    const distrusted = whyDistrusted(why)
    let message = `${this.name} cannot be reached`
    if (this.#greeted) message = `the connection to ${this.name} was lost`
    else if (distrusted !== undefined)
      message = `${this.name} shows a certificate that is not trusted here (${distrusted}): name its authority with NODE_EXTRA_CA_CERTS=FILE, or as ?ca=FILE behind the address`
    else if (why !== undefined && NO_TLS.test(`${why.code} ${why.message}`))
      message = `${this.name} does not speak TLS: write leasehold:// instead of leaseholds://`
    this.close(
      new LeaseError('UNAVAILABLE', message, {
        ...(why && { cause: why }),
        ...(distrusted !== undefined && { facts: { certificate: distrusted } }),
      }),
    )
  }

  close(error: LeaseError): void {
    if (this.#over) return
    this.#over = true
    this.#link.destroy()
    this.#options.ended(error)
  }
}

/** What answered a handshake was no TLS: as a code, or in OpenSSL's own words behind EPROTO. */
const NO_TLS = /wrong.version.number|packet.length.too.long/i

/** Codes of verification, OpenSSL's own and Node's. */
const DISTRUST = /CERT|SELF_SIGNED|UNABLE_TO_(GET|VERIFY|DECRYPT)|ALTNAME|INVALID_CA|PATH_LENGTH|INVALID_PURPOSE|HOSTNAME_MISMATCH/

/** Why a certificate was not believed, in words; undefined when that is not what happened. */
function whyDistrusted(why: NodeJS.ErrnoException | undefined): string | undefined {
  if (why?.code === undefined || why.code.startsWith('ERR_SSL') || !DISTRUST.test(why.code)) return undefined
  return why.message.replace(/\s+/g, ' ').slice(0, 256)
}

function profileFrom(text: string): Profile {
  let profile: unknown
  try {
    profile = JSON.parse(text)
  } catch {}
  if (typeof profile !== 'object' || profile === null || typeof (profile as Profile).store !== 'string')
    throw new ProtocolError('a greeting without a profile')
  return profile as Profile
}

function command(words: readonly string[]): Buffer {
  return Buffer.from(`*${words.length}\r\n${words.map(word => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`)
}
