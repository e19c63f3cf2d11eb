/** What `import { … } from 'leasehold'` offers. Stores, recipes and what tests need have doors of their own. */
export type { Clock } from './clock.ts'
export { connect } from './connect/connect.ts'
export type { Duration } from './duration.ts'
export { type ErrorCode, LeaseError } from './errors.ts'
export type { Event } from './kernel/event.ts'
export { Lease, type RenewalStrategy } from './lease.ts'
export { type AcquireOptions, Leases, type LeasesOptions, type PastLease } from './leases.ts'
export type { Lessor } from './lessor.ts'
