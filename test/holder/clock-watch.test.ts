import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { ClockWatch } from '../../src/holder/clock-watch.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

function watched(longest: number) {
  const clock = new ManualClock()
  const began = clock.now()
  const pulses: number[] = []
  const terms = { longest }
  const observer = {
    pulse: () => {
      pulses.push(clock.now() - began)
      return terms.longest
    },
    jumped() {},
    slept() {},
  }
  return { clock, watch: new ClockWatch(clock, observer), pulses, terms }
}

test('the clocks are read less often while nothing is sent, and as often as before from the next request on', async () => {
  const { clock, watch, pulses } = watched(2_000)
  watch.begin()
  await clock.advance(4_750)
  expect(pulses).toEqual([250, 750, 1_750, 2_750, 3_750, 4_750])
  watch.begin()
  await clock.advance(750)
  expect(pulses.slice(6)).toEqual([5_000, 5_500])
  await clock.advance(3_000)
  const before = clock.now()
  clock.block(20_000)
  watch.begin() // before the overdue pulse
  expect(watch.longestStall(before)).toBeGreaterThan(18_000)
  watch.stop()
})

test('with a short term the clocks are read as often as it needs', async () => {
  const { clock, watch, pulses, terms } = watched(600)
  watch.begin()
  await clock.advance(1_750)
  expect(pulses).toEqual([250, 750, 1_250, 1_750])
  terms.longest = 50
  await clock.advance(1_000)
  expect(pulses.slice(4)).toEqual([2_250, 2_500, 2_750])
  terms.longest = 0
  await clock.advance(1_000)
  expect(pulses.slice(7)).toEqual([3_000])
})

class CountingClock extends ManualClock {
  fired = 0

  override after(ms: number, then: () => void): () => void {
    return super.after(ms, () => {
      this.fired++
      then()
    })
  }
}

test('in a process that only holds a lease of 30 s, about two timers fire in a second: one of the holder and one of the replica', async () => {
  const clock = new CountingClock()
  const store = new MemoryStore({ log: new MemoryLog({ clock }), clock })
  const leases = await connect(store, { clock })
  await leases.acquire('job', { ttl: 30_000 })
  await clock.advance(60_000)
  clock.fired = 0
  await clock.advance(60_000)
  expect(clock.fired).toBeLessThan(150) // before: 490
  await leases.close()
})
