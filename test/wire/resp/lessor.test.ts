import { describe, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { type Server, serve } from '../../../src/server/serve.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { type LessorFixture, lessorSuite } from '../../../src/testing/lessor-suite.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { RemoteLessor } from '../../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../../src/wire/resp/dial.ts'

const EVENTS = 500
const STEP = 20
const OPERATOR = 'secret-of-the-operator'

/** Two servers on one log, each with its own replica. Clients connect to either over sockets. */
async function fixture(): Promise<LessorFixture> {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const servers: { readonly server: Server; readonly lessor: Replica }[] = []
  const open = async () => {
    const lessor = await Replica.open(new MemoryStore({ log, clock }), { clock, events: EVENTS, snapshotRecords: 30 })
    servers.push({ lessor, server: await serve({ lessor, listen: '127.0.0.1:0', operator: OPERATOR, clock }) })
  }
  const close = async () => {
    for (const { server, lessor } of servers.splice(0)) {
      await server.close()
      await lessor[Symbol.asyncDispose]()
    }
  }
  await open()
  await open()
  let next = 0
  return {
    lessor: () =>
      RemoteLessor.open({
        ...serverAddressOf(`leasehold://${servers[next++ % servers.length]!.server.addresses[0]}`),
        key: OPERATOR,
        clock,
      }),
    advance: async ms => {
      for (let left = ms; left > 0; left -= STEP) {
        await clock.advance(Math.min(STEP, left))
        // Let messages cross the loopback interface, and promises settle.
        for (let i = 0; i < 8; i++) await turn()
      }
      await clock.settle()
    },
    keeps: EVENTS,
    restart: async () => {
      await close()
      await open()
      await open()
    },
    [Symbol.asyncDispose]: close,
  }
}

describe('a server over RESP', () => {
  for (const { name, run } of lessorSuite(fixture)) test(name, run)
})
