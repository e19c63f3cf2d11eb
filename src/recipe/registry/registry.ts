/** Service discovery: instances are listed only while they live. A registration is a lease, and discovery a cache of what is registered. */
import type { ServiceView } from '../../lessor.ts'
import { checkOptionNames } from '../../options.ts'
import { type DiscoverOptions, Discovery } from './discovery.ts'
import { DiscoveryFeed } from './discovery-feed.ts'
import { Registrar } from './registrar.ts'
import type { RegisterInput, RegisterOptions, Registration, RegistryContext } from './registration.ts'

export type { Duration } from '../../duration.ts'
export type { ServiceView } from '../../lessor.ts'
export type { Change } from '../../registry/directory.ts'
export type {
  DeclaredStatus,
  HealthCheck,
  HealthCheckInput,
  InstanceState,
  InstanceStatus,
  Json,
  RegistrationData,
  RegistrationInput,
} from '../../registry/entry.ts'
export type { Filter, Instance } from '../../registry/match.ts'
export type { PickOptions, PickStrategy } from '../../registry/pick.ts'
export type { DiscoverOptions, Discovery } from './discovery.ts'
export type { RegisterInput, RegisterOptions, Registration, RegistrationChange, RegistrationEvent } from './registration.ts'

const OPTIONS = ['ttl', 'heartbeat', 'grace', 'drain', 'wait', 'signal', 'onEvent'] as const

const FILTER = ['service', 'capability', 'capabilities', 'tag', 'zone', 'status', 'maxStale'] as const

/** Options of a call that waits for the lessor. */
export interface SignalOption {
  readonly signal?: AbortSignal
}

/**
 * Registers and discovers instances of services. `leases.registry` is the one of a connection.
 *
 * @example
 * await using me = await leases.registry.register({ service: 'planner', address: 'http://10.0.0.7:8080', capabilities: ['plan'] })
 * const reviewers = leases.registry.discover({ capability: 'review' })
 * const reviewer = await reviewers.pick()
 */
export class Registry implements AsyncDisposable {
  readonly #context: RegistryContext
  readonly #registrar: Registrar
  #feed: DiscoveryFeed | undefined

  constructor(context: RegistryContext) {
    this.#context = context
    this.#registrar = new Registrar(context)
  }

  /** Counters since the start, for metrics and tests. */
  get stats(): Registrar['stats'] & { readonly registered: number } {
    return { ...this.#registrar.stats, registered: this.#registrar.size }
  }

  /**
   * Lists an instance from when this resolves until `deregister`, or until this process has not renewed it for a ttl and a grace. Several
   * instances share one lease: they are renewed together, and end together.
   *
   * Throws `HELD` if another holder has the name, `STALE` if it was registered with a higher generation.
   *
   * @example
   * await using me = await leases.registry.register({ service: 'planner', address: 'http://10.0.0.7:8080', ttl: '10s' })
   */
  register(what: RegisterInput & RegisterOptions): Promise<Registration>
  register(what: readonly RegisterInput[], options?: RegisterOptions): Promise<Registration>
  async register(what: (RegisterInput & RegisterOptions) | readonly RegisterInput[], given: RegisterOptions = {}): Promise<Registration> {
    checkOptionNames('register', given, OPTIONS)
    if (isList(what)) return this.#registrar.register(what, given)
    const options = Object.fromEntries(OPTIONS.filter(name => what[name] !== undefined).map(name => [name, what[name]]))
    const { ttl, heartbeat, grace, drain, wait, signal, onEvent, ...input } = what
    return this.#registrar.register([input], { ...options, ...given })
  }

  /**
   * Finds the instances that match a filter. One watch serves all discoveries of this process.
   *
   * @example
   * const reviewer = await leases.registry.discover({ capability: 'review', zone: 'eu/fra' }).pick()
   */
  discover(options: DiscoverOptions = {}): Discovery {
    checkOptionNames('discover', options, FILTER)
    this.#feed ??= new DiscoveryFeed(this.#context.lessor, this.#context.clock)
    return new Discovery(this.#feed, options)
  }

  /** For each service: the number of instances, how many of them are suspect, and whether it is in self-preservation. Reads the log's end. */
  async services(options: SignalOption = {}): Promise<readonly ServiceView[]> {
    checkOptionNames('services', options, ['signal'])
    const { value } = await this.#context.lessor.read({ kind: 'services' }, { consistent: true, ...options })
    return value
  }

  /**
   * The servers that make health checks now (`leasehold serve --check-allow`). While there is none, an instance that asks for a check stays
   * `unknown`, and is not picked.
   */
  async checkers(options: SignalOption = {}): Promise<readonly string[]> {
    checkOptionNames('checkers', options, ['signal'])
    return this.#registrar.checkers(options)
  }

  /** Deregisters all instances of this registry, and ends all its discoveries. */
  async close(): Promise<void> {
    this.#feed?.close()
    await this.#registrar[Symbol.asyncDispose]()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

function isList(what: object): what is readonly RegisterInput[] {
  return Array.isArray(what)
}
