import { afterAll, beforeAll, test } from 'vitest'
import { Replica } from '../src/replica/replica.ts'
import { PostgresStore } from '../src/store/postgres.ts'
import { type LessorFixture, lessorSuite } from '../src/testing/lessor-suite.ts'
import { ManualClock } from '../src/testing/manual-clock.ts'
import { describeEngine, type Engine, engine } from './engine.ts'
import { Calls, TimelessStore } from './timeless.ts'

const EVENTS = 500
/** How far the clock moves before everything that follows from it has happened: about as fine as a replica counts. */
const STEP = 20

describeEngine('postgres', 'replicas on one log in Postgres', () => {
  let server: Engine
  let logs = 0
  beforeAll(async () => {
    server = await engine('postgres')
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  const fixture = async (): Promise<LessorFixture> => {
    const name = `log ${++logs}`
    const clock = new ManualClock()
    const calls = new Calls()
    const store = () => new TimelessStore(new PostgresStore({ url: server.url, name }), calls)
    return {
      lessor: () => Replica.open(store(), { clock, events: EVENTS, snapshotEntries: 30 }),
      advance: async ms => {
        for (let left = ms; left > 0; left -= STEP) {
          await clock.advance(Math.min(STEP, left))
          await calls.settled(clock)
        }
      },
      keeps: EVENTS,
      [Symbol.asyncDispose]: async () => {},
    }
  }

  for (const { name, run } of lessorSuite(fixture)) test(name, run)
})
