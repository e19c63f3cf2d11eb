import { describe, test } from 'vitest'
import { lessorSuite, ManualClock, MemoryLog, SilentLessor } from '../../src/testing/index.ts'

/** The lessor that users test with must behave like a real one. */
describe('the lessor for tests', () => {
  const open = async () => {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    return {
      lessor: async () => new SilentLessor(clock, log),
      advance: (ms: number) => clock.advance(ms),
      [Symbol.asyncDispose]: async () => {},
    }
  }
  for (const { name, run } of lessorSuite(open)) test(name, run)
})
