/** Widening: a waiter for any of several resources names more of them, and keeps its place. */

import { MAX_RESOURCES, type Widen } from '../command.ts'
import { badName } from '../name.ts'
import { done, type Outcome } from '../outcome.ts'
import { tooMany, within } from '../reason.ts'
import { extrasOf, findLease, touch } from '../state/leases.ts'
import { countForQuotas, uncountForQuotas } from '../state/quota-counts.ts'
import { resourceOf } from '../state/resources.ts'
import { type LeaseState, type State, WAITING } from '../state.ts'
import { normal, overQuota, wantsUnder } from './acquire.ts'
import type { WantedResource } from './applicant.ts'
import { allowed, mayTouch } from './authority.ts'
import { type Effects, emit } from './effects.ts'
import { exists, judgeWaiter } from './judge.ts'
import { memberNamed } from './key-bounds.ts'
import { bounded, capacityOf, rule, ruledBy, ttlOutside } from './policy.ts'
import { updateRoom } from './pool/member.ts'
import { positionOf, pressHolders } from './queue.ts'
import { forbidden, gone, refuse, refuseFlaw } from './refuse.ts'
import { settle } from './settle.ts'

/**
 * Resources that it already waits for are skipped, so a repetition is harmless. A lease that was granted meanwhile is left as it is. Where the waiter wants more
 * units than the capacity, it may ask for fewer: its place in that queue is useless otherwise.
 */
export function widen(state: State, effects: Effects, { lease: id, wants }: Widen, key: number): Outcome {
  const lease = findLease(state, id)
  if (lease === undefined || !mayTouch(state, key, lease)) return gone(state, id)
  if (lease.status !== WAITING) return done()
  const { any, wants: known } = extrasOf(lease)
  if (any === 0) return refuse(state, 'waits-for-all', { lease: id })
  const named = new Set(known.map(want => want.resource))
  const less = wants.map(normal).filter(want => known.some(had => isLess(state, want, had)))
  const fresh = wants.map(normal).filter(({ resource }) => !named.has(resource) && named.add(resource))
  if (named.size > MAX_RESOURCES) return refuseFlaw(state, tooMany('wants', MAX_RESOURCES))
  for (const want of fresh) {
    const refused = refusal(state, lease, want)
    if (refused !== undefined) return refused
  }
  if (fresh.length + less.length === 0) return done()
  touch(state, lease)
  uncountForQuotas(state, lease)
  extrasOf(lease).wants = [...known.map(had => less.find(want => want.resource === had.resource) ?? had), ...fresh]
  countForQuotas(state, lease)
  judgeWaiter(state, lease)
  for (const { resource } of fresh) Object.assign(extrasOf(lease), bounded(state, resource, extrasOf(lease)))
  const { freed } = state
  for (const want of fresh) {
    const resource = resourceOf(state, want.resource)
    if (resource.queue.length === 0) resource.queue = [lease]
    else resource.queue.splice(positionOf(resource, lease), 0, lease)
    state.claims?.addWaiter(lease, want.resource)
    emit(state, effects, 'queued', lease, { resource: want.resource })
    pressHolders(state, effects, resource)
    if (resource.member !== undefined) updateRoom(state, resource.member, resource)
    freed.add(resource)
  }
  for (const want of less) freed.add(state.resources.get(want.resource)!)
  settle(state, effects, freed)
  return done()
}

/** The same resource, with units that the capacity allows now, while it did not allow the former ones. */
function isLess(state: State, want: WantedResource, had: WantedResource): boolean {
  return want.resource === had.resource && exists(state, want) && !exists(state, had)
}

function refusal(state: State, lease: LeaseState, want: WantedResource): Outcome | undefined {
  const name = want.resource
  const bad = badName(name)
  if (bad !== undefined) return refuseFlaw(state, within('resource', bad))
  if (!allowed(state, lease.key, 'acquire', name)) return forbidden(state, 'acquire', name)
  const member = memberNamed(state, lease.key, name)
  if (member !== undefined) return member
  const wrong = ttlOutside(state, lease.ttl, name)
  if (wrong !== undefined) return refuseFlaw(state, wrong)
  const capacity = capacityOf(state, name)
  if (want.units > capacity) return refuse(state, 'beyond-capacity', { resource: name, units: want.units, capacity })
  const most = rule(state, name, 'waiters')
  if ((state.resources.get(name)?.queue.length ?? 0) >= most) return refuse(state, 'too-many-waiters', { resource: name, limit: most })
  const prefix = ruledBy(state, name, 'quota')
  // The lease counts towards the quota only once.
  return prefix === undefined || wantsUnder(lease, prefix) ? undefined : overQuota(state, lease.holder.name, [want])
}
