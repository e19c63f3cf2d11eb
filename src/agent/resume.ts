/**
 * Decides about a claim whose lease has ended although its agent did not end it: the reason is read from the history, and a claim that merely lapsed is
 * resumed under a new token if no other holder was granted it meanwhile. Otherwise what the agent has read may be out of date.
 */
import { LeaseError } from '../errors.ts'
import type { PastGrant } from '../lessor.ts'
import type { ClaimRecord } from './claim-record.ts'
import type { AgentLog } from './log.ts'

export interface ClaimEnd {
  /** `lapsed`: it was not renewed in time. `unknown`: the history has forgotten it. */
  readonly cause: string
  readonly by: string
}

/** Why a granted claim has ended. */
export async function endOfClaim(log: AgentLog, { lease, resources }: Pick<ClaimRecord, 'lease' | 'resources'>): Promise<ClaimEnd> {
  const past = (await log.history(resources[0]!)).find(grant => grant.lease === lease)
  return past === undefined ? { cause: 'unknown', by: '' } : { cause: past.cause, by: past.by ?? '' }
}

export type Resumption =
  | { readonly kind: 'resumed'; readonly lease: number }
  /** Another holder has it, or had it meanwhile. Then the lease under which it was held again for a moment is released. */
  | { readonly kind: 'taken'; readonly resource: string; readonly by: string; readonly released?: number }

/** `acquire` asks for the same resources again, without waiting. */
export async function resume(log: AgentLog, record: ClaimRecord, acquire: () => Promise<number>): Promise<Resumption> {
  // A lease that ended with its parent keeps its units until its holder says that it has stopped, or its term is over.
  await log.release(record.lease)
  let lease: number
  try {
    lease = await acquire()
  } catch (error) {
    if (!LeaseError.is(error, 'HELD')) throw error
    const { resource = record.resources[0]!, holder = '' } = error.facts
    return { kind: 'taken', resource, by: holder }
  }
  for (const resource of record.resources) {
    const by = grantedSince(await log.history(resource), record, resource)
    if (by === undefined) continue
    await log.release(lease)
    return { kind: 'taken', resource, by, released: lease }
  }
  return { kind: 'resumed', lease }
}

/** A holder that was granted the resource after this claim; undefined if there certainly was none. Tokens only grow, so no clock is needed. */
function grantedSince(history: readonly PastGrant[], { lease, tokens }: ClaimRecord, resource: string): string | undefined {
  const own = history.findIndex(grant => grant.lease === lease)
  if (own < 0) return 'a holder that the history does not show any more'
  return history.slice(own + 1).find(({ token }) => token > tokens[resource]!)?.holder
}
