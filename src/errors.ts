/** The one error class of Leasehold, its codes, its reasons, and the facts that come with each. */
import type { Facts, Reason } from './kernel/reason.ts'

export type { Fact, Facts, Reason } from './kernel/reason.ts'

/**
 * Every error code, with the facts it may carry. A fact that does not apply is left out, so check before use. Facts that are not listed here
 * may come along as well.
 */
export interface FactsByCode {
  /**
   * The resource, entry or lease is held by another holder, and the call does not wait. Nothing was changed.
   * Next: wait (`wait`, or `acquire` without `ifAvailable`), or do something else.
   */
  readonly HELD: {
    readonly resource?: string
    /** The holder has it by its claim of this name, above or below. */
    readonly claim?: string
    readonly holder?: string
    readonly lease?: number
    readonly token?: number
    /** Wall-clock time of the grant, for people. */
    readonly since?: number
    /** About how many ms the holder's lease has left unless renewed. */
    readonly remaining?: number
    /** Length of the queue. */
    readonly queue?: number
    readonly key?: string
  }
  /**
   * The holder seems to be dead, and it is not certain yet that its lease has ended. Nothing was changed. Only from a process that opens the store itself.
   * Next: try again, which continues the count, or stay longer (`confirm`).
   */
  readonly UNCONFIRMED: {
    readonly resource?: string
    readonly holder?: string
    /** The term of the holder, in ms. */
    readonly ttl?: number
    /** About how many ms ago the holder was last heard of, by a clock that may be wrong. Left out if it is not known. */
    readonly silence?: number
    /** This call has stayed for this many ms. */
    readonly waited?: number
  }
  /** `wait` ran out before the lease was granted. The place in the queue is given up. Next: try again later, or wait longer. */
  readonly TIMEOUT: {
    readonly resource?: string
    readonly resources?: readonly string[]
    /** Milliseconds. */
    readonly waited?: number
    readonly holder?: string
    readonly holders?: readonly string[]
  }
  /**
   * The lease was lost: this is the reason of `lease.signal`. A call rejects with it only where no signal could report the loss: see
   * `request`, and `acquire` when the answer came after the ttl. Next: stop the work, then acquire again.
   */
  readonly LOST: {
    readonly resource?: string
    readonly lease?: number
    readonly holder?: string
    /** Such as `unreachable`, `stall`, `suspend`, `revoked`, `parent`, `max-hold`, `not-renewed`, `inactive`, `no-progress`. */
    readonly cause?: string
    /** That lasted for this many ms. */
    readonly ms?: number
    readonly by?: string
  }
  /** The lease has ended, or never existed. Next: acquire a new one. */
  readonly GONE: { readonly lease?: number; readonly resource?: string; readonly holder?: string; readonly cause?: string }
  /** A newer token, generation or incarnation was seen: the caller has been replaced. Next: stop; do not retry. */
  readonly STALE: {
    readonly resource?: string
    readonly token?: number
    readonly highest?: number
    readonly key?: string
    readonly generation?: number
  }
  /** Waiting would never end: holders wait for each other. `cycle` names them. Next: release what is held, then acquire in one order. */
  readonly DEADLOCK: { readonly cycle?: readonly string[] }
  /** An argument or option is wrong. Nothing was sent, or it was refused. Next: correct the call; the message says how. */
  readonly INVALID: { readonly option?: string; readonly url?: string; readonly path?: string; readonly moved?: string }
  /** The key does not allow this. Next: ask an administrator for the scope. */
  readonly FORBIDDEN: { readonly verb?: string; readonly name?: string }
  /** A limit is reached. Next: use less, raise the limit, or retry after `retryAfter` ms. */
  readonly LIMIT: { readonly limit?: number; readonly retryAfter?: number; readonly resource?: string; readonly quota?: number }
  /** The thing that was named does not exist. Next: check the name. */
  readonly NOT_FOUND: { readonly resource?: string; readonly key?: string; readonly member?: string }
  /** Certainly not done: the store or server could not be reached, or is closed. Next: retry. */
  readonly UNAVAILABLE: {
    readonly path?: string
    readonly where?: string
    readonly moved?: string
    readonly certificate?: string
  }
  /** It may or may not have been done. Next: retry only under the same operation id, or read what happened. */
  readonly UNKNOWN: { readonly lease?: number; readonly ttl?: number; readonly path?: string; readonly where?: string }
  /** The server wants a key, or does not know this one. Next: pass `apiKey`, or ask an administrator for a key. */
  readonly UNAUTHENTICATED: { readonly lease?: number; readonly cause?: string }
  /** The store, server or platform cannot do this. Next: use another store, or leave out the requirement. */
  readonly UNSUPPORTED: { readonly path?: string; readonly where?: string; readonly client?: number; readonly server?: number }
  /** The log lost records that this process had seen. Nothing can be decided on it any more. Next: connect again. */
  readonly DIVERGED: { readonly lease?: number; readonly token?: number; readonly revision?: number }
}

/** See `FactsByCode` for what each code means and what to do next. */
export type ErrorCode = keyof FactsByCode

/** Where a store or a server is, without its password. */
export interface PlaceFacts {
  readonly where: string
}

/** The file that the error is about. */
export interface FileFacts {
  readonly path: string
}

/**
 * Every reason of an error that is not a refusal by the rules of leasing, with the facts it has. Refusals have a
 * `Reason`. One reason may come with several codes: `UNAVAILABLE` if certainly nothing was done, otherwise `UNKNOWN`.
 */
export interface FactsByFailure {
  // Reaching a store or a server.
  /** No connection could be made, or no answer came. `engine` is the kind of store or server, `errno` the code of the operating system if there is one. */
  readonly unreachable: PlaceFacts & { readonly engine: string; readonly errno?: string }
  /** The connection was lost while it was in use. */
  readonly connection: PlaceFacts
  /** It is connected and has not answered in time. */
  readonly silent: PlaceFacts
  /** The port requires TLS. `meant` is the scheme to use. */
  readonly 'tls-required': PlaceFacts & { readonly meant?: string }
  /** The address asks for TLS, and the port does not speak it. */
  readonly 'tls-unsupported': PlaceFacts
  /** The server's certificate is not trusted here. */
  readonly certificate: { readonly certificate: string }
  /** Another program, or none that Leasehold can use, answers at this address. */
  readonly stranger: PlaceFacts
  /** A Leasehold server answers at this address, and the URL asks for another engine. */
  readonly leasehold: PlaceFacts
  /** The server ended the connection before it answered. */
  readonly 'hung-up': PlaceFacts
  /** Client and server have different versions of the messages of `leasehold://`. */
  readonly messages: { readonly client: number; readonly server: number }

  // Denied by a store.
  /** User and password are not accepted. */
  readonly credentials: PlaceFacts
  /** The password is not accepted. */
  readonly password: PlaceFacts
  /** The store requires a user, or does not know this one. */
  readonly user: PlaceFacts
  /** The user or the process lacks a right, in the store or on the file. */
  readonly permission: { readonly where?: string; readonly path?: string; readonly owner?: number }
  /** The database does not exist. */
  readonly database: PlaceFacts

  // The state of a store.
  /** It still loads its data. */
  readonly loading: PlaceFacts
  /** It is starting or shutting down. */
  readonly restart: PlaceFacts
  /** It is a standby, which takes no writes. */
  readonly standby: PlaceFacts
  /** It takes no writes here: it is a replica, or the file or the disk is read-only. */
  readonly readonly: { readonly where?: string; readonly path?: string; readonly primary?: string }
  /** It has fewer replicas than its settings require. */
  readonly replicas: PlaceFacts
  /** It cannot write to its disk. */
  readonly disk: PlaceFacts
  /** Its memory is used up. */
  readonly memory: PlaceFacts
  /** Its cluster is down, or keeps the log on another node. */
  readonly cluster: PlaceFacts
  /** It has no connection left. */
  readonly connections: PlaceFacts
  /** The role of the server changed during the call. */
  readonly changed: PlaceFacts
  /** A transaction or a script of another process does not end. */
  readonly busy: { readonly where?: string; readonly path?: string; readonly pid?: number }
  /** The disk or the quota is full. */
  readonly full: { readonly where?: string; readonly path?: string }
  /** A request is larger than the store accepts. */
  readonly large: PlaceFacts
  /** etcd runs without its JSON gateway. */
  readonly gateway: PlaceFacts
  /** Any other failure; the message has the words of the engine. */
  readonly failed: { readonly where?: string; readonly path?: string }

  // The content of the store or file.
  /** A newer version of Leasehold wrote it. */
  readonly newer: { readonly where?: string; readonly path?: string; readonly version?: number; readonly format?: number }
  /** An earlier version of Leasehold wrote it, which cannot be read any more. */
  readonly older: { readonly where?: string; readonly version?: number }
  /** Another program wrote it. */
  readonly foreign: { readonly where?: string; readonly path?: string; readonly key?: string }
  /** Leases that a backup does not know may be longer than `known` ms; its policies allow `allowed`. */
  readonly 'longest-ttl': { readonly known: number; readonly allowed: number }
  /** The content is damaged. */
  readonly damaged: FileFacts

  /** A replica on the same log came to another state: one of them is faulty, and it is unknown which. */
  readonly disagreement: { readonly lease: number; readonly token: number; readonly revision: number }

  // Files.
  /** Another process owns the file, and may serve it at `address`. */
  readonly owned: FileFacts & {
    readonly owner?: number
    readonly name?: string
    readonly host?: string
    readonly since?: number
    readonly address?: string
  }
  /** Processes share the file, and it cannot be owned. */
  readonly used: FileFacts & { readonly users?: readonly number[] }
  /** A process is stopped in the middle of a transaction. */
  readonly stopped: FileFacts & { readonly pid: number }
  /** The disk failed. */
  readonly io: FileFacts
  /** It is a folder. */
  readonly folder: FileFacts
  /** It is neither a file nor a folder. */
  readonly kind: FileFacts
  /** Other users may read or write the file. */
  readonly mode: FileFacts & { readonly mode: string }
  /** It is a link, or has several names. */
  readonly link: FileFacts

  // Programs that were started.
  /** The program was not found, or could not be started. */
  readonly 'program-missing': { readonly program: string }
  /** It ended with an error. */
  readonly 'program-failed': { readonly program: string }
  /** It did not end in time. */
  readonly 'program-timeout': { readonly program: string }
  /** It printed more than is read. */
  readonly 'program-output': { readonly program: string }
  /** An earlier run cannot be ended. */
  readonly 'program-stuck': { readonly program: string }
}

/** Why an error happened that is not a refusal by the rules. */
export type FailureReason = keyof FactsByFailure

/** `reason` of a LeaseError. A server of a later version may send one that is not listed here: have a branch for it. */
export type ErrorReason = FailureReason | Reason

/** Any `LeaseError`, as a union: comparing `code` narrows `facts`. */
export type AnyLeaseError = { readonly [C in ErrorCode]: LeaseError<C> }[ErrorCode]

export interface LeaseErrorOptions {
  readonly cause?: unknown
  /** Why, for programs: more exact than the code. */
  readonly reason?: ErrorReason | undefined
  readonly facts?: Facts
  /** With `LOST` from `request`: what the callback returned. */
  readonly result?: unknown
}

/**
 * Every call of Leasehold rejects with this error, except that an aborted call rejects with the reason of its signal. Programs read `code`,
 * `reason` and `facts`; people read `message`, which names the resource, what happened and what to do next, and may change in any version.
 *
 * @example
 * try {
 *   await leases.acquire('jobs/nightly', { ifAvailable: true })
 * } catch (error) {
 *   if (!LeaseError.is(error, 'HELD')) throw error
 *   console.log(`held by ${error.facts.holder}`)
 * }
 */
export class LeaseError<C extends ErrorCode = ErrorCode> extends Error {
  override readonly name = 'LeaseError'
  readonly code: C
  /** Why, more exactly than `code`. Undefined where the code says it all. */
  declare readonly reason?: ErrorReason
  readonly facts: Facts & FactsByCode[C]
  /** With `LOST` from `request`: what the callback returned. */
  declare readonly result?: unknown

  constructor(code: C, message: string, { cause, reason, facts = {}, result }: LeaseErrorOptions = {}) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
    if (reason !== undefined) this.reason = reason
    this.facts = facts as Facts & FactsByCode[C]
    if (result !== undefined) this.result = result
  }

  /** Returns whether `error` is a LeaseError with one of these codes; with none named, any LeaseError. Narrows `code` and `facts`. */
  static is<C extends ErrorCode = ErrorCode>(error: unknown, ...codes: readonly C[]): error is { [K in C]: LeaseError<K> }[C] {
    return error instanceof LeaseError && (codes.length === 0 || (codes as readonly ErrorCode[]).includes(error.code))
  }

  // Narrows `instanceof` to the union. Without it TypeScript narrows to LeaseError<any>, and a misspelt code compiles.
  static override [Symbol.hasInstance](value: unknown): value is AnyLeaseError {
    // biome-ignore lint/complexity/noThisInStatic: of a subclass, only its own instances
    return Function.prototype[Symbol.hasInstance].call(this, value)
  }
}

/** Returns whether a retry would be refused again: the error is a decision, not an outage. */
export function isRefusal(error: unknown): boolean {
  return error instanceof LeaseError && error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN'
}
