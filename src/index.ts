/** `import { … } from 'leasehold'` offers these names. Stores, recipes and test tools have entry points of their own. */
export type { Clock, RearmableTimer } from './clock.ts'
export { connect, type OpenOptions } from './connect/connect.ts'
export type { ConnectEvent, ConnectLogger, ConnectRetryOptions } from './connect/retry.ts'
export { type Duration, parseDuration } from './duration.ts'
export {
  type AnyLeaseError,
  type ErrorCode,
  type ErrorReason,
  type Fact,
  type Facts,
  type FactsByCode,
  type FactsByFailure,
  type FailureReason,
  type FileFacts,
  LeaseError,
  type LeaseErrorOptions,
  type PlaceFacts,
  type Reason,
} from './errors.ts'
export type {
  AcquireOptions,
  AdoptOptions,
  AdvancedAcquireOptions,
  GrantOptions,
  Mode,
  Parent,
  PreferredTtl,
  QueuePlace,
  TryAcquireOptions,
} from './holder/acquire-options.ts'
export type { BreakOptions, GoverningClient, RecallOptions, RevokeOptions, RevokeTarget } from './holder/governing-client.ts'
export type { LearnedTerm, LearnOptions } from './holder/learned-terms.ts'
export type { LeaseClient, LeasesOptions, LeasesSnapshot, Names } from './holder/lease-client.ts'
export type { Loss, PastLease } from './holder/loss-log.ts'
export type { Command, Operation, PolicyRules, PoolCondition, PoolRequest, PoolTest, Scope, Want } from './kernel/command.ts'
export type { Event, EventType } from './kernel/event.ts'
export type { Outcome } from './kernel/outcome.ts'
export type { TermPlan } from './learn/term.ts'
export { type Jeopardy, type JeopardyCallback, Lease, type RenewalStrategy, type Requirement, type TransferOptions } from './lease.ts'
export type * from './leases.ts'
export { Leases } from './leases.ts'
export type { ListColumn, ListPart, ListState } from './lessor/list-part.ts'
export type {
  BackupOptions,
  EntryView,
  GrantView,
  LeaseStatus,
  LeaseView,
  Lessor,
  Listing,
  OwnLeases,
  PageView,
  PastGrant,
  PoolAccountView,
  PoolGrantView,
  PoolMemberView,
  PoolPage,
  PoolRules,
  PoolSummary,
  PoolView,
  PoolWaiterView,
  ProposeOptions,
  Query,
  ReadOptions,
  ResourceView,
  ServiceView,
  Summary,
  View,
  WaiterView,
  WatchOptions,
} from './lessor.ts'
export type { DurationModel } from './pool/duration-model.ts'
export type { ExplainPoolOptions } from './pool/explain.ts'
export type { StartForecast } from './pool/forecast.ts'
export type { PoolUse } from './pool/learned-durations.ts'
export type { Match } from './pool/match.ts'
export type { Alternative, Blocker, WaitCause, WaitExplanation, WaitReason } from './pool/wait-explanation.ts'
export type { Profile } from './store.ts'
