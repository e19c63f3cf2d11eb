/** What applying a command did, beside its outcome: events for those who watch, timers for those who count. */
import type { Event, EventType } from './event.ts'
import { type Lease, LIVE, QUIET, rareOf, SLOTS, type Slot, type State, TERM, type Timer } from './state.ts'

export interface Effects {
  readonly events: Event[]
  /** A timer of this lease was started, restarted or cancelled; undefined: the log's own. */
  timer(lease: Lease | undefined, slot: Slot): void
}

type EventFacts = Partial<Pick<Event, 'resource' | 'token' | 'key' | 'value' | 'cause' | 'by'>>

/** The revision that a command is about to make. */
export function emit(state: State, effects: Effects, type: EventType, lease: Lease | undefined, facts: EventFacts): void {
  effects.events.push({
    revision: state.revision + 1,
    type,
    lease: lease === undefined ? 0 : lease.id,
    holder: lease?.holder.name,
    resource: facts.resource,
    token: facts.token,
    key: facts.key,
    value: facts.value,
    cause: facts.cause,
    by: facts.by,
    at: state.wall,
  })
}

/** One event for each thing it holds; one without a resource when it holds none. */
export function emitForGrants(state: State, effects: Effects, type: EventType, lease: Lease, facts: EventFacts): void {
  if (lease.grants.length === 0) emit(state, effects, type, lease, facts)
  for (const { resource, token } of lease.grants)
    emit(state, effects, type, lease, { resource: resource.name, token, cause: facts.cause, by: facts.by })
}

/** The caller has touched the lease. */
export function restartTerm(state: State, effects: Effects, lease: Lease, duration: number): void {
  lease.term = duration
  lease.epoch++
  lease.run = state.run.number
  lease.aged = 0
  if (lease.status === LIVE && duration > state.longest) state.longest = duration
  effects.timer(lease, TERM)
}

export function startTimer(state: State, effects: Effects, lease: Lease, slot: Slot, duration: number): void {
  const rare = rareOf(lease)
  rare.timers ??= new Array<Timer | undefined>(SLOTS).fill(undefined)
  rare.timers[slot] = { duration, epoch: ++rare.started, run: state.run.number, aged: 0 }
  effects.timer(lease, slot)
}

export function cancelTimer(effects: Effects, lease: Lease, slot: Slot): void {
  const timers = lease.rare?.timers
  if (timers?.[slot] === undefined) return
  timers[slot] = undefined
  effects.timer(lease, slot)
}

export function startQuiet(state: State, effects: Effects, duration: number): void {
  state.quiet = { duration, epoch: ++state.quietEpochs, run: state.run.number, aged: 0 }
  effects.timer(undefined, QUIET)
}
