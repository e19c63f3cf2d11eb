/**
 * Tracks every open connection of a server: its caller, and how many bytes of responses it has not read. When a limit is reached, this class decides which
 * connection to close.
 *
 * Where keys are required, a connection is unauthenticated until it has sent one. Unauthenticated connections are closed when idle, cannot use the slots that are
 * reserved for clients with keys, and are closed first. Unread responses are limited per address and in total: beyond a limit, the connection that has not
 * read for longest is closed.
 */
import type { Socket } from 'node:net'
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { AccessControl, Caller } from './access-control.ts'
import type { Limits } from './limits.ts'
import type { ServerLog } from './listener.ts'

/** The facts that a wire reports about its connection. */
export interface TrackedConnection {
  /** Undefined for a unix socket. */
  readonly address: string | undefined
  /** The connection sent a valid key. Undefined: it is unauthenticated again, after a reset. Throws `LIMIT` if its key has too many connections. */
  identified(caller: Caller | undefined): void
  /** Bytes of responses that are buffered until the client reads them. */
  setUnread(bytes: number): void
  /** The client has read something. */
  progressed(): void
  /** A request is being served. A busy connection is not idle. */
  setBusy(busy: boolean): void
  /** Sets how the connection is closed. @default the socket is destroyed */
  closeWith(close: (reason: CloseReason) => void): void
}

export interface CloseReason {
  readonly code: 'LIMIT' | 'UNAUTHENTICATED'
  readonly message: string
}

/** Idle unauthenticated connections are looked for this often, in ms. */
const SWEEP_INTERVAL = 1_000
/** The share of the limit `unread` that one address may use. */
const MAX_ADDRESS_SHARE = 1 / 2
/** When a limit on unread bytes is exceeded, connections are closed until this share of it is left. */
const RELIEF_SHARE = 3 / 4
/** When to try again with a key that has too many connections, in ms. */
const RETRY_AFTER = 1_000

interface OpenConnection {
  readonly socket: Socket
  readonly address: string | undefined
  caller: Caller | undefined
  /** The key (0: none) and the group that it counts for. */
  key: number
  group: string | undefined
  /** When it was last busy, or became unauthenticated. */
  idleSince: number
  busy: boolean
  unread: number
  progressedAt: number
  close: (reason: CloseReason) => void
}

interface ServerConnectionsOptions {
  readonly access: AccessControl
  readonly clock: Clock
  readonly limits: Limits
  readonly log: ServerLog
}

export class Connections {
  static readonly #bySocket = new WeakMap<object, TrackedConnection>()
  static readonly #byServer = new WeakMap<object, Connections>()
  readonly #access: AccessControl
  readonly #clock: Clock
  readonly #limits: Limits
  readonly #log: ServerLog
  readonly #open = new Set<OpenConnection>()
  /** The longest idle first. */
  readonly #unauthenticated = new Set<OpenConnection>()
  readonly #unauthenticatedByAddress = new Map<string, number>()
  /** Open connections by key id and by group. */
  readonly #byKey = new Map<number | string, number>()
  readonly #unreadByAddress = new Map<string, number>()
  #unread = 0
  #cancelSweep: (() => void) | undefined

  constructor({ access, clock, limits, log }: ServerConnectionsOptions) {
    this.#access = access
    this.#clock = clock
    this.#limits = limits
    this.#log = log
    Connections.#byServer.set(access, this)
  }

  /** The connection of a socket that was passed to `open`. */
  static of(socket: object): TrackedConnection | undefined {
    return Connections.#bySocket.get(socket)
  }

  /** Open connections of the server with this access control, by key. Empty for a server without a port. */
  static *byKey(access: AccessControl): Generator<readonly [key: number, open: number], void, void> {
    const connections = Connections.#byServer.get(access)
    if (connections === undefined) return
    for (const [name, open] of connections.#byKey) if (typeof name === 'number') yield [name, open]
  }

  get size(): number {
    return this.#open.size
  }

  /** Bytes of unread responses of all connections, for metrics and tests. */
  get unread(): number {
    return this.#unread
  }

  /** Tracks a new connection. Closes an unauthenticated one if that makes room. Returns undefined if there is no room. */
  open(socket: Socket): TrackedConnection | undefined {
    const { connections, reserved, unauthenticatedPerAddress } = this.#limits
    const address = socket.remoteAddress
    const before = this.#open.size
    if (this.#access.keyRequired) {
      const fromAddress = address === undefined ? 0 : (this.#unauthenticatedByAddress.get(address) ?? 0)
      if (fromAddress >= unauthenticatedPerAddress) this.#evict(other => other.address === address)
      else if (this.#unauthenticated.size >= connections - reserved || before >= connections) this.#evict(() => true)
    }
    if (this.#open.size >= connections) return undefined
    const open: OpenConnection = {
      ...{ socket, address, caller: undefined, key: 0, group: undefined, busy: false, unread: 0 },
      ...{ idleSince: this.#clock.now(), progressedAt: 0, close: () => socket.destroy() },
    }
    this.#open.add(open)
    this.#classify(open)
    if (this.#cancelSweep === undefined) this.#scheduleSweep()
    socket.once('close', () => this.#forget(open))
    const connection: TrackedConnection = {
      address,
      identified: caller => {
        this.#count(open, caller?.key ?? 0)
        open.caller = caller
        this.#classify(open)
      },
      setUnread: bytes => this.#setUnread(open, bytes),
      progressed: () => {
        open.progressedAt = this.#clock.now()
      },
      setBusy: busy => {
        open.busy = busy
        this.#refresh(open)
      },
      closeWith: close => {
        open.close = close
      },
    }
    Connections.#bySocket.set(socket, connection)
    return connection
  }

  /** Counts the connection for a key and its group. Throws `LIMIT`, and then it counts as before. */
  #count(open: OpenConnection, key: number): void {
    if (key === open.key) return
    const { keys } = this.#access
    const group = keys.get(key)?.group
    for (const { name, who, limits } of keys.limitsOf(key) ?? []) {
      const used = (this.#byKey.get(name) ?? 0) - (name === open.group ? 1 : 0)
      if (limits.connections !== undefined && used >= limits.connections)
        throw new LeaseError('LIMIT', `${who} has ${used} connections to this server, its limit: close one first`, {
          facts: { what: 'connections', limit: limits.connections, used, retryAfter: RETRY_AFTER },
        })
    }
    if (open.key !== 0) add(this.#byKey, open.key, -1)
    if (open.group !== undefined) add(this.#byKey, open.group, -1)
    open.key = key
    open.group = group
    if (key !== 0) add(this.#byKey, key, 1)
    if (group !== undefined) add(this.#byKey, group, 1)
  }

  #forget(open: OpenConnection): void {
    this.#open.delete(open)
    this.#count(open, 0)
    this.#setUnauthenticated(open, false)
    this.#setUnread(open, 0)
    if (this.#open.size > 0) return
    this.#cancelSweep?.()
    this.#cancelSweep = undefined
  }

  // Unauthenticated connections

  #classify(open: OpenConnection): void {
    if (!this.#open.has(open)) return
    const { caller } = open
    this.#setUnauthenticated(open, this.#access.keyRequired && (caller === undefined || !this.#access.admits(caller)))
  }

  #setUnauthenticated(open: OpenConnection, unauthenticated: boolean): void {
    if (this.#unauthenticated.has(open) === unauthenticated) return
    if (unauthenticated) {
      open.idleSince = this.#clock.now()
      this.#unauthenticated.add(open)
    } else this.#unauthenticated.delete(open)
    if (open.address !== undefined) add(this.#unauthenticatedByAddress, open.address, unauthenticated ? 1 : -1)
  }

  #refresh(open: OpenConnection): void {
    open.idleSince = this.#clock.now()
    if (this.#unauthenticated.delete(open)) this.#unauthenticated.add(open)
  }

  /** Closes the unauthenticated connection that was idle for longest, among those that match. */
  #evict(matches: (open: OpenConnection) => boolean): void {
    for (const open of this.#unauthenticated) {
      if (!matches(open)) continue
      this.#close(open, {
        code: 'LIMIT',
        message:
          'the limit on connections without a key is reached, and this one was idle for longest: connect again, and send a key first',
      })
      return
    }
  }

  #close(open: OpenConnection, reason: CloseReason): void {
    this.#forget(open) // frees its slot now: the socket may take a moment to close
    open.close(reason)
  }

  #scheduleSweep(): void {
    const clock = this.#clock
    // Read waiting input first, then judge: after a stall of this process every connection looks idle.
    this.#cancelSweep = clock.after(SWEEP_INTERVAL, () => clock.soon(() => clock.soon(() => this.#sweep())))
  }

  #sweep(): void {
    if (this.#open.size === 0) return
    // Keys change while connections stay open.
    for (const open of this.#open) this.#classify(open)
    const oldest = this.#clock.now() - this.#limits.unauthenticatedTimeout
    for (const open of this.#unauthenticated)
      if (open.idleSince <= oldest && !open.busy)
        this.#close(open, {
          code: 'UNAUTHENTICATED',
          message: `this connection sent no key within ${this.#limits.unauthenticatedTimeout} ms: connect again, and send one`,
        })
    if (this.#open.size === 0) return
    this.#scheduleSweep()
  }

  // Unread responses

  #setUnread(open: OpenConnection, bytes: number): void {
    const change = (this.#open.has(open) ? bytes : 0) - open.unread
    if (change === 0) return
    if (change < 0 || open.unread === 0) open.progressedAt = this.#clock.now()
    open.unread += change
    this.#unread += change
    if (open.address !== undefined) add(this.#unreadByAddress, open.address, change)
    if (change < 0) return
    const max = this.#limits.unread
    if (this.#unread > max)
      this.#relieve(
        () => true,
        () => this.#unread,
        max,
      )
    else if (open.address !== undefined && this.#unreadByAddress.get(open.address)! > max * MAX_ADDRESS_SHARE)
      this.#relieve(
        ({ address }) => address === open.address,
        () => this.#unreadByAddress.get(open.address!) ?? 0,
        max * MAX_ADDRESS_SHARE,
      )
  }

  /** Closes matching connections until `unread` is well below `max`: first unauthenticated ones, then those that have not read for longest. */
  #relieve(matches: (open: OpenConnection) => boolean, unread: () => number, max: number): void {
    const candidates = [...this.#open].filter(open => open.unread > 0 && matches(open))
    const rank = (open: OpenConnection) => (this.#unauthenticated.has(open) ? 0 : 1)
    candidates.sort((a, b) => rank(a) - rank(b) || a.progressedAt - b.progressedAt)
    const before = unread()
    let closed = 0
    for (const open of candidates) {
      if (unread() <= max * RELIEF_SHARE) break
      closed++
      this.#close(open, {
        code: 'LIMIT',
        message: 'the limit on unread responses is reached: read responses before you send more requests',
      })
      open.socket.destroy()
    }
    this.#log.warn({ bytes: before, limit: this.#limits.unread, closed }, 'closed connections that left responses unread')
  }
}

function add<K>(counts: Map<K, number>, name: K, change: number): void {
  const count = (counts.get(name) ?? 0) + change
  if (count === 0) counts.delete(name)
  else counts.set(name, count)
}
