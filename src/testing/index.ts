/** The published test kit: a manual clock and in-memory leases for tests of code that holds leases, and the suites of stores and lessors. */
export { propose } from '../lessor/propose.ts'
export { MemoryLog } from '../store/memory.ts'
export { SilentLessor, type SilentLessorOptions, silentLessor } from './in-memory.ts'
export { type LessorFixture, lessorSuite } from './lessor-suite.ts'
export { ManualClock, type ManualClockOptions } from './manual-clock.ts'
export { type ReplicasOptions, replicasOn } from './manual-time-store.ts'
export { type Accident, type OwnedFixture, ownedSuite } from './owned-suite.ts'
export { type LinkedStore, type LinkFailure, type StoreFixture, type SuiteCase, storeSuite } from './store-suite.ts'
