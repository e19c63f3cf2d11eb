/** Entries: keys and values that hang on a lease and go with it, in the same revision. */
import type { Attachment, Delete, Put } from './command.ts'
import { type Effects, emit } from './effects.ts'
import { detachEntry } from './end.ts'
import { badName, badText, VALUE_BYTES } from './name.ts'
import { done, type Outcome, type Refused } from './outcome.ts'
import { allowed, mayTouch } from './policy.ts'
import { forbidden, gone, invalid, refuse } from './refuse.ts'
import { FROZEN, findLease, type Lease, rareOf, type State, touch, WAITING } from './state.ts'

export function badAttachment({ key, value }: Attachment): string | undefined {
  const badKey = badName(key)
  if (badKey !== undefined) return `the entry's key ${badKey}`
  const badValue = badText(value, VALUE_BYTES)
  return badValue === undefined ? undefined : `the value of ${key} ${badValue}`
}

/**
 * Whether a lease of `holder` may put an entry: undefined, or why not. An older incarnation never writes over a newer one; a stranger,
 * which is also who calls itself the same and has another key, never takes what another lease keeps.
 */
export function entryRefusal(state: State, holder: string, incarnation: number, key: string, by: number): Refused | undefined {
  const there = state.entries.get(key)
  if (there === undefined) return undefined
  const owner = there.lease.holder
  if (owner.name !== holder || !mayTouch(state, by, there.lease))
    return refuse(state, 'HELD', `the entry ${key} belongs to ${owner.name}`, { key, holder: owner.name, lease: there.lease.id })
  if (owner.incarnation > incarnation)
    return refuse(state, 'STALE', `the entry ${key} belongs to a newer incarnation of ${holder}: this process has been replaced`, {
      key,
      incarnation: owner.incarnation,
    })
  return undefined
}

/** The caller has checked `entryRefusal`. */
export function attach(state: State, effects: Effects, lease: Lease, key: string, value: string): void {
  const there = state.entries.get(key)
  touch(state, lease)
  if (there !== undefined && there.lease !== lease) {
    touch(state, there.lease)
    there.lease.rare!.entries!.delete(key)
  }
  const rare = rareOf(lease)
  rare.entries ??= new Set()
  rare.entries.add(key)
  if (there === undefined) state.entries.set(key, { key, value, lease, revision: state.revision + 1 })
  else Object.assign(there, { value, lease, revision: state.revision + 1 })
  emit(state, effects, 'put', lease, { key, value })
}

export function put(state: State, effects: Effects, { lease: id, key: name, value }: Put, key: number): Outcome {
  const bad = badAttachment({ key: name, value })
  if (bad !== undefined) return invalid(state, bad)
  const lease = findLease(state, id)
  if (lease === undefined || lease.status === FROZEN || lease.status === WAITING || !mayTouch(state, key, lease)) return gone(state, id)
  if (!allowed(state, key, 'register', name)) return forbidden(state, `register ${name}`)
  const refused = entryRefusal(state, lease.holder.name, lease.holder.incarnation, name, key)
  if (refused !== undefined) return refused
  attach(state, effects, lease, name, value)
  return done()
}

export function remove(state: State, effects: Effects, { key: name, lease: id }: Delete, key: number): Outcome {
  // Asked first: whether there is such an entry is nobody else's business.
  if (!allowed(state, key, 'register', name)) return forbidden(state, `delete ${name}`)
  const entry = state.entries.get(name)
  if (entry === undefined) return refuse(state, 'NOT_FOUND', `there is no entry ${name}`, { key: name })
  if (!mayTouch(state, key, entry.lease)) return forbidden(state, `delete ${name}`)
  if (id !== undefined && entry.lease.id !== id)
    return refuse(state, 'STALE', `the entry ${name} hangs on lease ${entry.lease.id}, not on ${id}: it was taken over`, { key: name })
  touch(state, entry.lease)
  detachEntry(state, effects, name, 'deleted')
  return done()
}
