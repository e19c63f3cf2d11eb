/**
 * A server far away as a Lessor, over RESP. All proposals of one turn go out in one batch, answers arrive as soon as they are known, and
 * connections may come and go (connections.ts).
 *
 * A change is sent once. When its connection is lost it fails with `UNKNOWN`, never `UNAVAILABLE`, since the server may have executed it. Reads are asked
 * again on the next connection, and watches continue where they were (subscriptions.ts). A backup ends with its connection.
 */
import { setMaxListeners } from 'node:events'
import { type Clock, microtask, nextTick, pause, systemClock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { malformed } from '../../kernel/codec/form.ts'
import type { Command } from '../../kernel/command.ts'
import type { Event } from '../../kernel/event.ts'
import { refuseFlaw } from '../../kernel/rule/refuse.ts'
import type { BackupOptions, Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../../lessor.ts'
import { unreachableError } from '../../unreachable-error.ts'
import type { ServerMessage } from '../messages.ts'
import { rewoundError } from '../rewound-error.ts'
import { BackupStream } from './backup-stream.ts'
import type { Greeting, RespConnection } from './connection.ts'
import { ServerConnections } from './connections.ts'
import type { Dial } from './dial.ts'
import { PendingRequests } from './pending-requests.ts'
import { ShortestTtl } from './shortest-ttl.ts'
import { Subscriptions } from './subscriptions.ts'

export interface RemoteLessorOptions {
  /** Servers on one store. The client uses any one of them. */
  readonly dials: readonly Dial[]
  readonly key?: string | undefined
  readonly clock?: Clock
  /**
   * Fail a request that has no answer for this many ms.
   * @default 30_000
   */
  readonly timeout?: number
  /**
   * The first connection may take this long, in ms.
   * @default 5_000
   */
  readonly connectWithin?: number
  /** Try each address once, and fail if none answers. @default false: try until `connectWithin` is over */
  readonly connectOnce?: boolean
}

/** `close` waits this long for answers. */
const CLOSE_TIMEOUT = 1_000

export class RemoteLessor implements Lessor {
  readonly #clock: Clock
  readonly #closing = new AbortController()
  readonly signal: AbortSignal = this.#closing.signal
  readonly #ttls = new ShortestTtl()
  readonly #requests: PendingRequests
  readonly #subscriptions: Subscriptions
  readonly #connections: ServerConnections
  /** Backups that are being received, by id. */
  readonly #backups = new Map<number, BackupStream>()
  readonly #onRewound = new Set<(why: LeaseError) => void>()
  #flushing = false
  #lastId = 0
  /** The highest revision this client has seen. */
  #revision = 0
  #closed: Promise<void> | undefined

  private constructor({ dials, key, clock = systemClock, timeout = 30_000 }: RemoteLessorOptions) {
    this.#clock = clock
    const flushSoon = this.#flushSoon
    this.#requests = new PendingRequests({
      clock,
      timeout,
      servers: dials.map(({ name }) => name).join(', '),
      sendSoon: flushSoon,
    })
    this.#subscriptions = new Subscriptions({
      clock,
      nextId: () => ++this.#lastId,
      connection: () => this.#connections.open,
      flushSoon,
      mustBeOpen: () => this.#assertOpen(),
    })
    this.#connections = new ServerConnections({
      dials,
      key,
      clock,
      ttls: this.#ttls,
      requests: this.#requests,
      events: {
        greeted: (connection, greeting) => this.#greeted(connection, greeting),
        received: this.#received,
        drained: this.#flush,
        replaced: former => this.#replaced(former),
        returned: () => this.#subscriptions.stopAll(),
        interrupted: (connection, error) => this.#interrupted(connection, error),
        disconnected: error => this.#disconnected(error),
        expectsOn: connection => this.#expectsOn(connection),
      },
    })
    setMaxListeners(0, this.#closing.signal)
  }

  /** Connects to the first server that answers. Throws `UNAVAILABLE` when none does, `UNAUTHENTICATED` when the key is refused. */
  static async open(options: RemoteLessorOptions): Promise<RemoteLessor> {
    const lessor = new RemoteLessor(options)
    try {
      await lessor.#connections.connect(options.connectWithin ?? 5_000, { once: options.connectOnce ?? false })
      return lessor
    } catch (error) {
      await lessor[Symbol.asyncDispose]()
      throw error
    }
  }

  get profile(): Lessor['profile'] {
    return this.#connections.greeting!.profile
  }

  /** The name of the server in use; undefined while there is none. */
  get server(): string | undefined {
    return this.#connections.open?.name
  }

  onRewound(listener: (why: LeaseError) => void): () => void {
    this.#onRewound.add(listener)
    return () => this.#onRewound.delete(listener)
  }

  // Requests

  submit(command: Command, { op, key = 0, signal }: ProposeOptions, completion: Completion): void {
    if (signal?.aborted) return completion.fail(signal.reason)
    if (this.#closed !== undefined) return completion.fail(this.#whyClosed())
    // Refuse a malformed command here: it could not be encoded, or would be read as damaged by the server.
    const wrong = malformed(command, key, op)
    if (wrong !== undefined) return completion.settle(refuseFlaw({ revision: this.#revision }, wrong))
    const proposal = op === undefined ? { command, key } : { command, key, op }
    this.#requests.begin({ kind: 'propose', id: ++this.#lastId, proposal }, signal, completion)
  }

  async read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options: ReadOptions = {}): Promise<View<K>> {
    const { consistent = false, atLeast = 0, signal } = options
    signal?.throwIfAborted()
    this.#assertOpen()
    // Another server may answer this one. It must not show an older state than this client has seen.
    const message = { kind: 'read', id: ++this.#lastId, query, consistent, atLeast: Math.max(atLeast, this.#revision) } as const
    return new Promise((settle, fail) => this.#requests.begin(message, signal, { settle: view => settle(view as View<K>), fail }))
  }

  watch(prefix: string, options: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    return this.#subscriptions.watch(prefix, options)
  }

  async *backup({ follow = false, signal }: BackupOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    signal?.throwIfAborted()
    this.#assertOpen()
    const connection = this.#connections.open
    if (connection === undefined) throw unreachableError({ engine: 'leasehold', where: this.#connections.names })
    const id = ++this.#lastId
    const backup = new BackupStream(connection)
    this.#backups.set(id, backup)
    connection.keepProcessAlive(true)
    connection.send({ kind: 'backup', id, follow })
    this.#flushSoon()
    try {
      for (let bytes = await backup.next(signal); bytes !== undefined; bytes = await backup.next(signal)) yield bytes
    } finally {
      this.#backups.delete(id)
      if (this.#backups.size === 0) connection.keepProcessAlive(false)
      if (connection.open) connection.send({ kind: 'stop', id })
      this.#flushSoon()
    }
  }

  /** After everything that runs now has run, so that all its requests go out together. */
  readonly #flushSoon = (): void => {
    if (this.#flushing) return
    this.#flushing = true
    microtask(() => nextTick(this.#flush))
  }

  readonly #flush = (): void => {
    this.#flushing = false
    const { current } = this.#connections
    if (current === undefined || !current.open) return
    this.#requests.sendOn(current)
    current.flush()
  }

  // Messages from the server

  readonly #received = (connection: RespConnection, message: ServerMessage): void => {
    if (message.kind === 'outcome') {
      this.#revision = Math.max(this.#revision, message.outcome.revision)
      if (this.#ttls.learn(message.outcome)) this.#connections.checkSooner()
      return this.#requests.answered(message.id, 'propose', message.outcome)
    }
    if (message.kind === 'view') {
      this.#revision = Math.max(this.#revision, message.view.revision)
      return this.#requests.answered(message.id, 'read', message.view)
    }
    if (message.kind === 'witness' || message.kind === 'profile') return this.#connections.changed(connection, message)
    const backup = this.#backups.get(message.id)
    if (backup !== undefined) return backup.push(message)
    if (message.kind === 'failed') {
      if (!this.#requests.refused(connection, message)) this.#subscriptions.ended(message.id, message.error)
    } else if (message.kind === 'watching' || message.kind === 'events' || message.kind === 'over') {
      if (this.#subscriptions.received(message) && message.kind === 'events')
        this.#revision = Math.max(this.#revision, message.events[0]!.revision)
    }
  }

  // Connections

  #greeted(connection: RespConnection, greeting: Greeting): void {
    if (!greeting.continues) this.#rewound(connection, greeting)
    this.#revision = Math.max(this.#revision, greeting.revision)
    this.#subscriptions.beginAllOn(connection)
    this.#flush()
  }

  /** The server's log lost what this client saw: nothing learnt before is valid. */
  #rewound({ name }: RespConnection, { revision }: Greeting): void {
    this.#revision = revision
    this.#connections.closeFormer(new LeaseError('UNAVAILABLE', `${name} has another log now`))
    this.#requests.forgetRevisions()
    this.#subscriptions.resyncAll(revision, this.#clock.wall())
    const why = rewoundError(name)
    for (const listener of [...this.#onRewound]) listener(why)
  }

  #replaced(former: RespConnection): void {
    this.#subscriptions.stopAll()
    this.#requests.leave(former)
  }

  #interrupted(connection: RespConnection, error: LeaseError): void {
    for (const backup of this.#backups.values())
      if (backup.on === connection)
        backup.push(new LeaseError('UNAVAILABLE', error.message, { cause: error, reason: error.reason, facts: error.facts }))
    this.#requests.interrupt(connection, error)
  }

  #disconnected(error: LeaseError): void {
    this.#subscriptions.disconnected()
    if (this.#connections.mayEnd(error)) return
    // The key, or the version of this client, was refused: no server will take what was not sent.
    this.#requests.refuseAll(error)
    this.#subscriptions.failAll(error)
  }

  #expectsOn(connection: RespConnection): boolean {
    for (const { on } of this.#backups.values()) if (on === connection) return true
    return this.#requests.expectedOn(connection)
  }

  // The end

  #assertOpen(): void {
    if (this.#closed !== undefined) throw this.#whyClosed()
  }

  #whyClosed(): LeaseError {
    const { reason } = this.#closing.signal
    return reason instanceof LeaseError ? reason : new LeaseError('UNAVAILABLE', 'this lessor is closing')
  }

  async #close(): Promise<void> {
    this.#connections.stopReconnecting()
    if (this.#connections.open !== undefined && this.#requests.size > 0) {
      this.#flush()
      await Promise.race([this.#requests.allSettled(), pause(this.#clock, CLOSE_TIMEOUT, undefined, { ref: true })])
    }
    const error = new LeaseError('UNAVAILABLE', 'this lessor was closed')
    this.#closing.abort(error)
    this.#requests.close('this lessor was closed')
    this.#subscriptions.failAll(error)
    this.#connections.close(error)
  }

  /** Waits a moment for answers. Requests without one fail with `UNAVAILABLE` or `UNKNOWN`, whichever is true. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }
}
