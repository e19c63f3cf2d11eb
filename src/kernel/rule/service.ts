/**
 * Registrations: entries `services/SERVICE/INSTANCE`, and the protection of a service against a hiccup that would empty it.
 *
 * The kernel sees missing renewals only as `due`. A registration in its grace period did not renew within its ttl, so with n registrations of a service, s of
 * them suspect, (n − s) / n is the share of expected renewals that came. Hence, per service:
 *
 * - **Self-preservation** begins when s > max(2, n · (100 − preserveShare) / 100) and n ≥ preserveLeast, and ends when s has fallen to
 *   max(2, half of that). Meanwhile a registration whose grace period is over stays suspect for another ttl, repeatedly, for at most `preserveMost` ms
 *   since its last renewal; and its lapse adds no flap penalty.
 * - **Sweeps**: of the n ≥ preserveLeast registrations that existed when lapses began, at most max(2, n · sweepShare / 100) lapse in one sweep of 5 s of log
 *   time. The others stay suspect until the next sweep.
 *
 * Both only delay the end of a lease, and only if it carries registrations and nothing else: no units, no children, no other entries. Both are bounded by a
 * count on the lease itself, even if log time stands still.
 */

import { type Attached, type LeaseState, type State, SUSPECT, type Upkeep, WAITING } from '../state.ts'
import { type Effects, emit } from './effects.ts'
import { charge } from './flap.ts'
import { rule } from './policy.ts'

/** This many may always lapse: the protection of many must not keep a service of one or two alive. */
const FEW = 2
export const SWEEP = 5_000

const ROOT = 'services/'

export function isRegistry(key: string): boolean {
  return key.startsWith(ROOT)
}

/** `services/SERVICE` if this is the key of a registration. */
function serviceOf(key: string): string | undefined {
  if (!isRegistry(key)) return undefined
  const slash = key.indexOf('/', ROOT.length)
  return slash === -1 || key.indexOf('/', slash + 1) !== -1 ? undefined : key.slice(0, slash)
}

/** A lease that carries registrations and nothing else. Not a waiter: a dead waiter would stall its queue. */
function isRegistration({ status, grants, extras }: LeaseState): boolean {
  if (status === WAITING || grants.length > 0 || extras?.entries === undefined || (extras.children?.size ?? 0) > 0) return false
  let any = false
  for (const key of extras.entries) {
    if (!isRegistry(key)) return false
    any ||= serviceOf(key) !== undefined
  }
  return any
}

/** All registrations of the lease were taken over: the rest of it is useless. */
export function isLeftover({ status, grants, extras }: LeaseState): boolean {
  if (status === WAITING || grants.length > 0 || extras?.entries === undefined || (extras.children?.size ?? 0) > 0) return false
  for (const key of extras.entries) if (!isRegistry(key) || serviceOf(key) !== undefined) return false
  return true
}

/** An entry was added (1) or is about to be removed (-1). */
export function countEntry(state: State, { key, lease }: Attached, by: 1 | -1): string | undefined {
  const name = serviceOf(key)
  if (name === undefined) return undefined
  const service = state.services.get(name) ?? { total: 0, suspect: 0 }
  service.total += by
  if (lease.status === SUSPECT) service.suspect += by
  if (service.total === 0) state.services.delete(name)
  else state.services.set(name, service)
  return name
}

/** The lease has become suspect (1) or recovered (-1). */
export function countSuspect(state: State, effects: Effects, lease: LeaseState, by: 1 | -1): void {
  for (const key of lease.extras?.entries ?? []) {
    const name = serviceOf(key)
    if (name === undefined) continue
    state.services.get(name)!.suspect += by
    review(state, effects, name)
  }
}

function upkeepOf(state: State, name: string): Upkeep {
  let upkeep = state.upkeep.get(name)
  if (upkeep === undefined) {
    upkeep = { preserving: false, since: 0, base: 0, removed: 0, at: 0 }
    state.upkeep.set(name, upkeep)
  }
  return upkeep
}

/** Begins or ends the self-preservation of a service whose counts have changed. */
export function review(state: State, effects: Effects, name: string): void {
  const { total, suspect } = state.services.get(name) ?? { total: 0, suspect: 0 }
  const before = state.upkeep.get(name)?.preserving === true
  if (!before && suspect <= FEW) return
  const share = rule(state, name, 'preserveShare')
  const tolerated = Math.floor((total * (100 - share)) / 100)
  if (!before) {
    if (share === 0 || total < rule(state, name, 'preserveLeast') || suspect <= Math.max(FEW, tolerated)) return
    Object.assign(upkeepOf(state, name), { preserving: true, since: state.wall })
    emit(state, effects, 'preserving', undefined, { key: name, cause: `suspect ${suspect}/${total}` })
  } else if (share === 0 || suspect <= Math.max(FEW, Math.floor(tolerated / 2))) {
    const upkeep = upkeepOf(state, name)
    Object.assign(upkeep, { preserving: false, since: 0 })
    if (upkeep.base === 0) state.upkeep.delete(name)
    emit(state, effects, 'relaxed', undefined, { key: name, cause: `suspect ${suspect}/${total}` })
  }
}

/** For how many ms the lapse of a lease that is due is postponed; 0: it lapses now. */
export function slowed(state: State, lease: LeaseState): number {
  if (state.upkeep.size === 0 || !isRegistration(lease)) return 0
  const had = lease.extras!.slowed
  let longest = 0
  for (const key of lease.extras!.entries!) {
    const upkeep = state.upkeep.get(serviceOf(key) ?? '')
    if (upkeep === undefined) continue
    const most = rule(state, key, 'preserveMost')
    if (upkeep.preserving && had < most) longest = Math.max(longest, Math.min(lease.ttl, most - had))
    else if (swept(state, key, upkeep) && had < most + SWEEP * (Math.ceil(100 / rule(state, key, 'sweepShare')) + 1))
      longest = Math.max(longest, SWEEP)
  }
  return longest
}

function swept(state: State, key: string, { base, removed }: Upkeep): boolean {
  return base >= rule(state, key, 'preserveLeast') && removed >= Math.max(FEW, Math.floor((base * rule(state, key, 'sweepShare')) / 100))
}

/** Charges a key whose holder fell silent. A silence that many instances share is not charged to each of them. */
function penalize(state: State, { extras }: LeaseState, key: string, name: string): void {
  if (extras!.slowed === 0 && state.upkeep.get(name)?.preserving !== true) charge(state, key)
}

/** Another holder takes over the entry of a suspect lease: this counts as a lapse. */
export function penalizeFormer(state: State, { key, lease: former }: Attached, lease: LeaseState): void {
  const name = serviceOf(key)
  if (name !== undefined && former.status === SUSPECT && former.holder.name !== lease.holder.name) penalize(state, former, key, name)
}

/** A registration is about to lapse. */
export function countLapse(state: State, lease: LeaseState): void {
  if (!isRegistration(lease)) return
  for (const key of lease.extras!.entries!) {
    const name = serviceOf(key)
    if (name === undefined) continue
    penalize(state, lease, key, name)
    if (rule(state, key, 'sweepShare') === 100) continue
    const upkeep = upkeepOf(state, name)
    if (upkeep.base === 0) Object.assign(upkeep, { base: state.services.get(name)!.total, removed: 0, at: state.elapsed })
    upkeep.removed++
  }
}

/** Log time has passed: begins the next sweep, or ends the series if nothing lapsed. */
export function nextSweeps(state: State): void {
  for (const [name, upkeep] of state.upkeep) {
    if (upkeep.base === 0 || state.elapsed - upkeep.at < SWEEP) continue
    if (upkeep.removed === 0) upkeep.base = 0
    else Object.assign(upkeep, { removed: 0, at: state.elapsed })
    if (upkeep.base === 0 && !upkeep.preserving) state.upkeep.delete(name)
  }
}

/** Returns whether something here depends on log time. */
export function needsTicks(state: State): boolean {
  return state.flaps.size > 0 || state.upkeep.size > 0
}
