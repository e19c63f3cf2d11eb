/** Sessions: the presence of a user, an agent or a job. Activity renews a session; leases, entries and sessions under it end with it, at once. */
import { whenAborted } from '../clock.ts'
import type { Duration } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { AcquireOptions } from '../holder/acquire-options.ts'
import type { LeaseClient, Names } from '../holder/lease-client.ts'
import type { Lease } from '../lease.ts'
import { checkOptionNames } from '../options.ts'

export interface SessionOptions {
  /**
   * The session lasts this long without activity.
   * @default '20m'
   */
  readonly ttl?: Duration | undefined
  /** @default 'on-activity' */
  readonly renew?: AcquireOptions['renew'] | undefined
  /** Texts for people and tools, shown with the lease. */
  readonly labels?: Readonly<Record<string, string>> | undefined
  /** The session ends with this one too: agents and their sub-agents. */
  readonly parent?: AcquireOptions['parent'] | undefined
  /**
   * The session ends after this time, however active.
   * @default no limit
   */
  readonly maxLife?: Duration | undefined
}

const OPTIONS = ['ttl', 'renew', 'labels', 'parent', 'maxLife'] as const

/** The session itself is the parent. */
function checkNoParent(call: string, options: object): void {
  if (options !== null && 'parent' in options)
    throw new LeaseError('INVALID', `${call} takes no parent: the session is the parent`, { facts: { option: 'parent' } })
}

/**
 * @example
 * await using session = await leases.session({ ttl: '20m' })
 * await session.acquire('documents/42')
 * onKeystroke(() => session.touch())
 */
export class Session implements AsyncDisposable {
  readonly #leases: LeaseClient
  readonly #lease: Lease
  /** Resolves once, when the session is over, with the reason. */
  readonly ended: Promise<LeaseError>

  private constructor(leases: LeaseClient, lease: Lease) {
    this.#leases = leases
    this.#lease = lease
    const { signal } = lease
    this.ended = new Promise(resolve => whenAborted(signal, () => resolve(signal.reason)))
  }

  /** @internal Use `leases.session(options)`. */
  static async begin(leases: LeaseClient, options: SessionOptions = {}): Promise<Session> {
    checkOptionNames('session', options, OPTIONS)
    const { ttl = '20m', renew = 'on-activity', labels, parent, maxLife } = options
    const lease = await leases.grant({
      ttl,
      renew,
      ...(labels !== undefined && { labels }),
      ...(parent !== undefined && { parent }),
      ...(maxLife !== undefined && { advanced: { maxLife } }),
    })
    return new Session(leases, lease)
  }

  /** The lease of the session: the parent of everything under it. */
  get lease(): Lease {
    return this.#lease
  }

  /** The number of its lease. */
  get id(): number {
    return this.#lease.id
  }

  /** Fires when the session is over. */
  get signal(): AbortSignal {
    return this.#lease.signal
  }

  /** Returns whether the session lasts. Reads the clocks. */
  get active(): boolean {
    return this.#lease.held
  }

  /** Milliseconds left without activity; 0 when it is over. */
  remaining(): number {
    return this.#lease.remaining()
  }

  /** Reports activity. Cheap: call it as often as you like. */
  touch(): void {
    this.#lease.touch()
  }

  /** Acquires a lease that ends with the session, or when it is released. */
  async acquire(names: Names, options: Omit<AcquireOptions, 'parent'> = {}): Promise<Lease> {
    checkNoParent('acquire of a session', options)
    return this.#leases.acquire(names, { ...options, parent: this.#lease })
  }

  /** A session that ends with this one. */
  async begin(options: Omit<SessionOptions, 'parent'> = {}): Promise<Session> {
    checkNoParent('begin of a session', options)
    return Session.begin(this.#leases, { ...options, parent: this })
  }

  /** Sets an entry that others can read while the session lasts. */
  put(key: string, value: string): Promise<void> {
    return this.#lease.put(key, value)
  }

  /** Deletes an entry of the session. */
  delete(key: string): Promise<void> {
    return this.#lease.delete(key)
  }

  /** Ends the session, with everything under it. */
  end(): Promise<void> {
    return this.#lease.release()
  }

  /** The same as `end`. */
  close(): Promise<void> {
    return this.end()
  }

  /** The same as `end`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.end()
  }
}
