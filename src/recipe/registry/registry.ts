/** Agents and services that are listed only while they live: registration is a lease, discovery a cache of what is registered. */
import type { ServiceView } from '../../lessor.ts'
import { checkOptionNames } from '../../options.ts'
import { type DiscoverOptions, Discovery, DiscoveryFeed } from './discovery.ts'
import { Registrar } from './registrar.ts'
import type { Registered, RegisterInput, RegisterOptions, RegistrationRequest } from './registration.ts'

export type { Change } from '../../registry/directory.ts'
export type {
  DeclaredStatus,
  HealthCheck,
  InstanceState,
  InstanceStatus,
  Json,
  Registration,
  RegistrationInput,
} from '../../registry/entry.ts'
export type { Filter, Instance } from '../../registry/match.ts'
export type { PickOptions, PickStrategy } from '../../registry/pick.ts'
export type { DiscoverOptions, Discovery } from './discovery.ts'
export type { Registered, RegisterInput, RegisterOptions, RegistrationChange, RegistrationEvent } from './registration.ts'

const OPTIONS = ['ttl', 'grace', 'drain', 'wait', 'signal', 'onEvent'] as const

const FILTER = ['service', 'capability', 'capabilities', 'tag', 'zone', 'status', 'maxStale'] as const

export class Registry implements AsyncDisposable {
  readonly #asking: RegistrationRequest
  readonly #registrar: Registrar
  #feed: DiscoveryFeed | undefined

  constructor(asking: RegistrationRequest) {
    this.#asking = asking
    this.#registrar = new Registrar(asking)
  }

  /** For metrics and tests. */
  get stats(): Registrar['stats'] & { readonly registered: number } {
    return { ...this.#registrar.stats, registered: this.#registrar.size }
  }

  /**
   * Listed from when this resolves until it is disposed of, or this process has been silent for a ttl and a grace. Several go on one lease:
   * they are renewed together and end together.
   */
  register(what: RegisterInput & RegisterOptions): Promise<Registered>
  register(what: readonly RegisterInput[], options?: RegisterOptions): Promise<Registered>
  async register(what: (RegisterInput & RegisterOptions) | readonly RegisterInput[], given: RegisterOptions = {}): Promise<Registered> {
    checkOptionNames('register', given, OPTIONS)
    if (isList(what)) return this.#registrar.register(what, given)
    const options = Object.fromEntries(OPTIONS.filter(name => what[name] !== undefined).map(name => [name, what[name]]))
    const { ttl, grace, drain, wait, signal, onEvent, ...input } = what
    return this.#registrar.register([input], { ...options, ...given })
  }

  /** A cache of those who match, kept by one watch for all that this process discovers. */
  discover(options: DiscoverOptions = {}): Discovery {
    checkOptionNames('discover', options, FILTER)
    this.#feed ??= new DiscoveryFeed(this.#asking.lessor, this.#asking.clock)
    return new Discovery(this.#feed, options)
  }

  /** How many instances each service has, how many of them are in doubt, and whether it is being preserved. */
  async services(): Promise<readonly ServiceView[]> {
    const { value } = await this.#asking.lessor.read({ kind: 'services' }, { consistent: true })
    return value
  }

  /**
   * The servers that make health checks now (`leasehold serve --check-allow`). While there is none, an instance that asks for a check stays
   * `unknown`, and is not picked.
   */
  checkers(): Promise<readonly string[]> {
    return this.#registrar.checkers()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#feed?.close()
    await this.#registrar[Symbol.asyncDispose]()
  }
}

function isList(what: object): what is readonly RegisterInput[] {
  return Array.isArray(what)
}
