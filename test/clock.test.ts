import { getEventListeners } from 'node:events'
import { expect, test, vi } from 'vitest'
import { chainAbort, keepAlive, pause, unlessAborted, untilNext, uptimeReader, whenAborted } from '../src/clock.ts'
import { ManualClock } from '../src/testing/manual-clock.ts'

test('a pause with an aborted signal rejects at once, and leaves no timer', async () => {
  const clock = new ManualClock()
  await expect(pause(clock, 10_000, AbortSignal.abort(new Error('enough')))).rejects.toThrow('enough')
  expect(clock.waiting).toBe(0)
})

test('aligned timers of as many ms fire together, whenever each was set', () => {
  for (const now of [1_000, 1_000.4, 1_017, 1_180.25, 1_244]) expect(now + untilNext(250, now)).toBe(1_250)
  expect(1_249.6 + untilNext(250, 1_249.6)).toBe(1_500)
})

test('whenAborted calls at once when the signal has fired, once when it fires, and not after it was removed', () => {
  const called = vi.fn()
  whenAborted(AbortSignal.abort(), called)
  expect(called).toHaveBeenCalledOnce()
  const one = new AbortController()
  whenAborted(one.signal, called)
  one.abort()
  expect(called).toHaveBeenCalledTimes(2)
  const other = new AbortController()
  whenAborted(other.signal, called)()
  other.abort()
  expect(called).toHaveBeenCalledTimes(2)
})

test('chainAbort passes the reason on, at once if the signal has fired, and not after it was unchained', () => {
  const reason = new Error('enough')
  const late = new AbortController()
  chainAbort(AbortSignal.abort(reason), late)
  expect(late.signal.reason).toBe(reason)
  const source = new AbortController()
  const [chained, unchained] = [new AbortController(), new AbortController()]
  chainAbort(source.signal, chained)
  chainAbort(source.signal, unchained)()
  source.abort(reason)
  expect(chained.signal.reason).toBe(reason)
  expect(unchained.signal.aborted).toBe(false)
  chainAbort(undefined, unchained)()
})

test('unlessAborted rejects with the reason of the signal, or settles with the answer', async () => {
  const stop = new AbortController()
  const never = unlessAborted(new Promise(() => {}), stop.signal)
  stop.abort(new Error('enough'))
  await expect(never).rejects.toThrow('enough')
  expect(await unlessAborted(Promise.resolve(7), new AbortController().signal)).toBe(7)
  expect(await unlessAborted(Promise.resolve(7), undefined)).toBe(7)
  // Without an answer the listener is removed too: the signal may live as long as the process.
  expect(getEventListeners(stop.signal, 'abort')).toEqual([])
})

test('keepAlive keeps a timer set until it is released', async () => {
  const clock = new ManualClock()
  const release = keepAlive(clock)
  await clock.advance(10 * 3_600_000)
  expect(clock.waiting).toBe(1)
  release()
  expect(clock.waiting).toBe(0)
})

test('an uptime in whole seconds is read in hundredths where the system has them', () => {
  expect(uptimeReader({ coarse: true, seconds: () => 7, read: () => '7.26 11.02\n' })()).toBe(7_260)
  expect(uptimeReader({ coarse: false, seconds: () => 7.26 })()).toBe(7_260)
})

test('an uptime in whole seconds follows the monotonic clock elsewhere, and shows a sleep of two seconds', () => {
  let [now, slept] = [0, 0]
  const read = () => {
    throw new Error('not Linux')
  }
  const uptime = uptimeReader({ coarse: true, seconds: () => Math.floor((5_900 + now + slept) / 1_000), read, now: () => now })
  const first = uptime()
  for (; now < 10_000; now += 37) expect(uptime() - first).toBeCloseTo(now, 6)
  slept = 2_100
  expect(Math.abs(uptime() - first - now - slept)).toBeLessThanOrEqual(1_000)
})
