/** The simulated network: delays, losses and duplicates between machines and the engine of the log, and between clients and servers. */
import { LeaseError } from '../src/errors.ts'
import { ConfirmedReads } from '../src/store/confirmed-reads.ts'
import { MemoryLog, MemoryStore } from '../src/store/memory.ts'
import type { Appended, Opened, Position, Profile, Read, RenewalMark, Snapshot, Store } from '../src/store.ts'
import type { Machine, World } from './world.ts'

export interface Weather {
  /** Mean one-way delay, ms. */
  delay: number
  /** Share of messages lost on each way. */
  loss: number
  /** Share of appends that arrive a second time, later. */
  doubled: number
}

const TIMEOUT = 400
/** An engine keeps a waiting reader for this long. */
const PARKED = 250
/** An append that takes longer than this delays the appends behind it. */
const SMOOTH = 200
/** The polling interval of readers, where an engine does not notify them. */
const POLL = 30
/** A store must not trust the answer to an append that takes longer than this, ms. */
export const LONG_WAIT = 150

/** Calls in which a process can die. */
export type Moment = 'opening' | 'appending' | 'reading' | 'snapshot'

export class Wire {
  readonly world: World
  readonly weather: Weather
  /** Machines that are cut off, in one direction or both. */
  readonly deaf = new Set<Machine>()
  readonly mute = new Set<Machine>()
  /** Machines whose disk is full: writes certainly fail. */
  readonly full = new Set<Machine>()
  /** Called at the start of every call: the process may die during it. */
  begins: (machine: Machine, moment: Moment) => void = () => {}

  constructor(world: World, weather: Weather) {
    this.world = world
    this.weather = weather
  }

  delay(): number {
    const { dice } = this.world
    const base = this.weather.delay * (0.2 + dice.unit())
    return dice.chance(0.02) ? base * 20 : base
  }

  /** The delay of a message from a machine; undefined if it gets lost. */
  out(machine: Machine): number | undefined {
    return this.mute.has(machine) || this.world.dice.chance(this.weather.loss) ? undefined : this.delay()
  }

  back(machine: Machine): number | undefined {
    return this.deaf.has(machine) || this.world.dice.chance(this.weather.loss) ? undefined : this.delay()
  }
}

/** The engine of the log; the referee sees every record in order, when it is appended. */
export class WatchedLog extends MemoryLog {
  onAppend: (position: Position, bytes: Uint8Array, sentAt: number) => void = () => {}
  sentAt = 0
  /** Waiting readers. They get no notice of a loss: an engine that took over does not know them. */
  readonly parked = new Set<() => void>()

  override append(...args: Parameters<MemoryLog['append']>): Appended {
    const [bytes] = args
    const appended = super.append(...args)
    if ('position' in appended) this.onAppend(appended.position, bytes, this.sentAt)
    for (const wake of [...this.parked]) wake()
    return appended
  }

  // An engine with a standby overrides these (replicated-log.ts).

  /** Calls on connections that were made before it changed fail. */
  get connection(): number {
    return 0
  }

  get hasStandby(): boolean {
    return false
  }

  get standbyIsAway(): boolean {
    return false
  }

  /** Writes, and answers once the write is acknowledged. */
  commit<T>(write: () => T, answer: (value: T) => void, _refuse: (error: LeaseError) => void): void {
    answer(write())
  }

  /** A store says that the record is in the log. */
  acknowledged(_position: Position, _by: string): void {}

  /** A store shows a record that it read. */
  shown(_position: Position, _by: string, _reader: { readonly isOwn: boolean; readonly connectedAt: number }): void {}
}

interface CallOptions<T> {
  readonly wait?: AbortSignal | undefined
  readonly isNews?: (answer: T) => boolean
  /** The call writes. */
  readonly commits?: boolean
}

/** A store that reaches its engine over the simulated network. */
export class WiredStore implements Store {
  readonly profile: Profile
  /** Its messages never arrive. */
  readonly waker = { listens: false, listen() {}, wake() {} }
  readonly #log: WatchedLog
  readonly #wire: Wire
  readonly #machine: Machine
  readonly #inner: MemoryStore
  readonly #ages: boolean
  readonly #push: boolean
  readonly #life: number
  #epoch = -1
  #closed = false
  /** Where the engine has a standby. */
  readonly #reads: ConfirmedReads | undefined
  #connection: number
  #connectedAt: number
  /** The nonces of its records. */
  readonly #own = new Set<bigint>()

  constructor(
    log: WatchedLog,
    wire: Wire,
    machine: Machine,
    { own, ages, push }: { readonly own?: { readonly name: string } | undefined; readonly ages: boolean; readonly push: boolean },
  ) {
    this.#log = log
    this.#wire = wire
    this.#machine = machine
    this.#ages = ages
    this.#push = push
    this.#life = machine.life
    this.#inner = new MemoryStore({ log, ...(own !== undefined && { own }) })
    this.profile = { ...this.#inner.profile, store: 'simulated', ages, push }
    this.#connection = log.connection
    this.#connectedAt = wire.world.now
    if (log.hasStandby)
      this.#reads = new ConfirmedReads({
        ...{ clock: machine.clock(), longWait: LONG_WAIT, server: 'engine' },
        commit: () => this.#call('appending', () => {}, { commits: true }),
      })
  }

  #connects(): void {
    this.#connection = this.#log.connection
    this.#connectedAt = this.#wire.world.now
    this.#reads?.distrust()
  }

  /** A request and its answer. A caller over a network can never know that a lost request did not arrive. */
  #call<T>(moment: Moment, what: () => T, { wait, isNews = () => true, commits = false }: CallOptions<T> = {}): Promise<T> {
    const { world } = this.#wire
    const connection = this.#connection
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new LeaseError('UNAVAILABLE', 'the store is closed'))
      this.#wire.begins(this.#machine, moment)
      const there = this.#wire.out(this.#machine)
      let over = false
      const finish = (then: () => void) => {
        if (over) return
        over = true
        cancel()
        wait?.removeEventListener('abort', stop)
        then()
      }
      const stop = () => finish(() => reject(wait?.reason))
      const cancel = world.later(
        TIMEOUT,
        () =>
          finish(() => {
            this.#connects()
            reject(new LeaseError('UNKNOWN', 'no answer'))
          }),
        this.#machine,
        true,
        this.#life,
      )
      wait?.addEventListener('abort', stop, { once: true })
      if (there === undefined) return
      const reply = (answer: T) => {
        const back = this.#wire.back(this.#machine)
        if (back !== undefined) world.later(back, () => finish(() => resolve(answer)), this.#machine, false, this.#life)
      }
      const refuse = (error: LeaseError) => {
        const back = this.#wire.back(this.#machine)
        const fail = () => {
          if (error.code === 'UNKNOWN') this.#connects()
          reject(error)
        }
        if (back !== undefined) world.later(back, () => finish(fail), this.#machine, false, this.#life)
      }
      const isConnected = () => this.#log.connection === connection
      const lost = () => refuse(new LeaseError('UNKNOWN', 'the connection was lost'))
      world.later(there, () => {
        if (!isConnected()) return lost()
        if (commits) return this.#log.commit(what, reply, refuse)
        const answer = what()
        if (isNews(answer)) reply(answer)
        else if (!over) this.#park(() => (isConnected() ? reply(what()) : lost()))
      })
    })
  }

  /**
   * Waits at the engine until there are records or the time is over. A polling reader reads a little later: polls without a result are not
   * simulated.
   */
  #park(then: () => void): void {
    const { parked } = this.#log
    const { world } = this.#wire
    const wake = () => {
      parked.delete(wake)
      enough()
      if (this.#push) then()
      else world.later(world.dice.between(0, POLL), then)
    }
    const enough = world.later(PARKED, wake)
    parked.add(wake)
  }

  async open(): Promise<Opened> {
    // Ownership of a file is a lock of the machine: taken at once, released with the process.
    this.#epoch = this.#log.admit(this.#inner)
    const look = () =>
      this.#call('opening', () => {
        const { snapshot, head } = this.#log
        return snapshot === undefined ? { head } : { snapshot: this.#aged(snapshot), head }
      })
    const opened = await (this.#reads?.confirmed(look) ?? look())
    this.#shows(opened.head)
    return opened
  }

  #shows(position: Position): void {
    const reader = { isOwn: this.#own.has(position.nonce), connectedAt: this.#connectedAt }
    if (position.index > 0) this.#log.shown(position, this.#machine.name, reader)
  }

  get passesRenewals(): boolean {
    return !this.#inner.own
  }

  async append(record: Uint8Array, after: Position, renewal?: RenewalMark): Promise<Appended> {
    const { world } = this.#wire
    const machine = this.#machine
    const began = world.now
    try {
      const appended = await this.#append(record, after, renewal)
      if (world.now - began > SMOOTH) machine.rough = world.now
      return appended
    } catch (error) {
      machine.rough = world.now
      throw error
    }
  }

  async #append(record: Uint8Array, after: Position, renewal: RenewalMark | undefined): Promise<Appended> {
    const { world } = this.#wire
    if (this.#closed) throw new LeaseError('UNAVAILABLE', 'the store is closed')
    this.#machine.troubled = true
    if (this.#wire.full.has(this.#machine)) throw new LeaseError('UNAVAILABLE', 'the disk is full')
    const sentAt = world.now
    const nonce = this.#log.hasStandby ? this.#machine.clock().bits() : undefined
    const put = () => {
      this.#log.sentAt = sentAt
      return this.#log.append(record, after, this.#epoch, { nonce, renewal })
    }
    if (nonce !== undefined) this.#own.add(nonce)
    if (world.dice.chance(this.#wire.weather.doubled)) {
      world.fault('a record arrives twice')
      world.later(this.#wire.delay() * world.dice.whole(1, 40), put)
    }
    this.#machine.appending++
    const send = () => this.#call('appending', put, { commits: true })
    const appending = nonce === undefined ? send() : this.#reads!.append(nonce, send)
    const appended = await appending.finally(() => this.#machine.appending--)
    this.#machine.troubled = false
    if ('position' in appended) this.#log.acknowledged(appended.position, this.#machine.name)
    return appended.kind === 'appended' ? { ...appended, missed: appended.missed.map(missed => this.#aged(missed)) } : appended
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    const isNews = (read: Read) => wait === undefined || read.kind !== 'records' || read.records.length > 0
    for (;;) {
      wait?.throwIfAborted()
      const look = () => this.#call('reading', () => this.#log.read(after, this.#epoch), { wait, isNews })
      const read = await (this.#reads?.read(look) ?? look())
      if (read.kind === 'records') for (const { position } of read.records) this.#shows(position)
      if (read.kind === 'records' && read.records.length > 0)
        return { kind: 'records', records: read.records.map(record => this.#aged(record)) }
      if (wait === undefined || read.kind !== 'records') return read
    }
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    const chunks: Uint8Array[] = []
    for await (const chunk of bytes) {
      chunks.push(chunk.slice())
      this.#wire.begins(this.#machine, 'snapshot')
      await new Promise<void>(resolve => this.#wire.world.later(this.#wire.delay(), resolve, this.#machine, false, this.#life))
    }
    return this.#call('snapshot', () => {
      // A snapshot waits for the standby as a record does: here it is not kept while the standby is away.
      const isOlder = at.index <= (this.#log.snapshot?.position.index ?? 0)
      if (isOlder || this.#log.find(at) !== undefined || this.#log.standbyIsAway) return 'older'
      this.#log.keep(at, chunks)
      return 'kept'
    })
  }

  async newest(): Promise<Snapshot | undefined> {
    const snapshot = await this.#call('reading', () => this.#log.snapshot)
    return snapshot === undefined ? undefined : this.#aged(snapshot)
  }

  #aged<T extends { readonly age: number }>(stored: T): T {
    return this.#ages ? stored : { ...stored, age: 0 }
  }

  /** The process has ended: the machine releases its locks. */
  abandon(): void {
    this.#closed = true
    void this.#inner[Symbol.asyncDispose]()
    this.#log.dismiss(this.#inner)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.abandon()
  }
}
