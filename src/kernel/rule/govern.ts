/** Policies, keys, and commands that concern the log as a whole: upgrade and generation. */

import { type CreateKey, type Generation, type Policy, type RevokeKey, type Upgrade, VERBS } from '../command.ts'
import { LOST } from '../event.ts'
import { badName, badPrefix, normalPrefix, under } from '../name.ts'
import { done, type Outcome } from '../outcome.ts'
import { touch } from '../state/leases.ts'
import { beforePolicy } from '../state/quota-counts.ts'
import { COUNTER_LIMIT, type State, WAITING } from '../state.ts'
import { allowed, isAdmin } from './authority.ts'
import { type Effects, emit, restartTerm, startQuiet } from './effects.ts'
import { end } from './end.ts'
import { judgeWaiter } from './judge.ts'
import { badRules, badScopes, MAX_POLICIES, TTL_LIMIT } from './policy.ts'
import { markPool, measure } from './pool/member.ts'
import { pressPool } from './pool/waiters.ts'
import { pressHolders } from './queue.ts'
import { forbidden, invalid, refuse, revisionsExhausted, spent } from './refuse.ts'
import { review } from './service.ts'
import { settle } from './settle.ts'

const MAX_KEYS = 10_000
/** Leaves room above the counters that were seen; timer ids must stay safe integers. */
const SEEN_LIMIT = 2 ** 49

export function policy(state: State, effects: Effects, { prefix: given, rules }: Policy, key: number): Outcome {
  const bad = badPrefix(given) ?? (rules === undefined ? undefined : badRules(rules))
  if (bad !== undefined) return invalid(state, `policy: ${bad}`)
  const prefix = normalPrefix(given)
  if (!allowed(state, key, 'policy', prefix)) return forbidden(state, `set a policy for ${prefix}`)
  const over = rules === undefined ? undefined : revisionsExhausted(state)
  if (over !== undefined) return over
  if (rules === undefined) {
    if (!state.policies.has(prefix)) return refuse(state, 'NOT_FOUND', `there is no policy for ${prefix === '' ? 'everything' : prefix}`)
    beforePolicy(state, prefix)
    state.policies.delete(prefix)
  } else if (state.policies.size >= MAX_POLICIES && !state.policies.has(prefix)) {
    return refuse(
      state,
      'LIMIT',
      `there are ${MAX_POLICIES} policies, as many as are allowed: delete some, or set one for a shorter prefix`,
      {
        limit: MAX_POLICIES,
      },
    )
  } else {
    beforePolicy(state, prefix, rules.quota)
    state.policies.set(prefix, { ...rules }) // a copy: the caller may change its object
  }
  emit(state, effects, 'policy', undefined, { key: prefix })
  const { freed } = state
  for (const lease of state.leases.values()) {
    if (lease.status !== WAITING || !lease.rare!.wants.some(want => under(prefix, want.resource))) continue
    judgeWaiter(state, lease)
    // A waiter that is passed over from now on makes way in all its queues.
    for (const want of lease.rare!.wants) freed.add(state.resources.get(want.resource)!)
  }
  for (const resource of freed) pressHolders(state, effects, resource)
  reviewPools(state, effects, prefix)
  settle(state, effects, freed)
  for (const name of [...state.upkeep.keys()]) if (under(prefix, name)) review(state, effects, name)
  return done()
}

/** A policy for the prefix has changed: capacities, queues and shares of pools may be others now. */
function reviewPools(state: State, effects: Effects, prefix: string): void {
  const names = [...state.pools.keys()].filter(name => under(prefix, name) || under(name, prefix))
  // By name: the order of the table differs between replicas.
  for (const name of names.sort()) {
    const pool = state.pools.get(name)!
    for (const member of pool.members.values()) measure(state, member)
    markPool(state, pool)
    pressPool(state, effects, pool)
  }
}

export function createKey(state: State, effects: Effects, { name, hash, allow }: CreateKey, key: number): Outcome {
  const bad = badName(name) ?? badScopes(allow, VERBS)
  if (bad !== undefined) return invalid(state, `key: ${bad}`)
  if (typeof hash !== 'string' || !/^[0-9a-f]{64}$/.test(hash))
    return invalid(state, 'key: the hash must be 64 hexadecimal digits (SHA-256)')
  if (!isAdmin(state, key)) return forbidden(state, 'create keys')
  if (state.keys.size >= MAX_KEYS) return refuse(state, 'LIMIT', `there are ${MAX_KEYS} keys, as many as are allowed`)
  const over = state.nextKey >= COUNTER_LIMIT ? spent(state) : revisionsExhausted(state)
  if (over !== undefined) return over
  const id = state.nextKey++
  state.keys.set(id, { id, name, hash, allow: allow.map(({ verb, prefix }) => ({ verb, prefix: normalPrefix(prefix) })) })
  emit(state, effects, 'key', undefined, { key: name, cause: 'created' })
  return done(id)
}

export function revokeKey(state: State, effects: Effects, { id }: RevokeKey, key: number): Outcome {
  const there = state.keys.get(id)
  if (!isAdmin(state, key)) return forbidden(state, 'revoke keys')
  if (there === undefined) return refuse(state, 'NOT_FOUND', `there is no key ${id}`)
  // Without an admin key no other key could be made; and without any key a server is open to every client that can reach it.
  if (key !== 0 && isAdmin(state, id) && ![...state.keys.keys()].some(other => other !== id && isAdmin(state, other)))
    return invalid(
      state,
      `${there.name} is the last key that administers everything: create another one first, or revoke it with the operator's right, on the store itself`,
    )
  state.keys.delete(id)
  emit(state, effects, 'key', undefined, { key: there.name, cause: 'revoked' })
  // The leases of the key run out. Its waiters will never be granted anything, and must not block others. The scopes of a key never change, so every
  // other waiter is still entitled to what it waits for.
  const { freed } = state
  const waiting = [...state.leases.values()].filter(lease => lease.key === id && lease.status === WAITING)
  for (const lease of waiting) end(state, effects, lease, { type: 'revoked', cause: 'unkeyed', stopped: true }, freed)
  settle(state, effects, freed)
  return done(id)
}

export function upgrade(state: State, { rules }: Upgrade, key: number): Outcome {
  if (!isAdmin(state, key)) return forbidden(state, 'raise the rules version')
  if (rules !== state.rules + 1)
    return invalid(state, `the rules are at version ${state.rules}: the next one is ${state.rules + 1}, not ${rules}`)
  state.rules = rules
  return done()
}

export function generation(
  state: State,
  effects: Effects,
  { lease, token, revision, quiet, key: nextKey = 0 }: Generation,
  key: number,
): Outcome {
  if (!isAdmin(state, key)) return forbidden(state, 'begin a generation')
  for (const n of [lease, token, revision, nextKey])
    if (!Number.isSafeInteger(n) || n < 0 || n > SEEN_LIMIT)
      return invalid(state, `a generation needs the highest numbers seen, from 0 to ${SEEN_LIMIT}, not ${String(n)}`)
  if (!Number.isSafeInteger(quiet) || quiet < 0 || quiet > TTL_LIMIT)
    return invalid(state, `quiet must be a duration, not ${String(quiet)}`)
  state.nextLease = Math.max(state.nextLease, lease + 1)
  state.nextToken = Math.max(state.nextToken, token + 1)
  state.revision = Math.max(state.revision, revision)
  state.nextKey = Math.max(state.nextKey, nextKey)
  // A second loss must not shorten a quiet period that is already running.
  const length = Math.max(quiet, state.longest, state.quiet?.duration ?? 0)
  if (length > 0) startQuiet(state, effects, length)
  state.lineage.generation = { index: state.index, quiet: length }
  // Renewals may be among the lost records. When each term began is unknown, so each begins again.
  for (const held of state.leases.values()) {
    touch(state, held)
    restartTerm(state, effects, held, held.term)
  }
  emit(state, effects, 'generation', undefined, { cause: LOST })
  return done()
}
