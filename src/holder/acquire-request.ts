/** Turns the options of a call into the `acquire` command for the lessor and the settings that this process keeps. */
import { inWords, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Acquire, Want } from '../kernel/command.ts'
import { heldLeaseOf, Lease, type RenewalStrategy } from '../lease.ts'
import type { Lessor } from '../lessor.ts'
import { type AcquireOptions, type AdvancedAcquireOptions, type DecidedOptions, parentOf } from './acquire-options.ts'
import type { HeldLease, HeldLeaseOptions, Requirement } from './held-lease.ts'
import type { LearnedTerm } from './learned-terms.ts'

/** Settings that concern this process alone. */
export interface AcquireSettings extends HeldLeaseOptions {
  readonly maxHold: number
  readonly onWait: AcquireOptions['onWait']
  readonly onQueued: AdvancedAcquireOptions['onQueued']
  readonly onAway: AdvancedAcquireOptions['onAway']
  /** The call stays this many ms for the end of a dead holder's lease. */
  readonly confirm: number | undefined
}

export interface AcquireRequest extends AcquireSettings {
  /** Replaced when the request is widened, so that a repeated request asks for everything. */
  command: Acquire
  /** The store must promise this. */
  readonly require: readonly Requirement[]
}

const STRATEGIES: ReadonlySet<string> = new Set(['half', 'continuous', 'on-activity', 'manual', 'never'] satisfies RenewalStrategy[])

let lastRequestId = 0

export function settingsOf(
  options: Pick<AcquireOptions, 'renew' | 'maxHold' | 'parent' | 'onWait' | 'onLost' | 'advanced'>,
  holder: string,
  ttl: number,
): AcquireSettings {
  const { renew = 'half', parent, onWait, onLost, advanced: { maxStall, onQueued, onAway, confirm } = {} } = options
  const above = parent === undefined ? undefined : parentOf(parent)
  if (!STRATEGIES.has(renew))
    throw new LeaseError('INVALID', `renew must be half, continuous, on-activity, manual or never, not ${String(renew)}`)
  const maxHold = options.maxHold === undefined ? Number.POSITIVE_INFINITY : milliseconds(options.maxHold, 'maxHold')
  if (renew === 'never' && maxHold > ttl && maxHold < Number.POSITIVE_INFINITY)
    throw new LeaseError(
      'INVALID',
      `maxHold of ${inWords(maxHold)} is never reached: with renew: 'never' the lease ends after its ttl of ${inWords(ttl)}. Leave out maxHold, or use a ttl of at least ${maxHold} ms`,
      { facts: { option: 'maxHold' } },
    )
  return {
    requestId: ++lastRequestId,
    holder,
    ttl,
    strategy: renew,
    maxHold,
    maxStall: maxStall === undefined ? undefined : milliseconds(maxStall, 'maxStall'),
    parent: above instanceof Lease ? heldLeaseOf(above) : undefined,
    onQueued,
    onWait,
    onAway,
    confirm: confirm === undefined ? undefined : milliseconds(confirm, 'confirm'),
    onLost,
  }
}

type Writable<T> = { -readonly [K in keyof T]: T[K] }

/** The process that asks, and its defaults. */
export interface RequestContext {
  readonly holder: string
  readonly incarnation: number | undefined
  readonly lessor: Pick<Lessor, 'profile'>
  /** The ttl of leases that do not name one. */
  readonly ttl: number
  /** Leases of the `request` callbacks around this call. */
  readonly inside: readonly HeldLease[]
  readonly wait: boolean
  readonly learned: LearnedTerm | undefined
}

const NOTHING: AdvancedAcquireOptions = {}

export function acquireCommand(names: readonly string[], options: DecidedOptions, context: RequestContext): AcquireRequest {
  const { mode = 'exclusive', units, covers, priority, steal = false, labels, entries, advanced = NOTHING } = options
  const { any, grace, maxLife, recall, holding, pool, permits, require = [] } = advanced
  const { holder, incarnation, lessor, wait } = context
  if (require.length > 0) assertPromised(lessor, require)
  if (steal !== false && !wait)
    throw new LeaseError('INVALID', 'a steal waits until the present holders have stopped: leave out ifAvailable, and use acquire')
  const settings = settingsOf(options, holder, options.ttl === undefined ? context.ttl : milliseconds(options.ttl, 'ttl'))
  const { length } = pool === undefined ? names : []
  const wants = new Array<Want>(length)
  for (let i = 0; i < length; i++) {
    const want: Writable<Want> = { resource: names[i]! }
    const count = typeof units === 'object' ? units[want.resource] : units
    if (count !== undefined) want.units = count
    if (mode === 'shared') want.shared = true
    wants[i] = want
  }
  const command: Writable<Acquire> = { kind: 'acquire', holder, ttl: settings.ttl, wants }
  const kept = holding?.map(heldLeaseOf) ?? context.inside
  const above = options.parent === undefined ? undefined : parentOf(options.parent)
  const parent = typeof above === 'number' ? above : settings.parent?.id
  if (incarnation !== undefined) command.incarnation = incarnation
  if (pool !== undefined) command.pool = pool
  if (wait && (length > 0 || pool !== undefined)) command.wait = true
  if (any !== undefined) command.any = any
  if (priority !== undefined) command.priority = priority
  if (entries !== undefined) command.entries = Object.entries(entries).map(([key, value]) => ({ key, value }))
  if (parent !== undefined) command.parent = parent
  if (labels !== undefined) command.labels = Object.entries(labels)
  if (kept.length > 0) command.holding = kept.map(({ id }) => id)
  if (grace !== undefined) command.grace = milliseconds(grace, 'grace')
  if (maxLife !== undefined) command.maxLife = milliseconds(maxLife, 'maxLife')
  if (steal !== false) command.steal = steal === 'force' ? 'force' : 'after'
  if (recall === true) command.recall = true
  if (permits !== undefined) command.permits = permits
  if (covers === true) command.covers = true
  return { ...settings, command, learned: context.learned, require, listens: pool !== undefined }
}

/** Throws if the store does not promise what was required. */
export function assertPromised({ profile }: Pick<Lessor, 'profile'>, require: readonly Requirement[]): void {
  for (const promise of require)
    if (!profile[promise]) throw new LeaseError('UNSUPPORTED', `the ${profile.store} store is not ${promise}, which was required`)
}

/** The names that it asks for: resources, or a pool. */
export function namesOf({ command: { wants, pool } }: Pick<AcquireRequest, 'command'>): readonly string[] {
  return pool === undefined ? wants.map(({ resource }) => resource) : [pool.pool]
}
