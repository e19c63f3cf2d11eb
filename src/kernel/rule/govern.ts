/** Policies, and commands that concern the log as a whole: upgrade and generation. */

import type { Generation, Policy, Upgrade } from '../command.ts'
import { LOST } from '../event.ts'
import { badPrefix, normalPrefix, under } from '../name.ts'
import { done, type Outcome } from '../outcome.ts'
import { outside, shown, within } from '../reason.ts'
import { ClaimNode } from '../state/claim-tree.ts'
import { touch } from '../state/leases.ts'
import { beforePolicy } from '../state/quota-counts.ts'
import { type PoolState, raiseCounters, type State, WAITING } from '../state.ts'
import { allowed, isAdmin } from './authority.ts'
import { type Effects, emit, restartTerm, startQuiet } from './effects.ts'
import { judgeWaiter } from './judge.ts'
import { badRules, MAX_POLICIES, TTL_LIMIT } from './policy.ts'
import { countWeeks } from './pool/account.ts'
import { markPool, measure } from './pool/member.ts'
import { pressPool } from './pool/waiters.ts'
import { pressHolders } from './queue.ts'
import { forbidden, forbiddenAdmin, refuse, refuseFlaw, revisionsExhausted } from './refuse.ts'
import { review } from './service.ts'
import { settle } from './settle.ts'

/** Leaves room above the counters that were seen; timer ids must stay safe integers. */
const SEEN_LIMIT = 2 ** 49

export function policy(state: State, effects: Effects, { prefix: given, rules }: Policy, key: number): Outcome {
  const bad = badPrefix(given)
  if (bad !== undefined) return refuseFlaw(state, within('prefix', bad))
  const wrong = rules === undefined ? undefined : badRules(rules)
  if (wrong !== undefined) return refuseFlaw(state, wrong)
  const prefix = normalPrefix(given)
  if (!allowed(state, key, 'policy', prefix)) return forbidden(state, 'policy', prefix)
  const over = rules === undefined ? undefined : revisionsExhausted(state)
  if (over !== undefined) return over
  if (rules === undefined) {
    if (!state.policies.has(prefix)) return refuse(state, 'no-policy', { prefix })
  } else if (state.policies.size >= MAX_POLICIES && !state.policies.has(prefix))
    return refuse(state, 'too-many-policies', { limit: MAX_POLICIES })
  const weeks = state.policies.get(prefix)?.quotaWeek === rules?.quotaWeek ? [] : poolsUnder(state, prefix)
  for (const pool of weeks) countWeeks(state, pool) // under the quotas that applied until now
  beforePolicy(state, prefix, rules?.quota)
  if (rules === undefined) state.policies.delete(prefix)
  else state.policies.set(prefix, { ...rules }) // a copy: the caller may change its object
  for (const pool of weeks) countWeeks(state, pool)
  emit(state, effects, 'policy', undefined, { key: prefix })
  const { freed } = state
  for (const lease of state.leases.values()) {
    // A covering waiter may have waited behind one below its name.
    const isMeant = lease.status === WAITING && (lease.extras!.covers || lease.extras!.wants.some(want => under(prefix, want.resource)))
    if (!isMeant) continue
    judgeWaiter(state, lease)
    // A waiter that is passed over from now on makes way in all its queues.
    for (const want of lease.extras!.wants) freed.add(state.resources.get(want.resource)!)
  }
  for (const line of freed) if (!(line instanceof ClaimNode)) pressHolders(state, effects, line)
  reviewPools(state, effects, prefix)
  settle(state, effects, freed)
  for (const name of [...state.upkeep.keys()]) if (under(prefix, name)) review(state, effects, name)
  return done()
}

/** The pools that a policy for the prefix may concern, by name: the order of the table differs between replicas. */
function poolsUnder(state: State, prefix: string): PoolState[] {
  const names = [...state.pools.keys()].filter(name => under(prefix, name) || under(name, prefix))
  return names.sort().map(name => state.pools.get(name)!)
}

/** A policy for the prefix has changed: capacities, queues and shares of pools may be others now. */
function reviewPools(state: State, effects: Effects, prefix: string): void {
  for (const pool of poolsUnder(state, prefix)) {
    for (const member of pool.members.values()) measure(state, member)
    markPool(state, pool)
    pressPool(state, effects, pool)
  }
}

export function upgrade(state: State, { rules }: Upgrade, key: number): Outcome {
  if (!isAdmin(state, key)) return forbiddenAdmin(state, 'upgrade')
  if (rules !== state.rules + 1) return refuse(state, 'wrong-rules', { rules: state.rules, next: state.rules + 1, given: shown(rules) })
  state.rules = rules
  return done()
}

export function generation(
  state: State,
  effects: Effects,
  { lease, token, revision, quiet, key: nextKey = 0 }: Generation,
  key: number,
): Outcome {
  if (!isAdmin(state, key)) return forbiddenAdmin(state, 'generation')
  for (const [field, n] of Object.entries({ lease, token, revision, key: nextKey }))
    if (!Number.isSafeInteger(n) || n < 0 || n > SEEN_LIMIT) return refuseFlaw(state, outside(field, 0, SEEN_LIMIT, n))
  if (!Number.isSafeInteger(quiet) || quiet < 0 || quiet > TTL_LIMIT) return refuseFlaw(state, outside('quiet', 0, TTL_LIMIT, quiet))
  state.nextLease = Math.max(state.nextLease, lease + 1)
  state.nextToken = Math.max(state.nextToken, token + 1)
  state.revision = Math.max(state.revision, revision)
  state.nextKey = Math.max(state.nextKey, nextKey)
  // The survivor may not have read all records that were lost. While leases are moved in, the counters are those of the log that they come from.
  if (state.floor === undefined) raiseCounters(state)
  // A second loss must not shorten a quiet period that is already running.
  const length = Math.max(quiet, state.longest, state.quiet?.duration ?? 0)
  if (length > 0) startQuiet(state, effects, length)
  state.lineage.generation = { index: state.index, quiet: length }
  // Renewals may be among the lost records. When each term began is unknown, so each begins again; and a lost renewal may have given a longer one.
  const { longest } = state
  for (const held of state.leases.values()) {
    touch(state, held)
    restartTerm(state, effects, held, held.status === WAITING ? held.term : Math.max(held.term, length))
  }
  state.longest = longest // no holder learns of these terms
  emit(state, effects, 'generation', undefined, { cause: LOST })
  return done()
}
