/** The timers of leases, by slot. The kernel never measures time: it keeps durations, epochs and how long the log says a timer has run. */
import { type LeaseState, SLOTS, type Slot, type State, TERM, type Timer } from '../state.ts'

export function timerId(lease: LeaseState, slot: Slot): number {
  return lease.id * SLOTS + slot
}

/** The running timer of a slot. TERM always runs; the others only once they were started. */
export function timerOf(lease: LeaseState, slot: Slot): Timer | undefined {
  if (slot === TERM) return { duration: lease.term, epoch: lease.epoch, run: lease.run, aged: lease.aged }
  return lease.extras?.timers?.[slot]
}

/** Returns how long a timer has run at least, according to the log: by its own marks, and by the marks for all timers that the present run found. */
export function agedOf(state: State, timer: { readonly run: number; readonly aged: number }): number {
  return timer.aged + (timer.run < state.run.number ? state.run.ms : 0)
}
