/** An agent sees this of other holders: who has a name, for what purpose, since when, how long idle, and who waits. */
import { LeaseError } from '../errors.ts'
import type { ResourceView } from '../lessor.ts'
import { markOf, readMark } from './activity.ts'
import { type ClaimRecord, expectOf, labelOf } from './claim-record.ts'
import type { AgentLog } from './log.ts'
import { type ClaimNames, oneLine } from './names.ts'

export interface HolderView {
  readonly holder: string
  readonly purpose: string
  readonly mode: 'exclusive' | 'shared'
  /** Seconds since it was granted, or has waited. By the wall clocks of two machines: for display only. */
  readonly forSeconds: number
  /** Seconds since the agent was last active; left out for holders that are no agents. */
  readonly idleSeconds?: number
  /** About how many more seconds the holder said that it needs; left out if it did not say. */
  readonly expectSeconds?: number
}

export interface NameView {
  readonly resource: string
  readonly holders: readonly HolderView[]
  readonly waiters: readonly (HolderView & { readonly position: number })[]
}

/** The most names that one look lists, and holders and waiters of one name. */
export const MAX_LOOK = 100
const MAX_LISTED = 20
const PURPOSE_CHARACTERS = 500

/** Reads views of leases, each lease once. */
class Describer {
  readonly #log: AgentLog
  readonly #views = new Map<number, ReturnType<AgentLog['lease']>>()

  constructor(log: AgentLog) {
    this.#log = log
  }

  #lease(id: number): ReturnType<AgentLog['lease']> {
    const known = this.#views.get(id) ?? this.#log.lease(id).catch(() => undefined) // it is only for display
    this.#views.set(id, known)
    return known
  }

  async describe(given: {
    readonly lease: number
    readonly holder: string
    readonly shared: boolean
    readonly since: number
  }): Promise<HolderView> {
    const view = await this.#lease(given.lease)
    const now = this.#log.leases.clock.wall()
    const expect = view === undefined ? 0 : expectOf(view)
    const session = view === undefined || view.parent === 0 ? undefined : await this.#lease(view.parent)
    const active = session && readMark(markOf(session))
    return {
      holder: oneLine(given.holder, PURPOSE_CHARACTERS),
      purpose: view === undefined ? '' : oneLine(labelOf(view, 'purpose'), PURPOSE_CHARACTERS),
      mode: given.shared ? 'shared' : 'exclusive',
      forSeconds: seconds(now - given.since),
      ...(active !== undefined && { idleSeconds: active.underWay ? 0 : seconds(now - active.at) }),
      ...(expect > 0 && { expectSeconds: seconds(given.since + expect - now) }),
    }
  }
}

function seconds(ms: number): number {
  return Math.max(0, Math.round(ms / 1_000))
}

async function describeName(describer: Describer, { resource, grants, queue }: ResourceView): Promise<NameView> {
  const holders = grants.filter(({ status }) => status !== 'frozen').slice(0, MAX_LISTED)
  return {
    resource,
    holders: await Promise.all(holders.map(grant => describer.describe(grant))),
    waiters: await Promise.all(
      queue.slice(0, MAX_LISTED).map(async waiter => ({ ...(await describer.describe(waiter)), position: waiter.position })),
    ),
  }
}

/** The names under a prefix that are held or waited for, and those above it that cover it. */
export async function look(log: AgentLog, prefix: string): Promise<{ readonly names: readonly NameView[]; readonly more: boolean }> {
  const { value, more = false } = await log.resourcesUnder(prefix, MAX_LOOK)
  const here = prefix === '' ? undefined : await log.resource(prefix).catch(withoutRight)
  const describer = new Describer(log)
  const views = [...(here === undefined ? [] : viewsAbove(here)), ...value]
  const names = await Promise.all(views.map(view => describeName(describer, view)))
  return { names: names.filter(({ holders, waiters }) => holders.length + waiters.length > 0), more }
}

/** A name, what is claimed above it with all below and, for a path, what is claimed below it. */
export async function viewsAround(log: AgentLog, names: ClaimNames, resource: string): Promise<readonly ResourceView[]> {
  const here = await log.resource(resource)
  if (!names.isPath(resource)) return [here, ...viewsAbove(here)]
  const { value: below } = await log.resourcesUnder(resource, MAX_LOOK)
  return [here, ...viewsAbove(here), ...below.filter(view => view.resource !== resource)]
}

/** The covering claims above a name, and the covering requests that wait there. */
function viewsAbove({ coveredBy = [], waitersAbove = [] }: ResourceView): readonly ResourceView[] {
  const names = new Set([...coveredBy, ...waitersAbove].map(({ resource }) => resource))
  return [...names].map(name => ({
    ...{ resource: name, capacity: 1, fence: 0 },
    grants: coveredBy.filter(({ resource }) => resource === name),
    queue: waitersAbove.filter(({ resource }) => resource === name),
  }))
}

/** The key of an agent need not allow it to read folders above its own. */
export function withoutRight(error: unknown): undefined {
  if (!LeaseError.is(error, 'FORBIDDEN')) throw error
  return undefined
}

/** Returns what a queued claim waits for: the names that are not free. `own`: leases of the same agent. */
export async function blockers(
  log: AgentLog,
  names: ClaimNames,
  record: ClaimRecord,
  own: ReadonlySet<number>,
): Promise<readonly NameView[]> {
  const describer = new Describer(log)
  const around = await Promise.all(record.resources.slice(0, MAX_LISTED).map(resource => viewsAround(log, names, resource)))
  const isOwnName = ({ resource }: ResourceView) => record.resources.includes(resource)
  const blocked = around
    .flat()
    .filter(
      view =>
        view.grants.some(({ lease }) => isOwnName(view) || !own.has(lease)) ||
        view.queue.some(({ lease, position }) => lease !== record.lease && position === 0 && (isOwnName(view) || !own.has(lease))),
    )
    .slice(0, MAX_LISTED)
  return Promise.all(blocked.map(view => describeName(describer, view)))
}
