/**
 * Where every wire comes to: the lessor as callers see it that have keys, limits and connections of their own.
 *
 * A wire turns bytes into calls of this and answers into bytes; it decides nothing. Refusals are outcomes, which the wire words; failures are
 * thrown LeaseErrors.
 */
import { type Clock, systemClock, unlessAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Acquire, Command, Operation } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import { badText, NAME_BYTES } from '../kernel/name.ts'
import type { Granted, Outcome, Queued, Refused } from '../kernel/outcome.ts'
import { complete } from '../lessor/complete.ts'
import { holdersOf } from '../lessor/holders-of.ts'
import type { Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import { AccessControl, type Caller } from './access-control.ts'
import { Audit, type Audited, type Concern } from './audit.ts'
import { DEFAULT_LIMITS, type Limits } from './limits.ts'
import { type RemoteWaiterOptions, RemoteWaiters } from './remote-waiters.ts'

export type { Audited } from './audit.ts'

export interface GuardedRequest {
  readonly op?: Operation
  readonly signal?: AbortSignal
  /** Speaks for this key. The operator's right alone. */
  readonly key?: number
}

export interface GuardedLessorOptions {
  readonly lessor: Lessor
  readonly limits?: Limits
  readonly clock?: Clock
  readonly audit?: (done: Audited) => void
  /** A secret that is in no log: whoever has it speaks for the store itself. */
  readonly operator?: string
  /** Places that an administrator's key may move the leases to; none unless said otherwise. The operator may move them anywhere. */
  readonly moveTo?: readonly string[]
}

const UNCOUNTED: ReadonlySet<Command['kind']> = new Set(['renew', 'release'])
const SECOND = 1_000
/** So long it is asked who was in the way of a wait in vain. */
const NAMING = 250
/** Leases or resources in one answer. */
export const MAX_LISTED = 100_000
export const NOTHING_MORE: GuardedRequest = {}

export class GuardedLessor implements AsyncDisposable {
  readonly lessor: Lessor
  readonly gate: AccessControl
  readonly limits: Limits
  readonly clock: Clock
  readonly #audit: Audit
  readonly #moveTo: ReadonlySet<string>
  readonly #waiting: RemoteWaiters
  /** Requests in this second, by key. */
  readonly #asked = new Map<number, number>()
  /** Watches open now: by key, and by connection for those who have none. */
  readonly #watches = new Map<number | Caller, number>()
  #second = 0

  private constructor(
    gate: AccessControl,
    { lessor, limits = DEFAULT_LIMITS, clock = systemClock, audit = () => {}, moveTo = [] }: GuardedLessorOptions,
  ) {
    this.#moveTo = new Set(moveTo)
    this.lessor = lessor
    this.gate = gate
    this.limits = limits
    this.clock = clock
    this.#audit = new Audit(lessor, audit)
    this.#waiting = new RemoteWaiters(lessor, clock)
  }

  static async open(options: GuardedLessorOptions): Promise<GuardedLessor> {
    const { lessor, operator, clock = systemClock } = options
    return new GuardedLessor(await AccessControl.open(lessor, { operator, clock }), options)
  }

  /** How many wait through this server. */
  get waiting(): number {
    return this.#waiting.size
  }

  get watches(): number {
    let open = 0
    for (const count of this.#watches.values()) open += count
    return open
  }

  propose(caller: Caller, command: Command, asked: GuardedRequest = NOTHING_MORE): Promise<Outcome> {
    return new Promise((settle, fail) => this.submit(caller, command, asked, { settle, fail }))
  }

  /** Most requests come this way. Never throws: what is not let in is told, too. */
  submit(caller: Caller, asks: Command, asked: GuardedRequest, told: Completion): void {
    try {
      const { lessor } = this
      const options = this.#admit(caller, asks, asked)
      const command = signed(caller, asks)
      const concern = this.#audit.concern(command, options.key, this.gate.administers(caller, options.key))
      const seen = command?.kind === 'acquire' && command.holding !== undefined ? this.#censored(caller, told) : told
      if (concern === undefined && lessor.submit !== undefined) return lessor.submit(command, options, seen)
      const forbidden = this.#mayNotMove(caller, command)
      const outcome = forbidden === undefined ? lessor.propose(command, options) : Promise.resolve(forbidden)
      complete(seen, concern === undefined ? outcome : this.#audited(caller, command, outcome, concern))
    } catch (error) {
      told.fail(error)
    }
  }

  /**
   * The server goes along with a move: it opens whatever place is named, as its own user, and serves what it finds there. So the place is the operator's
   * choice, or named in the server's configuration; a key that came over the network chooses none.
   */
  #mayNotMove(caller: Caller, command: Command): Refused | undefined {
    if (command?.kind !== 'move' || caller.operator === true) return undefined
    const { to } = command
    if (to === undefined ? this.#moveTo.size > 0 : this.#moveTo.has(to)) return undefined
    const message =
      'moving leases to another store is for the operator: run leasehold migrate where the store itself can be opened, or name the place in the configuration of the server ("serve": {"moveTo": ["…"]})'
    return { kind: 'refused', revision: 0, code: 'FORBIDDEN', message, facts: {} }
  }

  /** Only a waiter that declares what it holds can be refused because of what others hold. */
  #censored(caller: Caller, told: Completion): Completion {
    return { settle: outcome => told.settle(this.gate.refusal(caller, outcome)), fail: error => told.fail(error) }
  }

  #admit(caller: Caller, command: Command, { op, signal, key = caller.key }: GuardedRequest): ProposeOptions & { readonly key: number } {
    this.gate.admit(caller)
    // What has not even a kind is the lessor's to refuse.
    if (!UNCOUNTED.has(command?.kind)) this.#count(caller)
    if (key !== caller.key && caller.operator !== true)
      throw new LeaseError('FORBIDDEN', `${caller.name} may not speak for another key`, { facts: { key } })
    return op === undefined && signal === undefined ? { key } : { key, ...(op && { op }), ...(signal && { signal }) }
  }

  async #audited(caller: Caller, command: Command, proposed: Promise<Outcome>, concern: NonNullable<Concern>): Promise<Outcome> {
    const outcome = await proposed
    await this.#audit.done(caller, command, outcome, concern)
    // Whoever was told that there is a key now, or no longer, finds it so.
    if (command.kind === 'key' || command.kind === 'unkey') await this.gate.learn()
    return outcome
  }

  /**
   * Asks and, when others have it, waits up to `wait` ms. `signal` is the asker's connection: its place goes when that goes. A grant that was
   * `waited` for must be renewed once before anyone trusts it. A wait in vain throws `TIMEOUT`.
   */
  async acquire(
    caller: Caller,
    command: Acquire,
    { wait, op, signal }: GuardedRequest & { readonly wait: number },
  ): Promise<Outcome | (Granted & { readonly waited: boolean })> {
    const { wait: _, ...now } = command
    // Without the signal: what was asked may happen all the same, and then somebody must know it to undo it.
    const outcome = await this.propose(caller, wait > 0 ? { ...now, wait: true } : now, op === undefined ? {} : { op })
    if (outcome.kind === 'granted') {
      // Under an operation it may have been asked again through another connection, and be believed there.
      if (op !== undefined || !signal?.aborted) return { ...outcome, waited: false }
      this.lessor.propose({ kind: 'release', lease: outcome.lease }).catch(() => {})
      throw signal.reason
    }
    if (outcome.kind !== 'queued') return outcome
    const over = new AbortController()
    const leave = () => over.abort(signal!.reason)
    signal?.addEventListener('abort', leave, { once: true })
    if (signal?.aborted) leave()
    const inVain = waitedInVain(command, wait)
    const cancel = this.clock.after(wait, () => over.abort(inVain))
    try {
      return { ...(await this.follow(caller, outcome, over.signal, { remember: op !== undefined })), waited: true }
    } catch (error) {
      const ended = op !== undefined && error instanceof LeaseError && error.code === 'GONE'
      if (ended && (await this.#waiting.wasInVain(outcome.lease))) throw await this.#inVain(command, wait)
      throw over.signal.aborted && error === inVain ? await this.#inVain(command, wait) : error
    } finally {
      cancel()
      signal?.removeEventListener('abort', leave)
    }
  }

  /** With who is in the way: that is told to whoever asks for a name, as it is by `HELD`. */
  async #inVain(command: Acquire, wait: number): Promise<LeaseError> {
    const late = new AbortController()
    const cancel = this.clock.after(NAMING, () => late.abort())
    const names = command.wants.map(({ resource }) => resource)
    const holders = await unlessAborted(holdersOf(this.lessor, names), late.signal).catch(() => [])
    cancel()
    return waitedInVain(command, wait, holders)
  }

  /** For those who were answered `queued` and are to be told of the grant later: see Waiting. A revoked key's place goes at once. */
  async follow(caller: Caller, queued: Queued, signal: AbortSignal, options?: RemoteWaiterOptions): Promise<Granted> {
    const stay = this.#stay(caller, signal)
    try {
      return await this.#waiting.follow(queued, stay.signal, options)
    } finally {
      stay.over()
    }
  }

  /** A signal that fires when `signal` does, or, with `UNAUTHENTICATED`, when the caller is let in no more. */
  #stay(caller: Caller, signal: AbortSignal): { readonly signal: AbortSignal; readonly over: () => void } {
    const stop = new AbortController()
    const leave = () => stop.abort(signal.reason)
    const forget = this.gate.mind(caller, error => stop.abort(error))
    signal.addEventListener('abort', leave, { once: true })
    if (signal.aborted) leave()
    const over = () => {
      forget()
      signal.removeEventListener('abort', leave)
    }
    return { signal: stop.signal, over }
  }

  async read<K extends Query['kind']>(
    caller: Caller,
    query: Extract<Query, { readonly kind: K }>,
    options: ReadOptions = {},
  ): Promise<View<K>> {
    this.gate.admit(caller)
    this.#count(caller)
    const narrowed = this.gate.narrowed(caller, query)
    // Views are made all of one state, in one turn of the loop: a million of them would keep everyone from renewing.
    const { limit } = query as { readonly limit?: number }
    const bounded = query.kind === 'leases' || query.kind === 'resources'
    const asked = bounded ? { ...narrowed, limit: Math.min(limit ?? MAX_LISTED, MAX_LISTED) } : narrowed
    const view = this.gate.filter(caller, query, await this.lessor.read<K>(asked, options))
    // Who did not ask for a part must not take it for the whole.
    if (view.more && limit === undefined)
      throw new LeaseError('LIMIT', `there are more than ${MAX_LISTED}: say a limit to have so many of them, or name a narrower prefix`, {
        facts: { limit: MAX_LISTED },
      })
    return view
  }

  /** Throws `FORBIDDEN` where there is nothing under the prefix that the caller may watch. */
  mayWatch(caller: Caller, prefix: string): void {
    this.gate.reach(caller, 'watch', prefix)
  }

  /** What a caller may see of what happens under a prefix. A revoked key's watch ends at once, with `UNAUTHENTICATED`. */
  async *watch(caller: Caller, prefix: string, options: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    this.gate.admit(caller)
    // Who has a name is told to whoever asks for it, and a waiter must hear of its grant: so what may be acquired may be watched, where it is named.
    const byAcquire = prefix !== '' && this.gate.may(caller, 'acquire', prefix)
    if (!byAcquire) this.mayWatch(caller, prefix)
    const key = caller.key === 0 ? caller : caller.key
    const open = this.#watches.get(key) ?? 0
    if (open >= this.limits.watches)
      throw new LeaseError('LIMIT', `${caller.name} has ${open} watches open, as many as are allowed: watch a prefix over several names`, {
        facts: { limit: this.limits.watches, retryAfter: SECOND },
      })
    this.#watches.set(key, open + 1)
    const stay = this.#stay(caller, options.signal)
    try {
      for await (const events of this.lessor.watch(prefix, { ...options, signal: stay.signal })) {
        const shown = this.gate.events(caller, events, byAcquire)
        if (shown.length > 0) yield shown
      }
      if (!options.signal.aborted) stay.signal.throwIfAborted()
    } finally {
      stay.over()
      const left = this.#watches.get(key)! - 1
      if (left === 0) this.#watches.delete(key)
      else this.#watches.set(key, left)
    }
  }

  /** How far the log has come, for a client to show when it comes back; undefined where that is not known. */
  get witness(): string | undefined {
    return this.lessor.witness
  }

  /** Whether the log contains what a client saw. The caller has been let in. */
  async continues(witness: string): Promise<boolean> {
    return (await this.lessor.continues?.(witness)) ?? true
  }

  /** Everything, as the bytes of a backup file, for an administrator of everything. Throws `FORBIDDEN`, and `UNSUPPORTED` where none can be had. */
  backup(caller: Caller, signal: AbortSignal): AsyncIterable<Uint8Array> {
    this.gate.demand(caller, 'admin', '')
    if (this.lessor.backup === undefined) throw new LeaseError('UNSUPPORTED', 'no backup can be had here: ask where the store is')
    this.#audit.backup(caller)
    return this.#backup(caller, signal)
  }

  async *#backup(caller: Caller, signal: AbortSignal): AsyncGenerator<Uint8Array, void, void> {
    const stay = this.#stay(caller, signal)
    try {
      yield* this.lessor.backup!({ signal: stay.signal })
      if (!signal.aborted) stay.signal.throwIfAborted()
    } finally {
      stay.over()
    }
  }

  #count({ key, name }: Caller): void {
    const { rate } = this.limits
    if (rate === 0 || key === 0) return
    const now = this.clock.now()
    if (now - this.#second >= SECOND) {
      this.#asked.clear()
      this.#second = now
    }
    const asked = (this.#asked.get(key) ?? 0) + 1
    if (asked > rate)
      throw new LeaseError('LIMIT', `${name} asked more than ${rate} times within a second: ask again in a while`, {
        facts: { limit: rate, retryAfter: Math.ceil(this.#second + SECOND - now) },
      })
    this.#asked.set(key, asked)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.gate[Symbol.asyncDispose]()
  }
}

/** Who comes with a key is called by its name: what they call themselves stands behind it, and can be no one else's. */
function signed(caller: Caller, command: Command): Command {
  if (caller.key === 0 || !(command?.kind === 'revoke' || command?.kind === 'break' || command?.kind === 'recall')) return command
  const { by = '' } = command
  // What is not even a text, or too long, is the kernel's to refuse.
  if (badText(by, NAME_BYTES) !== undefined) return command
  return { ...command, by: by === '' || by === caller.name ? caller.name : shortened(`${caller.name} (${by})`) }
}

/** So that it fits, as long names go: never in the middle of a character. */
function shortened(text: string): string {
  const bytes = Buffer.from(text)
  if (bytes.length <= NAME_BYTES) return text
  let end = NAME_BYTES
  while ((bytes[end]! & 0xc0) === 0x80) end--
  return bytes.toString('utf8', 0, end)
}

function waitedInVain({ wants }: Acquire, wait: number, holders: readonly string[] = []): LeaseError {
  const names = wants.map(({ resource }) => resource)
  const who = holders.length === 0 ? '' : `: it is held by ${holders.join(', ')}`
  return new LeaseError('TIMEOUT', `${names.join(', ')} was not granted within ${wait} ms${who}`, {
    facts: { resources: names, waited: wait, ...(holders.length > 0 && { holder: holders[0]!, holders }) },
  })
}
