/**
 * Keeps a client connected to one of its servers: reconnects after growing pauses, leaves a silent server for the next address, and with one
 * address tries a second connection beside the silent one, which takes over if it is greeted before the first is heard again.
 *
 * With several addresses, each client draws one as its home. When it had to leave that, it returns later. Otherwise the server that was restarted last in a rolling
 * restart would be left without clients.
 */
import { BACKOFF, pauseAfter } from '../../backoff.ts'
import type { Clock } from '../../clock.ts'
import { inWords } from '../../duration.ts'
import { type ErrorReason, LeaseError } from '../../errors.ts'
import type { ServerMessage } from '../messages.ts'
import { type Greeting, type Receive, RespConnection } from './connection.ts'
import type { Dial } from './dial.ts'
import type { PendingRequests } from './pending-requests.ts'
import type { ShortestTtl } from './shortest-ttl.ts'
import { SilenceDetector } from './silence.ts'

export interface ConnectionsOptions {
  readonly dials: readonly Dial[]
  readonly key?: string | undefined
  readonly clock: Clock
  readonly ttls: ShortestTtl
  readonly requests: PendingRequests
  readonly events: ConnectionEvents
}

/** The callbacks of the owner of the connections, for one that comes, ends or is replaced. */
export interface ConnectionEvents {
  /** A connection can be used from now on. */
  greeted(connection: RespConnection, greeting: Greeting): void
  readonly received: Receive
  drained(): void
  /** `former` is silent, and another connection is in use instead. Answers may still come on it. */
  replaced(former: RespConnection): void
  /** Another connection will be used from now on, while the present one works. The answers that it owes still come. */
  returned(): void
  /** Answers will not come on `connection`. */
  interrupted(connection: RespConnection, error: LeaseError): void
  /** The connection in use has ended. Its answers were interrupted before. */
  disconnected(error: LeaseError): void
  /** Returns whether an answer is expected on `connection`. */
  expectsOn(connection: RespConnection): boolean
}

interface HomeTrial {
  readonly connection: RespConnection
  greeting?: Greeting
}

/** Requests that must not be sent twice wait this long on a replaced connection. */
const FORMER_TIMEOUT = 10_000
/** A client that is not connected to its home tries to return after this, and at most twice as long, in ms: a server that has just started should not get all at once. */
const RETURN_AFTER = 300_000
/** Its home must have read its log to the end within this time, in ms. */
const RETURN_TIMEOUT = 5_000

export class ServerConnections {
  readonly #options: ConnectionsOptions
  readonly #silence: SilenceDetector
  /** The connection in use, or being opened. Only this class changes it. */
  current: RespConnection | undefined
  /** Tried while the connection in use is silent. */
  #second: RespConnection | undefined
  #secondUntil = 0
  /** To the home of this client, while it finds out whether that can be used. */
  #trial: HomeTrial | undefined
  #cancelReturn: (() => void) | undefined
  readonly #home: number
  /** From 1 to 2: clients return at different times. */
  readonly #patience: number
  /** Replaced by a second one, or by the home. Requests that must not be sent twice may still be answered on it. */
  #former: RespConnection | undefined
  /** The last greeting; undefined before the first. Only this class changes it. */
  greeting: Greeting | undefined
  /** The server's log had come this far when it last said so. */
  #witness = ''
  #nextDial: number
  #failures = 0
  /** Cancels the next check for silence, or the next attempt to connect. */
  #cancelTimer: (() => void) | undefined
  #stopped = false
  #firstResult: ((error: LeaseError | undefined) => void) | undefined

  constructor(options: ConnectionsOptions) {
    const { clock, dials, ttls } = options
    this.#options = options
    this.#silence = new SilenceDetector(clock, ttls, dials.length)
    // Clients with the same list of addresses should not all begin with the first.
    const drawn = clock.random() * dials.length
    this.#home = Math.floor(drawn)
    this.#nextDial = this.#home
    this.#patience = 1 + (drawn % 1)
  }

  /** The connection in use, if it is open. */
  get open(): RespConnection | undefined {
    return this.current?.open ? this.current : undefined
  }

  get names(): string {
    return this.#options.dials.map(({ name }) => name).join(', ')
  }

  get #busy(): boolean {
    return this.#options.requests.size > 0
  }

  /**
   * Resolves when a server has greeted this client. Throws what the server refused, or `UNAVAILABLE` after `timeout` ms; with `once`, as soon as no address has
   * answered.
   */
  connect(timeout: number, { once = false }: { readonly once?: boolean } = {}): Promise<void> {
    return new Promise((resolve, reject) => {
      let last: LeaseError | undefined
      const cancel = this.#options.clock.after(
        timeout,
        () => {
          this.#firstResult = undefined
          const { code = 'UNAVAILABLE', reason = 'unreachable', facts = { engine: 'leasehold', where: this.names } } = last ?? {}
          const why = last === undefined ? '' : `: ${last.message}`
          reject(
            new LeaseError(code, `no server at ${this.names} within ${inWords(timeout)}${why}`, {
              ...(last && { cause: last }),
              reason,
              facts,
            }),
          )
        },
        { ref: true },
      )
      let left = once ? this.#options.dials.length : Number.POSITIVE_INFINITY
      this.#firstResult = error => {
        last = error
        if (error !== undefined && --left > 0 && this.mayEnd(error) && !(this.#options.dials.length === 1 && isWrongAddress(error))) return
        this.#firstResult = undefined
        cancel()
        if (error === undefined) resolve()
        else reject(error)
      }
      this.#connect()
    })
  }

  /** Returns whether a later attempt, or another server, may take this client. */
  mayEnd({ code }: LeaseError): boolean {
    return code === 'UNAVAILABLE' || (code === 'UNSUPPORTED' && this.#options.dials.length > 1)
  }

  #connect(): void {
    if (this.#stopped) return
    const connection = this.#dial()
    this.current = connection
    // Later, the timer of the pending requests keeps the process alive.
    connection.keepProcessAlive(this.greeting === undefined)
    this.#guard(connection)
  }

  #dial(index = this.#nextDial++): RespConnection {
    const { dials, clock, key, events } = this.#options
    const connection: RespConnection = new RespConnection({
      dial: dials[index % dials.length]!,
      clock,
      key,
      witness: this.#witness,
      greeted: greeting => this.#greeted(connection, greeting),
      received: events.received,
      drained: () => events.drained(),
      ended: error => this.#ended(connection, error),
    })
    return connection
  }

  #greeted(connection: RespConnection, greeting: Greeting): void {
    if (connection === this.#trial?.connection) return this.#askHome(this.#trial, greeting)
    if (connection === this.#second) {
      if (!this.#silence.wantsSecond(this.current!, this.#options.requests)) return this.#dropSecond() // the first is heard again
      this.#takeOver(connection)
    }
    this.#use(connection, greeting)
  }

  #use(connection: RespConnection, greeting: Greeting): void {
    this.greeting = greeting
    this.#witness = greeting.witness ?? ''
    this.#failures = 0
    this.#firstResult?.(undefined)
    connection.keepProcessAlive(false)
    this.#options.events.greeted(connection, greeting)
    this.#scheduleReturn()
  }

  // The way home

  #scheduleReturn(): void {
    const { clock, dials } = this.#options
    this.#cancelReturn?.()
    this.#cancelReturn = undefined
    if (this.#stopped || this.open === undefined || this.open.name === dials[this.#home]!.name) return
    this.#cancelReturn = clock.after(RETURN_AFTER * this.#patience, () => this.#tryHome())
  }

  /** The connection in use stays in use until the home has shown that it decides. */
  #tryHome(): void {
    this.#scheduleReturn()
    if (this.#stopped || this.open === undefined || this.#second !== undefined || this.#former !== undefined) return
    const connection = this.#dial(this.#home)
    connection.received = this.#receivedOnTrial
    connection.keepProcessAlive(false)
    this.#trial = { connection }
    this.#options.clock.after(RETURN_TIMEOUT, () => {
      if (this.#trial?.connection === connection) this.#dropTrial()
    })
  }

  /** A server without its store greets its clients, too: a consistent read shows whether it can decide. */
  #askHome(trial: HomeTrial, greeting: Greeting): void {
    if (!greeting.continues) return this.#dropTrial()
    trial.greeting = greeting
    trial.connection.send({ kind: 'read', id: 0, query: { kind: 'summary' }, consistent: true, atLeast: 0 })
    trial.connection.flush()
  }

  #dropTrial(): void {
    const { connection } = this.#trial ?? {}
    this.#trial = undefined
    connection?.close(new LeaseError('UNAVAILABLE', `${connection.name} is not used again yet`))
  }

  #return({ connection, greeting }: HomeTrial): void {
    const former = this.open
    if (former === undefined || this.#second !== undefined) return this.#dropTrial()
    this.#trial = undefined
    this.#options.events.returned()
    former.flush()
    former.keepProcessAlive(false)
    former.received = this.#receivedOnFormer
    this.#former = former
    connection.received = this.#options.events.received
    this.current = connection
    this.#guard(connection)
    this.#use(connection, greeting!)
    this.#leaveFormer()
  }

  readonly #receivedOnTrial: Receive = (_, { kind }) => {
    if (kind === 'view') this.#return(this.#trial!)
    else if (kind === 'failed') this.#dropTrial()
  }

  readonly #receivedOnFormer: Receive = (former, message) => {
    this.#options.events.received(former, message)
    this.#leaveFormer()
  }

  /** The server says how far its log has come, or what its store promises now. */
  changed(connection: RespConnection, message: Extract<ServerMessage, { readonly kind: 'witness' | 'profile' }>): void {
    if (connection !== this.current) return
    if (message.kind === 'witness') this.#witness = message.witness
    else this.greeting = { ...this.greeting!, profile: message.profile }
  }

  /** Tries a second connection beside the silent one, and another when that is not greeted either. */
  #trySecond(): void {
    const now = this.#options.clock.now()
    if (this.#second !== undefined && now < this.#secondUntil) return
    this.#dropSecond()
    this.#secondUntil = now + this.#silence.nextSecond()
    this.#second = this.#dial()
    this.#second.keepProcessAlive(false)
  }

  #dropSecond(): void {
    const second = this.#second
    this.#second = undefined
    second?.close(new LeaseError('UNAVAILABLE', `a second connection to ${second.name} is not needed`))
  }

  /** The server greets the second connection while the first is silent. */
  #takeOver(second: RespConnection): void {
    this.closeFormer(new LeaseError('UNAVAILABLE', `${second.name} has not answered`))
    const former = this.current!
    former.received = this.#receivedOnFormer
    this.#former = former
    this.current = second
    this.#second = undefined
    former.keepProcessAlive(false)
    this.#options.events.replaced(former)
    this.#guard(second)
    this.#leaveFormer()
    this.#options.clock.after(FORMER_TIMEOUT, () => former.close(new LeaseError('UNAVAILABLE', `${former.name} has not answered`)))
  }

  /** Closes the replaced connection when no answer is expected on it. */
  #leaveFormer(): void {
    const former = this.#former!
    if (this.#options.events.expectsOn(former)) return
    former.close(new LeaseError('UNAVAILABLE', `${former.name} was replaced by another connection`))
  }

  closeFormer(error: LeaseError): void {
    this.#former?.close(error)
  }

  #ended(connection: RespConnection, error: LeaseError): void {
    const { events } = this.#options
    if (this.#second === connection) this.#second = undefined
    if (this.#trial?.connection === connection) this.#trial = undefined
    if (this.#former === connection) {
      this.#former = undefined
      events.interrupted(connection, error)
    }
    if (this.current !== connection) return
    this.current = undefined
    this.#cancelTimer?.()
    events.interrupted(connection, error)
    events.disconnected(error)
    this.#firstResult?.(error)
    if (this.#stopped) return
    if (this.#second !== undefined) {
      this.current = this.#second
      this.#second = undefined
      return this.#guard(this.current)
    }
    this.#reconnect()
  }

  #reconnect(): void {
    const { clock, dials } = this.#options
    this.#failures++
    const wait =
      this.#failures < dials.length
        ? 0
        : clock.random() * Math.min(pauseAfter(BACKOFF.request, this.#failures), this.#silence.share(BACKOFF.request.first))
    this.#cancelTimer = clock.after(wait, () => this.#connect(), { ref: this.#busy || this.greeting === undefined })
  }

  /** The shortest ttl became shorter: check for silence sooner, or the first renewal of that lease comes too late. */
  checkSooner(): void {
    if (this.open !== undefined) this.#guard(this.open)
  }

  /** Detects a server that is silent, or that answers but does not renew. */
  #guard(connection: RespConnection): void {
    const { clock, requests } = this.#options
    this.#cancelTimer?.()
    this.#cancelTimer = clock.after(this.#silence.interval, () => {
      if (!this.#isSilent(connection)) return this.#guard(connection)
      // This process may have been stopped itself. Read what waits in the socket, then judge.
      clock.soon(() =>
        clock.soon(() => {
          if (this.current !== connection) return
          if (this.#silence.isOver(connection, requests)) {
            const limit = inWords(this.#silence.limit(connection))
            return connection.close(this.#silent(connection.name, limit))
          }
          if (this.#silence.wantsSecond(connection, requests)) this.#trySecond()
          else this.#dropSecond()
          this.#guard(connection)
        }),
      )
    })
  }

  #silent(where: string, limit: string): LeaseError {
    return new LeaseError('UNAVAILABLE', `${where} has not answered for ${limit}`, { reason: 'silent', facts: { where } })
  }

  #isSilent(connection: RespConnection): boolean {
    const { requests } = this.#options
    return this.#silence.isOver(connection, requests) || this.#silence.wantsSecond(connection, requests) || this.#second !== undefined
  }

  /** From here on a connection that ends is not replaced. */
  stopReconnecting(): void {
    this.#stopped = true
    this.#cancelReturn?.()
    this.#dropTrial()
  }

  close(error: LeaseError): void {
    this.#cancelTimer?.()
    this.#cancelReturn?.()
    this.#dropTrial()
    for (const connection of [this.#second, this.#former, this.current]) connection?.close(error)
  }
}

/** Another attempt would end the same way: the port speaks TLS or does not, shows a certificate that is not trusted, or belongs to another program. */
const WRONG_ADDRESS: ReadonlySet<ErrorReason | undefined> = new Set([
  'tls-required',
  'tls-unsupported',
  'certificate',
  'stranger',
  'messages',
])

function isWrongAddress({ reason }: LeaseError): boolean {
  return WRONG_ADDRESS.has(reason)
}
