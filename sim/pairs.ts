/**
 * Counts the ordered pairs of features that met: the second acted while the first was in force on the same lease, or on a lease for the same resource or
 * pool, and a judge of the second looked at the lease or the resource afterwards.
 *
 * The pairs follow from what happened in the log. Simulated programs add what the kernel cannot see, by a label of the request (MARKS_LABEL) or by `mark`.
 */
import type { Acquire, Command } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { type LeaseState, SLOTS, type State } from '../src/kernel/state.ts'
import { claimsHeld, claimsWanted, hasCovering, holdersAround, waitersAround } from './covers.ts'
import { FEATURE_ROWS, type Feature } from './features.ts'
import { featuresInState, requestFeatures } from './lease-features.ts'
import { bringsChanges } from './transactions.ts'

/** A lease by its id, or a resource or pool by its name. */
export type Subject = number | string

/** The name of a pair. */
export function pairName(first: Feature, second: Feature): string {
  return `${first} ${second}`
}

/** Pairs that have met and wait for their judge. */
interface Action {
  readonly feature: Feature
  readonly inForce: ReadonlySet<Feature>
  counted: boolean
}

/** Actions that wait for a judge, at most, for each subject. */
const MAX_WAITING = 24

export class PairTracker {
  readonly counts = new Map<string, number>()
  readonly #state: () => State
  /** These features are in force on each lease, as of the last command that concerned it. */
  readonly #inForce = new Map<number, ReadonlySet<Feature>>()
  /** These features a lease keeps from its past, or from its program. */
  readonly #marks = new Map<number, Set<Feature>>()
  readonly #waiting = new Map<Subject, Action[]>()

  constructor(state: () => State) {
    this.#state = state
  }

  /** A program or the log says that a feature is in force on a lease. */
  mark(lease: number, ...features: readonly Feature[]): void {
    const marks = this.#marks.get(lease) ?? new Set()
    this.#marks.set(lease, marks)
    for (const feature of features) marks.add(feature)
    this.#refresh(lease)
  }

  isMarked(lease: number, feature: Feature): boolean {
    return this.#marks.get(lease)?.has(feature) === true
  }

  /** A judge of this invariant has looked at these leases and resources. */
  looked(invariant: string, ...subjects: readonly Subject[]): void {
    for (const subject of subjects) {
      const waiting = this.#waiting.get(subject)
      if (waiting === undefined) continue
      const left = waiting.filter(action => {
        if (action.counted) return false
        if (!FEATURE_ROWS[action.feature].judges.includes(invariant)) return true
        this.#count(action)
        return false
      })
      if (left.length === 0) this.#waiting.delete(subject)
      else if (left.length < waiting.length) this.#waiting.set(subject, left)
    }
  }

  #count(action: Action): void {
    action.counted = true
    for (const first of action.inForce) {
      const name = pairName(first, action.feature)
      this.counts.set(name, (this.counts.get(name) ?? 0) + 1)
    }
  }

  /** A feature acts on leases and resources, while others are in force there. `own`: the other features of the request that acts. */
  acts(feature: Feature, subjects: readonly Subject[], own: ReadonlySet<Feature> = new Set()): void {
    const inForce = new Set<Feature>()
    for (const other of own) if (other !== feature) inForce.add(other)
    const concerned = new Set(subjects)
    for (const subject of subjects) for (const lease of this.#near(subject)) concerned.add(lease)
    for (const subject of concerned)
      if (typeof subject === 'number') for (const other of this.#inForce.get(subject) ?? []) inForce.add(other)
    const action = { feature, inForce, counted: false }
    for (const subject of subjects) {
      const waiting = this.#waiting.get(subject) ?? []
      this.#waiting.set(subject, [...waiting.slice(-MAX_WAITING), action])
    }
  }

  /** Something happens to the whole log: it acts on every lease, and each that is left was there when it happened. */
  actsOnAll(feature: Feature): void {
    for (const { id, grants } of this.#state().leases.values()) this.acts(feature, [id, ...grants.map(({ resource }) => resource.name)])
  }

  /** The log has other contents: after a loss, or in another place. */
  rebuild(mark?: Feature): void {
    for (const { id } of this.#state().leases.values()) {
      if (mark === undefined) this.#refresh(id)
      else this.mark(id, mark)
    }
  }

  /** A command was applied. */
  applied(command: Command, outcome: Outcome, events: readonly Event[]): void {
    if (outcome.kind !== 'refused') this.#command(command, outcome)
    for (const event of events) this.#event(event, command)
    for (const lease of touched(command, outcome, events)) this.#refresh(lease)
  }

  /** A request was refused because what it asks for is held. Such an answer is in no record; its judge has looked at it. */
  refused(command: Acquire): void {
    const own = requestFeatures(this.#state(), command)
    const subjects = subjectsOf(command)
    for (const feature of ['no-wait', 'short-lived', 'face-lease', 'learned-term', 'renew-never'] as const)
      if (own.has(feature)) this.acts(feature, subjects, own)
    this.looked('S10', ...subjects)
  }

  #command(command: Command, outcome: Outcome): void {
    switch (command.kind) {
      case 'acquire': {
        const own = requestFeatures(this.#state(), command)
        if (outcome.kind !== 'granted' && outcome.kind !== 'queued') return
        const lease = findLease(this.#state(), outcome.lease)
        if (outcome.kind === 'granted' && lease?.extras?.pool?.borrows === true) own.add('borrowed')
        const subjects = [outcome.lease, ...subjectsOf(command)]
        for (const feature of own) {
          if ((feature === 'wait' && outcome.kind !== 'queued') || feature === 'worker-renews') continue
          this.acts(feature, subjects, own)
        }
        const kept = [...own].filter(feature => KEPT.has(feature))
        if (command.parent !== undefined && this.#inForce.get(command.parent)?.has('session') === true) {
          this.acts('session', subjects, own)
          kept.push('session')
        }
        return this.mark(outcome.lease, ...kept)
      }
      case 'transfer':
        this.acts('transfer', [command.lease, ...(outcome.kind === 'done' && outcome.id !== undefined ? [outcome.id] : [])])
        if (outcome.kind === 'done' && outcome.id !== undefined) {
          this.#follow(command.lease, outcome.id)
          this.mark(outcome.id, 'transfer')
        }
        return
      case 'break':
        return this.acts('break', [command.resource, ...holdersOf(this.#state(), command.resource)])
      case 'widen':
        this.acts('widen', [command.lease, ...command.wants.map(({ resource }) => resource)])
        return this.mark(command.lease, 'widen')
      case 'extend':
        this.acts('extend', [command.lease])
        return this.mark(command.lease, 'extend')
      case 'claim':
        this.acts('adopt-by-name', [command.lease])
        return this.mark(command.lease, 'adopt-by-name')
      case 'put':
        return this.acts('entries', [command.lease])
      case 'release':
        if (bringsChanges(command)) this.acts('entries', [command.lease])
        if (command.resource === undefined) return
        this.acts('partial-release', [command.lease, command.resource])
        return this.mark(command.lease, 'partial-release')
      case 'renew':
        return this.#renewal(command, outcome)
      default:
        return
    }
  }

  #renewal(command: Extract<Command, { readonly kind: 'renew' }>, outcome: Outcome): void {
    if (outcome.kind !== 'renewed') return
    for (const [i, lease] of command.leases.entries()) {
      if (outcome.ttls[i]! <= 0) continue
      if (this.#inForce.get(lease)?.has('face-lease') === true) this.acts('face-lease', [lease])
      if (command.ttl === undefined) continue
      this.acts('renew-with-ttl', [lease])
      this.mark(lease, 'renew-with-ttl')
    }
  }

  /** The parts of a lease's past that its successor shares. */
  #follow(from: number, to: number): void {
    for (const feature of ['restore', 'rollback', 'migration'] as const)
      if (this.#marks.get(from)?.has(feature) === true) this.mark(to, feature)
  }

  #event({ type, lease, resource, cause = '' }: Event, command: Command): void {
    const here = resource === undefined ? [lease] : [lease, resource]
    const known = this.#inForce.get(lease)
    if (type === 'revoked' && command.kind === 'revoke') this.acts('revoke', here)
    if (type === 'revoked' && cause === 'break') this.acts('break', here)
    if (type === 'revoked' && cause === 'cap') this.acts('cap', here)
    if ((type === 'recalled' && cause === 'preempt') || (type === 'revoked' && cause === 'preempted')) this.acts('preemptible', here)
    if (type === 'suspected') this.acts('grace', here)
    if (type === 'frozen' && cause === 'lapsed') this.acts('lock-delay', here)
    if (type === 'lapsed' && known?.has('renew-never') === true) this.acts('renew-never', here)
    if (type === 'granted' && command.kind !== 'acquire' && command.kind !== 'transfer') {
      this.acts('wait', here)
      if (known?.has('reservation') === true) this.acts('reservation', here)
      if (findLease(this.#state(), lease)?.extras?.pool?.borrows === true) this.acts('borrowed', here)
    }
    if (ENDS.has(type) && known?.has('parent') === true) this.acts('parent', here)
    if (ENDS.has(type) && known?.has('session') === true) this.acts('session', here)
    if (type === 'deleted' && lease !== 0) this.acts('entries', here)
  }

  #refresh(lease: number): void {
    const found = findLease(this.#state(), lease)
    const marks = this.#marks.get(lease)
    if (found === undefined) return // what was in force when it ended is still of interest to its last events
    const inForce = featuresInState(this.#state(), found)
    for (const mark of marks ?? []) inForce.add(mark)
    this.#inForce.set(lease, inForce)
  }

  /** The leases that hold or want the same as a lease, its parent and its children; or those that hold or want a resource, or members of a pool. */
  *#near(subject: Subject): Generator<number> {
    const state = this.#state()
    if (typeof subject === 'string') return yield* onResource(state, subject)
    const lease = findLease(state, subject)
    if (lease === undefined) return
    const { grants, extras } = lease
    for (const { resource } of grants) yield* onResource(state, resource.name)
    for (const { resource } of extras?.wants ?? []) yield* onResource(state, resource)
    if (extras?.pool !== undefined) yield* onResource(state, extras.pool.pool)
    if (extras?.parent !== undefined) yield extras.parent.id
    for (const child of extras?.children ?? []) yield child.id
  }
}

/** Features of a request that stay with its lease and that the state does not show. */
const KEPT: ReadonlySet<Feature> = new Set([
  ...(['no-wait', 'any', 'steal', 'session', 'learned-term', 'worker-renews', 'renew-never', 'short-lived', 'face-lease'] as const),
])
const ENDS: ReadonlySet<Event['type']> = new Set(['released', 'lapsed', 'revoked', 'transferred', 'withdrawn'])

function* onResource(state: State, name: string): Generator<number> {
  const resource = state.resources.get(name)
  for (const { lease } of resource?.grants ?? []) yield lease.id
  for (const { id } of resource?.queue ?? []) yield id
  if (hasCovering(state)) yield* around(state, name)
  const pool = state.pools.get(name) ?? resource?.member?.pool
  if (pool === undefined) return
  for (const { id } of pool.holders) yield id
  for (const { id } of pool.queue) yield id
  for (const { resource: member, entry } of pool.members.values()) {
    yield entry.lease.id
    if (name !== member) for (const { id } of namedWaiters(state, member)) yield id
  }
}

/** The leases with a covering claim above, or below this name if it is covered. */
function* around(state: State, resource: string): Generator<number> {
  const covers = [...state.leases.values()].some(lease =>
    [...claimsHeld(lease), ...claimsWanted(lease)].some(one => one.covers && one.resource === resource),
  )
  const claim = { resource, shared: false, covers }
  for (const { id } of [...holdersAround(state, claim), ...waitersAround(state, claim)]) yield id
}

function namedWaiters(state: State, member: string): readonly LeaseState[] {
  const resource = state.resources.get(member)
  return [...(resource?.queue ?? []), ...(resource?.grants ?? []).map(({ lease }) => lease)]
}

function holdersOf(state: State, resource: string): number[] {
  return (state.resources.get(resource)?.grants ?? []).map(({ lease }) => lease.id)
}

function subjectsOf({ wants, pool, parent, entries = [] }: Acquire): Subject[] {
  const offered = entries.flatMap(({ key }) => (key.startsWith('pool/') ? [key.split('/')[1]!] : []))
  return [
    ...wants.map(({ resource }) => resource),
    ...(pool === undefined ? [] : [pool.pool]),
    ...(parent === undefined ? [] : [parent]),
    ...offered,
  ]
}

/** The leases that a command may have changed. */
function touched(command: Command, outcome: Outcome, events: readonly Event[]): ReadonlySet<number> {
  const all = new Set(events.map(({ lease }) => lease))
  if ('lease' in command && typeof command.lease === 'number') all.add(command.lease)
  if ('lease' in outcome) all.add(outcome.lease)
  if (command.kind === 'due') all.add(Math.floor(command.timer / SLOTS))
  return all
}
