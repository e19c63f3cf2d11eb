/** Judges whether a server is ready: its store answers, and it has applied the log to its end. The same for `/readyz` on the server's port and on the port for probes. */
import type { Clock } from '../clock.ts'
import type { GuardedLessor } from './guarded-lessor.ts'

/** A server whose store does not answer within this time is not ready, in ms. */
const READY_TIMEOUT = 2_000

export type Readiness = { readonly ready: true; readonly revision: number } | { readonly ready: false; readonly reason: string }

export interface ReadinessContext {
  readonly guarded: GuardedLessor
  readonly clock: Clock
  readonly closing: AbortSignal
}

export async function readiness({ guarded, clock, closing }: ReadinessContext): Promise<Readiness> {
  if (closing.aborted) return { ready: false, reason: 'this server is stopping' }
  const late = new AbortController()
  const cancel = clock.after(READY_TIMEOUT, () => late.abort())
  try {
    const { revision } = await guarded.lessor.read({ kind: 'summary' }, { consistent: true, signal: late.signal })
    return { ready: true, revision }
  } catch {
    // Every client may ask. The exact error is in the server's log.
    return {
      ready: false,
      reason: late.signal.aborted ? 'this server is catching up: it has not reached the end of the log' : 'the store does not answer',
    }
  } finally {
    cancel()
  }
}
