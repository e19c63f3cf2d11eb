/**
 * Locks as Redis clients see them, on leases: the key KEY is the resource `redis/KEY`, and its value is an entry of the same name on the lease that holds it.
 *
 * A value is written once, with its lease, and ends with it. So a client that compares a value and then ends or renews the lease that carried it cannot hit
 * another lock, whatever happened in between.
 */
import type { Acquire, Release } from '../../kernel/command.ts'
import { badName } from '../../kernel/name.ts'
import { GONE, type Outcome } from '../../kernel/outcome.ts'
import type { FaceCaller } from '../face.ts'
import { RespFailure } from '../face.ts'

const PREFIX = 'redis/'
/** The first term that a grant gets, whatever was asked: a longer one begins with a renewal. */
const FIRST_TERM = 30_000

/** A key that is held. */
export interface HeldKey {
  readonly lease: number
  /** Undefined: the lease was not taken through this face, or has ended and its holder may not know yet. */
  readonly value: string | undefined
  readonly holder: string
  readonly ttl: number
  readonly remaining: number
  /** How many keys the lease holds. */
  readonly keys: number
}

export function resourceOf(key: string): string {
  const name = PREFIX + key
  const bad = badName(name)
  if (bad !== undefined) throw new RespFailure('ERR', `the key "${key.slice(0, 64)}" cannot be the name of a lease: ${PREFIX}KEY ${bad}`)
  return name
}

export class Locks {
  readonly #caller: FaceCaller

  constructor(caller: FaceCaller) {
    this.#caller = caller
  }

  async find(key: string): Promise<HeldKey | undefined> {
    const resource = resourceOf(key)
    const { lessor, signal } = this.#caller
    const { value: view } = await lessor.read<'resource'>({ kind: 'resource', resource }, { consistent: true, signal })
    const [grant] = view.grants
    if (grant === undefined) return undefined
    const { value: lease } = await lessor.read<'lease'>({ kind: 'lease', lease: grant.lease }, { atLeast: 0, signal })
    const ended = { lease: grant.lease, value: undefined, holder: grant.holder, ttl: 0, remaining: grant.remaining, keys: 1 }
    if (lease === undefined) return ended
    const value = lease.entries.find(entry => entry.key === resource)?.value
    return { ...ended, value, ttl: lease.ttl, keys: lease.grants.length }
  }

  /** Takes all of the keys or none. False: one of them is held. */
  async take(keys: readonly string[], value: string, ms: number): Promise<boolean> {
    const names = keys.map(resourceOf)
    const acquire: Acquire = {
      kind: 'acquire',
      holder: this.#caller.holder,
      ttl: ms,
      wants: names.map(resource => ({ resource })),
      entries: names.map(key => ({ key, value })),
    }
    const outcome = await this.#propose(acquire)
    if (outcome.kind === 'refused' && outcome.code === 'HELD') return false
    if (outcome.kind !== 'granted') throw failureOf(outcome)
    if (ms > FIRST_TERM) await this.#renew(outcome.lease)
    return true
  }

  /** Ends these keys of one lease; the lease itself if it has no others. False: they had ended before. */
  async end(keys: readonly string[], lock: HeldKey): Promise<boolean> {
    if (lock.value === undefined) throw notOurs(keys[0]!, lock)
    const { lease } = lock
    if (keys.length >= lock.keys) return this.#release({ kind: 'release', lease })
    let ended = false
    for (const resource of keys.map(resourceOf)) {
      if (!(await this.#release({ kind: 'release', lease, resource }))) continue
      ended = true
      await this.#propose({ kind: 'delete', key: resource, lease })
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
   * Starts the term of the lock again. A lease keeps the ttl that it was taken with: less is granted as that, which is safe; more is refused, because the
   * client would rely on the lock after it has ended. False: the lock had ended before.
   */
  async extend(key: string, lock: HeldKey, ms: number): Promise<boolean> {
    if (lock.value === undefined) throw notOurs(key, lock)
    if (ms > lock.ttl)
      throw new RespFailure(
        'ERR',
        `${key} was taken for ${lock.ttl} ms, and cannot be extended to ${ms} ms: take it for longer, or extend it more often`,
      )
    return this.#renew(lock.lease)
  }

  /**
   * Gives the key another value and term, as ShedLock does to keep a lock for a while after its work. A lease keeps its ttl and a value its lease, so both are
   * new: the new lease queues behind the old one, which is then released. False: another client had waited for longer, and has the key now.
   */
  async replace(key: string, lock: HeldKey, value: string, ms: number): Promise<boolean> {
    if (lock.value === undefined) throw notOurs(key, lock)
    const resource = resourceOf(key)
    const { lessor, holder, signal } = this.#caller
    const entries = [{ key: resource, value }]
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
    return this.#renew(lease)
  }

  /** Resolves when the key is free, or with false after `ms`; 0 waits as long as the client is there. */
  async whenFree(key: string, ms: number): Promise<boolean> {
    const resource = resourceOf(key)
    const { lessor, clock, signal } = this.#caller
    const stop = new AbortController()
    const leave = () => stop.abort()
    signal.addEventListener('abort', leave)
    const cancel = ms > 0 ? clock.after(ms, leave) : () => {}
    try {
      const { revision, value } = await lessor.read<'resource'>({ kind: 'resource', resource }, { consistent: true, signal })
      if (value.grants.length === 0) return true
      for await (const _ of lessor.watch(resource, { after: revision, signal: stop.signal }))
        if ((await this.find(key)) === undefined) return true
      return false
    } finally {
      cancel()
      signal.removeEventListener('abort', leave)
      stop.abort()
    }
  }

  async #renew(lease: number): Promise<boolean> {
    const outcome = await this.#propose({ kind: 'renew', leases: [lease] })
    if (outcome.kind !== 'renewed') throw failureOf(outcome)
    return outcome.ttls[0] !== GONE
  }

  #propose(command: Parameters<FaceCaller['lessor']['propose']>[0]): Promise<Outcome> {
    return this.#caller.lessor.propose(command)
  }
}

function notOurs(key: string, { holder }: HeldKey): RespFailure {
  return new RespFailure(
    'ERR',
    `${PREFIX}${key} is held by ${holder}, not through Redis commands: end it with LEASE.RELEASE, or LEASE.BREAK`,
  )
}

function failureOf(outcome: Outcome): RespFailure {
  if (outcome.kind === 'refused') return new RespFailure(outcome.code === 'FORBIDDEN' ? 'NOPERM' : 'ERR', outcome.message)
  return new RespFailure('ERR', 'nothing was done: retry the command')
}
