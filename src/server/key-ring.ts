/**
 * The keys that a server knows: which key a secret belongs to, and whether it is still valid.
 *
 * Keys expire, and former secrets end, by the wall clock of this server, as certificates do. If that clock is set forward, a key ends early here; if it is set
 * back, the key is valid again. Leases do not depend on it: those of an expired key run out by their terms, because nothing renews them.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import { type Clock, inUtc } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { KeyLimits } from '../kernel/command.ts'
import type { ApiKeyView } from '../lessor/key-view.ts'
import type { Caller } from './caller.ts'

export interface KnownKey extends ApiKeyView {
  /** Has the verb `admin` on at least one prefix. */
  readonly administers: boolean
}

/** Limits that count for a caller: those of its key, and those of its group. `name` tells apart what is counted. */
export interface CountedLimits {
  readonly name: number | string
  /** Begins a sentence. */
  readonly who: string
  readonly limits: KeyLimits
}

export function hashOf(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

export class KeyRing {
  readonly #clock: Clock
  readonly #byHash = new Map<string, KnownKey>()
  readonly #byId = new Map<number, KnownKey>()
  readonly #limits = new Map<number, readonly CountedLimits[]>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  load(keys: readonly ApiKeyView[]): void {
    this.#byHash.clear()
    this.#byId.clear()
    this.#limits.clear()
    for (const view of keys) {
      const key = { ...view, administers: view.allow.some(({ verb }) => verb === 'admin') }
      if (key.former !== undefined) this.#byHash.set(key.former.hash, key)
      this.#byHash.set(key.hash, key)
      this.#byId.set(key.id, key)
      const limits = countedLimits(key)
      if (limits.length > 0) this.#limits.set(key.id, limits)
    }
  }

  /** Admits no caller by a secret from now on. */
  forgetSecrets(): void {
    this.#byHash.clear()
  }

  get size(): number {
    return this.#byId.size
  }

  get(id: number): KnownKey | undefined {
    return this.#byId.get(id)
  }

  /** In the order in which they were created. */
  values(): IterableIterator<KnownKey> {
    return this.#byId.values()
  }

  /** The limits of a key and of its group. Undefined if there are none. */
  limitsOf(id: number): readonly CountedLimits[] | undefined {
    return this.#limits.get(id)
  }

  /** The holder of a client that names none: its address. A key that is bound to holder names acts under its own instead. */
  holderOf({ key, name }: Caller, address: string): string {
    return this.#byId.get(key)?.holders === undefined ? address : name
  }

  /** The caller whose secret has this hash. Throws `UNAUTHENTICATED`. */
  identify(hash: Buffer): Caller {
    const secret = hash.toString('hex')
    const key = this.#byHash.get(secret)
    const isKnown = key !== undefined && [key.hash, key.former?.hash].some(known => known !== undefined && isSame(hash, known))
    if (!isKnown)
      throw new LeaseError(
        'UNAUTHENTICATED',
        'this key is unknown or was revoked, or its secret was replaced. Ask an administrator for a new one',
      )
    const caller = { key: key.id, name: key.name, secret }
    const why = this.refusal(caller)
    if (why !== undefined) throw new LeaseError('UNAUTHENTICATED', why)
    return caller
  }

  /** The caller that signed `text` with a secret of this key: see `AccessControl.signer`. */
  signer(id: number, text: string, mac: string): Caller | undefined {
    const key = this.#byId.get(id)
    const given = Buffer.from(mac, 'hex')
    for (const secret of [key?.hash, key?.former?.hash]) {
      if (secret === undefined) continue
      const expected = createHmac('sha256', Buffer.from(secret, 'hex')).update(text).digest()
      const caller = { key: id, name: key!.name, secret }
      if (given.length === expected.length && timingSafeEqual(given, expected)) return this.admits(caller) ? caller : undefined
    }
    return undefined
  }

  admits({ key: id, secret }: Caller): boolean {
    const key = this.#byId.get(id)
    if (key === undefined) return false
    if (key.expires !== undefined && this.#clock.wall() >= key.expires) return false
    if (secret === undefined || secret === key.hash) return true
    return key.former !== undefined && secret === key.former.hash && this.#clock.wall() < key.former.until
  }

  /** Why a caller with a key is not valid any more. Undefined: it is. */
  refusal(caller: Caller): string | undefined {
    if (this.admits(caller)) return undefined
    const { expires, former } = this.#byId.get(caller.key) ?? {}
    if (!this.#byId.has(caller.key)) return `the key ${caller.name} was revoked`
    if (expires !== undefined && this.#clock.wall() >= expires)
      return `the key ${caller.name} expired at ${inUtc(expires)}. Ask an administrator for another key, or to rotate this one with a later expiry`
    const since = former !== undefined && caller.secret === former.hash ? ` since ${inUtc(former.until)}` : ''
    return `the key ${caller.name} was rotated, and this secret is not valid any more${since}. Use its new secret`
  }

  /** In how many ms the next key or secret ends. Undefined if none will. */
  untilNextEnd(): number | undefined {
    const now = this.#clock.wall()
    let next: number | undefined
    for (const { expires, former } of this.#byId.values())
      for (const end of [expires, former?.until]) if (end !== undefined && end > now && (next === undefined || end < next)) next = end
    return next === undefined ? undefined : next - now
  }
}

function isSame(hash: Buffer, known: string): boolean {
  return timingSafeEqual(hash, Buffer.from(known, 'hex'))
}

function countedLimits({ id, name, limits, group, groupLimits }: KnownKey): CountedLimits[] {
  return [
    ...(limits === undefined ? [] : [{ name: id, who: `the key ${name}`, limits }]),
    ...(groupLimits === undefined ? [] : [{ name: group!, who: `the group ${group} of the key ${name}`, limits: groupLimits }]),
  ]
}
