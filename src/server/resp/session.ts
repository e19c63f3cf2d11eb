/**
 * One RESP connection: commands in, replies out in the same order, pushes in between.
 *
 * A command that waits blocks its own connection and no other, as BLPOP does. The server stops reading from a connection that sends commands faster than it reads
 * replies. The memory of a client that never reads is bounded here, and such a client is disconnected in the end.
 */
import { setMaxListeners } from 'node:events'
import { LeaseError } from '../../errors.ts'
import type { Command } from '../../kernel/command.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { type CommandBounds, CommandParser, ProtocolError } from '../../wire/resp/command-parser.ts'
import type { ByteLink, ByteLinkEnd } from '../../wire/resp/link.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { anonymousCaller, type Caller } from '../access-control.ts'
import type { TrackedConnection } from '../connections.ts'
import { type GuardedRequest, NO_REQUEST_OPTIONS } from '../guarded-lessor.ts'
import type { ListenerContext } from '../listener.ts'
import { type RequestCounters, UNCOUNTED } from '../request-counters.ts'
import { type BatchSession, MAX_BATCHED } from './batch-session.ts'
import { PushQueue } from './push-queue.ts'
import { type Encode, ReplyQueue, writeNothing } from './reply-queue.ts'
import { SessionTurns } from './session-turns.ts'
import { SlowClientDetector, type SlowClientLimits } from './slow-client-detector.ts'
import { UnfinishedInput, type UnfinishedTotal } from './unfinished-input.ts'
import { WitnessPush } from './witness-push.ts'

/** Limits of one connection: bytes and arguments of a command, pending replies. Unread replies are limited to the bytes of one command. */
interface SessionBounds extends CommandBounds {
  readonly pending: number
}
const MAX_PENDING = 16_384
const MAX_ARGS = 1 << 16
/** Enough for a key and a name. A client that has not sent a required key cannot fill the server's memory. */
const UNAUTHENTICATED_BOUNDS: SessionBounds = { bytes: 4 << 10, args: 10, pending: 16, whose: ' before AUTH' }
/** Wrong secrets that one connection may try. */
const MAX_FAILED_AUTHS = 16

/** A command as a session runs it and `COMMAND` describes it. */
export interface SessionCommand {
  readonly name: string
  readonly arity: number
  readonly summary: string
  readonly open?: true
  readonly changes?: true
  readonly names?: readonly [first: number, last: number, step: number]
  run(session: RespSession): void
}

/** The RESP listener owns the sessions through this. */
export interface SessionHost extends UnfinishedTotal {
  readonly context: ListenerContext
  readonly commands: ReadonlyMap<string, SessionCommand>
  readonly counters: RequestCounters
  /** Returns what to say of a command that is not known. */
  explainUnknown(name: string): string
  /** Calls `session.flush` at the end of this turn. */
  scheduleFlush(session: RespSession): void
  /** The session is closing, and has no pending replies left. */
  sessionIdle(session: RespSession): void
  sessionClosed(session: RespSession): void
}

export class RespSession implements ByteLinkEnd {
  readonly id: number
  readonly host: SessionHost
  readonly args: CommandParser // the command that is being executed
  readonly peer: string
  caller: Caller = anonymousCaller()
  #name = '' // that the client gave itself; empty if it gave none
  /** The holder of leases that this connection acquires, unless a command names another: its name, or its address. */
  holder: string
  protocol: 2 | 3 = 2
  sendsWitness = false // the client keeps witnesses of the log: see Lessor.witness
  messages?: number // of LEASE.BATCH: the version that the client named
  readonly watches = new Map<string, AbortController>() // started by LEASE.WATCH, by prefix
  readonly #fullBounds: SessionBounds
  #bounds: SessionBounds
  /** The last command, and its counter. Most connections send the same command again and again. */
  #command: SessionCommand | undefined
  #counter = UNCOUNTED
  readonly #replies = new ReplyQueue(this)
  readonly #pushes = new PushQueue(maxUnwritten => this.#canSend(maxUnwritten))
  readonly #unfinished: UnfinishedInput
  readonly #slowClient = new SlowClientDetector()
  readonly #gone = new AbortController()
  #queue: AbortController | undefined
  /** Begun by the first batch. */
  batch: BatchSession | undefined
  readonly #witness = new WitnessPush()
  readonly turns: SessionTurns
  #link!: ByteLink
  readonly #connection: TrackedConnection | undefined
  #failedAuths = 0
  #blocked = false // a command waits, and so do the commands after it
  #paused = false
  #incomplete = false // the input ended within a command
  #unread = 0 // bytes, as reported
  #inputEnded = false
  #closing = false // no more commands are executed; the connection ends after the pending replies
  #closed = false

  constructor(host: SessionHost, id: number, peer: string, connection?: TrackedConnection) {
    this.host = host
    this.id = id
    this.peer = peer
    this.holder = peer
    this.turns = new SessionTurns(host.context.guarded.turns, peer, this.caller)
    this.#connection = connection
    this.#fullBounds = { bytes: host.context.limits.command, args: MAX_ARGS, pending: MAX_PENDING }
    this.#bounds = this.#fullBounds
    this.#unfinished = new UnfinishedInput(host, host.context.limits.unfinished)
    this.args = new CommandParser(this.#bounds)
    setMaxListeners(0, this.#gone.signal)
  }

  attach(link: ByteLink): void {
    this.#link = link
  }

  /** Fires when the connection closes or the server stops. Ends all waits of this connection. */
  get signal(): AbortSignal {
    return this.#gone.signal
  }

  /** Fires when the connection's places in queues are given up: when it closes, or is reset to another caller. */
  get queue(): AbortSignal {
    if (this.#queue === undefined) {
      this.#queue = new AbortController()
      setMaxListeners(0, this.#queue.signal)
    }
    return this.#queue.signal
  }

  get name(): string {
    return this.#name
  }

  set name(name: string) {
    this.#name = name
    this.holder = name === '' ? this.host.context.guarded.access.keys.holderOf(this.caller, this.peer) : name
  }

  // Input

  data(bytes: Uint8Array): void {
    if (this.#closed || this.#closing) return
    this.args.feed(bytes)
    this.#run()
  }

  #run(): void {
    let more = true
    const { access, turns } = this.host.context.guarded
    // Keys change while connections stay open.
    if (this.caller.key !== 0 || access.keyRequired || this.#bounds !== this.#fullBounds) this.#updateBounds()
    try {
      while (!this.#blocked && !this.turns.isAwaited && !this.#closing) {
        const { bytes, pending } = this.#bounds
        // The backlog is never larger than when something was last written.
        const isFull = this.#replies.pending >= pending || (this.#unread > bytes && this.#link.backlog > bytes)
        if (isFull || (this.batch !== undefined && this.batch.pending >= MAX_BATCHED)) {
          this.#pause()
          break
        }
        more = this.args.next()
        if (!more) break
        if (this.args.inline || turns.mayHandle(this.turns.party)) this.#execute()
        else {
          this.turns.wait(this.args, () => this.resume())
          this.#pause()
        }
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      this.reply(to => to.error('ERR', `Protocol error: ${error.message}`))
      this.closeAfterReplies()
    }
    if (this.#closed) return
    if (this.#inputEnded && !more) this.closeAfterReplies()
    if (this.#closing) return this.#discardInput()
    const rest = this.args.isEmpty ? 0 : this.args.keep()
    // The usual case: every command was complete, now and before.
    if (rest === 0 && !this.#incomplete) return
    this.#incomplete = rest > 0
    this.#unfinished.count(rest)
    const refusal = this.#unfinished.refusal(this.#bounds === this.#fullBounds)
    if (refusal !== undefined) {
      this.reply(to => to.error('LIMIT', refusal))
      this.closeAfterReplies()
      return this.#discardInput()
    }
    if (rest === 0 || this.#blocked || this.#paused) this.#slowClient.complete()
    else this.#slowClient.incomplete(this.host.context.clock.now())
    if (this.#blocked && rest > this.host.context.limits.command) this.#pause()
  }

  #updateBounds(): void {
    this.#bounds = this.host.context.guarded.access.admits(this.caller) ? this.#fullBounds : UNAUTHENTICATED_BOUNDS
    this.args.bounds = this.#bounds
  }

  #discardInput(): void {
    this.args.forget()
    this.#unfinished.count(0)
  }

  #pause(): void {
    if (this.#paused) return
    this.#paused = true
    this.#link.pause()
  }

  /** Continues to read after a pause, if there is room now. */
  resume(): void {
    if (!this.#paused || this.#closed || this.#closing) return
    const { bytes, pending } = this.#bounds
    if (this.#blocked || this.turns.isAwaited || this.#replies.pending > pending / 2 || this.#link.backlog > bytes / 2) return
    if (this.batch !== undefined && this.batch.pending >= MAX_BATCHED) return
    this.#paused = false
    this.#run()
    if (!this.#paused) this.#link.resume()
  }

  #execute(): void {
    const { args, host } = this
    if (this.#command === undefined || !args.is(0, this.#command.name)) {
      this.#command = host.commands.get(args.word(0))
      this.#counter = host.counters.counter('resp', this.#command?.name ?? 'unknown')
    }
    const command = this.#command
    if (command === undefined) {
      const name = args.bytes(0).toString('latin1', 0, Math.min(args.length(0), 64))
      this.reply(to => to.error('ERR', this.host.explainUnknown(name)))
      // These may be lines of another protocol, sent through a browser or proxy. A later line could look like a command, so none is executed.
      if (args.inline) this.closeAfterReplies()
      return
    }
    if (command.arity >= 0 ? args.count !== command.arity : args.count < -command.arity)
      return this.reply(to => to.error('ERR', `wrong number of arguments for '${command.name.toLowerCase()}' command`))
    try {
      if (!command.open && this.#bounds !== this.#fullBounds) host.context.guarded.access.admit(this.caller)
      command.run(this)
    } catch (error) {
      this.fail(error)
    }
  }

  // Replies

  /** A reply that is known now. With `alone: false` it is written together with the answers to a batch, if some are expected. */
  reply(encode: (to: RespWriter) => void, { alone = true }: { readonly alone?: boolean } = {}): void {
    const slot = this.#replies.next(encode, this.#counter)
    if (alone || this.batch === undefined || this.batch.pending === 0) slot.settle(undefined)
    else slot.ready = true
  }

  fail(error: unknown): void {
    this.#replies.next(writeNothing, this.#counter).fail(error)
  }

  /** A reply that is known when `result` settles. */
  replyLater<T>(result: Promise<T>, encode: Encode<T>): void {
    const slot = this.#replies.next(encode as Encode<unknown>, this.#counter)
    result.then(slot.settle, slot.fail)
  }

  /** The fast path of the most frequent commands: no promise until the reply. */
  propose(command: Command, encode: Encode<Outcome>, request: GuardedRequest = NO_REQUEST_OPTIONS): void {
    const slot = this.#replies.next(encode as Encode<unknown>, this.#counter)
    this.host.context.guarded.submit(this.caller, command, request, slot)
  }

  /** As `replyLater`, and the following commands of this connection wait for it. */
  replyBlocking<T>(result: Promise<T>, encode: Encode<T>): void {
    this.#blocked = true
    this.replyLater(result, encode)
    const unblock = () => {
      this.#blocked = false
      if (this.#closed || this.#closing) return
      if (this.#paused) this.resume()
      else this.#run()
    }
    result.then(unblock, unblock)
  }

  /** Sends a message that is not a reply. `size` is its approximate number of bytes. */
  push(write: (to: RespWriter) => void, size = 256): void {
    if (this.#closed) return
    this.#pushes.add(write, size)
    this.host.scheduleFlush(this)
  }

  /** Writes everything that is ready, at once. */
  flush(to: RespWriter): void {
    if (this.#closed) return
    to.protocol = this.protocol
    if (this.sendsWitness && this.batch === undefined && this.#replies.ready)
      this.#witness.write(to, this.host.context.guarded.lessor.witness)
    this.#replies.write(to)
    // A reply may have changed the protocol.
    to.protocol = this.protocol
    if (!this.#pushes.isIdle) this.#pushes.write(to)
    this.batch?.write(to)
    if (to.length > 0) {
      this.#link.write(to.taken())
      const { backlog } = this.#link
      if (backlog !== this.#unread) this.#connection?.setUnread(backlog)
      this.#unread = backlog
      if (this.#closed) return // the limit on unread bytes closed it
    }
    if (this.#closing && !this.hasPendingReplies) {
      this.#slowClient.incomplete(this.host.context.clock.now())
      this.#link.end()
      this.host.sessionIdle(this)
    } else if (this.#paused) this.host.context.clock.soon(() => this.resume())
    if (!this.#pushes.isIdle) this.#pushes.wake()
  }

  get hasPendingReplies(): boolean {
    return this.#replies.pending > 0 || (this.batch !== undefined && this.batch.pending > 0)
  }

  /** Undefined if there is room for more pushes. Otherwise resolves when there is, or when the connection is closed. */
  room(): Promise<void> | undefined {
    return this.#pushes.room()
  }

  #canSend(maxUnwritten: number): boolean {
    if (this.#closed) return true
    return this.#link.backlog <= this.host.context.limits.watchBuffer && (this.batch?.unwrittenBytes ?? 0) <= maxUnwritten
  }

  /** The client has read everything that was written. */
  drained(): void {
    this.#unread = this.#link.backlog
    this.#connection?.setUnread(this.#unread)
    this.resume()
    this.batch?.startReads()
    this.#pushes.wake()
  }

  become(caller: Caller): void {
    this.#connection?.identified(caller)
    this.caller = caller
    this.turns.caller = caller
    this.name = this.#name // the holder of a bound key is another
    this.#updateBounds()
  }

  authFailed(): void {
    if (++this.#failedAuths >= MAX_FAILED_AUTHS) this.closeAfterReplies()
  }

  /** Resets the connection to its initial state. Results of earlier requests must not reach the next caller. The protocol changes with the reply to RESET. */
  reset(): void {
    this.caller = anonymousCaller()
    this.turns.caller = this.caller
    this.#connection?.identified(undefined)
    this.name = ''
    this.#queue?.abort(new LeaseError('UNAVAILABLE', 'the connection was reset during the wait'))
    this.#queue = undefined
    for (const watch of this.watches.values()) watch.abort()
    this.watches.clear()
    this.batch?.end()
    this.batch = undefined
    this.#pushes.discard()
    this.#updateBounds()
  }

  // Closing

  /** The client has closed its sending side. Its waits end, because a process that died looks the same. Commands that it sent are answered. */
  ended(): void {
    if (this.#closing || this.#closed) return
    this.#inputEnded = true
    this.#endWaits(connectionClosed())
    if (!this.#blocked && !this.#paused) this.#run()
  }

  #endWaits(reason: LeaseError): void {
    this.#gone.abort(reason)
    this.#queue?.abort(reason)
    for (const watch of this.watches.values()) watch.abort()
  }

  /** Executes no more commands. The connection ends after the pending replies. */
  closeAfterReplies(reason = connectionClosed()): void {
    if (this.#closing || this.#closed) return
    this.#closing = true
    this.#slowClient.complete()
    this.#endWaits(reason)
    this.host.scheduleFlush(this)
  }

  /** The connection is closed. */
  closed(): void {
    if (this.#closed) return
    this.closeAfterReplies()
    this.#closed = true
    this.#unfinished.count(0)
    this.#pushes.discard()
    this.host.sessionClosed(this)
  }

  destroy(): void {
    this.#link.destroy()
  }

  isTooSlow(now: number, limits: SlowClientLimits): boolean {
    return this.#slowClient.isTooSlow(now, { backlog: this.#link.backlog, closing: this.#closing }, limits)
  }
}

function connectionClosed(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'the connection was closed during the wait')
}
