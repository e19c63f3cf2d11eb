/** `Leases`, what `connect` returns: a LeaseClient with the recipes on top. */
import { checkOptions } from './holder/acquire-options.ts'
import { LeaseClient, type Names } from './holder/lease-client.ts'
import { Cache, type CacheOptions } from './recipe/cache.ts'
import { Election, type ElectionOptions } from './recipe/election.ts'
import { Lock, type LockOptions, NOT_FOR_LOCK } from './recipe/lock.ts'
import { Pool, type PoolOptions } from './recipe/pool.ts'
import { Registry } from './recipe/registry/registry.ts'
import { Semaphore, type SemaphoreOptions } from './recipe/semaphore.ts'
import { Session, type SessionOptions } from './recipe/session.ts'
import { Shards, type ShardsOptions } from './recipe/shards/shards.ts'
import { type NumberedSlot, type SlotOptions, takeSlot } from './recipe/slots.ts'

// Everything that this file exports is exported by the package.
export type { AcquireOptions } from './holder/acquire-options.ts'
export type { LeasesOptions } from './holder/lease-client.ts'
export type { Cache, CacheLease, CacheOptions, CacheWriteOptions } from './recipe/cache.ts'
export type { Election, ElectionOptions, Leader, Term, UntilAborted } from './recipe/election.ts'
export type { Lock, LockOptions, LockView } from './recipe/lock.ts'
export type {
  Labels,
  Member,
  OfferOptions,
  Pool,
  PoolOptions,
  PoolRequestOptions,
  Reservation,
  ReserveOptions,
  TakeOptions,
} from './recipe/pool.ts'
export type {
  DiscoverOptions,
  Discovery,
  RegisterInput,
  RegisterOptions,
  Registration,
  RegistrationChange,
  RegistrationEvent,
  Registry,
} from './recipe/registry/registry.ts'
export type { PermitOptions, Semaphore, SemaphoreOptions } from './recipe/semaphore.ts'
export type { Session, SessionOptions } from './recipe/session.ts'
export type { JoinOptions, Shard, Shards, ShardsOptions } from './recipe/shards/shards.ts'
export type { NumberedSlot, SlotOptions } from './recipe/slots.ts'

/**
 * The leases of one process: acquired, renewed together, released.
 *
 * @example
 * const leases = await connect('postgres://…')
 * await leases.request('jobs/nightly', async lease => { … })
 * await leases.close()
 */
export class Leases extends LeaseClient {
  #registry: Registry | undefined

  /**
   * A lock with fixed names and options, for use again and again.
   *
   * @example
   * await leases.lock('jobs/nightly', { ttl: '30s' }).run(async lease => { … })
   */
  lock(names: Names, options?: LockOptions): Lock {
    if (options !== undefined) checkOptions(options, 'lock', NOT_FOR_LOCK)
    return new Lock(this, names, options)
  }

  /**
   * A semaphore: at most so many permits in use at once.
   *
   * @example
   * await leases.semaphore('downloads', { permits: 3 }).run(async lease => { … })
   */
  semaphore(name: string, options: SemaphoreOptions): Semaphore {
    return new Semaphore(this, name, options)
  }

  /**
   * An election: one leader at a time.
   *
   * @example
   * for await (const term of leases.election('scheduler').terms({ signal })) await lead(term)
   */
  election(name: string, options?: ElectionOptions): Election {
    return new Election(this, name, options)
  }

  /**
   * A session of a user, an agent or a job: it lasts while there is activity, and leases, entries and sessions under it end with it.
   *
   * @example
   * await using session = await leases.session({ ttl: '20m' })
   * session.touch()
   */
  session(options?: SessionOptions): Promise<Session> {
    return Session.begin(this, options)
  }

  /**
   * A cache that never serves a stale value.
   *
   * @example
   * const config = leases.cache('config/', { load, save, ttl: '1m' })
   * await config.get('a')
   */
  cache<V>(prefix: string, options: CacheOptions<V>): Cache<V> {
    return new Cache(this, prefix, options)
  }

  /**
   * A pool of members, of which a caller takes as many as it needs.
   *
   * @example
   * await using two = await leases.pool('gpu', { match: { model: 'A100' } }).take(2, { wait: '1h' })
   */
  pool(name: string, options?: PoolOptions): Pool {
    return new Pool(this, name, options)
  }

  /**
   * A number of a range that no other holder has: a port, a worker number. The same `sticky` name gets the same number again if it is free.
   *
   * @example
   * await using slot = await leases.slot('ports', { from: 3000, to: 3099, sticky: 'checkout-service' })
   * server.listen(slot.number)
   */
  slot(name: string, options: SlotOptions): Promise<NumberedSlot> {
    return takeSlot(this, name, options)
  }

  /**
   * A fixed number of shards, spread evenly over the members that live.
   *
   * @example
   * await leases.shards('orders', { count: 64 }).join({ signal, onAssigned: async shard => consume(shard.index, shard.token, shard.signal) })
   */
  shards(name: string, options: ShardsOptions): Shards {
    return new Shards(this, name, options)
  }

  /**
   * Agents and services that are listed only while they live.
   *
   * @example
   * await using me = await leases.registry.register({ service: 'planner', address: 'http://10.0.0.7:8080' })
   */
  get registry(): Registry {
    const { holder, clock, lessor, operations } = this
    this.#registry ??= new Registry({
      ...{ holder, clock, lessor },
      decide: (command, options) => operations.decide(command, options),
      within: (ms, answer) => operations.within(ms, answer),
    })
    return this.#registry
  }

  protected override async closeRecipes(): Promise<void> {
    await this.#registry?.[Symbol.asyncDispose]()
  }
}
