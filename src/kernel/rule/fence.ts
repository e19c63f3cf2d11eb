/** Fences: the highest token shown for a resource, for resources that cannot store it themselves. Fences are never forgotten, so their number is limited. */

import type { Fence } from '../command.ts'
import { badName } from '../name.ts'
import type { Outcome } from '../outcome.ts'
import { neverGiven, within } from '../reason.ts'
import { recordFence } from '../state/resources.ts'
import type { State } from '../state.ts'
import { allowed } from './authority.ts'
import { forbidden, refuse, refuseFlaw } from './refuse.ts'

export const MAX_FENCES = 100_000
/** One key must not use up all fences. */
export const FENCES_PER_KEY = 20_000

export function fence(state: State, { resource, token }: Fence, key: number): Outcome {
  const bad = badName(resource)
  if (bad !== undefined) return refuseFlaw(state, within('resource', bad))
  if (!allowed(state, key, 'acquire', resource)) return forbidden(state, 'acquire', resource, 'fence')
  // A token that was never given out would lock out all holders.
  if (!Number.isSafeInteger(token) || token < 1 || token >= state.nextToken) return refuseFlaw(state, neverGiven('token', token))
  const highest = state.fences.get(resource)
  if (highest !== undefined && token < highest) return refuse(state, 'older-token', { resource, token, highest })
  if (highest === undefined && state.fences.size >= MAX_FENCES) return refuse(state, 'too-many-fences', { limit: MAX_FENCES })
  if (highest === undefined && key !== 0 && (state.fencedWith.get(key) ?? 0) >= FENCES_PER_KEY)
    return refuse(state, 'too-many-key-fences', { limit: FENCES_PER_KEY })
  recordFence(state, resource, token, key)
  return { kind: 'fenced', revision: 0, highest: token }
}
