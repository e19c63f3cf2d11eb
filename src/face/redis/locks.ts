/**
 * Locks as Redis clients see them, on leases: the key KEY is the resource `redis/KEY`, or the one that a map names for it, and its value is the entry `redis/KEY`
 * on the lease that holds it.
 *
 * A value is written once, with its lease, and ends with it. So a client that compares a value and then ends or renews the lease that carried it cannot hit
 * another lock, whatever happened in between.
 */
import type { Acquire, Command, Release } from '../../kernel/command.ts'
import { GONE, type Outcome } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import { sentenceOf, whyBadName } from '../../wording.ts'
import type { FaceCaller } from '../face.ts'
import { RespFailure } from '../face.ts'
import { startWholeTerm } from '../whole-term.ts'

const FACE = 'redis'
const PREFIX = `${FACE}/`

/** A key that is held. */
export interface HeldKey {
  readonly lease: number
  /** Undefined: the lease was not taken through this face, or has ended and its holder may not know yet. */
  readonly value: string | undefined
  readonly holder: string
  readonly ttl: number
  readonly remaining: number
  /** The lease holds this many keys. */
  readonly keys: number
}

export class Locks {
  readonly #caller: FaceCaller

  constructor(caller: FaceCaller) {
    this.#caller = caller
  }

  /** The resource of a key. */
  #resource(key: string): string {
    const name = PREFIX + key
    const resource = this.#caller.names.resource(name)
    const bad = whyBadName(name) ?? whyBadName(resource)
    if (bad !== undefined) throw new RespFailure('ERR', `the key "${key.slice(0, 64)}" cannot be the name of a lease: ${PREFIX}KEY ${bad}`)
    return resource
  }

  /** Throws FORBIDDEN unless the caller may read some lock. */
  async requireSome(): Promise<void> {
    const { lessor, names } = this.#caller
    let refusal: unknown
    for (const prefix of names.under(FACE))
      try {
        return void (await lessor.read<'resources'>({ kind: 'resources', prefix, limit: 1 }))
      } catch (error) {
        refusal ??= error
      }
    throw refusal
  }

  /** The lock as this server has applied it, or `consistent`: as it is at the end of the log. */
  async find(key: string, consistent: boolean): Promise<HeldKey | undefined> {
    const resource = this.#resource(key)
    const { lessor, signal } = this.#caller
    const { value: view } = await lessor.read<'resource'>(
      { kind: 'resource', resource, waiters: 0, holders: 1 },
      consistent ? { consistent, signal } : {},
    )
    const [grant] = view.grants
    if (grant === undefined) return undefined
    const { value: lease } = await lessor.read<'lease'>({ kind: 'lease', lease: grant.lease })
    const { holder, remaining } = grant
    if (lease === undefined) return { lease: grant.lease, value: undefined, holder, ttl: 0, remaining, keys: 1 }
    const value = lease.entries.find(entry => entry.key === PREFIX + key)?.value
    return { lease: grant.lease, value, holder, ttl: lease.ttl, remaining, keys: lease.grants.length }
  }

  /**
   * Changes a lock that is as wanted. False: there is none. What this server has applied is enough for a change, which is refused if the lock has ended since;
   * only the end of the log says that a key is not as wanted.
   */
  async change(key: string, isWanted: (lock: HeldKey) => boolean, change: (lock: HeldKey) => Promise<boolean>): Promise<boolean> {
    const applied = await this.find(key, false)
    if (applied?.value !== undefined && isWanted(applied) && (await change(applied))) return true
    const lock = await this.find(key, true)
    return lock !== undefined && isWanted(lock) && change(lock)
  }

  /** Takes all of the keys or none. False: one of them is held, or the lock was ended at once. */
  async take(keys: readonly string[], value: string, ms: number): Promise<boolean> {
    const acquire: Acquire = {
      kind: 'acquire',
      holder: this.#caller.holder,
      ttl: ms,
      wants: keys.map(key => ({ resource: this.#resource(key) })),
      entries: keys.map(key => ({ key: PREFIX + key, value })),
    }
    const outcome = await this.#propose(acquire)
    if (outcome.kind === 'refused' && outcome.code === 'HELD') return false
    if (outcome.kind !== 'granted') throw failureOf(outcome)
    return startWholeTerm(this.#caller.lessor, ms, outcome.lease)
  }

  /** Ends these keys of one lease; the lease itself if it has no others. False: they had ended before. */
  async end(keys: readonly string[], lock: HeldKey): Promise<boolean> {
    if (lock.value === undefined) throw notOurs(keys[0]!, lock)
    const { lease } = lock
    if (keys.length >= lock.keys) return this.#release({ kind: 'release', lease })
    let ended = false
    for (const key of keys) {
      if (!(await this.#release({ kind: 'release', lease, resource: this.#resource(key) }))) continue
      ended = true
      await this.#propose({ kind: 'delete', key: PREFIX + key, lease })
    }
    return ended
  }

  async #release(command: Release): Promise<boolean> {
    const outcome = await this.#propose(command)
    if (outcome.kind === 'refused' && outcome.code === 'GONE') return false
    if (outcome.kind !== 'done') throw failureOf(outcome)
    return true
  }

  /**
   * Starts the term of the lock again. Less than it was taken for is granted as that, which is safe. More makes the lease longer; what policies do not allow is
   * refused, because the client would rely on the lock after it has ended. False: the lock had ended before.
   */
  async extend(key: string, lock: HeldKey, ms: number): Promise<boolean> {
    if (lock.value === undefined) throw notOurs(key, lock)
    const ttl = await this.#renew(lock.lease, ms > lock.ttl ? ms : undefined)
    if (ttl !== GONE && ttl < ms)
      throw new RespFailure(
        'ERR',
        `${key} cannot be extended to ${ms} ms, only to ${ttl} ms: extend it more often, or see leasehold policy`,
      )
    return ttl !== GONE
  }

  /**
   * Gives the key another value and term, as ShedLock does to keep a lock for a while after its work. A lease keeps its ttl and a value its lease, so both are
   * new: the new lease queues behind the old one, which is then released. False: another client had waited for longer, and has the key now.
   */
  async replace(key: string, lock: HeldKey, value: string, ms: number): Promise<boolean> {
    if (lock.value === undefined) throw notOurs(key, lock)
    const resource = this.#resource(key)
    const { lessor, holder, signal } = this.#caller
    const entries = [{ key: PREFIX + key, value }]
    const outcome = await this.#propose({ kind: 'acquire', holder, ttl: ms, wants: [{ resource }], entries, wait: true })
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued') throw failureOf(outcome)
    const { lease } = outcome
    if (outcome.kind === 'queued') await this.end([key], lock)
    const { value: now } = await lessor.read<'lease'>({ kind: 'lease', lease }, { consistent: true, signal })
    if (now === undefined || now.status === 'waiting') {
      await this.#release({ kind: 'release', lease })
      return false
    }
    // A lease that waited is not relied on before it was renewed once.
    return (await this.#renew(lease)) !== GONE
  }

  /** Resolves when the key is free, or with false after `ms`; 0 waits as long as the client is there. */
  async whenFree(key: string, ms: number): Promise<boolean> {
    const resource = this.#resource(key)
    const { lessor, clock, signal } = this.#caller
    const stop = new AbortController()
    const leave = () => stop.abort()
    signal.addEventListener('abort', leave)
    const cancel = ms > 0 ? clock.after(ms, leave) : () => {}
    try {
      const { revision, value } = await lessor.read<'resource'>(
        { kind: 'resource', resource, waiters: 0, holders: 1 },
        { consistent: true, signal },
      )
      if (value.grants.length === 0) return true
      for await (const _ of lessor.watch(resource, { after: revision, signal: stop.signal }))
        if ((await this.find(key, true)) === undefined) return true
      return false
    } finally {
      cancel()
      signal.removeEventListener('abort', leave)
      stop.abort()
    }
  }

  /** The term that begins now, or GONE. */
  async #renew(lease: number, ttl?: number): Promise<number> {
    const outcome = await this.#propose({ kind: 'renew', leases: [lease], ...(ttl !== undefined && { ttl }) })
    if (outcome.kind !== 'renewed') throw failureOf(outcome)
    return outcome.ttls[0]!
  }

  #propose(command: Command): Promise<Outcome> {
    return propose(this.#caller.lessor, command)
  }
}

function notOurs(key: string, { holder }: HeldKey): RespFailure {
  return new RespFailure(
    'ERR',
    `${PREFIX}${key} is held by ${holder}, not through Redis commands: end it with LEASE.RELEASE, or LEASE.BREAK`,
  )
}

function failureOf(outcome: Outcome): RespFailure {
  if (outcome.kind === 'refused') return new RespFailure(outcome.code === 'FORBIDDEN' ? 'NOPERM' : 'ERR', sentenceOf(outcome))
  return new RespFailure('ERR', 'nothing was done: retry the command')
}
