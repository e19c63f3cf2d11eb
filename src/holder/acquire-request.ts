/** What can be asked for, and the form in which the lessor is asked. */
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Acquire, Want } from '../kernel/command.ts'
import { type HeldLease, type HeldLeaseOptions, heldLeaseOf, Lease, type RenewalStrategy } from '../lease.ts'
import { kindOf, noOption } from '../options.ts'
import type { Profile } from '../store.ts'
import { nextRequestId } from './diagnostics.ts'

export type Mode = 'exclusive' | 'shared'

export interface AcquireOptions {
  readonly ttl?: Duration
  /** How long to wait; `true`, the default, until granted; `false` or 0 not at all. */
  readonly wait?: Duration | boolean
  /** As in Web Locks: do not wait. */
  readonly ifAvailable?: boolean
  readonly mode?: Mode
  /** Of each resource, or by name. */
  readonly units?: number | Readonly<Record<string, number>>
  /** Any so many of the resources instead of all. */
  readonly any?: number
  /** Higher goes first, -1000 to 1000. */
  readonly priority?: number
  /** Ends the wait, and gives back what was granted meanwhile. It has no say once the lease is handed out. */
  readonly signal?: AbortSignal
  /** Ends the present holders first and waits until they have stopped believing. `'force'` does not wait for that: two may believe at once. */
  readonly steal?: boolean | 'force'
  readonly renew?: RenewalStrategy
  /** Ends with this lease, in the same revision: a lease, its number, or what has one, such as a session, a term or a registration. */
  readonly parent?: Lease | number | { readonly lease: Lease | number }
  readonly labels?: Readonly<Record<string, string>>
  /** Keys and values that vanish with the lease. */
  readonly entries?: Readonly<Record<string, string>>
  /** After the ttl, how long it is merely suspect: granted to nobody else, and brought back by a renewal. */
  readonly grace?: Duration
  /** The lessor ends it so long after the grant, renewed or not. */
  readonly maxLife?: Duration
  /** This process gives it up after so long, whatever its work is doing. */
  readonly maxHold?: Duration
  /** Renewed only while `lease.progress()` is called at least this often: alive and working are two things. */
  readonly maxStall?: Duration
  /** Tells the present holders that someone waits. */
  readonly recall?: boolean
  /** Leases that are kept meanwhile, for finding deadlocks. Left out: those whose `request` callback this is called in. */
  readonly holding?: readonly Lease[]
  /** Told the number of the lease that waits, when it has queued; another when its place was lost and it had to queue anew. */
  readonly onQueued?: (lease: number) => void
  /** Told the place in the queue, 0 being next, whenever it changes. */
  readonly onWait?: (place: { readonly lease: number; readonly position: number }) => void
  /** Told whenever the lessor could not be reached and is asked on, since this waits until it is granted. */
  readonly onAway?: (error: LeaseError) => void
  /**
   * Called once when it is lost. Its units stay frozen until what this returns has settled, or its last term has run: for work that takes a
   * moment to stop. Left out: `signal` is when the work has stopped, and the lessor is told at once.
   */
  readonly onLost?: (reason: LeaseError) => void | PromiseLike<void>
  /** What the store must promise. */
  readonly require?: readonly ('durable' | 'failover')[]
}

/** What concerns this process alone. */
export interface AcquireSettings extends HeldLeaseOptions {
  readonly maxHold: number
  readonly onQueued: AcquireOptions['onQueued']
  readonly onWait: AcquireOptions['onWait']
  readonly onAway: AcquireOptions['onAway']
}

export interface AcquireRequest extends AcquireSettings {
  /** Another when it is widened: who has to ask again asks for all of it. */
  command: Acquire
}

type Check = (value: unknown) => boolean

const anything: Check = () => true
const isObject: Check = value => typeof value === 'object' && value !== null
const isFunction: Check = value => typeof value === 'function'
const isBoolean: Check = value => typeof value === 'boolean'
const isSignal: Check = value => isObject(value) && isFunction((value as AbortSignal).throwIfAborted)

/** What each option may be, for those that nobody else looks at: one that is misspelt or mistaken must not be passed over. */
const OPTIONS: Readonly<Record<keyof AcquireOptions, readonly [Check, string?]>> = {
  ttl: [anything],
  wait: [anything],
  ifAvailable: [isBoolean, 'true or false'],
  mode: [value => value === 'exclusive' || value === 'shared', 'exclusive or shared'],
  units: [value => typeof value === 'number' || isObject(value), 'a number, or numbers by name'],
  any: [anything],
  priority: [anything],
  signal: [isSignal, 'an AbortSignal'],
  steal: [value => isBoolean(value) || value === 'force', 'true, false or force'],
  renew: [anything],
  parent: [value => parentOf(value) !== undefined, 'a lease, its number, or what has one: a session, a term, a registration'],
  labels: [isObject, 'texts by name'],
  entries: [isObject, 'texts by key'],
  grace: [anything],
  maxLife: [anything],
  maxHold: [anything],
  maxStall: [anything],
  recall: [isBoolean, 'true or false'],
  holding: [value => Array.isArray(value) && value.every(held => held instanceof Lease), 'an array of leases'],
  onQueued: [isFunction, 'a function'],
  onWait: [isFunction, 'a function'],
  onAway: [isFunction, 'a function'],
  onLost: [isFunction, 'a function'],
  require: [value => Array.isArray(value), "an array of 'durable' and 'failover'"],
}

/** Throws `INVALID` where an option does not exist, or is not what it must be. `call` is whose options they are. */
export function checkOptions(options: unknown, call = 'acquire', without: readonly string[] = []): void {
  if (!isObject(options)) {
    const hint = typeof options === 'function' ? ': write request(names, options, callback) to run a callback under a lease' : ''
    throw new LeaseError('INVALID', `options must be an object, not ${kindOf(options)}${hint}`)
  }
  for (const name in options as object) {
    const value = (options as Record<string, unknown>)[name]
    const [check, must] = Object.hasOwn(OPTIONS, name) && !without.includes(name) ? OPTIONS[name as keyof AcquireOptions] : []
    if (check === undefined)
      throw noOption(
        call,
        name,
        Object.keys(OPTIONS).filter(option => !without.includes(option)),
      )
    if (value !== undefined && !check(value))
      throw new LeaseError('INVALID', `${name} must be ${must}, not ${kindOf(value)}`, { facts: { option: name } })
  }
}

/** Throws `INVALID` unless it is one: whoever waits must be able to stop. */
export function checkSignal(signal: unknown, what: string): void {
  if (!isSignal(signal)) throw new LeaseError('INVALID', `${what} needs an AbortSignal, which ends it; not ${kindOf(signal)}`)
}

export function checkNames(names: unknown): readonly string[] {
  if (typeof names === 'string') return [names]
  if (!Array.isArray(names) || !names.every(name => typeof name === 'string'))
    throw new LeaseError('INVALID', `a resource is a text such as 'jobs/nightly', or an array of them, not ${kindOf(names)}`)
  if (names.length === 0) throw new LeaseError('INVALID', 'no resource is named: a lease on nothing is made by open()')
  return names
}

function parentOf(parent: unknown): Lease | number | undefined {
  if (parent instanceof Lease) return parent
  if (typeof parent === 'number') return Number.isSafeInteger(parent) && parent > 0 ? parent : undefined
  return isObject(parent) && 'lease' in (parent as object) ? parentOf((parent as { readonly lease: unknown }).lease) : undefined
}

const STRATEGIES: ReadonlySet<string> = new Set(['half', 'continuous', 'on-activity', 'manual', 'never'] satisfies RenewalStrategy[])

export function settingsOf(
  options: Pick<AcquireOptions, 'renew' | 'maxHold' | 'maxStall' | 'parent' | 'onQueued' | 'onWait' | 'onAway' | 'onLost'>,
  holder: string,
  ttl: number,
): AcquireSettings {
  const { renew = 'half', maxStall, parent, onQueued, onWait, onAway, onLost } = options
  const above = parentOf(parent)
  if (!STRATEGIES.has(renew))
    throw new LeaseError('INVALID', `renew must be half, continuous, on-activity, manual or never, not ${String(renew)}`)
  return {
    ask: nextRequestId(),
    holder,
    ttl,
    strategy: renew,
    maxHold: maxHoldOf(options),
    maxStall: maxStall === undefined ? undefined : milliseconds(maxStall, 'maxStall'),
    parent: above instanceof Lease ? heldLeaseOf(above) : undefined,
    onQueued,
    onWait,
    onAway,
    onLost,
  }
}

export function maxHoldOf({ maxHold }: Pick<AcquireOptions, 'maxHold'>): number {
  return maxHold === undefined ? Number.POSITIVE_INFINITY : milliseconds(maxHold, 'maxHold')
}

type Writable<T> = { -readonly [K in keyof T]: T[K] }

/** Who asks, and under which circumstances. */
export interface RequestContext {
  readonly holder: string
  readonly incarnation: number | undefined
  readonly profile: Profile
  /** For leases that do not say. */
  readonly ttl: number
  /** What the code that asks is working under. */
  readonly inside: readonly HeldLease[]
  readonly wait: boolean
}

export function acquireCommand(names: readonly string[], options: AcquireOptions, circumstances: RequestContext): AcquireRequest {
  const { mode = 'exclusive', units, any, priority, steal = false, labels, entries, recall, holding, require = [] } = options
  const { holder, incarnation, profile, wait } = circumstances
  for (const promise of require)
    if (!profile[promise]) throw new LeaseError('UNSUPPORTED', `the ${profile.store} store is not ${promise}, which was required`)
  if (steal !== false && !wait) throw new LeaseError('INVALID', 'a steal waits until the present holders have stopped: let it wait')
  const settings = settingsOf(options, holder, options.ttl === undefined ? circumstances.ttl : milliseconds(options.ttl, 'ttl'))
  const { length } = names
  const wants = new Array<Want>(length)
  for (let i = 0; i < length; i++) {
    const want: Writable<Want> = { resource: names[i]! }
    const count = typeof units === 'object' ? units[want.resource] : units
    if (count !== undefined) want.units = count
    if (mode === 'shared') want.shared = true
    wants[i] = want
  }
  const command: Writable<Acquire> = { kind: 'acquire', holder, ttl: settings.ttl, wants }
  const kept = holding?.map(heldLeaseOf) ?? circumstances.inside
  const above = parentOf(options.parent)
  const parent = typeof above === 'number' ? above : settings.parent?.id
  if (incarnation !== undefined) command.incarnation = incarnation
  if (wait && length > 0) command.wait = true
  if (any !== undefined) command.any = any
  if (priority !== undefined) command.priority = priority
  if (entries !== undefined) command.entries = Object.entries(entries).map(([key, value]) => ({ key, value }))
  if (parent !== undefined) command.parent = parent
  if (labels !== undefined) command.labels = Object.entries(labels)
  if (kept.length > 0) command.holding = kept.map(({ id }) => id)
  if (options.grace !== undefined) command.grace = milliseconds(options.grace, 'grace')
  if (options.maxLife !== undefined) command.maxLife = milliseconds(options.maxLife, 'maxLife')
  if (steal !== false) command.steal = steal === 'force' ? 'force' : 'after'
  if (recall === true) command.recall = true
  return { ...settings, command }
}

/** Throws `INVALID` when something that never waits is told to wait. */
export function checkNoWait({ wait }: AcquireOptions, call: string): void {
  if (wait === undefined || wait === false || wait === 0) return
  throw new LeaseError('INVALID', `${call} does not wait: leave out wait, or use acquire`, { facts: { option: 'wait' } })
}

/** How long to wait at most. */
export function waitOf({ wait = true, ifAvailable = false }: AcquireOptions): number {
  if (ifAvailable) return 0
  if (typeof wait === 'boolean') return wait ? Number.POSITIVE_INFINITY : 0
  return wait === Number.POSITIVE_INFINITY ? wait : milliseconds(wait, 'wait')
}

export function namesOf({ command: { wants } }: Pick<AcquireRequest, 'command'>): readonly string[] {
  return wants.map(({ resource }) => resource)
}
