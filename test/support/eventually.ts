/** Waits for a real event. `expect.poll` does the same within a test; this works in hooks as well, and repeats several expectations at once. */
import { vi } from 'vitest'
import { EVENT_TIMEOUT } from './bounds.ts'

/** Repeats `check` until it throws no more, and returns its result. */
export function eventually<T>(check: () => T | Promise<T>): Promise<T> {
  // Without a bound, vitest waits for one second.
  return vi.waitFor(check, { timeout: EVENT_TIMEOUT, interval: 20 })
}
