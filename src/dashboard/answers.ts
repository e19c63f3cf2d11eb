/** The types of the server's answers, from the schemas that the server documents them with. */
import type { LeaseStatus, View } from '../lessor.ts'
import type * as activity from '../wire/http/activity-schema.ts'
import type * as pools from '../wire/http/pool-schema.ts'
import type * as schema from '../wire/http/schema.ts'
import type { Static } from '../wire/http/schema.ts'

export type VerbName = 'acquire' | 'renew' | 'release' | 'read' | 'watch' | 'register' | 'break' | 'revoke' | 'policy' | 'admin'

export interface Account extends Omit<Static<typeof activity.Whoami>, 'allow'> {
  readonly allow: readonly { readonly verb: VerbName; readonly prefix: string }[]
}

export type OverviewAnswer = Static<typeof activity.Overview>
export type StateAnswer = Static<typeof activity.State>
export type ActivityAnswer = Static<typeof activity.Activity>
export type EventsAnswer = Static<typeof activity.Events>
export type EpisodesAnswer = Static<typeof activity.Episodes>
export type StripsAnswer = Static<typeof activity.Strips>
export type TreesAnswer = Static<typeof activity.Trees>
export type PreviewAnswer = Static<typeof activity.Preview>

export interface RowsAnswer<R> extends Omit<Static<typeof activity.Rows>, 'rows'> {
  readonly rows: readonly R[]
}

export interface ShownResource {
  readonly resource: string
  readonly status: 'held' | 'waited' | 'frozen'
  readonly holder?: string
  readonly lease?: number
  readonly token?: number
  readonly since?: number
  readonly remaining?: number
  readonly ttl?: number
  readonly holders: number
  readonly waiters: number
  readonly oldestWait?: number
  readonly purpose?: string
}

export interface ShownLease {
  readonly lease: number
  readonly holder: string
  readonly status: LeaseStatus
  readonly ttl: number
  readonly since: number
  readonly remaining: number
  readonly resources: readonly string[]
  readonly more: number
  readonly wants: readonly string[]
  readonly purpose?: string
  readonly labels: readonly (readonly [string, string])[]
  readonly parent: number
  readonly children: number
  readonly recalled: boolean
  readonly covers?: boolean
  readonly maxLife?: number
}

export type ResourceAnswer = Static<typeof schema.Resource>
export type ResourcesAnswer = Static<typeof schema.Resources>
export type LeaseAnswer = Static<typeof schema.Lease>
export type LeasesAnswer = Static<typeof schema.Leases>
export type HistoryAnswer = Static<typeof schema.History>
export type PastHolder = HistoryAnswer['history'][number]
export type EntriesAnswer = Static<typeof schema.Entries>
export type ServicesAnswer = Static<typeof schema.Services>
export type InstancesAnswer = Static<typeof schema.ServiceView>
export type InstanceAnswer = InstancesAnswer['instances'][number]

export interface PoliciesAnswer {
  readonly policies: View<'policies'>['value']
}

export type PoolsAnswer = Static<typeof pools.Pools>
export type PoolAnswerView = Static<typeof pools.PoolAnswer>
export type ShownMember = PoolAnswerView['members'][number]
export type PoolWaiter = PoolAnswerView['queue'][number]
export type PoolExplanation = Static<typeof pools.PoolExplained>

/** The report of a host about a member of a pool. Any client that may register there can have written it, so every field may be missing. */
export interface MemberReport {
  readonly host?: string
  readonly utilisation?: number
  readonly memoryUsed?: number
  readonly unleased?: number
  readonly processes?: readonly { readonly pid?: number; readonly user?: string; readonly name?: string; readonly lease?: number }[]
  readonly idle?: number
  readonly stage?: string
  readonly problem?: string
}
