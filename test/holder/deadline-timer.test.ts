import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { DeadlineTimer } from '../../src/holder/deadline-timer.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

test('a timer fires at the earliest time it was set for, reports that time, and must then be set anew', async () => {
  const clock = new ManualClock()
  const began = clock.now()
  const rang: number[] = []
  const alarm = new DeadlineTimer(clock, at => rang.push(at - began, clock.now() - began))
  alarm.set(began + 50)
  alarm.set(began + 30)
  alarm.set(began + 40)
  expect(clock.waiting).toBe(1)
  await clock.advance(100)
  expect(rang).toEqual([30, 30])
  alarm.set(began + 200)
  await clock.advance(100)
  expect(rang).toEqual([30, 30, 200, 200])
})

test('a resting timer does not fire; without rearmable timers it is cancelled and reports that it is idle', async () => {
  const clock = new ManualClock()
  let rings = 0
  let idle = 0
  const alarm = new DeadlineTimer(
    clock,
    () => rings++,
    () => idle++,
  )
  alarm.set(clock.now() + 10)
  alarm.rest()
  expect([clock.waiting, idle]).toEqual([0, 1])
  alarm.set(clock.now() + 20)
  await clock.advance(20)
  expect([rings, idle]).toEqual([1, 1])
})

test('a resting timer stays set without keeping its process alive, and fires when it is needed again', () => {
  const clock = fileURLToPath(new URL('../../dist/clock.js', import.meta.url))
  const alarm = fileURLToPath(new URL('../../dist/holder/deadline-timer.js', import.meta.url))
  const program = (rest: string) => `
    const { systemClock } = await import(${JSON.stringify(clock)})
    const { DeadlineTimer } = await import(${JSON.stringify(alarm)})
    let timers = 0
    const counting = Object.create(systemClock, { standing: { value: (ms, then) => (timers++, systemClock.standing(ms, then)) } })
    const alarm = new DeadlineTimer(counting, () => console.log('rang'))
    const now = systemClock.now()
    for (let i = 0; i < 5; i++) { alarm.set(now + 1_500 + i); alarm.rest() }
    ${rest}
    process.on('exit', () => console.log(timers, 'timer', Math.round(systemClock.now() - now) < 1_400 ? 'at once' : 'later'))`
  const run = (rest: string) => spawnSync(process.execPath, ['--input-type=module', '-e', program(rest)], { encoding: 'utf8' }).stdout
  expect(run('')).toBe('1 timer at once\n')
  expect(run('alarm.set(now + 1_501)')).toBe('rang\n1 timer later\n')
})
