/** One case of a published suite, and the time that it has. */
import assert from 'node:assert/strict'
import { pause, systemClock } from '../clock.ts'

export interface SuiteCase {
  readonly name: string
  run(): Promise<void>
}

/** Ends a case that hangs; no case waits for it. Real engines can be slow. */
export const TIMEOUT = 60_000

export async function within<T>(promise: PromiseLike<T>): Promise<T> {
  const over = new AbortController()
  const late = pause(systemClock, TIMEOUT, over.signal, { ref: true }).then(() => assert.fail(`nothing happened for ${TIMEOUT} ms`))
  try {
    return await Promise.race([promise, late])
  } finally {
    late.catch(() => {})
    over.abort()
  }
}
