import { describe, test } from 'vitest'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { type LessorFixture, lessorSuite } from '../../src/testing/lessor-suite.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

const EVENTS = 500

async function fixture({ owned }: { readonly owned: boolean }): Promise<LessorFixture> {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const store = () => new MemoryStore({ log, clock, ...(owned && { own: { name: 'test' } }) })
  return {
    lessor: () => Replica.open(store(), { clock, owned, events: EVENTS }),
    advance: ms => clock.advance(ms),
    alone: owned,
    keeps: EVENTS,
    [Symbol.asyncDispose]: async () => {},
  }
}

describe('replicas on one log in memory', () => {
  for (const { name, run } of lessorSuite(() => fixture({ owned: false }))) test(name, run)
})

describe('the owner of a log in memory', () => {
  for (const { name, run } of lessorSuite(() => fixture({ owned: true }))) test(name, run)
})
