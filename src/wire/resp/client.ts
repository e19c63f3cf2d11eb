/**
 * A server far away as a Lessor: everything that is proposed within one turn goes out in one batch, answers come as soon as they are known, and
 * connections may come and go.
 *
 * Not promised: that a question is answered by the server it was put to first. When a connection is lost, what is safe to ask again is asked
 * again elsewhere; what is not is `UNKNOWN`, and never `UNAVAILABLE`: it may have been done. A server that is silent is left for the next one
 * within a third of what a lease has left when it is renewed; with one address, a second connection to it is tried by then, and takes over when
 * it is greeted before the first is heard again. Watches go on where they were.
 */
import { setMaxListeners } from 'node:events'
import { type Clock, pause, type RearmableTimer, systemClock } from '../../clock.ts'
import { inWords } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { malformed, malformedAsker } from '../../kernel/codec/form.ts'
import type { Command } from '../../kernel/command.ts'
import { copyOf } from '../../kernel/copy.ts'
import type { Event } from '../../kernel/event.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../../lessor.ts'
import type { ServerMessage } from '../messages.ts'
import { wentBack } from '../rewound.ts'
import { type Greeting, RespConnection } from './connection.ts'
import type { Dial } from './dial.ts'
import { PendingRequest, type RequestOptions } from './request.ts'
import { ShortestTtl } from './shortest-ttl.ts'
import { Silence } from './silence.ts'
import { BackupStream } from './stream.ts'
import { Subscription } from './subscription.ts'

export interface RemoteLessorOptions {
  /** Servers on one store. Any of them will do. */
  readonly dials: readonly Dial[]
  readonly key?: string | undefined
  readonly clock?: Clock
  /** After so long without an answer the asker is told that there is none; 30 s unless said otherwise. */
  readonly timeout?: number
  /** How long the first connection may take; 5 s unless said otherwise. */
  readonly connectWithin?: number
}

const RETRY_FIRST = 20
const RETRY_LAST = 1_000
/** What cannot be asked twice waits this long on a connection that was replaced. */
const LAST_WORD = 10_000
/** Answers are waited for this long when closing. */
const FAREWELL = 1_000

export class RemoteLessor implements Lessor {
  readonly #clock: Clock
  readonly #dials: readonly Dial[]
  readonly #key: string | undefined
  readonly #timeout: number
  readonly #closing = new AbortController()
  readonly #asks = new Map<number, PendingRequest>()
  readonly #subscriptions = new Map<number, Subscription>()
  /** Backups under way, which end with their connection. */
  readonly #streams = new Map<number, BackupStream>()
  #unsent: PendingRequest[] = []
  #flushing = false
  #connection: RespConnection | undefined
  /** Tried while the connection in use is silent. */
  #second: RespConnection | undefined
  #secondUntil = 0
  /** Replaced by a second one. What cannot be asked twice may still be answered on it. */
  #former: RespConnection | undefined
  #greeting: Greeting | undefined
  #lastId = 0
  #revision = 0
  /** What the server told last of how far its log has come. */
  #witness = ''
  readonly #onRewound = new Set<(why: LeaseError) => void>()
  #next = 0
  #failures = 0
  readonly #terms = new ShortestTtl()
  readonly #silence: Silence
  /** Stays set while nothing is asked, without keeping the process alive: setting one for each question would cost more than asking it. */
  #impatient: RearmableTimer | undefined
  #watchdog: (() => void) | undefined
  #closed: Promise<void> | undefined
  #allAnswered = () => {}
  #tell: ((error: LeaseError | undefined) => void) | undefined

  private constructor({ dials, key, clock = systemClock, timeout = 30_000 }: RemoteLessorOptions) {
    this.#dials = dials
    this.#key = key
    this.#clock = clock
    this.#timeout = timeout
    this.#silence = new Silence(clock, this.#terms, dials.length)
    // Clients that were told of the same addresses do not all begin with the first.
    this.#next = Math.floor(clock.random() * dials.length)
    setMaxListeners(0, this.#closing.signal)
  }

  /** Connects to whichever answers first. Throws `UNAVAILABLE` when none does, `UNAUTHENTICATED` when the key is refused. */
  static async open(options: RemoteLessorOptions): Promise<RemoteLessor> {
    const lessor = new RemoteLessor(options)
    try {
      await lessor.#firstGreeting(options.connectWithin ?? 5_000)
      return lessor
    } catch (error) {
      await lessor[Symbol.asyncDispose]()
      throw error
    }
  }

  get profile(): Lessor['profile'] {
    return this.#greeting!.profile
  }

  get signal(): AbortSignal {
    return this.#closing.signal
  }

  /** Which server it talks to at the moment; undefined while it looks for one. */
  get server(): string | undefined {
    return this.#connection?.open ? this.#connection.name : undefined
  }

  // Asking

  propose(command: Command, { op, key = 0, signal }: ProposeOptions = {}): Promise<Outcome> {
    if (signal?.aborted) return Promise.reject(signal.reason)
    if (this.#closed !== undefined) return Promise.reject(this.#whyClosed())
    // What cannot be written cannot be sent: and what was malformed here would be damaged there.
    const wrong = malformed(command) ?? malformedAsker(key, op)
    if (wrong !== undefined)
      return Promise.resolve({ kind: 'refused', revision: this.#revision, code: 'INVALID', message: wrong, facts: {} })
    // Encoded at the end of this turn, and again on another connection: the caller may have changed its own by then.
    const own = copyOf(command)
    const proposal = op === undefined ? { command: own, key } : { command: own, key, op: { ...op } }
    return this.#ask({ kind: 'propose', id: ++this.#lastId, proposal }, signal, answer => {
      const { outcome } = answer as Extract<ServerMessage, { kind: 'outcome' }>
      this.#learn(outcome)
      return outcome
    })
  }

  async read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options: ReadOptions = {}): Promise<View<K>> {
    const { consistent = false, atLeast = 0, signal } = options
    signal?.throwIfAborted()
    if (this.#closed !== undefined) throw this.#whyClosed()
    // Whichever server is asked: never an older state than one was shown before.
    const question = { kind: 'read', id: ++this.#lastId, query, consistent, atLeast: Math.max(atLeast, this.#revision) } as const
    return this.#ask(question, signal, answer => {
      const { view } = answer as Extract<ServerMessage, { kind: 'view' }>
      this.#revision = Math.max(this.#revision, view.revision)
      return view as View<K>
    })
  }

  #ask<T>(question: RequestOptions, signal: AbortSignal | undefined, read: (answer: ServerMessage) => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const { id } = question
      const over = () => {
        this.#asks.delete(id)
        signal?.removeEventListener('abort', stop)
        if (this.#asks.size > 0) return
        this.#connection?.holdOpen(false)
        this.#rest()
        this.#allAnswered()
      }
      const stop = () => {
        over()
        reject(signal!.reason)
      }
      const ask = new PendingRequest(
        question,
        this.#clock.now(),
        answer => {
          over()
          resolve(read(answer))
        },
        error => {
          over()
          reject(error)
        },
      )
      signal?.addEventListener('abort', stop, { once: true })
      if (this.#asks.size === 0) {
        this.#connection?.holdOpen(true)
        this.#impatient?.keepAlive?.(true)
      }
      this.#asks.set(id, ask)
      this.#impatient ??= this.#losePatienceAfter(this.#timeout)
      this.#send(ask)
    })
  }

  #send(ask: PendingRequest): void {
    this.#unsent.push(ask)
    this.#flushSoon()
  }

  /** When everything that runs now has run: whatever it asks goes out together. */
  #flushSoon(): void {
    if (this.#flushing) return
    this.#flushing = true
    queueMicrotask(() =>
      process.nextTick(() => {
        this.#flushing = false
        this.#flush()
      }),
    )
  }

  #flush(): void {
    const connection = this.#connection
    if (connection === undefined || !connection.open) return
    if (this.#unsent.length > 0 && connection.hasRoom) {
      const now = this.#clock.now()
      for (const ask of this.#unsent.splice(0)) {
        if (this.#asks.get(ask.question.id) !== ask || ask.on !== undefined) continue
        ask.on = connection
        ask.sentAt = now
        connection.ask(ask.question)
      }
    }
    connection.flush()
  }

  #losePatienceAfter(ms: number): RearmableTimer {
    // When this process has stood still, the timer is overdue and the answer waits to be read: it comes first.
    const lose = () => this.#clock.soon(() => this.#clock.soon(() => this.#loseAllPatience()))
    return this.#clock.standing?.(ms, lose) ?? { cancel: this.#clock.after(ms, lose, { ref: true }) }
  }

  #rest(): void {
    if (this.#impatient?.keepAlive !== undefined) return this.#impatient.keepAlive(false)
    this.#impatient?.cancel()
    this.#impatient = undefined
  }

  #loseAllPatience(): void {
    this.#impatient = undefined
    const now = this.#clock.now()
    for (const ask of this.#asks.values()) {
      const left = ask.since + this.#timeout - now
      if (left > 0.5) {
        this.#impatient = this.#losePatienceAfter(left)
        return
      }
      ask.fail(ask.unanswered(`no answer from ${this.#names()} for ${inWords(this.#timeout)}`))
    }
  }

  #names(): string {
    return this.#dials.map(({ name }) => name).join(', ')
  }

  // Answers

  #answered(connection: RespConnection, answer: ServerMessage): void {
    this.#take(connection, answer)
    if (connection === this.#former) this.#leaveFormer()
  }

  #take(connection: RespConnection, answer: ServerMessage): void {
    const { id } = answer
    if (answer.kind === 'witness') {
      if (connection === this.#connection) this.#witness = answer.witness
      return
    }
    if (answer.kind === 'outcome' || answer.kind === 'view') {
      const ask = this.#asks.get(id)
      if (ask === undefined) return
      if ((ask.question.kind === 'propose') !== (answer.kind === 'outcome'))
        return ask.fail(ask.unanswered('the server answered another question'))
      return ask.settle(answer)
    }
    const stream = this.#streams.get(id)
    if (stream !== undefined) return stream.tell(answer)
    if (answer.kind === 'failed') {
      const ask = this.#asks.get(id)
      if (ask === undefined) return this.#unwatched(id, answer.error)
      // Asked again elsewhere since: the answer to that is the one that counts.
      return ask.on === connection ? this.#failed(ask, answer.error) : undefined
    }
    const subscription = this.#subscriptions.get(id)
    if (subscription === undefined) return
    if (answer.kind === 'watching') subscription.begun(answer.revision)
    else if (answer.kind === 'over') this.#unwatched(id, undefined)
    else if (answer.kind === 'events') {
      subscription.told(answer.events)
      this.#revision = Math.max(this.#revision, answer.events[0]!.revision)
      if (subscription.full) this.#stopWatching(subscription)
    }
  }

  #failed(ask: PendingRequest, error: LeaseError): void {
    if (ask.isFinal(error)) return ask.fail(ask.finally(error))
    ask.interrupted()
    const wait = Math.min(RETRY_LAST, RETRY_FIRST * 2 ** ask.tries)
    this.#clock.after(wait, () => {
      if (this.#asks.get(ask.question.id) === ask) this.#send(ask)
    })
  }

  #learn(outcome: Outcome): void {
    this.#revision = Math.max(this.#revision, outcome.revision)
    // The next look at the server was planned without it, and would come too late for its first renewal.
    if (this.#terms.learn(outcome) && this.#connection?.open) this.#guard(this.#connection)
  }

  // Watching

  async *watch(prefix: string, { after, types, signal }: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    if (signal.aborted) return
    if (this.#closed !== undefined) throw this.#whyClosed()
    const subscription = new Subscription(prefix, after, types)
    this.#watch(subscription)
    try {
      for (;;) {
        const events = await subscription.next(signal)
        if (events === undefined) return
        yield events
        if (signal.aborted) return
        if (subscription.wire === 0 && subscription.low) this.#watch(subscription)
      }
    } finally {
      this.#stopWatching(subscription)
      this.#subscriptions.delete(subscription.number)
    }
  }

  #watch(subscription: Subscription): void {
    this.#subscriptions.delete(subscription.number)
    subscription.number = ++this.#lastId
    this.#subscriptions.set(subscription.number, subscription)
    if (!this.#connection?.open) return
    this.#watchOn(this.#connection, subscription)
    this.#flushSoon()
  }

  #watchOn(connection: RespConnection, subscription: Subscription): void {
    const { number: id, prefix, after, types } = subscription
    subscription.wire = id
    connection.ask({ kind: 'watch', id, prefix, ...(after !== undefined && { after }), ...(types && { types }) })
  }

  #stopWatching(subscription: Subscription): void {
    if (subscription.wire !== 0 && this.#connection?.open) {
      this.#connection.ask({ kind: 'stop', id: subscription.wire })
      this.#flushSoon()
    }
    subscription.wire = 0
    // What is still on its way belongs to a number that nobody has any more.
    if (this.#subscriptions.delete(subscription.number)) {
      subscription.number = ++this.#lastId
      this.#subscriptions.set(subscription.number, subscription)
    }
  }

  /** The server ended it: for good, or because it is leaving itself. */
  #unwatched(id: number, error: LeaseError | undefined): void {
    const subscription = this.#subscriptions.get(id)
    if (subscription === undefined || subscription.wire !== id) return
    subscription.wire = 0
    if (error !== undefined && error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN') return subscription.fail(error)
    this.#clock.after(100, () => {
      if (subscription.wire === 0 && this.#subscriptions.has(subscription.number)) this.#watch(subscription)
    })
  }

  async *backup({ signal }: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Uint8Array, void, void> {
    signal?.throwIfAborted()
    if (this.#closed !== undefined) throw this.#whyClosed()
    const connection = this.#connection
    if (!connection?.open) throw new LeaseError('UNAVAILABLE', `${this.#names()} cannot be reached at the moment`)
    const id = ++this.#lastId
    const stream = new BackupStream(connection)
    this.#streams.set(id, stream)
    connection.holdOpen(true)
    connection.ask({ kind: 'backup', id })
    this.#flushSoon()
    try {
      for (let bytes = await stream.next(signal); bytes !== undefined; bytes = await stream.next(signal)) yield bytes
    } finally {
      this.#streams.delete(id)
      if (connection.open) connection.ask({ kind: 'stop', id })
      this.#flushSoon()
    }
  }

  // Connecting

  #firstGreeting(within: number): Promise<void> {
    return new Promise((resolve, reject) => {
      let last: LeaseError | undefined
      const late = this.#clock.after(
        within,
        () => {
          this.#tell = undefined
          reject(
            new LeaseError(
              'UNAVAILABLE',
              `no server at ${this.#names()} within ${inWords(within)}${last === undefined ? '' : `: ${last.message}`}`,
              { ...(last && { cause: last, facts: last.facts }) },
            ),
          )
        },
        { ref: true },
      )
      this.#tell = error => {
        last = error
        if (error !== undefined && error.code === 'UNAVAILABLE') return
        this.#tell = undefined
        late()
        if (error === undefined) resolve()
        else reject(error)
      }
      this.#connect()
    })
  }

  #connect(): void {
    if (this.#closed !== undefined) return
    const connection = this.#dial()
    this.#connection = connection
    connection.holdOpen(this.#asks.size > 0 || this.#greeting === undefined)
    this.#guard(connection)
  }

  #dial(): RespConnection {
    const connection: RespConnection = new RespConnection({
      dial: this.#dials[this.#next++ % this.#dials.length]!,
      clock: this.#clock,
      key: this.#key,
      witness: this.#witness,
      greeted: greeting => this.#greeted(connection, greeting),
      answered: answer => this.#answered(connection, answer),
      drained: () => this.#flush(),
      ended: error => this.#ended(connection, error),
    })
    return connection
  }

  #greeted(connection: RespConnection, greeting: Greeting): void {
    if (connection === this.#second) {
      if (!this.#silence.wantsSecond(this.#connection!, this.#asks.values())) return this.#dropSecond() // the first is heard again
      this.#takeOver(connection)
    }
    this.#greeting = greeting
    if (!greeting.continues) this.#rewound(connection, greeting)
    this.#witness = greeting.witness ?? ''
    this.#revision = Math.max(this.#revision, greeting.revision)
    this.#failures = 0
    this.#tell?.(undefined)
    connection.holdOpen(this.#asks.size > 0)
    for (const subscription of [...this.#subscriptions.values()]) if (!subscription.full) this.#watchOn(connection, subscription)
    this.#flush()
  }

  /** Nothing that was told before counts any more. */
  #rewound({ name }: RespConnection, { revision }: Greeting): void {
    this.#revision = revision
    this.#former?.close(new LeaseError('UNAVAILABLE', `${name} has another log now`))
    for (const ask of this.#asks.values()) ask.forgetRevision()
    for (const subscription of this.#subscriptions.values()) subscription.resync(revision, this.#clock.wall())
    const why = wentBack(name)
    for (const tell of [...this.#onRewound]) tell(why)
  }

  onRewound(tell: (why: LeaseError) => void): () => void {
    this.#onRewound.add(tell)
    return () => this.#onRewound.delete(tell)
  }

  /** Tries a second connection beside the silent one, and another when that is not greeted either. */
  #trySecond(): void {
    const now = this.#clock.now()
    if (this.#second !== undefined && now < this.#secondUntil) return
    this.#dropSecond()
    this.#secondUntil = now + this.#silence.nextSecond()
    this.#second = this.#dial()
    this.#second.holdOpen(false)
  }

  #dropSecond(): void {
    const second = this.#second
    this.#second = undefined
    second?.close(new LeaseError('UNAVAILABLE', `${second.name} is not needed twice`))
  }

  /** The server greets the second connection while the first is silent: everything goes on there. */
  #takeOver(second: RespConnection): void {
    this.#former?.close(new LeaseError('UNAVAILABLE', `${second.name} has not answered`))
    const former = this.#connection!
    this.#former = former
    this.#connection = second
    this.#second = undefined
    former.holdOpen(false)
    // Under new numbers: what the former connection may still bring of them is not news.
    for (const subscription of [...this.#subscriptions.values()]) this.#stopWatching(subscription)
    for (const ask of this.#asks.values()) {
      if (ask.on !== former || !ask.repeatable) continue
      ask.interrupted()
      this.#unsent.push(ask)
    }
    this.#guard(second)
    this.#leaveFormer()
    this.#clock.after(LAST_WORD, () => former.close(new LeaseError('UNAVAILABLE', `${former.name} has not answered`)))
  }

  /** Closes the replaced connection when no answer is expected on it. */
  #leaveFormer(): void {
    const former = this.#former!
    for (const { on } of this.#asks.values()) if (on === former) return
    for (const { on } of this.#streams.values()) if (on === former) return
    former.close(new LeaseError('UNAVAILABLE', `${former.name} was replaced by another connection`))
  }

  /** Its answers will not come: what can be asked twice is asked again. */
  #interrupt(connection: RespConnection, error: LeaseError): void {
    for (const stream of this.#streams.values())
      if (stream.on === connection) stream.tell(new LeaseError('UNAVAILABLE', error.message, { cause: error }))
    for (const ask of [...this.#asks.values()]) {
      if (ask.on !== connection) continue
      ask.interrupted()
      if (ask.repeatable) this.#unsent.push(ask)
      else ask.fail(ask.unanswered(error.message))
    }
  }

  #ended(connection: RespConnection, error: LeaseError): void {
    if (this.#second === connection) this.#second = undefined
    if (this.#former === connection) {
      this.#former = undefined
      this.#interrupt(connection, error)
    }
    if (this.#connection !== connection) return
    this.#connection = undefined
    this.#watchdog?.()
    for (const subscription of this.#subscriptions.values()) subscription.wire = 0
    this.#interrupt(connection, error)
    // Refused for who we are: what was not sent will not be taken later either.
    if (error.code !== 'UNAVAILABLE') {
      for (const ask of [...this.#asks.values()]) ask.fail(ask.finally(error))
      for (const subscription of this.#subscriptions.values()) subscription.fail(error)
    }
    this.#tell?.(error)
    if (this.#closed !== undefined) return
    if (this.#second !== undefined) {
      this.#connection = this.#second
      this.#second = undefined
      return this.#guard(this.#connection)
    }
    this.#failures++
    const wait =
      this.#failures < this.#dials.length
        ? 0
        : this.#clock.random() * Math.min(RETRY_LAST, RETRY_FIRST * 2 ** this.#failures, this.#silence.share(RETRY_FIRST))
    this.#watchdog = this.#clock.after(wait, () => this.#connect(), { ref: this.#asks.size > 0 || this.#greeting === undefined })
  }

  /** Notices a server that says nothing any more, or that answers but does not renew. */
  #guard(connection: RespConnection): void {
    this.#watchdog?.()
    this.#watchdog = this.#clock.after(this.#silence.every, () => {
      if (!this.#isSilent(connection)) return this.#guard(connection)
      // We may have been stopped ourselves: what waits in the socket is read before anyone is judged.
      this.#clock.soon(() =>
        this.#clock.soon(() => {
          if (this.#connection !== connection) return
          if (this.#silence.isOver(connection, this.#asks.values())) {
            const limit = inWords(this.#silence.limit(connection))
            return connection.close(new LeaseError('UNAVAILABLE', `${connection.name} has not answered for ${limit}`))
          }
          if (this.#silence.wantsSecond(connection, this.#asks.values())) this.#trySecond()
          else this.#dropSecond()
          this.#guard(connection)
        }),
      )
    })
  }

  #isSilent(connection: RespConnection): boolean {
    const asks = () => this.#asks.values()
    return this.#silence.isOver(connection, asks()) || this.#silence.wantsSecond(connection, asks()) || this.#second !== undefined
  }

  // The end

  #whyClosed(): LeaseError {
    const { reason } = this.#closing.signal
    return reason instanceof LeaseError ? reason : new LeaseError('UNAVAILABLE', 'this lessor is closing')
  }

  async #close(): Promise<void> {
    if (this.#connection?.open && this.#asks.size > 0) {
      this.#flush()
      const answered = new Promise<void>(resolve => (this.#allAnswered = resolve))
      await Promise.race([answered, pause(this.#clock, FAREWELL, undefined, { ref: true })])
    }
    const error = new LeaseError('UNAVAILABLE', 'this lessor was closed')
    this.#closing.abort(error)
    for (const ask of [...this.#asks.values()]) ask.fail(ask.unanswered('this lessor was closed'))
    for (const subscription of this.#subscriptions.values()) subscription.fail(error)
    this.#impatient?.cancel()
    this.#watchdog?.()
    for (const connection of [this.#second, this.#former, this.#connection]) connection?.close(error)
    this.#watchdog?.()
  }

  /** Waits a moment for what is under way; whoever is not answered by then is told what is true. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }
}
