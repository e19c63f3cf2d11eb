/** What tests of code that holds leases need: no sleeping, no server. */
export { MemoryLog } from '../store/memory.ts'
export { SilentLessor, type SilentLessorOptions, silentLessor } from './in-memory.ts'
export { ManualClock, type ManualClockOptions } from './manual-clock.ts'
