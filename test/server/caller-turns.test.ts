import { describe, expect, test } from 'vitest'
import { CallerTurns, partyOf } from '../../src/server/caller-turns.ts'

/** A clock that moves only when a request is handled, and whose next turn of the event loop begins when a test says so. */
class LoopClock {
  ms = 0
  #soon: (() => void)[] = []

  now(): number {
    return this.ms
  }

  soon(then: () => void): void {
    this.#soon.push(then)
  }

  /** One turn of the event loop. Returns whether there was anything to do. */
  turn(): boolean {
    const due = this.#soon
    this.#soon = []
    for (const then of due) then()
    return due.length > 0
  }
}

class Rig {
  readonly clock = new LoopClock()
  readonly turns = new CallerTurns(this.clock as never)
  readonly handled: string[] = []
  /** The longest time that one turn of the event loop took. */
  longest = 0

  /** A connection with `requests` requests that take `ms` each, such as a RESP session. */
  connection(party: number, name: string, requests: number, ms = 1, urgent = false): void {
    let left = requests
    const run = () => {
      while (left > 0) {
        if (!this.turns.mayHandle(party)) return this.turns.wait(party, run, urgent)
        left--
        this.clock.ms += ms
        this.handled.push(name)
      }
    }
    run()
  }

  /** Runs until nothing is left to do. */
  finish(): void {
    for (let began = this.clock.ms; this.clock.turn(); began = this.clock.ms) this.longest = Math.max(this.longest, this.clock.ms - began)
  }
}

test('while there is time, requests are handled at once and in their order', () => {
  const { turns, handled, clock } = new Rig()
  expect(turns.mayHandle(1)).toBe(true)
  expect(turns.mayHandle(2)).toBe(true)
  expect(turns.turn(1)).toBeUndefined()
  expect(turns.stats.waited).toBe(0)
  expect(handled).toEqual([])
  expect(clock.turn()).toBe(true)
  expect(clock.turn()).toBe(false) // an idle server does nothing
})

describe('beside a flood', () => {
  test('a request of another key is handled within one slice, however many connections the flood has', () => {
    const rig = new Rig()
    for (let i = 0; i < 500; i++) rig.connection(1, 'flood', 1_000, 0.0625)
    expect(rig.handled.length).toBe(80) // one slice
    rig.connection(2, 'neighbour', 1)
    expect(rig.handled.filter(name => name === 'neighbour')).toEqual([]) // this turn's slice is used up
    rig.clock.turn()
    expect(rig.handled.indexOf('neighbour')).toBe(81)
  })

  test('the keys are served in turn, and no turn of the event loop is longer than a slice and one request', () => {
    const rig = new Rig()
    for (let key = 1; key <= 4; key++) for (let i = 0; i < 10; i++) rig.connection(key, `key ${key}`, 100, 0.25)
    rig.finish()
    expect(rig.longest).toBeLessThanOrEqual(5.25)
    const half = rig.handled.slice(0, rig.handled.length / 2)
    for (let key = 1; key <= 4; key++) {
      const count = half.filter(name => name === `key ${key}`).length
      expect(count).toBeGreaterThan(half.length / 4 - 20)
      expect(count).toBeLessThan(half.length / 4 + 20)
    }
  })

  test('within a key, a renewal is handled before the requests of other connections', () => {
    const rig = new Rig()
    for (let i = 0; i < 100; i++) rig.connection(1, 'flood', 100)
    rig.connection(1, 'renewal', 1, 1, true)
    rig.clock.turn()
    expect(rig.handled.slice(5).indexOf('renewal')).toBe(0)
  })

  test('an HTTP request waits for its turn, and ends the slice that it begins in', async () => {
    const rig = new Rig()
    rig.connection(1, 'flood', 100)
    const first = rig.turns.turn(2)!
    const second = rig.turns.turn(3)!
    const order: string[] = []
    void first.then(() => order.push('first'))
    void second.then(() => order.push('second'))
    rig.clock.turn()
    await new Promise<void>(resolve => setImmediate(resolve))
    expect(order).toEqual(['first'])
    rig.clock.turn()
    await new Promise<void>(resolve => setImmediate(resolve))
    expect(order).toEqual(['first', 'second'])
  })
})

test('who shares a turn: connections of one key, or of one address; on this machine each connection has its own', () => {
  const anonymous = { key: 0, name: 'anonymous' }
  expect(partyOf({ key: 7, name: 'ci' }, '10.0.0.1')).toBe(7)
  expect(partyOf(anonymous, '10.0.0.1')).toBe('10.0.0.1')
  for (const local of [undefined, '127.0.0.1', '::1', '::ffff:127.0.0.1']) expect(partyOf(anonymous, local)).toBe(anonymous)
  const operator = { key: 0, name: 'operator', operator: true } as const
  expect(partyOf(operator, '10.0.0.1')).toBe(operator)
})
