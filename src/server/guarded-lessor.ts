/**
 * The lessor as remote callers see it: with keys, limits, audit, and waiting on behalf of a connection. All wires go through it.
 *
 * A wire turns bytes into calls of this class, and results into bytes. It makes no decisions. Refusals are returned as outcomes; failures are thrown as
 * LeaseErrors.
 */
import { type Clock, systemClock, unlessAborted, whenAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Acquire, Command, Operation } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import { badText, NAME_BYTES } from '../kernel/name.ts'
import type { Granted, Outcome, Queued, Refused } from '../kernel/outcome.ts'
import { complete } from '../lessor/complete.ts'
import { holdersOf } from '../lessor/holders-of.ts'
import type { ListPart } from '../lessor/list-part.ts'
import { propose } from '../lessor/propose.ts'
import type { Completion, Lessor, PageView, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import { AccessControl, type Caller } from './access-control.ts'
import { Audit, type AuditRecord, type ForeignLeases } from './audit.ts'
import { CallerTurns, partyOf } from './caller-turns.ts'
import { KeylessWaiters } from './keyless-waiters.ts'
import { DEFAULT_LIMITS, type Limits } from './limits.ts'
import { type RemoteWaiterOptions, RemoteWaiters } from './remote-waiters.ts'
import { RequestLimits } from './request-limits.ts'
import { RequestTimes, TimedCompletion } from './request-times.ts'

export type { AuditRecord } from './audit.ts'

export interface GuardedRequest {
  readonly op?: Operation
  readonly signal?: AbortSignal
  /** Act for this key. Only the operator may. */
  readonly key?: number
}

export interface GuardedLessorOptions {
  readonly lessor: Lessor
  readonly limits?: Limits
  readonly clock?: Clock
  readonly audit?: (record: AuditRecord) => void
  /** The operator's secret. Its caller acts for the store itself. @default none */
  readonly operator?: string
  /** Stores that an administrator's key may move the leases to. The operator may move them anywhere. @default none */
  readonly moveTo?: readonly string[]
  /** @default a new one */
  readonly turns?: CallerTurns
}

/** Not counted against the limit `rate`: a refused renewal would end a lease. */
const NOT_RATE_LIMITED: ReadonlySet<Command['kind']> = new Set(['renew', 'release'])
const KEY_COMMANDS: ReadonlySet<Command['kind']> = new Set(['key', 'rotate', 'limit', 'unkey'])
const SECOND = 1_000
/** Timeout for looking up the holders that a waiter timed out on, in ms. */
const HOLDERS_TIMEOUT = 250
/** Maximum leases or resources in one list. */
export const MAX_LISTED = 100_000
/** Items of a list that are looked at in one slice. */
const FILTERED = 1_000
export const NO_REQUEST_OPTIONS: GuardedRequest = {}

export class GuardedLessor implements AsyncDisposable {
  readonly lessor: Lessor
  readonly access: AccessControl
  readonly limits: Limits
  readonly clock: Clock
  /** When each request is handled. The wires ask before they handle one. */
  readonly turns: CallerTurns
  /** For metrics. */
  readonly times: RequestTimes
  readonly #audit: Audit
  readonly #moveTo: ReadonlySet<string>
  readonly #waiters: RemoteWaiters
  readonly #keyless: KeylessWaiters
  readonly #requests: RequestLimits
  /** Open watches by key, or by connection for callers without a key. */
  readonly #watches = new Map<number | Caller, number>()

  private constructor(
    access: AccessControl,
    {
      lessor,
      limits = DEFAULT_LIMITS,
      clock = systemClock,
      audit = () => {},
      moveTo = [],
      turns = new CallerTurns(clock),
    }: GuardedLessorOptions,
  ) {
    this.#moveTo = new Set(moveTo)
    this.lessor = lessor
    this.access = access
    this.limits = limits
    this.clock = clock
    this.turns = turns
    this.times = new RequestTimes(clock)
    this.#audit = new Audit(lessor, audit, access.keys)
    this.#requests = new RequestLimits({ keys: access.keys, clock, rate: limits.rate })
    this.#waiters = new RemoteWaiters(lessor, clock)
    this.#keyless = new KeylessWaiters(lessor, access)
  }

  static async open(options: GuardedLessorOptions): Promise<GuardedLessor> {
    const { lessor, operator, clock = systemClock } = options
    return new GuardedLessor(await AccessControl.open(lessor, { operator, clock }), options)
  }

  /** The number of waiters that are connected to this server. */
  get waiting(): number {
    return this.#waiters.size
  }

  get watches(): number {
    let open = 0
    for (const count of this.#watches.values()) open += count
    return open
  }

  propose(caller: Caller, command: Command, request: GuardedRequest = NO_REQUEST_OPTIONS): Promise<Outcome> {
    return new Promise((settle, fail) => this.submit(caller, command, request, { settle, fail }))
  }

  /** Never throws: failures go to the completion as well. */
  submit(caller: Caller, requested: Command, request: GuardedRequest, untimed: Completion): void {
    const completion = new TimedCompletion(this.times, requested?.kind, untimed)
    try {
      const { lessor } = this
      const { op, signal, key = caller.key } = request
      // Without a required key, every caller without a key is admitted.
      if (caller.key !== 0 || this.access.keyRequired) this.access.admit(caller)
      // The lessor refuses a command without a kind.
      if (caller.key !== 0 && !NOT_RATE_LIMITED.has(requested?.kind)) this.#requests.count(caller)
      if (key !== caller.key && caller.operator !== true)
        throw new LeaseError('FORBIDDEN', `${caller.name} may not act for another key: only the operator may`, { facts: { key } })
      const options = op === undefined && signal === undefined ? { key } : { key, ...(op && { op }), ...(signal && { signal }) }
      const command = caller.key === 0 ? requested : withKeyName(caller, requested)
      const isAcquire = command?.kind === 'acquire'
      const isKeyless = caller.key === 0 && caller.operator !== true
      if (isAcquire && command.wait === true && isKeyless) completion.onQueued = queued => this.#keyless.note(caller, queued)
      // A deadlock names resources of other holders. Only a waiter that declares what it holds can be refused for one.
      if (isAcquire && command.holding !== undefined) completion.redact = outcome => this.access.redact(caller, outcome)
      const foreign = isAcquire && command.steal === undefined ? undefined : this.#foreignLeases(caller, command, key)
      if (foreign === undefined) return lessor.submit(command, options, completion)
      const forbidden = this.#refuseMove(caller, command)
      const outcome = forbidden === undefined ? propose(lessor, command, options) : Promise.resolve(forbidden)
      complete(completion, this.#audited(caller, command, outcome, foreign))
    } catch (error) {
      completion.fail(error)
    }
  }

  /** Renews a lease of the caller at once; undefined: `submit` the renewal instead, also if the caller may not renew. */
  renewAtOnce(caller: Caller, lease: number): number | undefined {
    const term = this.access.admits(caller) ? this.lessor.renewAtOnce?.(lease, caller.key) : undefined
    if (term !== undefined) this.times.renewals.add(0)
    return term
  }

  #foreignLeases(caller: Caller, command: Command, key: number): ForeignLeases {
    return this.#audit.foreignLeases(command, key, this.access.administers(caller, key))
  }

  /**
   * On a move the server opens the named store as its own user and serves what it finds there. So only the operator or the server's configuration may choose the
   * store, never a key that came over the network.
   */
  #refuseMove(caller: Caller, command: Command): Refused | undefined {
    if (command?.kind !== 'move' || caller.operator === true) return undefined
    const { to } = command
    if (to === undefined ? this.#moveTo.size > 0 : this.#moveTo.has(to)) return undefined
    return { kind: 'refused', revision: 0, code: 'FORBIDDEN', reason: 'forbidden-move', facts: {} }
  }

  async #audited(caller: Caller, command: Command, proposed: Promise<Outcome>, foreign: NonNullable<ForeignLeases>): Promise<Outcome> {
    const outcome = await proposed
    await this.#audit.record(caller, command, outcome, foreign)
    // Apply the change before its outcome is returned: the caller relies on it from then on.
    if (KEY_COMMANDS.has(command.kind)) await this.access.reloadKeys()
    return outcome
  }

  /**
   * Acquires, and waits up to `wait` ms if the resources are held. `signal` fires when the caller's connection closes: its place in the queue is then given up.
   * A grant with `waited` must be renewed once before the holder trusts it. Throws `TIMEOUT` when the wait is over.
   */
  async acquire(
    caller: Caller,
    command: Acquire,
    { wait, op, signal }: GuardedRequest & { readonly wait: number },
  ): Promise<Outcome | (Granted & { readonly waited: boolean })> {
    const { wait: _, ...now } = command
    // Without the signal: the command may be applied even if it fires, and this code must know the outcome to undo it.
    const outcome = await this.propose(caller, wait > 0 ? { ...now, wait: true } : now, op === undefined ? {} : { op })
    if (outcome.kind === 'granted') {
      // With an operation, the client may have repeated the request on another connection and rely on the grant there.
      if (op !== undefined || !signal?.aborted) return { ...outcome, waited: false }
      propose(this.lessor, { kind: 'release', lease: outcome.lease }).catch(() => {})
      throw signal.reason
    }
    if (outcome.kind !== 'queued') return outcome
    const stop = new AbortController()
    const unlink = signal && whenAborted(signal, () => stop.abort(signal.reason))
    const timedOut = timeoutError(command, wait)
    // In the caller's turn: thousands of waits may end in one moment.
    const cancel = this.clock.after(wait, () => this.#inTurn(caller, () => stop.abort(timedOut)))
    try {
      return { ...(await this.follow(caller, outcome, stop.signal, { remember: op !== undefined })), waited: true }
    } catch (error) {
      const ended = op !== undefined && error instanceof LeaseError && error.code === 'GONE'
      if (ended && (await this.#waiters.hasTimedOut(outcome.lease))) throw await this.#timeoutWithHolders(command, wait)
      throw stop.signal.aborted && error === timedOut ? await this.#timeoutWithHolders(command, wait) : error
    } finally {
      cancel()
      unlink?.()
    }
  }

  /** Names the current holders, as `HELD` does: a caller that may acquire a resource may know who holds it. */
  async #timeoutWithHolders(command: Acquire, wait: number): Promise<LeaseError> {
    const late = new AbortController()
    const cancel = this.clock.after(HOLDERS_TIMEOUT, () => late.abort())
    const names = namesAsked(command)
    const holders = await unlessAborted(holdersOf(this.lessor, names), late.signal).catch(() => [])
    cancel()
    return timeoutError(command, wait, holders)
  }

  /** Waits for the grant of a queued lease (see RemoteWaiters). Its place is given up at once if the caller's key is revoked. */
  async follow(caller: Caller, queued: Queued, signal: AbortSignal, options?: RemoteWaiterOptions): Promise<Granted> {
    const admission = this.#whileAdmitted(caller, signal)
    try {
      const granted = await this.#waiters.follow(queued, admission.signal, options)
      // Thousands may be granted in one revision.
      await this.turns.turn(partyOf(caller, undefined))
      return granted
    } finally {
      admission.end()
    }
  }

  #inTurn(caller: Caller, then: () => void): void {
    const turn = this.turns.turn(partyOf(caller, undefined))
    if (turn === undefined) then()
    else void turn.then(then)
  }

  /** A signal that fires with `signal`, or with `UNAUTHENTICATED` when the caller's key is revoked. */
  #whileAdmitted(caller: Caller, signal: AbortSignal): { readonly signal: AbortSignal; readonly end: () => void } {
    const stop = new AbortController()
    const unsubscribe = this.access.onRevoked(caller, error => stop.abort(error))
    const unlink = whenAborted(signal, () => stop.abort(signal.reason))
    const end = () => {
      unsubscribe()
      unlink()
    }
    return { signal: stop.signal, end }
  }

  read<K extends Query['kind']>(caller: Caller, query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.times.read(() => this.#read<K>(caller, query, options))
  }

  async #read<K extends Query['kind']>(
    caller: Caller,
    query: Extract<Query, { readonly kind: K }>,
    options: ReadOptions = {},
  ): Promise<View<K>> {
    this.access.admit(caller)
    this.#requests.count(caller)
    const narrowed = this.access.narrow(caller, query)
    // A list is built from one state in one turn of the event loop: a list of a million would delay all renewals.
    const { limit } = query as { readonly limit?: number }
    const isBounded = query.kind === 'leases' || query.kind === 'resources'
    const bounded = isBounded ? { ...narrowed, limit: Math.min(limit ?? MAX_LISTED, MAX_LISTED) } : narrowed
    const view = await this.#filtered(caller, query, await this.lessor.read<K>(bounded, options))
    // A caller that set no limit must not take a part for the whole list.
    if (view.more && limit === undefined)
      throw new LeaseError(
        'LIMIT',
        `the list has more than ${MAX_LISTED} ${query.kind}: set a limit to get the first ones, or use a narrower prefix`,
        {
          facts: { limit: MAX_LISTED },
        },
      )
    return view
  }

  /** Without what the caller may not read. A long list is looked through in slices. */
  async #filtered<K extends Query['kind']>(caller: Caller, query: Extract<Query, { readonly kind: K }>, view: View<K>): Promise<View<K>> {
    const { value } = view as unknown as View<'entries'>
    if (!Array.isArray(value) || value.length <= FILTERED) return this.access.filter(caller, query, view)
    const kept: unknown[] = []
    for (let from = 0; from < value.length; from += FILTERED) {
      if (from > 0) await this.nextTurn(caller)
      const part = { ...view, value: value.slice(from, from + FILTERED) } as unknown as View<K>
      for (const item of this.access.filter(caller, query, part).value as readonly unknown[]) kept.push(item)
    }
    return { ...view, value: kept } as unknown as View<K>
  }

  /** Resolves in the next turn of this caller. Work that takes long asks for it after each of its slices. */
  nextTurn(caller: Caller): Promise<void> | undefined {
    return this.turns.next(partyOf(caller, undefined))
  }

  /** One page of the leases or resources that the caller may see. Throws `UNSUPPORTED` if the lessor cannot sort lists. */
  async page<K extends 'leases' | 'resources'>(
    caller: Caller,
    query: Extract<Query, { readonly kind: K }>,
    page: ListPart,
    signal?: AbortSignal,
  ): Promise<PageView<K>> {
    this.access.admit(caller)
    this.#requests.count(caller)
    if (this.lessor.page === undefined)
      throw new LeaseError('UNSUPPORTED', 'this server cannot sort lists: read the whole list, and sort it yourself')
    const found = await this.lessor.page<K>(this.access.narrow(caller, query), page, signal === undefined ? {} : { signal })
    return { ...found, ...this.access.filter<K>(caller, query, found) }
  }

  /** Throws `FORBIDDEN` if the caller may watch nothing under the prefix. */
  mayWatch(caller: Caller, prefix: string): void {
    this.access.requireUnder(caller, 'watch', prefix)
  }

  /** The events under a prefix that the caller may see. The watch ends with `UNAUTHENTICATED` when the caller's key is revoked. */
  async *watch(caller: Caller, prefix: string, options: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    this.access.admit(caller)
    // A waiter must learn of its grant. So a caller may watch a resource that it may acquire, if it names the resource.
    const byAcquire = prefix !== '' && this.access.may(caller, 'acquire', prefix)
    if (!byAcquire) this.mayWatch(caller, prefix)
    const key = caller.key === 0 ? caller : caller.key
    const open = this.#watches.get(key) ?? 0
    if (open >= this.limits.watches)
      throw new LeaseError(
        'LIMIT',
        `${caller.name} has ${open} open watches, the limit: close one, or watch a prefix that covers several names`,
        {
          facts: { limit: this.limits.watches, retryAfter: SECOND },
        },
      )
    this.#watches.set(key, open + 1)
    const admission = this.#whileAdmitted(caller, options.signal)
    try {
      for await (const events of this.lessor.watch(prefix, { ...options, signal: admission.signal })) {
        const visible = this.access.visibleEvents(caller, events, byAcquire)
        if (visible.length > 0) yield visible
      }
      if (!options.signal.aborted) admission.signal.throwIfAborted()
    } finally {
      admission.end()
      const left = this.#watches.get(key)! - 1
      if (left === 0) this.#watches.delete(key)
      else this.#watches.set(key, left)
    }
  }

  /** Returns whether the log contains what a client saw. Admit the caller first. */
  async continues(witness: string): Promise<boolean> {
    return (await this.lessor.continues?.(witness)) ?? true
  }

  /** A backup file of the whole store, for callers with `admin` on everything. Throws `FORBIDDEN`, or `UNSUPPORTED` if the lessor makes no backups. */
  backup(caller: Caller, options: { readonly follow?: boolean; readonly signal: AbortSignal }): AsyncIterable<Uint8Array> {
    this.access.require(caller, 'admin', '')
    if (this.lessor.backup === undefined)
      throw new LeaseError('UNSUPPORTED', 'this server cannot make a backup: run leasehold backup where the store itself can be opened')
    this.#audit.recordBackup(caller)
    return this.#backup(caller, options)
  }

  async *#backup(
    caller: Caller,
    { follow = false, signal }: { readonly follow?: boolean; readonly signal: AbortSignal },
  ): AsyncGenerator<Uint8Array, void, void> {
    const admission = this.#whileAdmitted(caller, signal)
    try {
      yield* this.lessor.backup!({ follow, signal: admission.signal })
      if (!signal.aborted) admission.signal.throwIfAborted()
    } finally {
      admission.end()
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.access[Symbol.asyncDispose]()
  }
}

/** Puts the key's name before the name that the caller gave itself in `by`, so that no caller can pose as another. */
function withKeyName(caller: Caller, command: Command): Command {
  if (!(command?.kind === 'revoke' || command?.kind === 'break' || command?.kind === 'recall')) return command
  const { by = '' } = command
  // The kernel refuses a bad or too long text.
  if (badText(by, NAME_BYTES) !== undefined) return command
  return { ...command, by: by === '' || by === caller.name ? caller.name : truncated(`${caller.name} (${by})`) }
}

/** Cuts a text to the maximum length of a name, but not inside a character. */
function truncated(text: string): string {
  const bytes = Buffer.from(text)
  if (bytes.length <= NAME_BYTES) return text
  let end = NAME_BYTES
  while ((bytes[end]! & 0xc0) === 0x80) end--
  return bytes.toString('utf8', 0, end)
}

function namesAsked({ wants, pool }: Acquire): readonly string[] {
  return pool === undefined ? wants.map(({ resource }) => resource) : [pool.pool]
}

function timeoutError(command: Acquire, wait: number, holders: readonly string[] = []): LeaseError {
  const names = namesAsked(command)
  const heldBy = holders.length === 0 ? '' : `: it is held by ${holders.join(', ')}`
  return new LeaseError('TIMEOUT', `${names.join(', ')} was not granted within ${wait} ms${heldBy}`, {
    facts: { resources: names, waited: wait, ...(holders.length > 0 && { holder: holders[0]!, holders }) },
  })
}
