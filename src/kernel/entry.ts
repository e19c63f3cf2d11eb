/** Entries: keys and values that hang on a lease and go with it, in the same revision. */
import { allowed, mayTouch } from './authority.ts'
import { type Attachment, type Delete, MOST_LEASE_BYTES, MOST_LEASE_ENTRIES, type Put } from './command.ts'
import { type Effects, emit, startTimer } from './effects.ts'
import { detachEntry, end, entryBytes } from './end.ts'
import { badName, badText, utf8Length, VALUE_BYTES } from './name.ts'
import { done, type Outcome, type Refused } from './outcome.ts'
import { bounded, ttlOutside } from './policy.ts'
import { forbidden, gone, invalid, refuse, revisionsExhausted } from './refuse.ts'
import { blameFormer, countEntry, isHusk, isRegistry, review } from './service.ts'
import { type Attached, addEntry, CAP, FROZEN, findLease, type Lease, rareOf, type State, SUSPECT, touch, WAITING } from './state.ts'

export function badAttachment({ key, value, generation }: Attachment): string | undefined {
  const badKey = badName(key)
  if (badKey !== undefined) return `the entry's key ${badKey}`
  if (generation !== undefined && !(Number.isSafeInteger(generation) && generation > 0)) return `the generation of ${key} must be above 0`
  const badValue = badText(value, VALUE_BYTES)
  return badValue === undefined ? undefined : `the value of ${key} ${badValue}`
}

/**
 * Whether a lease of `holder` may put an entry: undefined, or why not. An older incarnation or generation never writes over a newer one. A
 * stranger takes what another lease keeps only with a newer generation, or when it is a registration whose holder has missed a renewal; and
 * never when it calls itself the same, or newer, and has another key.
 */
export function entryRefusal(
  state: State,
  holder: { readonly name: string; readonly incarnation: number },
  { key, generation = 0 }: Omit<Attachment, 'value'>,
  by: number,
): Refused | undefined {
  const there = state.entries.get(key)
  if (there === undefined) return undefined
  const owner = there.lease.holder
  const mine = owner.name === holder.name
  if (!mayTouch(state, by, there.lease)) return heldBy(state, there)
  if (there.generation > generation)
    return refuse(state, 'STALE', `the entry ${key} belongs to generation ${there.generation}, of ${owner.name}: this one is replaced`, {
      key,
      holder: owner.name,
      generation: there.generation,
    })
  if (!mine && there.generation === generation && !(isRegistry(key) && there.lease.status === SUSPECT)) return heldBy(state, there)
  if (mine && owner.incarnation > holder.incarnation)
    return refuse(state, 'STALE', `the entry ${key} belongs to a newer incarnation of ${holder.name}: this process has been replaced`, {
      key,
      incarnation: owner.incarnation,
    })
  return undefined
}

function heldBy(state: State, { key, lease, generation }: Attached): Refused {
  const { name } = lease.holder
  return refuse(state, 'HELD', `the entry ${key} belongs to ${name}`, { key, holder: name, lease: lease.id, generation })
}

/** The caller has checked `entryRefusal`. */
export function attach(state: State, effects: Effects, lease: Lease, { key, value, generation = 0 }: Attachment): void {
  const there = state.entries.get(key)
  touch(state, lease)
  if (there?.lease === lease) {
    lease.rare!.bytes += utf8Length(value) - utf8Length(there.value)
    Object.assign(there, { value, generation, revision: state.revision + 1 })
    emit(state, effects, 'put', lease, { key, value })
    return
  }
  const former = there?.lease
  if (there !== undefined) {
    touch(state, there.lease)
    there.lease.rare!.entries!.delete(key)
    there.lease.rare!.bytes -= entryBytes(there)
    countEntry(state, there, -1)
    blameFormer(state, there, lease)
  }
  const rare = rareOf(lease)
  rare.entries ??= new Set()
  rare.entries.add(key)
  const entry = { key, value, lease, revision: state.revision + 1, generation }
  addEntry(state, entry)
  rare.bytes += entryBytes(entry)
  emit(state, effects, 'put', lease, { key, value })
  if (lease.status === SUSPECT) emit(state, effects, 'suspected', lease, { key })
  const service = countEntry(state, entry, 1)
  if (service === undefined) return
  if (state.suppressed.has(key)) emit(state, effects, 'suppressed', lease, { key })
  review(state, effects, service)
  // Nobody can tell its holder sooner: its next renewal says that it has been replaced.
  if (former !== undefined && isHusk(former))
    end(state, effects, former, { type: 'revoked', cause: 'replaced', by: lease.holder.name, stopped: true }, state.freed)
}

/** Whether one more entry, or a longer one, is too much for its lease. */
function tooMuch(state: State, lease: Lease, entry: Attachment): Refused | undefined {
  if (state.rules < 2) return undefined
  const { id, rare } = lease
  const there = state.entries.get(entry.key)
  const own = there?.lease === lease
  const limit = (most: number, what: string) =>
    refuse(state, 'LIMIT', `lease ${id} has ${what}, as many as one lease takes: put the rest on another lease`, { lease: id, limit: most })
  if (!own && (rare?.entries?.size ?? 0) >= MOST_LEASE_ENTRIES) return limit(MOST_LEASE_ENTRIES, `${MOST_LEASE_ENTRIES} entries`)
  const more = entryBytes(entry) - (own ? entryBytes(there) : 0)
  const bytes = (rare?.bytes ?? 0) + more
  return more > 0 && bytes > MOST_LEASE_BYTES
    ? limit(MOST_LEASE_BYTES, `entries of ${bytes - more} bytes, of ${MOST_LEASE_BYTES}`)
    : undefined
}

export function put(state: State, effects: Effects, { kind: _, lease: id, ...entry }: Put, key: number): Outcome {
  const { key: name } = entry
  const bad = badAttachment(entry)
  if (bad !== undefined) return invalid(state, bad)
  const lease = findLease(state, id)
  if (lease === undefined || lease.status === FROZEN || lease.status === WAITING || !mayTouch(state, key, lease)) return gone(state, id)
  if (!allowed(state, key, 'register', name)) return forbidden(state, `register ${name}`)
  const refused = entryRefusal(state, lease.holder, entry, key)
  if (refused !== undefined) return refused
  const much = revisionsExhausted(state) ?? tooMuch(state, lease, entry)
  if (much !== undefined) return much
  const wrong = ttlOutside(state, lease.ttl, name)
  if (wrong !== undefined) return invalid(state, wrong)
  touch(state, lease)
  const rare = rareOf(lease)
  Object.assign(rare, bounded(state, name, rare))
  // What may live only so long counts from now on, at the latest.
  if (rare.maxLife > 0 && rare.timers?.[CAP] === undefined) startTimer(state, effects, lease, CAP, rare.maxLife)
  attach(state, effects, lease, entry)
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
