/**
 * A clock that needs only web standards, for code that runs in a browser, where clock.ts cannot be loaded. It paces attempts to reach a server and
 * decides nothing about leases: a browser has no uptime, and its monotonic clock is common to one page only.
 */
import type { Clock } from './clock.ts'

const LONGEST_TIMEOUT = 2_147_483_647

/** Captured when this module is loaded, because test runners replace them (clock.ts). */
const { setTimeout, clearTimeout } = globalThis
const monotonic = performance.now.bind(performance)
const wall = Date.now

export const webClock: Clock = {
  now: monotonic,
  uptime: monotonic,
  wall,
  boot: () => '',
  random: () => Math.random(),
  bits: () => crypto.getRandomValues(new BigUint64Array(1))[0]!,
  after(ms, then) {
    const timer = setTimeout(then, Math.min(Math.max(0, ms), LONGEST_TIMEOUT))
    return () => clearTimeout(timer)
  },
  soon(then) {
    setTimeout(then, 0)
  },
}
