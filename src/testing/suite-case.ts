/** One case of a published suite, the time that it has, and the check of a failure. */
import assert from 'node:assert/strict'
import { inspect } from 'node:util'
import { pause, systemClock } from '../clock.ts'
import { type ErrorCode, LeaseError } from '../errors.ts'

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

/** Checks that the call rejects with this code, and returns its error. */
export async function rejectsWith(code: ErrorCode, call: Promise<unknown>): Promise<LeaseError> {
  let found: unknown
  try {
    found = await call
  } catch (error) {
    assert.ok(error instanceof LeaseError, String(error))
    assert.equal(error.code, code, error.message)
    return error
  }
  assert.fail(`expected ${code}, got ${inspect(found)}`)
}
