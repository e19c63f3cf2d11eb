/**
 * What a key may do. Key 0 is whoever has the store itself; a key that was revoked may do nothing.
 *
 * A key never changes: what it was allowed when it made a lease it is allowed for as long as there is that key. So a lease that a key
 * acquired needs no second look when it is renewed or given back; one that was handed to it by a transfer does.
 */
import type { Scope, Verb } from '../command.ts'
import { under } from '../name.ts'
import type { Refused } from '../outcome.ts'
import { UNCLAIMED } from '../state/leases.ts'
import { type LeaseState, type State, WAITING } from '../state.ts'
import { forbidden } from './refuse.ts'

/** An administrator may do everything there. */
export function isOf(scope: Scope, verb: Verb): boolean {
  return scope.verb === verb || scope.verb === 'admin'
}

/** Whether a key with these scopes may do it to what bears this name. */
export function permits(allow: readonly Scope[], verb: Verb, name: string): boolean {
  for (const scope of allow) if (isOf(scope, verb) && under(scope.prefix, name)) return true
  return false
}

export function allowed(state: State, key: number, verb: Verb, name: string): boolean {
  if (key === 0) return true
  const allow = state.keys.get(key)?.allow
  return allow !== undefined && permits(allow, verb, name)
}

/** Whether there is anything at all to which it may do one of these. */
export function allowedSomewhere(state: State, key: number, ...verbs: readonly Verb[]): boolean {
  return key === 0 || (state.keys.get(key)?.allow.some(({ verb }) => verb === 'admin' || verbs.includes(verb)) ?? false)
}

/** Admin over everything. */
export function isAdmin(state: State, key: number): boolean {
  return key === 0 || (state.keys.get(key)?.allow.some(scope => scope.verb === 'admin' && scope.prefix === '') ?? false)
}

/** What it holds or waits for. */
export function namesHeld({ grants, rare }: LeaseState): string[] {
  return grants.length > 0 ? grants.map(given => given.resource.name) : (rare?.wants ?? []).map(want => want.resource)
}

/** And the entries that hang on it, or will when it is granted. */
export function namesOf(lease: LeaseState): string[] {
  const { entries = [], pending = [] } = lease.rare ?? {}
  return namesHeld(lease).concat(
    ...entries,
    pending.map(({ key }) => key),
  )
}

/** Whether a key may act on a lease: the key that it answers to, unless that was revoked since, or an administrator's of all that it names. */
export function mayTouch(state: State, key: number, lease: LeaseState): boolean {
  if (key === 0) return true
  if (lease.key === key) return state.keys.has(key)
  const names = namesOf(lease)
  return names.length === 0 ? isAdmin(state, key) : names.every(name => allowed(state, key, 'admin', name))
}

/** `acquire` includes keeping what was acquired, giving it back and passing it on; what was handed over needs no more than the verb itself. */
function mayKeep(state: State, key: number, verb: 'renew' | 'release', lease: LeaseState): boolean {
  const names = namesHeld(lease)
  if (names.length === 0) return allowedSomewhere(state, key, 'acquire', 'register', verb)
  return names.every(name => allowed(state, key, 'acquire', name) || allowed(state, key, verb, name))
}

/** What was handed to it: `renew` is enough to have it, though not to ask for it. */
export function mayHave(state: State, key: number, name: string): boolean {
  return allowed(state, key, 'acquire', name) || allowed(state, key, 'renew', name)
}

/** One that nobody has claimed may be renewed, which claims it, by whoever may keep all that it holds or waits for. */
export function mayRenew(state: State, key: number, lease: LeaseState): boolean {
  if (key === 0) return true
  if (lease.key === key) return state.keys.has(key) && (lease.rare?.handed !== true || mayKeep(state, key, 'renew', lease))
  return lease.key === UNCLAIMED ? mayKeep(state, key, 'renew', lease) : mayTouch(state, key, lease)
}

/** To give it back or to pass it on. A place in a queue may always be given up by the key that has it. */
export function mayRelease(state: State, key: number, lease: LeaseState): boolean {
  if (key === 0) return true
  if (lease.key !== key) return outOfReach(state, key, 'admin', lease) === undefined
  return state.keys.has(key) && (lease.status === WAITING || lease.rare?.handed !== true || mayKeep(state, key, 'release', lease))
}

/** Of what would end with this lease, the first that the key may not `verb`. */
interface Beyond {
  readonly lease: LeaseState
  /** Empty: the lease names nothing, so that it takes the right over everything. */
  readonly name: string
}

/** All that hangs on a lease ends with it, and so do its descendants with all that hangs on them. */
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
    for (const child of next.rare?.children ?? []) pending.push(child)
  }
  return undefined
}

/** Why a key may not end this lease by what it does to one of its names, or undefined. A name that it may not read is not told. */
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
  const what = isKnown ? `${found.name}, which would end with lease ${id}` : `something else that lease ${id} holds`
  return forbidden(state, `${verb} ${what}`, { lease: id })
}
