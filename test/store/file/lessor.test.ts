import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { Replica } from '../../../src/replica/replica.ts'
import { FileStore } from '../../../src/store/file/file.ts'
import { type LessorFixture, lessorSuite } from '../../../src/testing/lessor-suite.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { Calls, TimelessStore } from '../../support/manual-time-store.ts'

const EVENTS = 500
/** How far the clock moves before everything that follows from it has happened: about as fine as a replica counts. */
const STEP = 20

async function fixture({ owned }: { readonly owned: boolean }): Promise<LessorFixture> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-lessor-'))
  const clock = new ManualClock()
  const calls = new Calls()
  const store = () => new TimelessStore(new FileStore({ path: join(folder, 'log.db'), ...(owned && { own: { name: 'test' } }) }), calls)
  return {
    lessor: () => Replica.open(store(), { clock, owned, events: EVENTS, snapshotRecords: 30 }),
    advance: async ms => {
      for (let left = ms; left > 0; left -= STEP) {
        await clock.advance(Math.min(STEP, left))
        await calls.settled(clock)
      }
    },
    alone: owned,
    keeps: EVENTS,
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  }
}

describe('replicas on one file', () => {
  for (const { name, run } of lessorSuite(() => fixture({ owned: false }))) test(name, run)
})

describe('the owner of a file', () => {
  for (const { name, run } of lessorSuite(() => fixture({ owned: true }))) test(name, run)
})
