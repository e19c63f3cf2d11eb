import { describe, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { serve } from '../../../src/server/serve.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { type LessorFixture, lessorSuite } from '../../../src/testing/lessor-suite.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { HttpLessor } from '../../../src/wire/http/client.ts'

const EVENTS = 500
const OPERATOR = 'the-operators-own-secret'

/** Clients of one real server over real sockets. Only the server's clock is manual. */
async function fixture(): Promise<LessorFixture> {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const start = async () => {
    const replica = await Replica.open(new MemoryStore({ log, clock }), { clock, events: EVENTS })
    const server = await serve({ lessor: replica, clock, listen: '127.0.0.1:0', http: httpListener(), operator: OPERATOR })
    return {
      server,
      async close() {
        await server.close()
        await replica[Symbol.asyncDispose]()
      },
    }
  }
  let running = await start()
  return {
    lessor: () => HttpLessor.open(`http://${running.server.addresses[0]}`, { key: OPERATOR }),
    advance: async ms => {
      await turn()
      await clock.advance(ms)
    },
    keeps: EVENTS,
    async restart() {
      await running.close()
      running = await start()
    },
    [Symbol.asyncDispose]: () => running.close(),
  }
}

describe('a server over HTTP', () => {
  for (const { name, run } of lessorSuite(fixture)) test(name, run)
})
