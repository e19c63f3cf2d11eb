/** One instance as its entries describe it: the registration, the state it reports, and the result of its health check. */
import { type CheckResult, DEFAULT_STATE, type InstanceState, type InstanceStatus, type RegistrationData, UNCHECKED } from './entry.ts'
import type { Instance } from './match.ts'

/** The value of an entry, and the lease that it is attached to. */
interface AttachedValue<T> {
  readonly lease: number
  readonly value: T
}

/** An instance as the registry knows it. Its registration may be missing: entries of one instance come and go one by one. */
export class KnownInstance {
  readonly key: string
  /** The value of the entry, and the registration read from it. An equal text keeps the same object, so that comparing changes is cheap. */
  text = ''
  registration: RegistrationData | undefined
  lease = 0
  holder = ''
  revision = 0
  suspect = false
  suppressed = false
  state: AttachedValue<InstanceState> | undefined
  check: AttachedValue<CheckResult> | undefined
  /** Undefined while the registration is missing. */
  #instance: Instance | undefined

  constructor(key: string) {
    this.key = key
  }

  get instance(): Instance {
    return this.#instance!
  }

  get listed(): boolean {
    return this.#instance !== undefined
  }

  get empty(): boolean {
    return this.registration === undefined && this.state === undefined && this.check === undefined
  }

  /** The last check result. A result on another lease belongs to a predecessor, and does not count. */
  get result(): CheckResult | undefined {
    return this.check?.lease === this.lease ? this.check.value : undefined
  }

  /** Computes the instance as clients see it now. */
  refresh(): Instance | undefined {
    const { registration, lease, holder, revision } = this
    this.#instance = undefined
    if (registration === undefined) return undefined
    const state = this.state?.lease === lease ? this.state.value : DEFAULT_STATE
    const check = this.result
    const unchecked = registration.check !== undefined && check === undefined
    const { service, instance, addresses, capabilities, tags, metadata, weight, zone, generation } = registration
    // Field by field: a spread costs several times as much.
    this.#instance = {
      service,
      instance,
      addresses,
      capabilities,
      tags,
      metadata,
      weight,
      zone,
      generation,
      check: registration.check,
      address: addresses[0] ?? '',
      status: this.#status(state, check, unchecked),
      reason: unchecked ? UNCHECKED : (check?.reason ?? ''),
      load: state.load,
      lease,
      holder,
      revision,
    }
    return this.#instance
  }

  /** The instance's own decision first, then known failures, then suspicions. */
  #status({ status }: InstanceState, check: CheckResult | undefined, unchecked: boolean): InstanceStatus {
    if (status === 'maintenance' || status === 'draining') return status
    if (status === 'critical' || check?.status === 'critical') return 'critical'
    // The instance asked for a check, and may never have worked.
    if (unchecked) return 'unknown'
    if (this.suspect) return 'suspect'
    if (this.suppressed) return 'suppressed'
    return status === 'warning' || check?.status === 'warning' ? 'warning' : 'passing'
  }
}
