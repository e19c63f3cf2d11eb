import { expect, test } from 'vitest'
import { pause } from '../../src/clock.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

test('timers fire in the order of their due times, each at its due time and not before', async () => {
  const clock = new ManualClock()
  const began = clock.now()
  const fired: [string, number][] = []
  const timer = (name: string, ms: number) => clock.after(ms, () => fired.push([name, clock.now() - began]))
  timer('c', 30)
  timer('a', 10)
  timer('b', 10)
  timer('never', 20)()
  await clock.advance(9)
  expect(fired).toEqual([])
  await clock.advance(100)
  expect(fired).toEqual([
    ['a', 10],
    ['b', 10],
    ['c', 30],
  ])
  expect(clock.now() - began).toBe(109)
  expect(clock.waiting).toBe(0)
})

test('all asynchronous work that a timer starts is done before the next timer fires', async () => {
  const clock = new ManualClock()
  const order: string[] = []
  clock.after(2, () => order.push('second timer'))
  clock.after(1, async () => {
    for (let i = 0; i < 20; i++) await null
    clock.soon(async () => {
      await null
      order.push('soon')
      clock.soon(() => order.push('soon again'))
    })
    order.push('promises')
  })
  await clock.advance(5)
  expect(order).toEqual(['promises', 'soon', 'soon again', 'second timer'])
})

test('a chain of pauses takes the sum of their durations', async () => {
  const clock = new ManualClock()
  const ended: number[] = []
  const chain = async () => {
    for (let i = 0; i < 3; i++) {
      await pause(clock, 10)
      ended.push(clock.now())
    }
  }
  const began = clock.now()
  const chained = chain()
  await clock.advance(100)
  await chained
  expect(ended.map(at => at - began)).toEqual([10, 20, 30])
})

test('suspending the machine advances only uptime and wall clock; a step of the wall clock changes nothing else', async () => {
  const clock = new ManualClock()
  const read = () => [clock.now(), clock.uptime(), clock.wall()]
  const [now, uptime, wall] = read() as [number, number, number]
  await clock.advance(5)
  expect(read()).toEqual([now + 5, uptime + 5, wall + 5])
  clock.sleepMachine(1_000)
  expect(read()).toEqual([now + 5, uptime + 1_005, wall + 1_005])
  clock.stepWall(-300)
  expect(read()).toEqual([now + 5, uptime + 1_005, wall + 705])
})

test('the same seed gives the same random numbers', () => {
  const draw = (seed: number) => {
    const clock = new ManualClock({ seed })
    return [clock.bits(), clock.random(), clock.bits(), clock.random()]
  }
  expect(draw(3)).toEqual(draw(3))
  expect(draw(3)).not.toEqual(draw(4))
  for (const drawn of draw(3)) expect(typeof drawn === 'bigint' || (drawn >= 0 && drawn < 1)).toBe(true)
})
