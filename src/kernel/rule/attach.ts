/** Attaching entries to leases: which lease may have a key, and how it gets it. */

import type { Attachment } from '../command.ts'
import { badName, badText, utf8Length, VALUE_BYTES } from '../name.ts'
import type { Refused } from '../outcome.ts'
import { type Flaw, outside, within } from '../reason.ts'
import { entryBytes } from '../state/free-entries.ts'
import { countEntries } from '../state/key-use.ts'
import { extrasOf, touch } from '../state/leases.ts'
import { addEntry } from '../state/resources.ts'
import { type Attached, type LeaseState, type State, SUSPECT } from '../state.ts'
import { mayTouch } from './authority.ts'
import { coveredMember } from './covers.ts'
import { type Effects, emit } from './effects.ts'
import { end, reconsider } from './end.ts'
import { offerMember } from './pool/member.ts'
import { refuse } from './refuse.ts'
import { countEntry, isLeftover, isRegistry, penalizeFormer, review } from './service.ts'

export function badAttachment({ key, value, generation }: Attachment): Flaw | undefined {
  const badKey = badName(key)
  if (badKey !== undefined) return within('key', badKey)
  if (generation !== undefined && !(Number.isSafeInteger(generation) && generation > 0))
    return outside('generation', 1, Number.MAX_SAFE_INTEGER, generation)
  const badValue = badText(value, VALUE_BYTES)
  return badValue === undefined ? undefined : within('value', badValue)
}

/** Who has a lease. */
export function processOf({ holder, incarnation }: LeaseState): { readonly name: string; readonly incarnation: number } {
  return { name: holder.name, incarnation }
}

/**
 * Why a lease of `holder` may not attach an entry, or undefined. An older incarnation or generation never overwrites a newer one. Another holder takes an entry
 * over only with a newer generation, or if it is a registration whose holder has missed a renewal; and never with another key, even if it uses the same
 * name or a newer incarnation.
 */
export function entryRefusal(
  state: State,
  holder: { readonly name: string; readonly incarnation: number },
  { key, generation = 0 }: Omit<Attachment, 'value'>,
  by: number,
): Refused | undefined {
  const covered = coveredMember(state, key)
  if (covered !== undefined) return covered
  const there = state.entries.get(key)
  if (there === undefined) {
    if (state.free.get(key) === undefined) return undefined
    return refuse(state, 'entry-without-lease', { key })
  }
  const { holder: owner, incarnation } = there.lease
  const mine = owner.name === holder.name
  if (!mayTouch(state, by, there.lease)) return heldBy(state, there)
  if (there.generation > generation) return refuse(state, 'older-generation', { key, generation: there.generation, holder: owner.name })
  if (!mine && there.generation === generation && !(isRegistry(key) && there.lease.status === SUSPECT)) return heldBy(state, there)
  if (mine && incarnation > holder.incarnation) return refuse(state, 'older-incarnation', { key, incarnation, holder: holder.name })
  return undefined
}

function heldBy(state: State, { key, lease, generation }: Attached): Refused {
  return refuse(state, 'entry-held', { key, holder: lease.holder.name, lease: lease.id, generation })
}

/** The revision that made an entry, and its version, when it is written once more. A version is a revision: two waiters may bring the same entry in one. */
export function written(state: State, key: string): { readonly created: number; readonly version: number } {
  const there = state.entries.get(key) ?? state.free.get(key)
  const revision = state.revision + 1
  if (there === undefined) return { created: revision, version: 1 }
  return { created: there.created, version: there.version + (there.revision === revision ? 0 : 1) }
}

/** The caller has checked `entryRefusal`, or may write by a transaction. */
export function attach(state: State, effects: Effects, lease: LeaseState, { key, value, generation = 0 }: Attachment): void {
  const there = state.entries.get(key)
  const age = written(state, key)
  touch(state, lease)
  if (there?.lease === lease) {
    const more = utf8Length(value) - utf8Length(there.value)
    lease.extras!.bytes += more
    countEntries(state, lease.key, 0, more)
    Object.assign(there, { value, generation, revision: state.revision + 1, ...age })
    emit(state, effects, 'put', lease, { key, value })
    offerMember(state, there)
    reconsider(state, key)
    return
  }
  const former = there?.lease
  if (there !== undefined) {
    touch(state, there.lease)
    there.lease.extras!.entries!.delete(key)
    there.lease.extras!.bytes -= entryBytes(there)
    countEntry(state, there, -1)
    penalizeFormer(state, there, lease)
  }
  const extras = extrasOf(lease)
  extras.entries ??= new Set()
  extras.entries.add(key)
  const entry = { key, value, lease, revision: state.revision + 1, generation, ...age }
  addEntry(state, entry)
  extras.bytes += entryBytes(entry)
  if (former !== undefined) reconsider(state, key)
  emit(state, effects, 'put', lease, { key, value })
  if (lease.status === SUSPECT) emit(state, effects, 'suspected', lease, { key })
  offerMember(state, entry)
  const service = countEntry(state, entry, 1)
  if (service === undefined) return
  if (state.suppressed.has(key)) emit(state, effects, 'suppressed', lease, { key })
  review(state, effects, service)
  // Its holder cannot be notified sooner: its next renewal tells that it was replaced.
  if (former !== undefined && isLeftover(former))
    end(state, effects, former, { type: 'revoked', cause: 'replaced', by: lease.holder.name, stopped: true }, state.freed)
}

/** Returns whether all pending entries of a waiter can be attached now. */
export function entriesFree(state: State, lease: LeaseState): boolean {
  const process = processOf(lease)
  return lease.extras!.pending.every(entry => entryRefusal(state, process, entry, lease.key) === undefined)
}
