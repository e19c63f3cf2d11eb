/** Time on the dashboard: the server's wall clock, and one timer that moves every visible countdown and age. */
import { signal } from '@preact/signals'

/** Countdowns move this often, in ms. They show tenths of a second: with this step they are never more than 75 ms off. */
const STEP = 50

/** The server's wall time minus the browser's, in ms. */
let offset = 0

/** Notes the server's wall time as it was when an answer was received. */
export function noteServerTime(now: number): void {
  offset = now - Date.now()
}

/** The server's wall time, for ages of what the server has dated. */
export function serverNow(): number {
  return Date.now() + offset
}

/** Counts seconds. A component that reads it is drawn again every second. */
export const second = signal(0)

const moving = new Set<(now: number) => void>()

/**
 * Calls `move` at once, and then several times a second while the dashboard is visible, with `performance.now()` as it will be in the middle of the step. Returns a
 * function that ends this.
 */
export function everyStep(move: (now: number) => void): () => void {
  move(performance.now() + STEP / 2)
  moving.add(move)
  return () => moving.delete(move)
}

let steps = 0
setInterval(() => {
  if (document.hidden) return
  const now = performance.now() + STEP / 2
  for (const move of moving) move(now)
  if (++steps % (1_000 / STEP) === 0) second.value++
}, STEP)
