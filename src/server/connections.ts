/**
 * Every open connection of a server: whose it is, and how much it was sent and has not read. When there is no room, this decides who goes.
 *
 * Where there are keys, a connection that has shown none is a stranger's. Strangers have little time, cannot take the slots that are reserved for
 * callers with keys, and are the first to go. Answers that nobody reads are bounded for each address and for all connections together: beyond that, the
 * connection goes that has read nothing for the longest time.
 */
import type { Socket } from 'node:net'
import type { Clock } from '../clock.ts'
import type { AccessControl, Caller } from './access-control.ts'
import type { Limits } from './limits.ts'
import type { Log } from './listener.ts'

export interface Connection {
  /** Undefined: a unix socket, or no socket at all. */
  readonly address: string | undefined
  /** A key was accepted here; undefined: whoever was here before has left. */
  identified(caller: Caller | undefined): void
  /** Bytes that are kept for it until it reads. */
  owed(bytes: number): void
  /** It has read something. */
  progressed(): void
  /** A request is being served. A stranger is not idle meanwhile. */
  busy(busy: boolean): void
  /** How it is to be closed. Until this is called it is cut off. */
  ends(end: (reason: Reason) => void): void
}

export interface Reason {
  readonly code: 'LIMIT' | 'UNAUTHENTICATED'
  readonly message: string
}

/** How often strangers are looked at. */
const SWEEP = 1_000
/** One address may leave so large a share of all unread answers. */
const SHARE_OF_ONE = 1 / 2
/** When there is too much, connections are closed until this share of the limit is left. */
const RELIEVED = 3 / 4

interface Entry {
  readonly socket: Socket
  readonly address: string | undefined
  caller: Caller | undefined
  /** Since when it has been a stranger's and idle. */
  since: number
  busy: boolean
  unread: number
  progressedAt: number
  end: (reason: Reason) => void
}

export class Connections {
  static readonly #bySocket = new WeakMap<object, Connection>()
  readonly #gate: AccessControl
  readonly #clock: Clock
  readonly #limits: Limits
  readonly #log: Log
  readonly #open = new Set<Entry>()
  /** Those idle for longest first. */
  readonly #strangers = new Set<Entry>()
  readonly #strangersAt = new Map<string, number>()
  readonly #unreadAt = new Map<string, number>()
  #unread = 0
  #sweep: (() => void) | undefined

  constructor({
    gate,
    clock,
    limits,
    log,
  }: { readonly gate: AccessControl; readonly clock: Clock; readonly limits: Limits; readonly log: Log }) {
    this.#gate = gate
    this.#clock = clock
    this.#limits = limits
    this.#log = log
  }

  /** The connection of a socket that `open` was called with. */
  static of(socket: object): Connection | undefined {
    return Connections.#bySocket.get(socket)
  }

  get size(): number {
    return this.#open.size
  }

  /** Bytes of answers that have not been read, for metrics and tests. */
  get unread(): number {
    return this.#unread
  }

  /** Makes room, and takes it in. Undefined: there is none, even without strangers. */
  open(socket: Socket): Connection | undefined {
    const { connections, reserved, strangersPerAddress } = this.#limits
    const address = socket.remoteAddress
    const before = this.#open.size
    if (this.#gate.closed) {
      const here = address === undefined ? 0 : (this.#strangersAt.get(address) ?? 0)
      if (here >= strangersPerAddress) this.#evict(found => found.address === address)
      else if (this.#strangers.size >= connections - reserved || before >= connections) this.#evict(() => true)
    }
    if (this.#open.size >= connections) return undefined
    const entry: Entry = {
      ...{ socket, address, caller: undefined, busy: false, unread: 0 },
      ...{ since: this.#clock.now(), progressedAt: 0, end: () => socket.destroy() },
    }
    this.#open.add(entry)
    this.#judge(entry)
    if (this.#sweep === undefined) this.#sweepLater()
    socket.once('close', () => this.#close(entry))
    const connection: Connection = {
      address,
      identified: caller => {
        entry.caller = caller
        this.#judge(entry)
      },
      owed: bytes => this.#owe(entry, bytes),
      progressed: () => {
        entry.progressedAt = this.#clock.now()
      },
      busy: busy => {
        entry.busy = busy
        this.#refresh(entry)
      },
      ends: end => {
        entry.end = end
      },
    }
    Connections.#bySocket.set(socket, connection)
    return connection
  }

  #close(entry: Entry): void {
    this.#open.delete(entry)
    this.#strange(entry, false)
    this.#owe(entry, 0)
    if (this.#open.size > 0) return
    this.#sweep?.()
    this.#sweep = undefined
  }

  // Strangers

  #judge(entry: Entry): void {
    if (!this.#open.has(entry)) return
    this.#strange(entry, this.#gate.closed && (entry.caller === undefined || !this.#gate.admits(entry.caller)))
  }

  #strange(entry: Entry, strange: boolean): void {
    if (this.#strangers.has(entry) === strange) return
    if (strange) {
      entry.since = this.#clock.now()
      this.#strangers.add(entry)
    } else this.#strangers.delete(entry)
    if (entry.address !== undefined) add(this.#strangersAt, entry.address, strange ? 1 : -1)
  }

  #refresh(entry: Entry): void {
    entry.since = this.#clock.now()
    if (this.#strangers.delete(entry)) this.#strangers.add(entry)
  }

  #evict(which: (entry: Entry) => boolean): void {
    for (const entry of this.#strangers) {
      if (!which(entry)) continue
      this.#leave(entry, {
        code: 'LIMIT',
        message: 'there are as many connections without a key as are allowed, and others wait: connect again, and show a key at once',
      })
      return
    }
  }

  #leave(entry: Entry, reason: Reason): void {
    this.#close(entry) // its slot is free now, though its socket may need a moment
    entry.end(reason)
  }

  #sweepLater(): void {
    const clock = this.#clock
    // What waits in the sockets is read before anyone is judged: after a stall of our own everyone looks idle.
    this.#sweep = clock.after(SWEEP, () => clock.soon(() => clock.soon(() => this.#lookAround())))
  }

  #lookAround(): void {
    if (this.#open.size === 0) return
    // Keys come and go while connections last.
    for (const entry of this.#open) this.#judge(entry)
    const oldest = this.#clock.now() - this.#limits.strangerTime
    for (const entry of this.#strangers)
      if (entry.since <= oldest && !entry.busy)
        this.#leave(entry, {
          code: 'UNAUTHENTICATED',
          message: `no key was shown for ${this.#limits.strangerTime} ms: connect again, and show one`,
        })
    if (this.#open.size === 0) return
    this.#sweepLater()
  }

  // Answers that are not read

  #owe(entry: Entry, bytes: number): void {
    const more = (this.#open.has(entry) ? bytes : 0) - entry.unread
    if (more === 0) return
    if (more < 0 || entry.unread === 0) entry.progressedAt = this.#clock.now()
    entry.unread += more
    this.#unread += more
    if (entry.address !== undefined) add(this.#unreadAt, entry.address, more)
    if (more < 0) return
    const most = this.#limits.unread
    if (this.#unread > most)
      this.#relieve(
        () => true,
        () => this.#unread,
        most,
      )
    else if (entry.address !== undefined && this.#unreadAt.get(entry.address)! > most * SHARE_OF_ONE)
      this.#relieve(
        ({ address }) => address === entry.address,
        () => this.#unreadAt.get(entry.address!) ?? 0,
        most * SHARE_OF_ONE,
      )
  }

  #relieve(which: (entry: Entry) => boolean, unread: () => number, most: number): void {
    const owing = [...this.#open].filter(entry => entry.unread > 0 && which(entry))
    const rank = (entry: Entry) => (this.#strangers.has(entry) ? 0 : 1)
    owing.sort((a, b) => rank(a) - rank(b) || a.progressedAt - b.progressedAt)
    const before = unread()
    let closed = 0
    for (const entry of owing) {
      if (unread() <= most * RELIEVED) break
      closed++
      this.#leave(entry, { code: 'LIMIT', message: 'answers were left unread while there was no room for more' })
      entry.socket.destroy()
    }
    this.#log.warn({ bytes: before, limit: this.#limits.unread, closed }, 'answers were left unread: connections were closed')
  }
}

function add(counts: Map<string, number>, name: string, more: number): void {
  const count = (counts.get(name) ?? 0) + more
  if (count === 0) counts.delete(name)
  else counts.set(name, count)
}
