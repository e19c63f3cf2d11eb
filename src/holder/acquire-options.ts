/** The options of `acquire`, `tryAcquire`, `request` and `grant`, and the checks that refuse a wrong one. */
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { MAX_RESOURCES, type PoolRequest } from '../kernel/command.ts'
import { Lease, type RenewalStrategy, type Requirement } from '../lease.ts'
import type { TtlRange } from '../lessor/ttl-range.ts'
import { checkOptionNames, kindOf, noOption } from '../options.ts'
import type { LearnOptions } from './learned-terms.ts'

/** As in Web Locks. Any number of holders may share a resource; an exclusive holder has it alone. */
export type Mode = 'exclusive' | 'shared'

/** A lease, its number, or an object that has one: a session, a term of an election, a registration. */
export type Parent = Lease | number | { readonly lease: Lease | number }

/** A ttl that is adjusted to what policies allow, instead of refused. */
export interface PreferredTtl {
  readonly preferred: Duration
  /** A shorter one is of no use. @default any */
  readonly min?: Duration
  /** A longer one is not wanted. @default any */
  readonly max?: Duration
}

/** The place of a waiter in its queue. */
export interface QueuePlace {
  readonly lease: number
  /** 0 is next. */
  readonly position: number
}

/**
 * Options of `acquire` and `request`. Names follow Web Locks where it has one: `mode`, `ifAvailable`, `steal`, `signal`.
 *
 * @example
 * await leases.acquire('jobs/nightly', { ttl: '30s', wait: '5m', signal })
 */
export interface AcquireOptions {
  /**
   * The lease lasts this long without a renewal. It is renewed until it is released, so this is the time others wait after a crash.
   * `'auto'`: decided by how long such leases were held before, and longer for leases that have run long (docs/learned-terms.md).
   * `{ preferred, min, max }`: the preferred ttl, or the nearest ttl between `min` and `max` that policies allow. `lease.ttl` says which.
   * @default '30s', or `ttl` of `connect`
   */
  readonly ttl?: Duration | 'auto' | PreferredTtl | undefined
  /**
   * `ttl: 'auto'` learns from this. With another ttl nothing is decided, but how long the lease is held is counted for its class.
   * @default the name of the resource up to its last slash
   */
  readonly learn?: LearnOptions | undefined
  /**
   * The call waits this long for the grant, then rejects with `TIMEOUT`. Greater than 0: use `ifAvailable` or `tryAcquire` to not wait at all.
   * @default until granted
   */
  readonly wait?: Duration | undefined
  /**
   * Do not wait: `acquire` rejects with `HELD`, `request` calls back with null. `tryAcquire` is the same with undefined.
   * @default false
   */
  readonly ifAvailable?: boolean | undefined
  /**
   * Ends the wait, and rejects with the signal's reason; a grant that arrives meanwhile is released. It does nothing once the lease is in
   * hand: `lease.signal` is for the work.
   */
  readonly signal?: AbortSignal | undefined
  /** @default 'exclusive' */
  readonly mode?: Mode | undefined
  /**
   * The lease takes this many units of each resource, or by name. A resource has 1 unit unless a policy gives it more.
   * @default 1
   */
  readonly units?: number | Readonly<Record<string, number>> | undefined
  /**
   * Claim each name with all names below it: `lib` with `lib/a.ts` and `lib/x/y.ts`. It excludes every claim there, in both orders. Not with `units`, `any`,
   * permits and pools. Leases in `holding` are no obstacle.
   * @default false
   */
  readonly covers?: boolean | undefined
  /**
   * Higher is served first, -1000 to 1000; equal ones in the order of arrival.
   * @default 0
   */
  readonly priority?: number | undefined
  /**
   * When to renew. `'half'`: at half of the term. `'continuous'`: eight times per term. `'on-activity'`: after `lease.touch()`.
   * `'manual'`: by `lease.renew()` alone. `'never'`: not at all.
   * @default 'half'
   */
  readonly renew?: RenewalStrategy | undefined
  /**
   * Ends the present holders first and waits until they have stopped. `'force'` does not wait for that: two holders may act at once.
   * @default false
   */
  readonly steal?: boolean | 'force' | undefined
  /** The lease ends with this one, in the same revision. */
  readonly parent?: Parent | undefined
  /** Texts for people and tools, shown with the lease. */
  readonly labels?: Readonly<Record<string, string>> | undefined
  /** Keys and values that exist while the lease does. */
  readonly entries?: Readonly<Record<string, string>> | undefined
  /**
   * This process releases the lease after this time, whatever its work is doing. Like a job timeout.
   * @default no limit
   */
  readonly maxHold?: Duration | undefined
  /**
   * Called once when the lease is lost. Its units stay frozen until the returned promise has settled, or its last term has run: for work that
   * needs a moment to stop. Left out: the work counts as stopped when `lease.signal` fires, and the lessor is informed at once.
   */
  readonly onLost?: ((reason: LeaseError) => void | PromiseLike<void>) | undefined
  /** Called with the place in the queue whenever it changes. */
  readonly onWait?: ((place: QueuePlace) => void) | undefined
  /** Options that few programs need. */
  readonly advanced?: AdvancedAcquireOptions | undefined
}

export interface AdvancedAcquireOptions {
  /** The number of the resources that suffice. `lease.resources` says which were granted. @default all of them */
  readonly any?: number | undefined
  /**
   * The lease stays suspect this long after its ttl: granted to no other holder, and restored by a renewal.
   * @default 0, or what a policy says
   */
  readonly grace?: Duration | undefined
  /** The lessor ends the lease this long after the grant, renewed or not. */
  readonly maxLife?: Duration | undefined
  /** Renew only while `lease.progress()` is called at least this often: a process can be alive and its work stuck. */
  readonly maxStall?: Duration | undefined
  /**
   * Ask the present holders to release (`lease.recalled` fires there).
   * @default false
   */
  readonly recall?: boolean | undefined
  /**
   * Leases that are kept during the wait, for finding deadlocks. With the same holder name, they are also no obstacle to a covering claim, nor as one.
   * @default the leases of the `request` callbacks that this call runs in
   */
  readonly holding?: readonly Lease[] | undefined
  /** Take members of a pool: the only name is that of the pool then. `leases.pool(name)` is the usual way. */
  readonly pool?: PoolRequest | undefined
  /**
   * The units of each resource that may be in use at once. A grant keeps to the smallest number of all leases on the resource. `leases.semaphore(name)` is the usual way.
   * @default none: what policies say, at first 1
   */
  readonly permits?: number | undefined
  /** Called with the number of the waiting lease once it has queued; again if its place was lost and it queued anew. */
  readonly onQueued?: ((lease: number) => void) | undefined
  /** Called whenever the lessor could not be reached and an endless wait goes on. */
  readonly onAway?: ((error: LeaseError) => void) | undefined
  /**
   * For requests that do not wait, in a process that opens the store itself: how long to stay if the holder seems to be dead, until it is certain that its lease has
   * ended. Then `UNCONFIRMED`. 0: do not stay.
   * @default the ttl of the holder, at most '30s'
   */
  readonly confirm?: Duration | undefined
  /** The store must promise this. Otherwise `UNSUPPORTED`. If it stops promising it while the lease is held, `onJeopardy` is called. */
  readonly require?: readonly Requirement[] | undefined
}

/** Options with a ttl that has been decided. */
export type DecidedOptions = Omit<AcquireOptions, 'ttl'> & { readonly ttl?: Duration }

/** Options of `tryAcquire`. */
export type TryAcquireOptions = Omit<AcquireOptions, 'wait' | 'ifAvailable' | 'onWait'>

/** Options of `grant`: a lease without resources has nothing to wait for. */
export type GrantOptions = Omit<AcquireOptions, 'wait' | 'ifAvailable' | 'mode' | 'units' | 'covers' | 'priority' | 'steal' | 'onWait'>

/** Options of `adopt`. */
export type AdoptOptions = Pick<AcquireOptions, 'renew' | 'maxHold'> & {
  readonly advanced?: Pick<AdvancedAcquireOptions, 'maxStall'>
}

type OptionCheck = (value: unknown) => boolean
type OptionChecks<T> = Readonly<Record<keyof T, readonly [OptionCheck, string?]>>

const anything: OptionCheck = () => true
const isObject: OptionCheck = value => typeof value === 'object' && value !== null
const isFunction: OptionCheck = value => typeof value === 'function'
const isBoolean: OptionCheck = value => typeof value === 'boolean'
const isSignal: OptionCheck = value => isObject(value) && isFunction((value as AbortSignal).throwIfAborted)

/** Each option may be this. Options marked `anything` are checked where they are used. */
const OPTIONS: OptionChecks<AcquireOptions> = {
  ttl: [anything],
  learn: [isObject, 'an object'],
  wait: [anything],
  ifAvailable: [isBoolean, 'true or false'],
  signal: [isSignal, 'an AbortSignal'],
  mode: [value => value === 'exclusive' || value === 'shared', 'exclusive or shared'],
  units: [value => typeof value === 'number' || isObject(value), 'a number, or numbers by name'],
  covers: [isBoolean, 'true or false'],
  priority: [anything],
  renew: [anything],
  steal: [value => isBoolean(value) || value === 'force', 'true, false or force'],
  parent: [value => parentOf(value) !== undefined, 'a lease, its number, or an object that has one: a session, a term, a registration'],
  labels: [isObject, 'texts by name'],
  entries: [isObject, 'texts by key'],
  maxHold: [anything],
  onLost: [isFunction, 'a function'],
  onWait: [isFunction, 'a function'],
  advanced: [isObject, 'an object'],
}

const LEARN: OptionChecks<LearnOptions> = {
  class: [value => typeof value === 'string' && value !== '', 'a text'],
  labels: [value => Array.isArray(value) && value.every(label => typeof label === 'string'), 'an array of names of labels'],
  renewalCost: [anything],
}

const ADVANCED: OptionChecks<AdvancedAcquireOptions> = {
  any: [anything],
  grace: [anything],
  maxLife: [anything],
  maxStall: [anything],
  recall: [isBoolean, 'true or false'],
  holding: [value => Array.isArray(value) && value.every(held => held instanceof Lease), 'an array of leases'],
  pool: [isObject, 'an object'],
  permits: [anything],
  onQueued: [isFunction, 'a function'],
  onAway: [isFunction, 'a function'],
  confirm: [anything],
  require: [value => Array.isArray(value), "an array of 'durable' and 'failover'"],
}

/** Throws `INVALID` for an option that does not exist or has a wrong value. `call` names the method; `without`, options it does not take. */
export function checkOptions(
  options: unknown,
  call = 'acquire',
  without: readonly string[] = [],
  checks: Readonly<Record<string, readonly [OptionCheck, string?]>> = OPTIONS,
): void {
  if (typeof options !== 'object' || options === null) {
    const hint = typeof options === 'function' ? ': write request(names, options, callback) to run a callback under a lease' : ''
    throw new LeaseError('INVALID', `options must be an object, not ${kindOf(options)}${hint}`)
  }
  for (const name in options) {
    const value = (options as Record<string, unknown>)[name]
    const [check, must] = Object.hasOwn(checks, name) && !without.includes(name) ? checks[name]! : []
    if (check === undefined) {
      if (checks === OPTIONS && Object.hasOwn(ADVANCED, name) && !without.includes(name))
        throw new LeaseError('INVALID', `the option ${name} of ${call} is under advanced: write { advanced: { ${name}: … } }`, {
          facts: { option: name },
        })
      throw noOption(
        call,
        name,
        Object.keys(checks).filter(option => !without.includes(option)),
      )
    }
    if (value !== undefined && !check(value))
      throw new LeaseError('INVALID', `${name} must be ${must}, not ${kindOf(value)}`, { facts: { option: name } })
  }
  if (checks !== OPTIONS) return
  const { advanced, learn } = options as AcquireOptions
  if (learn !== undefined) checkOptions(learn, `${call} under learn`, without, LEARN)
  if (advanced !== undefined) checkOptions(advanced, `${call} under advanced`, without, ADVANCED)
}

export function checkAdoptOptions(options: AdoptOptions): void {
  checkOptionNames('adopt', options, ['renew', 'maxHold', 'advanced'])
  if (options.advanced !== undefined) checkOptionNames('adopt under advanced', options.advanced, ['maxStall'])
}

/** Throws `INVALID` unless `signal` is one: a call that waits must be stoppable. */
export function checkSignal(signal: unknown, what: string): void {
  if (!isSignal(signal)) throw new LeaseError('INVALID', `${what} needs an AbortSignal to end it: pass { signal }, not ${kindOf(signal)}`)
}

/** A name that is given twice is one name. */
export function checkNames(names: unknown): readonly string[] {
  if (typeof names === 'string') return [names]
  if (!Array.isArray(names) || !names.every(name => typeof name === 'string'))
    throw new LeaseError('INVALID', `a resource is a text such as 'jobs/nightly', or an array of them, not ${kindOf(names)}`)
  if (names.length === 0) throw new LeaseError('INVALID', 'no resource is named. For a lease without resources use grant()')
  if (names.length === 1) return names
  const different = [...new Set(names)]
  if (different.length > MAX_RESOURCES)
    throw new LeaseError(
      'INVALID',
      `${different.length} resources in one request, more than ${MAX_RESOURCES}: acquire a name above them with covers: true (leasehold run NAME --covers), or fewer of them at a time`,
    )
  return different
}

export function parentOf(parent: unknown): Lease | number | undefined {
  if (parent instanceof Lease) return parent
  if (typeof parent === 'number') return Number.isSafeInteger(parent) && parent > 0 ? parent : undefined
  return isObject(parent) && 'lease' in (parent as object) ? parentOf((parent as { readonly lease: unknown }).lease) : undefined
}

/** Returns how long to wait at most, in ms: 0 with `ifAvailable`, infinity without `wait`. `call` names the method in errors. */
export function waitOf({ wait, ifAvailable = false }: Pick<AcquireOptions, 'wait' | 'ifAvailable'>, call: string): number {
  if (wait === undefined) return ifAvailable ? 0 : Number.POSITIVE_INFINITY
  if (ifAvailable) throw new LeaseError('INVALID', `${call} with ifAvailable does not wait: leave out wait`, { facts: { option: 'wait' } })
  if (wait === Number.POSITIVE_INFINITY) return wait
  const ms = typeof wait === 'boolean' ? 0 : milliseconds(wait, 'wait')
  if (ms > 0) return ms
  throw new LeaseError(
    'INVALID',
    `wait must be a duration above 0, not ${String(wait)}. To not wait, use ifAvailable: true or a try method such as tryAcquire; to wait until granted, leave out wait`,
    { facts: { option: 'wait' } },
  )
}

/** Throws `INVALID` when a method that never waits gets `wait`. */
export function checkNoWait(options: object, call: string): void {
  if ((options as AcquireOptions).wait === undefined) return
  throw new LeaseError('INVALID', `${call} does not wait: leave out wait, or use acquire`, { facts: { option: 'wait' } })
}

/** The limits of a preference in ms. */
export function ttlRangeOf(preference: PreferredTtl): TtlRange {
  checkOptionNames('ttl', preference, ['preferred', 'min', 'max'])
  const preferred = milliseconds(preference.preferred, 'ttl.preferred')
  const min = preference.min === undefined ? 0 : milliseconds(preference.min, 'ttl.min')
  const max = preference.max === undefined ? Number.POSITIVE_INFINITY : milliseconds(preference.max, 'ttl.max')
  if (min > preferred || preferred > max)
    throw new LeaseError('INVALID', 'ttl must have min ≤ preferred ≤ max', { facts: { option: 'ttl' } })
  return { preferred, min, max }
}
