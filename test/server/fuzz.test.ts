/** Random input over a socket gets a coded answer or ends the connection. It never has another effect. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, expect, test } from 'vitest'
import { turn } from '../../src/clock.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { GuardedLessor } from '../../src/server/guarded-lessor.ts'
import { DEFAULT_LIMITS } from '../../src/server/limits.ts'
import { RespListener } from '../../src/server/resp/resp-listener.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { ReplyParser } from '../../src/wire/resp/reply-parser.ts'
import { CORPUS, Dice, mutated, pieces, SEED } from '../support/resp-mutation.ts'
import { command, place, Raw } from '../support/resp-place.ts'
import { runs } from '../support/runs.ts'

const ROUNDS = runs(300)

const pristine = JSON.stringify(Object.getOwnPropertyNames(Object.prototype).sort())

describe(`with seed ${SEED}`, () => {
  test(`${ROUNDS * 200} mutated inputs to a server get well-formed answers, leave nothing behind, and do not disturb other clients`, async () => {
    const dice = new Dice(SEED)
    const clock = new ManualClock({ seed: SEED })
    const rejected: unknown[] = []
    const onRejection = (error: unknown) => rejected.push(error)
    process.on('unhandledRejection', onRejection)
    const lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), {
      clock,
      events: 1_000,
      snapshotRecords: 1_000_000,
    })
    const guarded = await GuardedLessor.open({ lessor, clock })
    const limits = { ...DEFAULT_LIMITS, command: 1 << 16 }
    const stop = new AbortController()
    const log = { debug() {}, info() {}, warn() {}, error() {} }
    const listener = new RespListener({ guarded, clock, limits, log, figures: () => ({}), closing: stop.signal, connections: () => 1 })
    const open = () => {
      const answers = new ReplyParser()
      let count = 0
      let over = false
      const session = listener.open('fuzz', end => ({
        write: bytes => answers.feed(bytes, () => count++),
        backlog: 0,
        pause() {},
        resume() {},
        end: () => {
          over = true
          end.closed()
        },
        destroy: () => {
          over = true
          end.closed()
        },
      }))
      return { session, over: () => over, answers: () => count }
    }
    let answers = 0
    for (let round = 0; round < ROUNDS; round++) {
      const connections = Array.from({ length: 100 }, open)
      for (let i = 0; i < 200; i++) {
        const { session, over } = connections[i % connections.length]!
        for (const chunk of pieces(dice, mutated(dice, CORPUS))) if (!over()) session.data(chunk)
      }
      await turn()
      if (round % 20 === 0) {
        await clock.advance(100)
        // An input may have created a key by chance. Then everything is refused, and the run finds nothing more.
        for (const { id } of (await lessor.read({ kind: 'keys' })).value) await propose(lessor, { kind: 'unkey', id })
      }
      for (const { session, over } of connections) if (!over()) session.closed()
      answers += connections.reduce((sum, { answers: count }) => sum + count(), 0)
    }
    await clock.settle()
    expect(answers).toBeGreaterThan(ROUNDS * 66)
    expect(listener.sessions.size).toBe(0)
    expect(guarded.watches).toBe(0)
    expect(guarded.waiting).toBe(0)
    const { session, answers: last } = open()
    session.data(command('PING'))
    await turn()
    expect(last()).toBe(1)
    session.closed()
    await guarded[Symbol.asyncDispose]()
    await lessor[Symbol.asyncDispose]()
    await turn()
    process.off('unhandledRejection', onRejection)
    expect(rejected).toEqual([])
    expect(JSON.stringify(Object.getOwnPropertyNames(Object.prototype).sort())).toBe(pristine)
  })

  test('pipelines that are cut anywhere do not disturb other clients, over real sockets', async () => {
    const dice = new Dice(SEED)
    await using here = await place()
    using witness = new Raw(here.port)
    for (let i = 0; i < runs(400); i++) {
      const socket = connect({ port: here.port, host: '127.0.0.1' })
      socket.on('error', () => {})
      await once(socket, 'connect')
      const bytes = Buffer.concat(Array.from({ length: 5 }, () => mutated(dice, CORPUS)))
      socket.write(bytes.subarray(0, dice.below(bytes.length + 1)))
      dice.of([() => socket.end(), () => socket.resetAndDestroy(), () => socket.destroy()])()
      for (const { id } of (await here.lessor.read({ kind: 'keys' })).value) await propose(here.lessor, { kind: 'unkey', id })
      if (i % 20 === 0) expect(await witness.ask('PING')).toBe('PONG')
    }
    await expect.poll(() => here.server.connections).toBe(1)
    expect(here.server.guarded.watches).toBe(0)
  })
})
