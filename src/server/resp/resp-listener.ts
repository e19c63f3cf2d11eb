/** The RESP wire: all RESP connections of a server. At the end of each turn of the event loop, it writes what is ready, with one write per connection. */
import type { Socket } from 'node:net'
import { nextTick } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { type ByteLink, type ByteLinkEnd, linkOver } from '../../wire/resp/link.ts'
import { RespWriter } from '../../wire/resp/writer.ts'
import type { TrackedConnection } from '../connections.ts'
import type { ListenerContext } from '../listener.ts'
import { RequestCounters } from '../request-counters.ts'
import { COMMANDS } from './commands.ts'
import { faceCommand, unknownCommand } from './face-commands.ts'
import { RespSession, type SessionCommand, type SessionHost } from './session.ts'

/** Interval of the check for slow clients, in ms. */
const SWEEP_INTERVAL = 2_000

export class RespListener implements SessionHost {
  readonly context: ListenerContext
  readonly commands: ReadonlyMap<string, SessionCommand>
  readonly counters: RequestCounters
  unfinishedBytes = 0
  readonly sessions = new Set<RespSession>()
  readonly #writer = new RespWriter()
  /** Sessions with something to write. */
  readonly #toFlush = new Set<RespSession>()
  #lastId = 0
  #cancelSweep: (() => void) | undefined
  #closing = false
  #onAllFlushed = () => {}

  constructor(context: ListenerContext) {
    this.context = context
    const foreign = (context.faces ?? []).flatMap(face => (face.commands ?? []).map(faceCommand))
    // A command of our own is never replaced.
    this.commands = foreign.length === 0 ? COMMANDS : new Map([...foreign.map(command => [command.name, command] as const), ...COMMANDS])
    this.counters = RequestCounters.of(context.guarded)
  }

  accept(socket: Socket, first: Uint8Array, connection: TrackedConnection): void {
    const { remoteAddress, remotePort } = socket
    const peer = remoteAddress === undefined ? 'local' : `${remoteAddress}:${remotePort}`
    const session = this.open(peer, end => linkOver(socket, end), connection)
    session.data(first)
  }

  /** Opens a session on any link: a socket, or the simulator's network. */
  open(peer: string, link: (end: ByteLinkEnd) => ByteLink, connection?: TrackedConnection): RespSession {
    const session = new RespSession(this, ++this.#lastId, peer, connection)
    session.attach(link(session))
    this.sessions.add(session)
    if (this.#cancelSweep === undefined) this.#scheduleSweep()
    if (this.#closing) session.closeAfterReplies(stopping())
    return session
  }

  explainUnknown(name: string): string {
    return unknownCommand(name)
  }

  scheduleFlush(session: RespSession): void {
    // After all promises that can settle now, and before the next turn: a reply does not wait for a look at the sockets.
    if (this.#toFlush.size === 0) nextTick(this.#flush)
    this.#toFlush.add(session)
  }

  readonly #flush = (): void => {
    for (const session of this.#toFlush) {
      this.#toFlush.delete(session)
      this.#writer.length = 0
      session.flush(this.#writer)
    }
  }

  #scheduleSweep(): void {
    const { clock } = this.context
    // Read waiting input first, then judge: after a stall of this process every client looks slow.
    this.#cancelSweep = clock.after(SWEEP_INTERVAL, () => clock.soon(() => clock.soon(() => this.#sweep())))
  }

  #sweep(): void {
    if (this.#closing) return
    const now = this.context.clock.now()
    const { bodyTime, drainTime } = this.context.limits
    const limits = { incomplete: bodyTime, unread: drainTime }
    for (const session of this.sessions) if (session.isTooSlow(now, limits)) session.destroy()
    if (this.sessions.size === 0) this.#cancelSweep = undefined
    else this.#scheduleSweep()
  }

  #mustFlush(): boolean {
    for (const session of this.sessions) if (session.hasPendingReplies || this.#toFlush.has(session)) return true
    return false
  }

  sessionIdle(_session: RespSession): void {
    if (this.#closing && !this.#mustFlush()) this.#onAllFlushed()
  }

  sessionClosed(session: RespSession): void {
    this.sessions.delete(session)
    this.sessionIdle(session)
  }

  /** Answers commands in progress, and ends waits and watches. The port closes connections whose clients do not hang up. */
  async close(): Promise<void> {
    this.#closing = true
    for (const session of this.sessions) session.closeAfterReplies(stopping())
    this.#cancelSweep?.()
    this.#cancelSweep = undefined
    // Wait only for sessions with output: one that sent QUIT has been answered, and reports nothing more while its client keeps the socket open.
    if (this.#mustFlush()) await new Promise<void>(resolve => (this.#onAllFlushed = resolve))
  }
}

function stopping(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'this server is stopping: use another server, or retry later')
}
