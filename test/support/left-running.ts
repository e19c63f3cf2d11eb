/**
 * A setup file: a test file fails if it leaves a loop running that asks for turn after turn of the event loop. Files share a process, and such a loop takes a whole
 * core from all that follow. One did so for a third of `npm test`: the losers of a `Promise.race` polled for an answer that no longer could come.
 */
import { afterAll } from 'vitest'

/** So many looks, one after each turn of timers. Work that ends by itself is over long before. */
const LOOKS = 200
const { setTimeout } = globalThis // a test may replace it

/** Resolves to whether an immediate was pending at every look. */
export async function staysBusy(): Promise<boolean> {
  for (let look = 0; look < LOOKS; look++) {
    if (!process.getActiveResourcesInfo().includes('Immediate')) return false
    await new Promise(resolve => setTimeout(resolve, 1))
  }
  return true
}

afterAll(async () => {
  if (await staysBusy()) throw new Error('this file left a loop running: find the promise that polls with `turn()` and is never settled')
})
