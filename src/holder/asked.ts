/** What can be asked for, and the form in which the lessor is asked. */
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Acquire, Want } from '../kernel/command.ts'
import { type Belief, type BeliefOptions, beliefOf, Lease, type Strategy } from '../lease.ts'
import type { Profile } from '../store.ts'
import { nextAsk } from './channels.ts'

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
  readonly renew?: Strategy
  /** Ends with this lease, in the same revision. */
  readonly parent?: Lease | number
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
  /**
   * Called once when it is lost. Its units stay frozen until what this returns has settled, or its last term has run: for work that takes a
   * moment to stop. Left out: `signal` is when the work has stopped, and the lessor is told at once.
   */
  readonly onLost?: (reason: LeaseError) => void | PromiseLike<void>
  /** What the store must promise. */
  readonly require?: readonly ('durable' | 'failover')[]
}

/** What concerns this process alone. */
export interface Settings extends BeliefOptions {
  readonly maxHold: number
  readonly onQueued: AcquireOptions['onQueued']
  readonly onWait: AcquireOptions['onWait']
}

export interface Asked extends Settings {
  /** Another when it is widened: who has to ask again asks for all of it. */
  command: Acquire
}

const STRATEGIES: ReadonlySet<string> = new Set(['half', 'continuous', 'on-activity', 'manual', 'never'] satisfies Strategy[])

export function settingsOf(
  options: Pick<AcquireOptions, 'renew' | 'maxHold' | 'maxStall' | 'parent' | 'onQueued' | 'onWait' | 'onLost'>,
  holder: string,
  ttl: number,
): Settings {
  const { renew = 'half', maxStall, parent, onQueued, onWait, onLost } = options
  if (!STRATEGIES.has(renew))
    throw new LeaseError('INVALID', `renew must be half, continuous, on-activity, manual or never, not ${String(renew)}`)
  return {
    ask: nextAsk(),
    holder,
    ttl,
    strategy: renew,
    maxHold: maxHoldOf(options),
    maxStall: maxStall === undefined ? undefined : milliseconds(maxStall, 'maxStall'),
    parent: parent instanceof Lease ? beliefOf(parent) : undefined,
    onQueued,
    onWait,
    onLost,
  }
}

export function maxHoldOf({ maxHold }: Pick<AcquireOptions, 'maxHold'>): number {
  return maxHold === undefined ? Number.POSITIVE_INFINITY : milliseconds(maxHold, 'maxHold')
}

type Writable<T> = { -readonly [K in keyof T]: T[K] }

/** Who asks, and under which circumstances. */
export interface Circumstances {
  readonly holder: string
  readonly incarnation: number | undefined
  readonly profile: Profile
  /** For leases that do not say. */
  readonly ttl: number
  /** What the code that asks is working under. */
  readonly inside: readonly Belief[]
  readonly wait: boolean
}

export function form(names: readonly string[], options: AcquireOptions, circumstances: Circumstances): Asked {
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
  const kept = holding?.map(beliefOf) ?? circumstances.inside
  const parent = typeof options.parent === 'number' ? options.parent : settings.parent?.id
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

/** How long to wait at most. */
export function waitOf({ wait = true, ifAvailable = false }: AcquireOptions): number {
  if (ifAvailable) return 0
  if (typeof wait === 'boolean') return wait ? Number.POSITIVE_INFINITY : 0
  return wait === Number.POSITIVE_INFINITY ? wait : milliseconds(wait, 'wait')
}

export function namesOf({ command: { wants } }: Pick<Asked, 'command'>): readonly string[] {
  return wants.map(({ resource }) => resource)
}
