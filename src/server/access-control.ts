/**
 * Who asks, and what they may see.
 *
 * What a key may change is decided in the kernel, with the state that the change meets. Here stands what never reaches the kernel: whether
 * a caller must have a key at all, which key a secret belongs to, and what of the state a caller is shown. Denied unless allowed.
 *
 * Not promised: that a key revoked through another server is known here before that server's change has arrived.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import { type Clock, pause, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Scope, Verb } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import { commonPrefixes, normalPrefix, under } from '../kernel/name.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { isOf, permits } from '../kernel/rule/authority.ts'
import { deadlockMessage } from '../kernel/rule/deadlock.ts'
import { UNCLAIMED } from '../kernel/state/leases.ts'
import type { EntryView, LeaseView, Lessor, Query, ResourceView, ServiceView, Summary, View } from '../lessor.ts'
import { CHECKERS } from '../registry/entry.ts'

/** `key` 0 is a caller without one: allowed everything while there are no keys, and nothing once there are. */
export interface Caller {
  readonly key: number
  readonly name: string
  /** Has the operator's secret: speaks for the store itself, and for whichever key it names. */
  readonly operator?: true
}

/** Each connection is one of its own, so that what is limited by caller is limited by connection. */
export function anonymousCaller(): Caller {
  return { key: 0, name: 'anyone' }
}

function hashOf(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

interface Key {
  readonly id: number
  readonly name: string
  readonly hash: string
  readonly allow: readonly Scope[]
  /** Something, if not everything. */
  readonly administers: boolean
}

/** One that stays: a watch, or a place in a queue. */
interface Guest {
  readonly caller: Caller
  readonly out: (error: LeaseError) => void
}

export interface AccessControlOptions {
  /** A secret that is in no log; empty: there is none. */
  readonly operator?: string | undefined
  readonly clock?: Clock
}

const RETRY = 100

export class AccessControl implements AsyncDisposable {
  readonly #lessor: Lessor
  readonly #clock: Clock
  readonly #operator: Buffer | undefined
  readonly #closing = new AbortController()
  readonly #byHash = new Map<string, Key>()
  readonly #byId = new Map<number, Key>()
  readonly #guests = new Set<Guest>()
  #exposed = false
  #following: Promise<void> = Promise.resolve()

  private constructor(lessor: Lessor, { operator = '', clock = systemClock }: AccessControlOptions) {
    this.#lessor = lessor
    this.#clock = clock
    this.#operator = operator === '' ? undefined : hashOf(operator)
  }

  static async open(lessor: Lessor, options: AccessControlOptions = {}): Promise<AccessControl> {
    const gate = new AccessControl(lessor, options)
    const after = await gate.learn({ consistent: true })
    gate.#following = gate.#follow(after)
    return gate
  }

  get hasKeys(): boolean {
    return this.#byId.size > 0
  }

  /** Everyone needs a key: there are some, or there must be. */
  get closed(): boolean {
    return this.#exposed || this.hasKeys
  }

  /** Other machines can reach this server: without keys it lets nobody in, also when the last one goes while it runs. */
  expose(): void {
    this.#exposed = true
    this.#lookAround()
  }

  /** The caller that a secret belongs to. Throws `UNAUTHENTICATED`. */
  identify(secret: string | undefined): Caller {
    if (secret === undefined) {
      const caller = anonymousCaller()
      this.admit(caller)
      return caller
    }
    const hash = hashOf(secret)
    if (this.#operator !== undefined && timingSafeEqual(hash, this.#operator)) return { key: 0, name: 'operator', operator: true }
    const key = this.#byHash.get(hash.toString('hex'))
    if (key === undefined || !timingSafeEqual(hash, Buffer.from(key.hash, 'hex')))
      throw new LeaseError('UNAUTHENTICATED', 'this key is not known here, or was revoked: ask whoever administers keys for another')
    return { key: key.id, name: key.name }
  }

  /**
   * The caller who signed `text`, where no secret may be sent: the HMAC (SHA-256, hex) of the text under the hash of the key's secret, which is all
   * that is known of it here. Undefined when it was not that key.
   */
  signer(key: number, text: string, mac: string): Caller | undefined {
    const known = this.#byId.get(key)
    if (known === undefined) return undefined
    const right = createHmac('sha256', Buffer.from(known.hash, 'hex')).update(text).digest()
    const given = Buffer.from(mac, 'hex')
    return given.length === right.length && timingSafeEqual(given, right) ? { key, name: known.name } : undefined
  }

  /** Whether a caller that was identified earlier still counts: keys come and go while connections last. Throws `UNAUTHENTICATED`. */
  admit(caller: Caller): void {
    if (!this.admits(caller))
      throw new LeaseError('UNAUTHENTICATED', caller.key === 0 ? this.#needed() : `the key ${caller.name} was revoked`)
  }

  admits({ key, operator }: Caller): boolean {
    return operator === true || (key === 0 ? !this.closed : this.#byId.has(key))
  }

  #needed(): string {
    return this.hasKeys
      ? 'a key is needed here: send Authorization: Bearer KEY (HTTP), AUTH KEY (RESP), or set LEASEHOLD_API_KEY'
      : 'this server can be reached from other machines and its last key is gone: nobody is let in until whoever has the store creates one (leasehold key create --name admin --allow admin --store URL)'
  }

  /** Tells a caller that stays, once and at once, when it is let in no more. Returns what to call when it leaves of itself. */
  mind(caller: Caller, out: (error: LeaseError) => void): () => void {
    const guest = { caller, out }
    this.#guests.add(guest)
    this.#look(guest)
    return () => void this.#guests.delete(guest)
  }

  #lookAround(): void {
    for (const guest of this.#guests) this.#look(guest)
  }

  #look(guest: Guest): void {
    try {
      this.admit(guest.caller)
    } catch (error) {
      this.#guests.delete(guest)
      guest.out(error as LeaseError)
    }
  }

  may({ key, operator }: Caller, verb: Verb, name: string): boolean {
    if (key === 0) return operator === true || !this.closed
    return permits(this.#byId.get(key)?.allow ?? [], verb, name)
  }

  /** Whether who is judged by `key` may touch leases of others. The operator, whose `key` is 0, may; anyone, where there are no keys, has no others. */
  administers({ operator }: Caller, key: number): boolean {
    return key === 0 ? operator === true : (this.#byId.get(key)?.administers ?? false)
  }

  /** Throws `FORBIDDEN`, or `UNAUTHENTICATED` when a key would be needed. */
  demand(caller: Caller, verb: Verb, name: string): void {
    this.admit(caller)
    if (this.may(caller, verb, name)) return
    throw new LeaseError('FORBIDDEN', `the key ${caller.name} may not ${verb} ${name === '' ? 'everything' : name}`, {
      facts: { verb, name },
    })
  }

  /** Throws as `demand` does, unless something under the prefix, or all of it, is the caller's to see. */
  reach(caller: Caller, verb: Verb, prefix: string): void {
    this.admit(caller)
    const scopes = caller.key === 0 ? [] : (this.#byId.get(caller.key)?.allow ?? [])
    const inside = scopes.some(scope => isOf(scope, verb) && under(prefix, scope.prefix))
    if (!inside) this.demand(caller, verb, normalPrefix(prefix))
  }

  // What a caller is shown

  /** A lease is shown to whom it answers to, to whom may claim it, and to whom may read all that it names. */
  #shown(caller: Caller, lease: LeaseView): boolean {
    if (caller.key !== 0 && lease.key === caller.key) return true
    const held = [...lease.grants, ...lease.wants].map(({ resource }) => resource)
    if (lease.key === UNCLAIMED && caller.key !== 0 && held.every(name => this.may(caller, 'acquire', name))) return true
    const names = held.concat(lease.entries.map(({ key }) => key))
    return names.length === 0 ? this.may(caller, 'read', '') : names.every(name => this.may(caller, 'read', name))
  }

  /** The prefixes that a verb is allowed under; undefined: everything. */
  #prefixes({ key, operator }: Caller, verb: Verb): readonly string[] | undefined {
    if (key === 0) return operator === true || !this.closed ? undefined : []
    const scopes = (this.#byId.get(key)?.allow ?? []).filter(scope => isOf(scope, verb))
    const prefixes = scopes.map(({ prefix }) => normalPrefix(prefix))
    return prefixes.includes('') ? undefined : prefixes
  }

  /**
   * The question, as far as it concerns what the caller may see: a list of the rest is neither looked for nor made, and what counts as `more` is
   * what this caller may see. Throws where all of it is hidden.
   */
  narrowed<Q extends Query>(caller: Caller, query: Q): Q {
    const { kind } = query
    if (kind !== 'leases' && kind !== 'resources' && kind !== 'entries') return query
    if (isForAll(query)) return query
    if (kind !== 'leases') this.reach(caller, 'read', query.prefix)
    const readable = this.#prefixes(caller, 'read')
    if (readable === undefined) return query
    const within = query.within === undefined ? readable : commonPrefixes(query.within, readable)
    if (kind !== 'leases') return { ...query, within }
    // Whoever asks only for what is within some prefixes does not mean what is theirs besides.
    const { own: besides, ...rest } = query
    if (query.within !== undefined && besides === undefined) return { ...query, within }
    return { ...rest, within, own: { key: caller.key, claims: this.#prefixes(caller, 'acquire') ?? [''] } } as Q
  }

  /** The answer, without what the caller may not read. What is hidden looks as if it were not there. Throws where all of it is hidden. */
  filter<K extends Query['kind']>(caller: Caller, query: Extract<Query, { readonly kind: K }>, view: View<K>): View<K> {
    return { ...view, value: this.#filtered(caller, query, view.value) } as View<K>
  }

  #filtered(caller: Caller, query: Query, value: View['value']): View['value'] {
    this.admit(caller)
    switch (query.kind) {
      case 'summary':
        return this.may(caller, 'read', '') ? value : withoutFigures(value as Summary)
      case 'keys':
        this.demand(caller, 'admin', '')
        return value
      case 'policies':
        return (value as View<'policies'>['value']).filter(({ prefix }) => this.may(caller, 'read', prefix))
      case 'lease':
        return value !== undefined && this.#shown(caller, value as LeaseView) ? value : undefined
      case 'leases':
        return (value as readonly LeaseView[]).filter(lease => this.#shown(caller, lease))
      case 'resource':
      case 'history':
        this.demand(caller, 'read', query.resource)
        return value
      case 'resources':
        this.reach(caller, 'read', query.prefix)
        return (value as readonly ResourceView[]).filter(({ resource }) => this.may(caller, 'read', resource))
      case 'entries':
        if (isForAll(query)) return value
        this.reach(caller, 'read', query.prefix)
        return (value as readonly EntryView[]).filter(({ key }) => this.may(caller, 'read', key))
      case 'services':
        return (value as readonly ServiceView[]).filter(({ service }) => this.may(caller, 'read', `services/${service}`))
    }
  }

  /** The events of one revision that a caller may see. `byAcquire`: also what it may acquire. One that names nothing is for those who may watch everything. */
  events(caller: Caller, events: readonly Event[], byAcquire = false): readonly Event[] {
    if (caller.key === 0 && (caller.operator === true || !this.closed)) return events
    return events.filter(({ type, resource, key = '' }) => {
      if (type === 'resync' || type === 'generation') return true
      if (byAcquire && resource !== undefined && this.may(caller, 'acquire', resource)) return true
      return type === 'key' ? this.may(caller, 'admin', '') : this.may(caller, 'watch', resource ?? key)
    })
  }

  /**
   * A refusal, without the names that the caller may not see. A cycle of waiters leads through whatever the others hold; of that, the caller is told what it
   * may read, what it may acquire and what it asked for.
   */
  refusal(caller: Caller, outcome: Outcome): Outcome {
    if (outcome.kind !== 'refused' || outcome.code !== 'DEADLOCK' || (caller.key === 0 && (caller.operator === true || !this.closed)))
      return outcome
    const path = (outcome.facts.cycle ?? []) as readonly string[]
    const cycle = path.filter(name => this.may(caller, 'read', name) || this.may(caller, 'acquire', name))
    if (cycle.length === path.length) return outcome
    return { ...outcome, message: deadlockMessage([...cycle, 'what this key may not see']), facts: { ...outcome.facts, cycle } }
  }

  // Keeping up

  /** Reads the keys anew. */
  async learn(options: { readonly consistent?: boolean } = {}): Promise<number> {
    const { revision, value } = await this.#lessor.read({ kind: 'keys' }, options)
    this.#byHash.clear()
    this.#byId.clear()
    for (const one of value) {
      const key = { ...one, administers: one.allow.some(({ verb }) => verb === 'admin') }
      this.#byHash.set(key.hash, key)
      this.#byId.set(key.id, key)
    }
    this.#lookAround()
    return revision
  }

  async #follow(after: number): Promise<void> {
    const { signal } = this.#closing
    while (!signal.aborted && !this.#lessor.signal.aborted) {
      try {
        for await (const _ of this.#lessor.watch('', { after, types: ['key'], signal })) after = await this.learn()
      } catch {
        // A lessor that lives and cannot be listened to just now is asked again: else a key revoked meanwhile would stay.
        await pause(this.#clock, RETRY, signal).catch(() => {})
      }
    }
    // The lessor ended, and with it the server: nobody is let in by what was known.
    this.#byHash.clear()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    await this.#following
  }
}

/** Whether anyone makes health checks is told to every key: an instance that asks for one is not used before it was made. */
function isForAll(query: Query): boolean {
  return query.kind === 'entries' && query.prefix === CHECKERS
}

/** What every client needs to know of a log. How much others have in it is theirs. */
function withoutFigures({ rules, quiet, moved }: Summary): Summary {
  return { rules, quiet, ...(moved !== undefined && { moved }) }
}
