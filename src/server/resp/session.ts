/**
 * One connection that speaks RESP: commands in, answers out in the same order, pushes in between.
 *
 * A command that waits occupies its own connection and no other, as BLPOP does. A connection that asks faster than it reads answers is not
 * read from until it has; one that never reads costs what is bounded here, and is cut off in the end.
 */
import { setMaxListeners } from 'node:events'
import { LeaseError } from '../../errors.ts'
import type { Command } from '../../kernel/command.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { type CommandBounds, CommandParser, ProtocolError } from '../../wire/resp/command-parser.ts'
import type { ByteLink, ByteLinkEnd } from '../../wire/resp/link.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { anonymousCaller, type Caller } from '../access-control.ts'
import type { Connection } from '../connections.ts'
import { type GuardedRequest, NOTHING_MORE } from '../guarded-lessor.ts'
import type { ListenerContext } from '../listener.ts'
import type { RequestCounts } from '../request-counts.ts'
import { BatchSession } from './batch-session.ts'
import type { RespCommand } from './command.ts'
import { type Encode, NOBODY, none, ReplyQueue } from './reply-queue.ts'

/** What one connection may ask for: bytes and arguments of a command, answers owed and bytes of them unread. */
interface Allowed extends CommandBounds {
  readonly owed: number
}
const MAX_OWED = 16_384
const MAX_ARGS = 1 << 16
/** Room for a key and a name: whoever has shown no key where one is needed gets no memory of ours to fill. */
const STRANGER: Allowed = { bytes: 4 << 10, args: 10, owed: 16, whose: ' before AUTH' }
/** Bytes of pushes that may pile up within one turn. */
const UNWRITTEN = 64 << 10
/** So much of an unfinished command is never too much: a usual one, torn in two by the network. */
const SMALL = 16 << 10
/** Commands that one connection may have carried out in one turn of the loop. */
const STRIDE = 4_096
/** Wrong secrets that one connection may try. */
const MAX_GUESSES = 16

export interface SessionHost {
  readonly context: ListenerContext
  readonly commands: ReadonlyMap<string, RespCommand>
  readonly tallies: RequestCounts
  /** Bytes of unfinished commands, of all connections. */
  unfinished: number
  /** It has something to write: it is asked to at the end of this turn. */
  dirty(session: RespSession): void
  /** It is leaving, and nothing is owed to it any more. */
  settled(session: RespSession): void
  left(session: RespSession): void
}

export class RespSession implements ByteLinkEnd {
  readonly id: number
  readonly door: SessionHost
  /** The command that is being carried out. */
  readonly args: CommandParser
  readonly peer: string
  caller: Caller = anonymousCaller()
  name = ''
  protocol: 2 | 3 = 2
  /** The client keeps witnesses of the log: see Lessor.witness. */
  witnesses = false
  /** Watches begun by command, by prefix. */
  readonly watches = new Map<string, AbortController>()
  readonly #usual: Allowed
  #allowed: Allowed
  /** What was pushed and not written yet. */
  readonly #pushes: ((to: RespWriter) => void)[] = []
  readonly #gone = new AbortController()
  #queue: AbortController | undefined
  readonly #answers = new ReplyQueue(this)
  #conversation: BatchSession | undefined
  #link!: ByteLink
  readonly #connection: Connection | undefined
  #last: RespCommand | undefined
  #tally = NOBODY
  #guesses = 0
  /** A command that waits: what follows it on this connection waits too. */
  #occupied = false
  #paused = false
  /** The other side has said all it will say. */
  #heardAll = false
  #leaving = false
  #over = false
  #dirty = false
  readonly #draining: (() => void)[] = []
  #unwritten = 0
  /** Bytes of an unfinished command, as the door has counted them. */
  #kept = 0
  /** Since when a command is unfinished, or the end that was said has not been answered. */
  #unfinished = Number.POSITIVE_INFINITY
  #stuck = { since: Number.POSITIVE_INFINITY, backlog: 0 }

  constructor(door: SessionHost, id: number, peer: string, connection?: Connection) {
    this.door = door
    this.id = id
    this.peer = peer
    this.#connection = connection
    this.#usual = { bytes: door.context.limits.command, args: MAX_ARGS, owed: MAX_OWED }
    this.#allowed = this.#usual
    this.args = new CommandParser(this.#allowed)
    setMaxListeners(0, this.#gone.signal)
  }

  over(link: ByteLink): void {
    this.#link = link
  }

  /** Fires when the connection goes, or the server stops: whoever waits here waits no longer. */
  get signal(): AbortSignal {
    return this.#gone.signal
  }

  /** Fires when its places in queues are given up: with the connection, or with who it was. */
  get queue(): AbortSignal {
    if (this.#queue === undefined) {
      this.#queue = new AbortController()
      setMaxListeners(0, this.#queue.signal)
    }
    return this.#queue.signal
  }

  get backlog(): number {
    return this.#link.backlog
  }

  /** Who holds what this connection acquires, unless it says otherwise. */
  get holder(): string {
    return this.name === '' ? this.peer : this.name
  }

  get conversation(): BatchSession {
    this.#conversation ??= new BatchSession(this)
    return this.#conversation
  }

  // Bytes in

  data(bytes: Uint8Array): void {
    if (this.#over || this.#leaving) return
    this.args.feed(bytes)
    this.#run()
  }

  #run(): void {
    let more = true
    let left = STRIDE
    this.#measure()
    try {
      while (!this.#occupied && !this.#leaving && this.#hasRoom()) {
        if (left-- === 0) {
          // Others are served before the rest is looked at, at the end of this turn.
          this.#pause()
          this.dirty()
          break
        }
        more = this.args.next()
        if (!more) break
        this.#execute()
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      this.answer(to => to.error('ERR', `Protocol error: ${error.message}`))
      this.leave()
    }
    if (this.#over) return
    if (this.#heardAll && !more) this.leave()
    if (this.#leaving) return this.#forget()
    this.args.keep()
    const { rest } = this.args
    if (!this.#keeps(rest)) return
    this.#unfinished =
      rest === 0 || this.#occupied || this.#paused ? Number.POSITIVE_INFINITY : Math.min(this.#unfinished, this.door.context.clock.now())
    if (this.#occupied && rest > this.door.context.limits.command) this.#pause()
  }

  /** Keys come and go while connections last. */
  #measure(): void {
    try {
      this.door.context.desk.gate.admit(this.caller)
      this.#allowed = this.#usual
    } catch {
      this.#allowed = STRANGER
    }
    this.args.bounds = this.#allowed
  }

  /** Nothing of what is left will be looked at. */
  #forget(): void {
    this.args.forget()
    this.door.unfinished -= this.#kept
    this.#kept = 0
  }

  /** Whether so many bytes may wait here for the rest of their command. Thousands of connections must not add up to all the memory there is. */
  #keeps(rest: number): boolean {
    const { door } = this
    door.unfinished += rest - this.#kept
    this.#kept = rest
    const most = door.context.limits.unfinished
    if (rest <= SMALL) return true
    const stranger = this.#allowed === STRANGER
    if (!stranger && door.unfinished <= most) return true
    this.answer(to =>
      to.error(
        'LIMIT',
        stranger
          ? `at most ${SMALL} bytes of commands are kept before AUTH`
          : `unfinished commands of all connections come to more than ${most} bytes: send this one again later`,
      ),
    )
    this.leave()
    this.#forget()
    return false
  }

  #hasRoom(): boolean {
    const { bytes, owed } = this.#allowed
    if (this.#answers.owed < owed && this.#link.backlog <= bytes && (this.#conversation?.hasRoom ?? true)) return true
    this.#pause()
    return false
  }

  #pause(): void {
    if (this.#paused) return
    this.#paused = true
    this.#link.pause()
  }

  /** Goes on reading where it had stopped, if there is room now. */
  goOn(): void {
    if (!this.#paused || this.#over || this.#leaving) return
    const { bytes, owed } = this.#allowed
    if (this.#occupied || this.#answers.owed > owed / 2 || this.#link.backlog > bytes / 2) return
    if (this.#conversation?.hasRoom === false) return
    this.#paused = false
    this.#run()
    if (!this.#paused) this.#link.resume()
  }

  #execute(): void {
    const { args, door } = this
    let command = this.#last
    if (command === undefined || !args.is(0, command.name)) {
      command = door.commands.get(args.word(0))
      if (command === undefined) {
        const name = args.bytes(0).toString('latin1', 0, Math.min(args.length(0), 64))
        this.#last = undefined
        this.#tally = door.tallies.tally('resp', 'unknown')
        this.answer(to => to.error('ERR', `unknown command '${name}'`))
        // Lines of another protocol: one further down may look like a command, and whoever wrote it may not be whose connection it is.
        if (args.inline) this.leave()
        return
      }
      this.#last = command
      this.#tally = door.tallies.tally('resp', command.name)
    }
    const { count } = args
    if (command.arity >= 0 ? count !== command.arity : count < -command.arity)
      return this.answer(to => to.error('ERR', `wrong number of arguments for '${command.name.toLowerCase()}' command`))
    try {
      if (!command.open) door.context.desk.gate.admit(this.caller)
      command.run(this)
    } catch (error) {
      this.fail(error)
    }
  }

  // Answers

  /** An answer that is known now. */
  answer(encode: (to: RespWriter) => void): void {
    this.#answers.next(encode, this.#tally).settle(undefined)
  }

  fail(error: unknown): void {
    this.#answers.next(none, this.#tally).fail(error)
  }

  /** The answer is what `answer` brings. */
  later<T>(answer: Promise<T>, encode: Encode<T>): void {
    const slot = this.#answers.next(encode as Encode<unknown>, this.#tally)
    answer.then(slot.settle, slot.fail)
  }

  /** The most frequent of all: no promise from here to the answer. */
  propose(command: Command, encode: Encode<Outcome>, asked: GuardedRequest = NOTHING_MORE): void {
    this.door.context.desk.submit(this.caller, command, asked, this.#answers.next(encode as Encode<unknown>, this.#tally))
  }

  /** As `later`, and nothing that follows on this connection is looked at before it is known. */
  occupy<T>(answer: Promise<T>, encode: Encode<T>): void {
    this.#occupied = true
    this.later(answer, encode)
    const free = () => {
      this.#occupied = false
      if (this.#over || this.#leaving) return
      if (this.#paused) this.goOn()
      else this.#run()
    }
    answer.then(free, free)
  }

  /** `size`: about how many bytes that will be. */
  push(write: (to: RespWriter) => void, size = 256): void {
    if (this.#over) return
    this.#pushes.push(write)
    this.#unwritten += size
    this.dirty()
  }

  dirty(): void {
    if (this.#dirty || this.#over) return
    this.#dirty = true
    this.door.dirty(this)
  }

  /** At the end of a turn: everything that can be said by now, in one piece. */
  flush(to: RespWriter): void {
    this.#dirty = false
    if (this.#over) return
    to.protocol = this.protocol
    this.#answers.write(to)
    // Its protocol may have changed with what was just said.
    to.protocol = this.protocol
    for (const write of this.#pushes.splice(0)) write(to)
    this.#conversation?.write(to)
    this.#unwritten = 0
    if (to.length > 0) {
      this.#link.write(to.taken())
      this.#connection?.owed(this.#link.backlog)
      if (this.#over) return // it owed too much
    }
    if (this.#leaving && !this.owes) {
      this.#unfinished = Math.min(this.#unfinished, this.door.context.clock.now())
      this.#link.end()
      this.door.settled(this)
    } else if (this.#paused) this.goOn()
    this.#wake()
  }

  /** A stopping server waits for it: it has not been answered, or has not been told that this is the end. */
  get isOwed(): boolean {
    return this.owes || this.#dirty
  }

  /** Something that was asked has not been answered. */
  get owes(): boolean {
    return this.#answers.owed > 0 || (this.#conversation?.owes ?? false)
  }

  // Who it is

  identify(secret: string): void {
    try {
      this.caller = this.door.context.desk.gate.identify(secret)
      this.#connection?.identified(this.caller)
      this.#measure()
    } catch (error) {
      if (++this.#guesses >= MAX_GUESSES) this.leave()
      throw error
    }
  }

  /** As it was when it came: nothing that was asked for before is told to whoever it is now. Its protocol changes when that is said. */
  reset(): void {
    this.caller = anonymousCaller()
    this.#connection?.identified(undefined)
    this.name = ''
    this.#queue?.abort(new LeaseError('UNAVAILABLE', 'the connection was reset while this waited'))
    this.#queue = undefined
    for (const watch of this.watches.values()) watch.abort()
    this.watches.clear()
    this.#conversation?.end()
    this.#conversation = undefined
    this.#pushes.length = 0
    this.#measure()
  }

  // The end

  drained(): void {
    this.#connection?.owed(this.#link.backlog)
    this.goOn()
    this.#conversation?.goOn()
    this.#wake()
  }

  #wake(): void {
    if (this.#draining.length > 0 && this.#fits()) for (const wake of this.#draining.splice(0)) wake()
  }

  #fits(): boolean {
    return (
      this.#over ||
      (this.#link.backlog <= this.door.context.limits.watchBuffer && this.#unwritten + (this.#conversation?.unwritten ?? 0) <= UNWRITTEN)
    )
  }

  /** Undefined when there is room for more that nobody asked for just now; else resolves when there is, or when the connection is gone. */
  room(): Promise<void> | undefined {
    return this.#fits() ? undefined : new Promise(resolve => this.#draining.push(resolve))
  }

  /** The other side says no more. Nobody who waits here is left: a process that died looks the same. What it asked for is answered. */
  ended(): void {
    if (this.#leaving || this.#over) return
    this.#heardAll = true
    this.#giveUp(closedMeanwhile())
    if (!this.#occupied && !this.#paused) this.#run()
  }

  #giveUp(reason: LeaseError): void {
    this.#gone.abort(reason)
    this.#queue?.abort(reason)
    for (const watch of this.watches.values()) watch.abort()
  }

  /** No more commands are taken; what is owed is answered, then the connection ends. */
  leave(reason = closedMeanwhile()): void {
    if (this.#leaving || this.#over) return
    this.#leaving = true
    this.#unfinished = Number.POSITIVE_INFINITY
    this.#giveUp(reason)
    this.dirty()
  }

  closed(): void {
    if (this.#over) return
    this.leave()
    this.#over = true
    this.door.unfinished -= this.#kept
    this.#pushes.length = 0
    this.#wake()
    this.door.left(this)
  }

  cut(): void {
    this.#link.destroy()
  }

  /** Looked at now and then: a command that never ends, one who never reads, and one who does not hang up. Whether it is to be cut off. */
  isHopeless(now: number, { unfinished, unread }: { readonly unfinished: number; readonly unread: number }): boolean {
    const { backlog } = this.#link
    if (backlog === 0) this.#stuck.since = Number.POSITIVE_INFINITY
    else if (this.#stuck.since === Number.POSITIVE_INFINITY || backlog < this.#stuck.backlog) this.#stuck.since = now
    this.#stuck.backlog = backlog
    // Whoever still reads the last answers has not been told the end yet.
    if (this.#leaving && backlog > 0 && this.#unfinished < now) this.#unfinished = now
    return now - this.#unfinished > unfinished || now - this.#stuck.since > unread
  }
}

function closedMeanwhile(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'the connection was closed while this waited')
}
