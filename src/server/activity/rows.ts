/**
 * Tables of resources and leases, filtered and sorted by the server, for pages that show a few of very many rows. The lessor finds and orders the rows; here
 * they are cut short: a page needs four names of a lease, not a thousand.
 */
import type { Clock } from '../../clock.ts'
import type { ListPart, ListState } from '../../lessor/list-part.ts'
import type { GrantView, LeaseView, ResourceView } from '../../lessor.ts'
import type { Caller } from '../access-control.ts'
import type { GuardedLessor } from '../guarded-lessor.ts'

/** Names of a lease that its row shows. */
const MAX_NAMES = 4
const MAX_VALUE = 200
const DEFAULT_LIMIT = 100

export interface RowRequest {
  readonly of: 'resources' | 'leases'
  readonly prefix?: string
  readonly text?: string
  readonly holder?: string
  /** `KEY=VALUE`, or `KEY` for any value. */
  readonly label?: string
  /** `held`, `waited` and `frozen` are states of resources, the others of leases. */
  readonly state?: ListState
  readonly sort?: ListPart['sort']
  readonly offset?: number
  readonly limit?: number
}

export interface RowPage {
  readonly of: string
  readonly total: number
  readonly offset: number
  readonly rows: readonly object[]
  readonly revision: number
  readonly at: number
}

export async function rowPage(
  { guarded, caller, clock }: { readonly guarded: GuardedLessor; readonly caller: Caller; readonly clock: Clock },
  request: RowRequest,
  signal: AbortSignal,
): Promise<RowPage> {
  const { of, prefix = '', label, sort = 'name', offset = 0, limit = DEFAULT_LIMIT, ...filters } = request
  const page = { ...filters, sort, offset, limit, ...(label !== undefined && { label: labelOf(label) }) }
  if (of === 'resources') {
    const { revision, total, value } = await guarded.page<'resources'>(caller, { kind: 'resources', prefix }, page, signal)
    const rows = await Promise.all(value.map(async view => ({ ...resourceRow(view), ...(await holding(guarded, caller, view.grants[0])) })))
    return { of, total, offset, rows, revision, at: clock.wall() }
  }
  const query = { kind: 'leases', ...(prefix !== '' && { prefix }) } as const
  const { revision, total, value } = await guarded.page<'leases'>(caller, query, page, signal)
  return { of, total, offset, rows: value.map(leaseRow), revision, at: clock.wall() }
}

/** Returns what a row shows of the lease behind it, if the caller may see that lease. */
async function holding(
  { access, lessor }: GuardedLessor,
  caller: Caller,
  grant: GrantView | undefined,
): Promise<{ readonly purpose?: string; readonly ttl?: number }> {
  if (grant === undefined) return {}
  const query = { kind: 'lease', lease: grant.lease } as const
  const { value } = access.filter(caller, query, await lessor.read<'lease'>(query))
  return value === undefined ? {} : { ttl: value.ttl, ...purposeOf(value) }
}

function purposeOf({ labels }: LeaseView): { readonly purpose?: string } {
  const purpose = labels.find(([key]) => key === 'purpose')?.[1]
  return purpose === undefined ? {} : { purpose: purpose.slice(0, MAX_VALUE) }
}

function resourceRow({ resource, grants, queue }: ResourceView): object {
  const [first] = grants
  return {
    resource,
    status: first === undefined ? 'waited' : first.status === 'frozen' ? 'frozen' : 'held',
    holder: first?.holder ?? '',
    lease: first?.lease ?? 0,
    token: first?.token ?? 0,
    since: first?.since ?? 0,
    remaining: Math.round(first?.remaining ?? 0),
    holders: grants.length,
    waiters: queue.length,
    oldestWait: queue.reduce((oldest, { since }) => (oldest === 0 ? since : Math.min(oldest, since)), 0),
  }
}

function leaseRow(view: LeaseView): object {
  const { lease, holder, status, ttl, since, remaining, grants, wants, labels, parent, children, recalled, covers, maxLife } = view
  return {
    ...{ lease, holder, status, ttl, since, parent, recalled },
    remaining: Math.round(remaining),
    resources: grants.slice(0, MAX_NAMES).map(({ resource }) => resource),
    more: Math.max(0, grants.length - MAX_NAMES),
    wants: wants.slice(0, MAX_NAMES).map(({ resource }) => resource),
    labels,
    children: children.length,
    ...(covers === true && { covers }),
    ...(maxLife !== undefined && { maxLife }),
    ...purposeOf(view),
  }
}

function labelOf(text: string): readonly [key: string, value?: string] {
  const equals = text.indexOf('=')
  return equals < 0 ? [text] : [text.slice(0, equals), text.slice(equals + 1)]
}
