/** Timers fire late on a busy machine. A signal that fires from one must still fire before the ttl is over. */
import { expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** A busy machine: every timer fires almost as late as the clock allows. */
class LateClock extends ManualClock {
  readonly lateness = 50

  override after(ms: number, then: () => void): () => void {
    return super.after(ms + this.lateness - 1, then)
  }
}

for (const ttl of [500, 900, 1_500, 5_000, 30_000])
  test(`a signal fires before a ttl of ${ttl} ms is over, even if timers are late`, async () => {
    const clock = new LateClock()
    const { leases, lessor } = silentLessor({ clock })
    const sent = clock.now()
    const lease = await leases.acquire('k', { ttl, renew: 'never' })
    lessor.stopAnswering()
    let fired = 0
    lease.signal.addEventListener('abort', () => (fired = clock.now()))
    for (let ms = 0; ms < ttl + 100; ms++) await clock.advance(1)
    expect(fired).toBeGreaterThan(0)
    expect(fired - sent).toBeLessThanOrEqual(ttl)
    // And it does not cost half of the term.
    expect(fired - sent).toBeGreaterThan(ttl * 0.85)
    lessor.answer()
  })

test('the system clock states how late its timers may be; the timers of a manual clock are on time', () => {
  expect(systemClock.lateness).toBe(50)
  expect(new ManualClock()).not.toHaveProperty('lateness')
})
