/**
 * Decides what a key may do. Key 0 is a caller with direct access to the store; a revoked key may do nothing.
 *
 * The scopes of a key never change: what it was allowed when it acquired a lease, it is allowed as long as the key exists. So a lease that a key acquired is not checked
 * again when it is renewed or released; a lease that it received by a transfer is.
 */
import type { Scope, Verb } from '../command.ts'
import { under } from '../name.ts'
import type { Refused } from '../outcome.ts'
import { UNCLAIMED } from '../state/leases.ts'
import { type LeaseState, type State, WAITING } from '../state.ts'
import { isWithinBounds } from './key-bounds.ts'
import { refuse } from './refuse.ts'

/** `admin` allows everything under its prefix. */
export function isOf(scope: Scope, verb: Verb): boolean {
  return scope.verb === verb || scope.verb === 'admin'
}

/** Returns whether scopes allow a verb on a name. */
export function permits(allow: readonly Scope[], verb: Verb, name: string): boolean {
  for (const scope of allow) if (isOf(scope, verb) && under(scope.prefix, name)) return true
  return false
}

export function allowed(state: State, key: number, verb: Verb, name: string): boolean {
  if (key === 0) return true
  const allow = state.keys.get(key)?.allow
  return allow !== undefined && permits(allow, verb, name)
}

/** Returns whether there is any name on which the key may do one of these. */
export function allowedSomewhere(state: State, key: number, ...verbs: readonly Verb[]): boolean {
  return key === 0 || (state.keys.get(key)?.allow.some(({ verb }) => verb === 'admin' || verbs.includes(verb)) ?? false)
}

/** `admin` over everything. */
export function isAdmin(state: State, key: number): boolean {
  return key === 0 || (state.keys.get(key)?.allow.some(scope => scope.verb === 'admin' && scope.prefix === '') ?? false)
}

/** The resources that it holds or waits for. */
export function namesHeld({ grants, extras }: LeaseState): string[] {
  if (grants.length > 0) return grants.map(given => given.resource.name)
  if (extras === undefined) return []
  return extras.wants.length === 0 && extras.pool !== undefined ? [extras.pool.pool] : extras.wants.map(want => want.resource)
}

/** As `namesHeld`, with the keys of its entries, attached or pending. */
export function namesOf(lease: LeaseState): string[] {
  const { entries = [], pending = [] } = lease.extras ?? {}
  return namesHeld(lease).concat(
    ...entries,
    pending.map(({ key }) => key),
  )
}

/** Returns whether a key may act on a lease: its own key, unless revoked since, or an administrator of all names of the lease. */
export function mayTouch(state: State, key: number, lease: LeaseState): boolean {
  if (key === 0) return true
  if (lease.key === key) return state.keys.has(key)
  const names = namesOf(lease)
  return names.length === 0 ? isAdmin(state, key) : names.every(name => allowed(state, key, 'admin', name))
}

/** `acquire` includes keeping, releasing and transferring what was acquired; for a transferred lease, the verb itself is enough. */
function mayKeep(state: State, key: number, verb: 'renew' | 'release', lease: LeaseState): boolean {
  const names = namesHeld(lease)
  if (names.length === 0) return allowedSomewhere(state, key, 'acquire', 'register', verb)
  return names.every(name => allowed(state, key, 'acquire', name) || allowed(state, key, verb, name))
}

/** Of a transferred lease: `renew` is enough to have it, though not to request it. */
export function mayHave(state: State, key: number, name: string): boolean {
  return allowed(state, key, 'acquire', name) || allowed(state, key, 'renew', name)
}

/** Returns whether a key may claim an unclaimed lease, apart from its limits. */
function mayTake(state: State, key: number, lease: LeaseState): boolean {
  return isWithinBounds(state, key, lease.holder.name, lease.extras?.pool?.account) && mayKeep(state, key, 'renew', lease)
}

/** An unclaimed lease may be renewed, which claims it, by any key that may keep all that it holds or waits for. */
export function mayRenew(state: State, key: number, lease: LeaseState): boolean {
  if (key === 0) return true
  if (lease.key === key) return state.keys.has(key) && (lease.extras?.handed !== true || mayKeep(state, key, 'renew', lease))
  return lease.key === UNCLAIMED ? mayTake(state, key, lease) : mayTouch(state, key, lease)
}

/** To release or transfer it. A waiter may always be withdrawn by its own key. */
export function mayRelease(state: State, key: number, lease: LeaseState): boolean {
  if (key === 0) return true
  if (lease.key !== key) return outOfReach(state, key, 'admin', lease) === undefined
  return state.keys.has(key) && (lease.status === WAITING || lease.extras?.handed !== true || mayKeep(state, key, 'release', lease))
}

/** The first name, of all that would end with this lease, on which the key may not do `verb`. */
interface Beyond {
  readonly lease: LeaseState
  /** Empty: the lease has no names, so the key needs the right over everything. */
  readonly name: string
}

/** Everything attached to a lease ends with it, and so do its descendants. */
export function outOfReach(
  state: State,
  key: number,
  verb: Verb,
  lease: LeaseState,
  names: (lease: LeaseState) => string[] = namesOf,
): Beyond | undefined {
  if (key === 0) return undefined
  if (names(lease).length === 0 && !allowed(state, key, verb, '')) return { lease, name: '' }
  const pending = [lease]
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    for (const name of names(next)) if (!allowed(state, key, verb, name)) return { lease: next, name }
    for (const child of next.extras?.children ?? []) pending.push(child)
  }
  return undefined
}

/** Why a key may not end this lease through one of its names, or undefined. Names that the key may not read are not revealed. */
export function beyond(
  state: State,
  key: number,
  verb: Verb,
  lease: LeaseState,
  names?: (lease: LeaseState) => string[],
): Refused | undefined {
  const found = outOfReach(state, key, verb, lease, names)
  if (found === undefined) return undefined
  const { id } = found.lease
  const isKnown = found.name !== '' && allowed(state, key, 'read', found.name)
  return isKnown
    ? refuse(state, 'forbidden-reach', { verb, lease: id, name: found.name })
    : refuse(state, 'forbidden-hidden', { verb, lease: id })
}
