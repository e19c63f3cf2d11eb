import { whenAborted } from '../clock.ts'
import type { Duration } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Lease } from '../lease.ts'
import type { AcquireOptions, Leases } from '../leases.ts'
import { checkOptionNames } from '../options.ts'

export interface SessionOptions {
  readonly ttl?: Duration
  readonly renew?: AcquireOptions['renew']
  readonly labels?: Readonly<Record<string, string>>
  /** Ends with this one too: agents and their sub-agents. */
  readonly parent?: AcquireOptions['parent']
  /** At the latest after so long, however active. */
  readonly maxLife?: Duration
}

const OPTIONS = ['ttl', 'renew', 'labels', 'parent', 'maxLife'] as const

/** The session itself is the parent. */
function mustHaveNoParent(call: string, options: object): void {
  if (options !== null && 'parent' in options)
    throw new LeaseError('INVALID', `${call} takes no parent: the session is the parent`, { facts: { option: 'parent' } })
}

/** Someone who is there: a user, an agent, a job. Activity renews it; leases, entries and sessions that hang on it end with it, at once. */
export class Session implements AsyncDisposable {
  readonly #leases: Leases
  readonly #lease: Lease
  /** Resolves once, when it is over, with the reason. */
  readonly ended: Promise<LeaseError>

  private constructor(leases: Leases, lease: Lease) {
    this.#leases = leases
    this.#lease = lease
    const { signal } = lease // and not the handle: a session that is forgotten must be collected
    this.ended = new Promise(resolve => whenAborted(signal, () => resolve(signal.reason)))
  }

  static async begin(leases: Leases, options: SessionOptions = {}): Promise<Session> {
    checkOptionNames('session', options, OPTIONS)
    const { ttl = '20m', renew = 'on-activity', labels, parent, maxLife } = options
    const lease = await leases.grant({
      ttl,
      renew,
      ...(labels !== undefined && { labels }),
      ...(parent !== undefined && { parent }),
      ...(maxLife !== undefined && { maxLife }),
    })
    return new Session(leases, lease)
  }

  /** What it is: leases that hang on it name it as their parent. */
  get lease(): Lease {
    return this.#lease
  }

  get id(): number {
    return this.#lease.id
  }

  get signal(): AbortSignal {
    return this.#lease.signal
  }

  get active(): boolean {
    return this.#lease.held
  }

  remaining(): number {
    return this.#lease.remaining()
  }

  /** Someone is still there. Cheap: call it as often as you like. */
  touch(): void {
    this.#lease.touch()
  }

  /** Held for as long as the session lasts, or until it is released. */
  async acquire(names: string | readonly string[], options: Omit<AcquireOptions, 'parent'> = {}): Promise<Lease> {
    mustHaveNoParent('acquire of a session', options)
    return this.#leases.acquire(names, { ...options, parent: this.#lease })
  }

  /** A session within this one. */
  async begin(options: Omit<SessionOptions, 'parent'> = {}): Promise<Session> {
    mustHaveNoParent('begin of a session', options)
    return Session.begin(this.#leases, { ...options, parent: this })
  }

  /** An entry that others can see for as long as the session lasts. */
  put(key: string, value: string): Promise<void> {
    return this.#lease.put(key, value)
  }

  delete(key: string): Promise<void> {
    return this.#lease.delete(key)
  }

  end(): Promise<void> {
    return this.#lease.release()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.end()
  }
}
