/** What tests of code that holds leases need, without sleeping and without a server; and what every store and every lessor must do. */
export { MemoryLog } from '../store/memory.ts'
export { SilentLessor, type SilentLessorOptions, silentLessor } from './in-memory.ts'
export { type LessorFixture, lessorSuite } from './lessor-suite.ts'
export { ManualClock, type ManualClockOptions } from './manual-clock.ts'
export { type ReplicasOptions, replicasOn } from './manual-time-store.ts'
export { type Accident, type OwnedFixture, ownedSuite } from './owned-suite.ts'
export { type LinkedStore, type LinkFailure, type StoreFixture, type SuiteCase, storeSuite } from './store-suite.ts'
