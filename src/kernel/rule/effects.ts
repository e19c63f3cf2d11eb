/** The effects of a command beside its outcome: events for watchers, and changed timers for the timekeeper. */
import type { Event, EventType } from '../event.ts'
import { extrasOf } from '../state/leases.ts'
import { type LeaseState, LIVE, QUIET, SLOTS, type Slot, type State, TERM, type Timer } from '../state.ts'

export interface Effects {
  readonly events: Event[]
  /** A timer of this lease was started, restarted, marked or cancelled; undefined: a timer of the log. */
  timer(lease: LeaseState | undefined, slot: Slot): void
}

type EventFacts = Partial<Pick<Event, 'resource' | 'token' | 'key' | 'value' | 'cause' | 'by'>>

export function emit(state: State, effects: Effects, type: EventType, lease: LeaseState | undefined, facts: EventFacts): void {
  const { resource, token, key, value, cause, by } = facts
  pushEvent(state, effects, type, lease, resource, token, cause, by, key, value)
}

/** Emits one event for each grant; one without a resource if the lease has no grants. */
export function emitForGrants(state: State, effects: Effects, type: EventType, lease: LeaseState, cause?: string, by?: string): void {
  if (lease.grants.length === 0) emit(state, effects, type, lease, { cause, by })
  for (const { resource, token } of lease.grants) pushEvent(state, effects, type, lease, resource.name, token, cause, by)
}

/** All events have one shape. Nothing is allocated more often. */
export function pushEvent(
  state: State,
  { events }: Effects,
  type: EventType,
  lease: LeaseState | undefined,
  resource: string | undefined,
  token: number | undefined,
  cause?: string,
  by?: string,
  key?: string,
  value?: string,
): void {
  // The revision that this command is about to create.
  const revision = state.revision + 1
  const holder = lease?.holder.name
  events.push({ revision, type, lease: lease?.id ?? 0, holder, resource, token, key, value, cause, by, at: state.wall })
}

/** The caller has touched the lease. */
export function restartTerm(state: State, effects: Effects, lease: LeaseState, duration: number): void {
  lease.term = duration
  lease.epoch++
  lease.run = state.run.number
  lease.aged = 0
  // A holder without grants relies on nothing that could be granted twice.
  const counts = lease.status === LIVE && lease.grants.length > 0
  if (counts && duration > state.longest) state.longest = duration
  effects.timer(lease, TERM)
}

export function startTimer(state: State, effects: Effects, lease: LeaseState, slot: Slot, duration: number): void {
  const extras = extrasOf(lease)
  extras.timers ??= new Array<Timer | undefined>(SLOTS).fill(undefined)
  extras.timers[slot] = { duration, epoch: ++extras.started, run: state.run.number, aged: 0 }
  effects.timer(lease, slot)
}

export function cancelTimer(effects: Effects, lease: LeaseState, slot: Slot): void {
  const timers = lease.extras?.timers
  if (timers?.[slot] === undefined) return
  timers[slot] = undefined
  effects.timer(lease, slot)
}

export function startQuiet(state: State, effects: Effects, duration: number): void {
  state.quiet = { duration, epoch: ++state.quietEpochs, run: state.run.number, aged: 0 }
  effects.timer(undefined, QUIET)
}
