/** API keys: create, rotate, limit and revoke them. Scopes and bounds of a key never change. */
import { type CreateKey, type LimitKey, type RevokeKey, type RotateKey, VERBS } from '../command.ts'
import { copyOf } from '../copy.ts'
import { badName, normalPrefix } from '../name.ts'
import { done, type Outcome, type Refused } from '../outcome.ts'
import { outside, within } from '../reason.ts'
import { addKey, dropKey } from '../state/key-use.ts'
import { type ApiKey, COUNTER_LIMIT, type State, WAITING } from '../state.ts'
import { isAdmin } from './authority.ts'
import { type Effects, emit } from './effects.ts'
import { end } from './end.ts'
import { badBounds } from './key-bounds.ts'
import { badLimits } from './key-limit.ts'
import { badScopes, TTL_LIMIT } from './policy.ts'
import { countersExhausted, forbiddenAdmin, refuse, refuseFlaw, revisionsExhausted } from './refuse.ts'
import { settle } from './settle.ts'

const MAX_KEYS = 10_000
/** Times of expiry end here: the year 9999. */
const LAST_TIME = 253_402_300_799_999

export function createKey(state: State, effects: Effects, command: CreateKey, key: number): Outcome {
  const { kind: _, ...asked } = command
  const { name, hash, allow, group, limits, expires } = asked
  const bad = badName(name)
  if (bad !== undefined) return refuseFlaw(state, within('name', bad))
  const badGroup = group === undefined ? undefined : badName(group)
  if (badGroup !== undefined) return refuseFlaw(state, within('group', badGroup))
  const wrong = badScopes(allow, VERBS) ?? badBounds(asked) ?? (limits === undefined ? undefined : badLimits(limits))
  if (wrong !== undefined) return refuseFlaw(state, wrong)
  const refused = badSecret(state, hash) ?? badExpiry(state, expires)
  if (refused !== undefined) return refused
  if (!isAdmin(state, key)) return forbiddenAdmin(state, 'key')
  if (state.keys.size >= MAX_KEYS) return refuse(state, 'too-many-keys', { limit: MAX_KEYS })
  const over = state.nextKey >= COUNTER_LIMIT ? countersExhausted(state) : revisionsExhausted(state)
  if (over !== undefined) return over
  const id = state.nextKey++
  // A copy: the caller may change its object.
  addKey(state, { id, ...copyOf(asked), allow: allow.map(({ verb, prefix }) => ({ verb, prefix: normalPrefix(prefix) })) })
  emit(state, effects, 'key', undefined, { key: name, cause: 'created' })
  return done(id)
}

function badSecret(state: State, hash: string): Refused | undefined {
  return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? undefined : refuse(state, 'not-a-hash', { field: 'hash' })
}

/** The wall clock of the server that wrote this record decides. */
function badExpiry(state: State, expires: number | undefined): Refused | undefined {
  if (expires === undefined) return undefined
  if (!Number.isSafeInteger(expires) || expires < 0 || expires > LAST_TIME)
    return refuseFlaw(state, outside('expires', 0, LAST_TIME, expires))
  return expires > state.wall ? undefined : refuse(state, 'expiry-past', { ago: state.wall - expires })
}

/**
 * The key stays, and so do its leases: only its secret is another. A second rotation while two secrets are valid would end the one that programs still use, so
 * it is refused unless it is to end every former secret.
 */
export function rotateKey(state: State, effects: Effects, { id, hash, overlap = 0, expires }: RotateKey, key: number): Outcome {
  if (!Number.isSafeInteger(overlap) || overlap < 0 || overlap > TTL_LIMIT)
    return refuseFlaw(state, outside('overlap', 0, TTL_LIMIT, overlap))
  const refused = badSecret(state, hash) ?? badExpiry(state, expires)
  if (refused !== undefined) return refused
  if (!isAdmin(state, key)) return forbiddenAdmin(state, 'rotate')
  const there = state.keys.get(id)
  if (there === undefined) return refuse(state, 'no-key', { id })
  const { former: before, ...rest } = there
  if (overlap > 0 && before !== undefined && before.until > state.wall)
    return refuse(state, 'rotating', { name: there.name, left: before.until - state.wall })
  const over = revisionsExhausted(state)
  if (over !== undefined) return over
  const former = overlap === 0 ? {} : { former: { hash: there.hash, until: state.wall + overlap } }
  state.keys.set(id, { ...rest, hash, ...(expires !== undefined && { expires }), ...former })
  emit(state, effects, 'key', undefined, { key: there.name, cause: 'rotated' })
  return done(id)
}

export function limitKey(state: State, effects: Effects, { id, group: name, limits }: LimitKey, key: number): Outcome {
  if (id === undefined && name === undefined) return refuse(state, 'needs-one-of', { field: 'limit', choices: ['id', 'group'] })
  const wrong = limits === undefined ? undefined : badLimits(limits)
  if (wrong !== undefined) return refuseFlaw(state, wrong)
  if (!isAdmin(state, key)) return forbiddenAdmin(state, 'limit')
  const there = id === undefined ? undefined : state.keys.get(id)
  const group = name === undefined ? undefined : state.groups.get(name)
  if (id !== undefined && there === undefined) return refuse(state, 'no-key', { id })
  if (name !== undefined && group === undefined) return refuse(state, 'no-group', { group: name })
  const over = revisionsExhausted(state)
  if (over !== undefined) return over
  const given = limits === undefined ? undefined : { ...limits }
  if (there !== undefined) state.keys.set(there.id, withLimits(there, given))
  if (group !== undefined) group.limits = given
  emit(state, effects, 'key', undefined, { key: there?.name ?? name!, cause: 'limited' })
  return done()
}

function withLimits({ limits: _, ...rest }: ApiKey, limits: ApiKey['limits']): ApiKey {
  return limits === undefined ? rest : { ...rest, limits }
}

export function revokeKey(state: State, effects: Effects, { id }: RevokeKey, key: number): Outcome {
  const there = state.keys.get(id)
  if (!isAdmin(state, key)) return forbiddenAdmin(state, 'unkey')
  if (there === undefined) return refuse(state, 'no-key', { id })
  // Without an admin key no other key could be made; and without any key a server is open to every client that can reach it.
  if (key !== 0 && isAdmin(state, id) && ![...state.keys.keys()].some(other => other !== id && isAdmin(state, other)))
    return refuse(state, 'last-admin', { name: there.name })
  dropKey(state, there)
  emit(state, effects, 'key', undefined, { key: there.name, cause: 'revoked' })
  // The leases of the key run out. Its waiters will never be granted anything, and must not block others. The scopes of a key never change, so every
  // other waiter is still entitled to what it waits for.
  const { freed } = state
  const waiting = [...state.leases.values()].filter(lease => lease.key === id && lease.status === WAITING)
  for (const lease of waiting) end(state, effects, lease, { type: 'revoked', cause: 'unkeyed', stopped: true }, freed)
  settle(state, effects, freed)
  return done(id)
}
