/**
 * Decides about a claim whose lease has ended although its agent did not end it: the reason is read from the history, and a claim that merely lapsed is
 * resumed under a new token if no other holder was granted it meanwhile. Otherwise what the agent has read may be out of date.
 */
import { LeaseError } from '../errors.ts'
import type { PastGrant } from '../lessor.ts'
import type { ClaimRecord } from './claim-record.ts'
import type { AgentLog } from './log.ts'
import type { ClaimNames } from './names.ts'
import { withoutRight } from './neighbours.ts'

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

export interface Resumed {
  readonly record: ClaimRecord
  /** The agent's name. */
  readonly holder: string
  readonly names: ClaimNames
}

/** `acquire` asks for the same resources again, without waiting. */
export async function resume(log: AgentLog, resumed: Resumed, acquire: () => Promise<number>): Promise<Resumption> {
  const { record } = resumed
  // A lease that ended with its parent keeps its units until its holder says that it has stopped, or its term is over.
  await log.release(record.lease)
  let lease: number
  try {
    lease = await acquire()
  } catch (error) {
    if (!LeaseError.is(error, 'HELD')) throw error
    const { resource = record.resources[0]!, claim = resource, holder = '' } = error.facts
    return { kind: 'taken', resource: claim, by: holder }
  }
  for (const resource of record.resources) {
    const taken = await grantedSince(log, resumed, resource)
    if (taken === undefined) continue
    await log.release(lease)
    return { kind: 'taken', ...taken, released: lease }
  }
  return { kind: 'resumed', lease }
}

/**
 * The first grant of another holder that came after this claim, of its name or, for a path, of one that it covers or that covers it; undefined if the history shows
 * none. Tokens and revisions only grow. The clock of the log only tells the agent's own earlier grants from those of a namesake.
 */
async function grantedSince(
  log: AgentLog,
  { record: { lease, tokens }, holder, names }: Resumed,
  resource: string,
): Promise<{ readonly resource: string; readonly by: string } | undefined> {
  const here = await log.history(resource)
  const own = here.find(grant => grant.lease === lease)
  if (own === undefined) return { resource, by: 'a holder that the history does not show any more' }
  const others = names.isPath(resource) ? await historyAround(log, names, resource, own.revision) : []
  const [first] = [...here, ...others]
    .filter(
      grant => grant.token > tokens[resource]! && grant.revision > own.revision && !(grant.holder === holder && grant.since <= own.until),
    )
    .sort((one, other) => one.token - other.token)
  return first && { resource: first.resource ?? resource, by: first.holder }
}

/** Above a path, a claim of an agent covers it. Others can hold a folder alone there: that they were in the way is assumed. */
async function historyAround(log: AgentLog, names: ClaimNames, resource: string, after: number): Promise<readonly PastGrant[]> {
  const above = names.pathsAbove(resource).map(async path => {
    const past = await log.history(path).catch(withoutRight)
    return (past ?? []).map(grant => ({ ...grant, resource: path }))
  })
  return [...(await log.historyBelow(resource, after)), ...(await Promise.all(above)).flat()]
}
