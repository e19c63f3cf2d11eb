/** Entries: keys and values that are attached to a lease and end with it, in the same revision. rule/transaction.ts has those without a lease. */

import { type Attachment, type Delete, MAX_LEASE_BYTES, MAX_LEASE_ENTRIES, type Put } from '../command.ts'
import { done, type Outcome, type Refused } from '../outcome.ts'
import { entryBytes } from '../state/free-entries.ts'
import { extrasOf, findLease, touch } from '../state/leases.ts'
import { CAP, FROZEN, type LeaseState, type State, WAITING } from '../state.ts'
import { attach, badAttachment, entryRefusal, processOf } from './attach.ts'
import { allowed, mayTouch } from './authority.ts'
import { type Effects, startTimer } from './effects.ts'
import { detachEntry, removeFree } from './end.ts'
import { beyondLimits, useOfEntry } from './key-limit.ts'
import { bounded, ttlOutside } from './policy.ts'
import { forbidden, gone, refuse, refuseFlaw, revisionsExhausted } from './refuse.ts'
import { settle } from './settle.ts'

/** Refuses an entry that is too much for its lease. */
function tooMuch(state: State, lease: LeaseState, entry: Attachment): Refused | undefined {
  const { id, extras } = lease
  const there = state.entries.get(entry.key)
  const own = there?.lease === lease
  if (!own && (extras?.entries?.size ?? 0) >= MAX_LEASE_ENTRIES)
    return refuse(state, 'too-many-entries', { lease: id, limit: MAX_LEASE_ENTRIES })
  const more = entryBytes(entry) - (own ? entryBytes(there) : 0)
  const bytes = (extras?.bytes ?? 0) + more
  if (more <= 0 || bytes <= MAX_LEASE_BYTES) return undefined
  return refuse(state, 'too-many-entry-bytes', { lease: id, limit: MAX_LEASE_BYTES, bytes: bytes - more })
}

/** The lease, if it can take entries from this key. */
export function leaseForEntries(state: State, id: number, key: number): LeaseState | undefined {
  const lease = findLease(state, id)
  return lease === undefined || lease.status === FROZEN || lease.status === WAITING || !mayTouch(state, key, lease) ? undefined : lease
}

export function put(state: State, effects: Effects, { kind: _, lease: id, ...entry }: Put, key: number): Outcome {
  const { key: name } = entry
  const bad = badAttachment(entry)
  if (bad !== undefined) return refuseFlaw(state, bad)
  const lease = leaseForEntries(state, id, key)
  if (lease === undefined) return gone(state, id)
  if (!allowed(state, key, 'register', name)) return forbidden(state, 'register', name)
  const refused = entryRefusal(state, processOf(lease), entry, key)
  if (refused !== undefined) return refused
  const much =
    revisionsExhausted(state) ?? tooMuch(state, lease, entry) ?? beyondLimits(state, lease.key, useOfEntry(state, lease.key, entry))
  if (much !== undefined) return much
  const wrong = ttlOutside(state, lease.ttl, name)
  if (wrong !== undefined) return refuseFlaw(state, wrong)
  putOn(state, effects, lease, entry)
  settle(state, effects, state.freed)
  return done()
}

/** Attaches an entry to a lease that is there, with the policies for its key. */
export function putOn(state: State, effects: Effects, lease: LeaseState, entry: Attachment): void {
  touch(state, lease)
  const extras = extrasOf(lease)
  Object.assign(extras, bounded(state, entry.key, extras))
  // The longest life counts from now on, at the latest.
  if (extras.maxLife > 0 && extras.timers?.[CAP] === undefined) startTimer(state, effects, lease, CAP, extras.maxLife)
  attach(state, effects, lease, entry)
}

export function remove(state: State, effects: Effects, { key: name, lease: id }: Delete, key: number): Outcome {
  // Checked first: the existence of an entry is not revealed to other keys.
  if (!allowed(state, key, 'register', name)) return forbidden(state, 'register', name, 'delete')
  const entry = state.entries.get(name)
  if (entry === undefined && state.free.get(name) !== undefined) {
    if (id !== undefined) return refuse(state, 'taken-over', { key: name })
    removeFree(state, effects, name)
    settle(state, effects, state.freed)
    return done()
  }
  if (entry === undefined) return refuse(state, 'no-entry', { key: name })
  if (!mayTouch(state, key, entry.lease)) return forbidden(state, 'register', name, 'delete')
  if (id !== undefined && entry.lease.id !== id) return refuse(state, 'taken-over', { key: name, lease: entry.lease.id })
  touch(state, entry.lease)
  detachEntry(state, effects, name, 'deleted')
  settle(state, effects, state.freed)
  return done()
}
