/** Connections that speak RESP, and the end of a turn in which all of them are answered: one write for each, however much was asked. */
import type { Socket } from 'node:net'
import { LeaseError } from '../../errors.ts'
import { type ByteLink, type ByteLinkEnd, linkOver } from '../../wire/resp/link.ts'
import { RespWriter } from '../../wire/resp/writer.ts'
import type { Connection } from '../connections.ts'
import type { ListenerContext } from '../listener.ts'
import { RequestCounts } from '../request-counts.ts'
import { COMMANDS } from './commands.ts'
import { RespSession, type SessionHost } from './session.ts'

/** How often those are looked for who never finish a command or never read an answer. */
const SWEEP = 2_000

export class RespListener implements SessionHost {
  readonly context: ListenerContext
  readonly commands = COMMANDS
  readonly tallies: RequestCounts
  unfinished = 0
  readonly sessions = new Set<RespSession>()
  readonly #writer = new RespWriter()
  #dirty: RespSession[] = []
  #last = 0
  #sweep: (() => void) | undefined
  #closing = false
  #allSettled = () => {}

  constructor(context: ListenerContext) {
    this.context = context
    this.tallies = RequestCounts.of(context.desk)
  }

  take(socket: Socket, first: Uint8Array, connection: Connection): void {
    const { remoteAddress, remotePort } = socket
    const peer = remoteAddress === undefined ? 'local' : `${remoteAddress}:${remotePort}`
    const session = this.open(peer, end => linkOver(socket, end), connection)
    session.data(first)
  }

  /** A connection over whatever carries bytes. */
  open(peer: string, link: (end: ByteLinkEnd) => ByteLink, connection?: Connection): RespSession {
    const session = new RespSession(this, ++this.#last, peer, connection)
    session.over(link(session))
    this.sessions.add(session)
    if (this.#sweep === undefined) this.#sweepLater()
    if (this.#closing) session.leave(stopping())
    return session
  }

  dirty(session: RespSession): void {
    if (this.#dirty.push(session) === 1) this.context.clock.soon(() => this.#flush())
  }

  #flush(): void {
    const dirty = this.#dirty
    this.#dirty = []
    for (const session of dirty) {
      this.#writer.length = 0
      session.flush(this.#writer)
    }
  }

  #sweepLater(): void {
    const { clock } = this.context
    // What waits in the sockets is read before anyone is judged: after a stall of our own everyone looks slow.
    this.#sweep = clock.after(SWEEP, () => clock.soon(() => clock.soon(() => this.#lookAround())))
  }

  #lookAround(): void {
    if (this.#closing) return
    const now = this.context.clock.now()
    const { bodyTime, drainTime } = this.context.limits
    const bounds = { unfinished: bodyTime, unread: drainTime }
    for (const session of this.sessions) if (session.isHopeless(now, bounds)) session.cut()
    if (this.sessions.size === 0) this.#sweep = undefined
    else this.#sweepLater()
  }

  settled(_session: RespSession): void {
    if (this.#closing && ![...this.sessions].some(session => session.isOwed)) this.#allSettled()
  }

  left(session: RespSession): void {
    this.sessions.delete(session)
    this.settled(session)
  }

  /** Everything under way is answered; whoever waits or watches is told that it is over. Who does not hang up then is the port's concern. */
  async close(): Promise<void> {
    this.#closing = true
    for (const session of this.sessions) session.leave(stopping())
    this.#sweep?.()
    this.#sweep = undefined
    // One that said QUIT was answered long ago, and is not heard of again while it keeps its socket.
    if ([...this.sessions].some(session => session.isOwed)) await new Promise<void>(resolve => (this.#allSettled = resolve))
  }
}

function stopping(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'this server is stopping: ask another, or again in a while')
}
