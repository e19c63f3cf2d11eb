/**
 * Identifies callers by their key, and filters what each caller may read and watch. Everything is denied unless a key allows it.
 *
 * The kernel decides what a key may change, because only the kernel sees the state that the change applies to. This file decides the rest: whether a caller needs a key,
 * which key a secret belongs to, and which part of the state a caller sees.
 *
 * Not guaranteed: a key that was revoked through another server stays valid here until that change has arrived.
 */

import { timingSafeEqual } from 'node:crypto'
import { BACKOFF } from '../backoff.ts'
import { type Clock, pause, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Scope, Verb } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import { commonPrefixes, normalPrefix, under } from '../kernel/name.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { isOf, permits } from '../kernel/rule/authority.ts'
import { UNCLAIMED } from '../kernel/state/leases.ts'
import type { EntryView, LeaseView, Lessor, PoolSummary, Query, ResourceView, ServiceView, SketchView, Summary, View } from '../lessor.ts'
import { CHECKERS } from '../registry/entry.ts'
import { anonymousCaller, type Caller, operatorCaller } from './caller.ts'
import { hashOf, KeyRing } from './key-ring.ts'

export { anonymousCaller, type Caller, operatorCaller } from './caller.ts'

/** While some key or secret will end, clients are checked at least this often, in ms. */
const LONGEST_LOOK = 30_000

/** A long-lived request of a caller: a watch, or a place in a queue. */
interface AdmittedClient {
  readonly caller: Caller
  readonly onRevoked: (error: LeaseError) => void
}

export interface AccessControlOptions {
  /** The operator's secret, which is stored in no log. @default '' (no operator) */
  readonly operator?: string | undefined
  readonly clock?: Clock
}

export class AccessControl implements AsyncDisposable {
  readonly #lessor: Lessor
  readonly #clock: Clock
  readonly #operator: Buffer | undefined
  readonly #closing = new AbortController()
  readonly keys: KeyRing
  readonly #clients = new Set<AdmittedClient>()
  #exposed = false
  hasKeys = false
  /** Every caller needs a key: keys exist, or the server is exposed to other machines. */
  keyRequired = false
  #following: Promise<void> = Promise.resolve()
  #cancelEnd: (() => void) | undefined

  private constructor(lessor: Lessor, { operator = '', clock = systemClock }: AccessControlOptions) {
    this.#lessor = lessor
    this.#clock = clock
    this.keys = new KeyRing(clock)
    this.#operator = operator === '' ? undefined : hashOf(operator)
  }

  static async open(lessor: Lessor, options: AccessControlOptions = {}): Promise<AccessControl> {
    const access = new AccessControl(lessor, options)
    const after = await access.reloadKeys({ consistent: true })
    access.#following = access.#follow(after)
    return access
  }

  /** Call this when other machines can reach the server. It then refuses callers without a key, even after the last key was revoked. */
  expose(): void {
    this.#exposed = true
    this.keyRequired = true
    this.#checkClients()
  }

  /** Returns the caller that a secret belongs to. Throws `UNAUTHENTICATED`. */
  identify(secret: string | undefined): Caller {
    if (secret === undefined) {
      const caller = anonymousCaller()
      this.admit(caller)
      return caller
    }
    const hash = hashOf(secret)
    if (this.#operator !== undefined && timingSafeEqual(hash, this.#operator)) return operatorCaller()
    return this.keys.identify(hash)
  }

  /**
   * Returns the caller that signed `text`, or undefined for a wrong signature. Used where the secret itself must not be sent. The signature is the HMAC (SHA-256, hex) of
   * the text under the hash of the key's secret: the server stores only that hash.
   */
  signer(key: number, text: string, mac: string): Caller | undefined {
    return this.keys.signer(key, text, mac)
  }

  /** Throws `UNAUTHENTICATED` if a caller that was identified earlier is no longer valid: keys change while connections stay open. */
  admit(caller: Caller): void {
    if (!this.admits(caller))
      throw new LeaseError('UNAUTHENTICATED', caller.key === 0 ? this.#keyRequiredMessage() : this.keys.refusal(caller)!)
  }

  admits(caller: Caller): boolean {
    return caller.operator === true || (caller.key === 0 ? !this.keyRequired : this.keys.admits(caller))
  }

  #keyRequiredMessage(): string {
    return this.hasKeys
      ? 'this server requires a key: send Authorization: Bearer KEY (HTTP), AUTH KEY (RESP), or set LEASEHOLD_API_KEY'
      : 'this server accepts connections from other machines and has no keys left. Create one where the store can be opened: leasehold key create --name admin --allow admin --store URL'
  }

  /** Calls `onRevoked` once, when the caller is no longer admitted. Returns a function that unsubscribes. */
  onRevoked(caller: Caller, onRevoked: (error: LeaseError) => void): () => void {
    const client = { caller, onRevoked }
    this.#clients.add(client)
    this.#checkClient(client)
    return () => void this.#clients.delete(client)
  }

  #checkClients(): void {
    for (const client of this.#clients) this.#checkClient(client)
  }

  #checkClient(client: AdmittedClient): void {
    try {
      this.admit(client.caller)
    } catch (error) {
      this.#clients.delete(client)
      client.onRevoked(error as LeaseError)
    }
  }

  may({ key, operator }: Caller, verb: Verb, name: string): boolean {
    if (key === 0) return operator === true || !this.keyRequired
    return permits(this.keys.get(key)?.allow ?? [], verb, name)
  }

  /** Returns what the caller may do. Without keys, and for the operator: everything. */
  scopesOf({ key, operator }: Caller): readonly Scope[] {
    if (key === 0) return operator === true || !this.keyRequired ? [{ verb: 'admin', prefix: '' }] : []
    return this.keys.get(key)?.allow ?? []
  }

  /** Returns whether `key` may act on leases of other keys. The operator (key 0) may. Without keys, a caller has no leases of others to act on. */
  administers({ operator }: Caller, key: number): boolean {
    return key === 0 ? operator === true : (this.keys.get(key)?.administers ?? false)
  }

  /** Throws `FORBIDDEN` unless the caller may do this, and `UNAUTHENTICATED` if it needs a key. */
  require(caller: Caller, verb: Verb, name: string): void {
    this.admit(caller)
    if (this.may(caller, verb, name)) return
    throw new LeaseError('FORBIDDEN', `the key ${caller.name} may not ${verb} ${name === '' ? 'everything' : name}`, {
      facts: { verb, name },
    })
  }

  /** As `require`, but it is enough if the caller may do this for some names under the prefix. */
  requireUnder(caller: Caller, verb: Verb, prefix: string): void {
    this.admit(caller)
    const scopes = caller.key === 0 ? [] : (this.keys.get(caller.key)?.allow ?? [])
    const someUnder = scopes.some(scope => isOf(scope, verb) && under(prefix, scope.prefix))
    if (!someUnder) this.require(caller, verb, normalPrefix(prefix))
  }

  // Visibility for a caller

  /** A caller sees a lease that its key created, that it may claim, or of which it may read every name. */
  #isVisible(caller: Caller, lease: LeaseView): boolean {
    if (caller.key !== 0 && lease.key === caller.key) return true
    const held = [...lease.grants, ...lease.wants].map(({ resource }) => resource)
    if (lease.key === UNCLAIMED && caller.key !== 0 && held.every(name => this.may(caller, 'acquire', name))) return true
    const names = held.concat(lease.entries.map(({ key }) => key))
    return names.length === 0 ? this.may(caller, 'read', '') : names.every(name => this.may(caller, 'read', name))
  }

  /** The prefixes under which the caller may use the verb; undefined for all names. */
  #prefixes({ key, operator }: Caller, verb: Verb): readonly string[] | undefined {
    if (key === 0) return operator === true || !this.keyRequired ? undefined : []
    const scopes = (this.keys.get(key)?.allow ?? []).filter(scope => isOf(scope, verb))
    const prefixes = scopes.map(({ prefix }) => normalPrefix(prefix))
    return prefixes.includes('') ? undefined : prefixes
  }

  /**
   * Narrows a list query to what the caller may see. The replica then does no work for hidden items, and `more` counts only visible ones.
   * Throws if everything is hidden.
   */
  narrow<Q extends Query>(caller: Caller, query: Q): Q {
    const { kind } = query
    if (kind !== 'leases' && kind !== 'resources' && kind !== 'entries') return query
    if (isPublic(query)) return query
    if (kind !== 'leases') this.requireUnder(caller, 'read', query.prefix)
    const readable = this.#prefixes(caller, 'read')
    if (readable === undefined) return query
    const within = query.within === undefined ? readable : commonPrefixes(query.within, readable)
    if (kind !== 'leases') return { ...query, within }
    // A query for some prefixes only does not ask for the caller's own leases elsewhere.
    const { own, ...rest } = query
    if (query.within !== undefined && own === undefined) return { ...query, within }
    return { ...rest, within, own: { key: caller.key, claims: this.#prefixes(caller, 'acquire') ?? [''] } } as Q
  }

  /** Removes from a view what the caller may not read. Hidden items are reported as not found. Throws if everything is hidden. */
  filter<K extends Query['kind']>(caller: Caller, query: Extract<Query, { readonly kind: K }>, view: View<K>): View<K> {
    return { ...view, value: this.#filtered(caller, query, view.value) } as View<K>
  }

  #filtered(caller: Caller, query: Query, value: View['value']): View['value'] {
    this.admit(caller)
    switch (query.kind) {
      case 'summary':
        return this.may(caller, 'read', '') ? value : withoutFigures(value as Summary)
      case 'keys':
        this.require(caller, 'admin', '')
        return value
      case 'policies':
        return (value as View<'policies'>['value']).filter(({ prefix }) => this.may(caller, 'read', prefix))
      case 'lease':
        return value !== undefined && this.#isVisible(caller, value as LeaseView) ? value : undefined
      case 'leases':
        return (value as readonly LeaseView[]).filter(lease => this.#isVisible(caller, lease))
      case 'resource':
      case 'history':
        this.require(caller, 'read', query.resource)
        return value
      case 'durations':
        return (value as readonly SketchView[]).filter(({ class: name }) => name === '' || this.may(caller, 'read', name))
      case 'resources':
        this.requireUnder(caller, 'read', query.prefix)
        return (value as readonly ResourceView[]).filter(({ resource }) => this.may(caller, 'read', resource))
      case 'entries':
        if (isPublic(query)) return value
        this.requireUnder(caller, 'read', query.prefix)
        return (value as readonly EntryView[]).filter(({ key }) => this.may(caller, 'read', key))
      case 'pool':
        this.require(caller, 'read', query.pool)
        return value
      case 'pools':
        return (value as readonly PoolSummary[]).filter(({ pool }) => this.may(caller, 'read', pool))
      case 'services':
        return (value as readonly ServiceView[]).filter(({ service }) => this.may(caller, 'read', `services/${service}`))
    }
  }

  /** The events of one revision that the caller may see. With `byAcquire`, also those of resources it may acquire. Events without a name need the right to watch everything. */
  visibleEvents(caller: Caller, events: readonly Event[], byAcquire = false): readonly Event[] {
    if (caller.key === 0 && (caller.operator === true || !this.keyRequired)) return events
    return events.filter(({ type, resource, key = '' }) => {
      if (type === 'resync' || type === 'generation') return true
      if (byAcquire && resource !== undefined && this.may(caller, 'acquire', resource)) return true
      return type === 'key' ? this.may(caller, 'admin', '') : this.may(caller, 'watch', resource ?? key)
    })
  }

  /**
   * Removes names from a refusal that the caller may not see. A deadlock cycle passes through resources of other holders. The caller gets only those names that it
   * may read or acquire.
   */
  redact(caller: Caller, outcome: Outcome): Outcome {
    if (outcome.kind !== 'refused' || outcome.code !== 'DEADLOCK' || (caller.key === 0 && (caller.operator === true || !this.keyRequired)))
      return outcome
    const path = (outcome.facts.cycle ?? []) as readonly string[]
    const cycle = path.filter(name => this.may(caller, 'read', name) || this.may(caller, 'acquire', name))
    if (cycle.length === path.length) return outcome
    return { ...outcome, facts: { ...outcome.facts, cycle } }
  }

  // Following the keys in the log

  /** Reads all keys again. Returns the revision they were read at. */
  async reloadKeys(options: { readonly consistent?: boolean } = {}): Promise<number> {
    const { revision, value } = await this.#lessor.read({ kind: 'keys' }, options)
    this.keys.load(value)
    this.hasKeys = this.keys.size > 0
    this.keyRequired = this.#exposed || this.hasKeys
    this.#checkClients()
    this.#scheduleEnd()
    return revision
  }

  /** Looks again when the next key or secret ends. Also in between: the wall clock may be set. */
  #scheduleEnd(): void {
    this.#cancelEnd?.()
    const next = this.#closing.signal.aborted ? undefined : this.keys.untilNextEnd()
    this.#cancelEnd =
      next === undefined
        ? undefined
        : this.#clock.after(Math.min(next, LONGEST_LOOK), () => {
            this.#checkClients()
            this.#scheduleEnd()
          })
  }

  async #follow(after: number): Promise<void> {
    const { signal } = this.#closing
    while (!signal.aborted && !this.#lessor.signal.aborted) {
      try {
        for await (const _ of this.#lessor.watch('', { after, types: ['key'], signal })) after = await this.reloadKeys()
      } catch {
        // Retry while the lessor lives: otherwise a key that is revoked meanwhile would stay valid.
        await pause(this.#clock, BACKOFF.background.first, signal).catch(() => {})
      }
    }
    // The lessor has ended. Admit no caller by keys that can no longer be checked.
    this.keys.forgetSecrets()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    this.#cancelEnd?.()
    await this.#following
  }
}

/** Every key may see which servers run health checks: an instance that requests a check is not used before it has passed one. */
function isPublic(query: Query): boolean {
  return query.kind === 'entries' && query.prefix === CHECKERS
}

/** Returns what every client needs to know about a log, without counts of other callers' leases. */
function withoutFigures({ rules, quiet, moved }: Summary): Summary {
  return { rules, quiet, ...(moved !== undefined && { moved }) }
}
